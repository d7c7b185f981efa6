"""The document of the benchmarks, rfc2544.json.

Rates are the sum of all streams, in packets/s and bits/s. Sizes and bits include the FCS. None: not measured.
"""

from __future__ import annotations

import statistics
from typing import NotRequired, TypedDict

from pktswarm.master.benchmark import load
from pktswarm.master.benchmark.document import Document, TrialFields, trial_fields
from pktswarm.master.benchmark.latency import Latencies
from pktswarm.master.benchmark.options import WARNING
from pktswarm.master.rfc2544 import formulas
from pktswarm.master.rfc2544.options import Options
from pktswarm.master.rfc2544.procedure import Benchmark, LossAt, SizeResult
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

FORMAT_VERSION = 1


class About(load.About):
    """The part that is known before the first trial."""

    hosts_file: str
    medium_l1_bps: float


class OptionFields(TypedDict):
    sizes_bytes: tuple[int, ...]
    tests: tuple[str, ...]
    precision: float
    longest_burst_s: float
    trial_s: float
    trials: int
    latency_s: float
    latency_trials: int
    bursts: int
    settle_s: float
    drain_s: float


class ThroughputFields(TypedDict):
    """The throughput of a frame size, or its bounds where there is none."""

    state: str
    rate_pps: float | None
    of_maximum_percent: float | None
    l2_bps: float | None
    l1_bps: float | None
    lower_pps: float | None
    upper_pps: float | None
    confirmed_s: float | None
    undecided: NotRequired[str]
    """The next higher rate, and why its confirming trials are invalid. Documents of earlier versions lack it."""


class LatencyTrial(TypedDict):
    """The latency of one trial."""

    frames: int
    min_ns: int
    mean_ns: float
    p50_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    variation_ns: int
    jitter_sd_ns: float | None
    bound_ns: int | None
    lost_packets: int | None


class LatencyFields(TypedDict):
    """The latency of a frame size: means over its trials (RFC 2544, 26.2), but the minimum and the maximum of all."""

    rate_pps: float | None
    trials: int
    min_ns: int
    mean_ns: float
    p50_ns: float
    p99_ns: float
    p999_ns: float
    max_ns: int
    jitter_sd_ns: float | None
    bound_ns: int | None
    each: list[LatencyTrial]


class LossFields(TypedDict):
    """The loss at one load."""

    load_percent: int
    load_pps: float
    sent_packets: int
    lost_packets: int
    loss_percent: float | None


class BurstFields(TypedDict):
    """The longest bursts of a frame size."""

    searches: int
    frames_mean: float
    frames_min: int
    frames_max: int
    frames_sd: float | None
    step_frames: int
    at_the_limit: bool
    implied_buffer_s: float
    corrected_buffer_s: float


class SizeFields(TypedDict):
    """The results of one frame size."""

    size_bytes: int
    maximum_pps: float
    problem: str
    left_out: dict[str, str]
    throughput: ThroughputFields | None
    latency: LatencyFields | None
    loss: list[LossFields]
    back_to_back: BurstFields | None


class BenchmarkTrial(TrialFields):
    trial: int
    test: str
    size_bytes: int


class BenchmarkDocument(Document):
    streams: list[str]
    hosts_file: str
    medium_l1_bps: float
    form: str
    conformant: bool
    conformity: str
    deviations: list[str]
    warning: str
    asked: OptionFields
    sizes: list[SizeFields]
    trials: list[BenchmarkTrial]


def document(benchmark: Benchmark, about: About) -> BenchmarkDocument:
    """The state of the benchmarks."""
    options = benchmark.options
    return {
        "format_version": FORMAT_VERSION,
        **about,
        "form": options.form.name,
        "conformant": False,
        "conformity": options.conformity,
        "deviations": options.deviations,
        "warning": WARNING,
        "status": benchmark.status,
        "problem": benchmark.problem,
        "asked": _options(options),
        "sizes": [_size(size) for size in benchmark.sizes],
        "trials": [
            {"trial": number, "test": plan.test, "size_bytes": plan.size_bytes, **trial_fields(trial)}
            for number, (plan, trial) in enumerate(benchmark.trials, 1)
        ],
        "interruptions": [],
    }


def _options(options: Options) -> OptionFields:
    form = options.form
    return {
        "sizes_bytes": options.sizes_bytes,
        "tests": options.tests,
        "precision": options.precision,
        "longest_burst_s": options.longest_burst_s,
        "trial_s": form.trial_s,
        "trials": form.trials,
        "latency_s": form.latency_s,
        "latency_trials": form.latency_trials,
        "bursts": form.bursts,
        "settle_s": form.settle_s,
        "drain_s": form.drain_s,
    }


def _size(size: SizeResult) -> SizeFields:
    return {
        "size_bytes": size.size_bytes,
        "maximum_pps": size.maximum_pps,
        "problem": size.problem,
        "left_out": size.left_out,
        "throughput": _throughput(size),
        "latency": _latency(size),
        "loss": [_loss(loss) for loss in size.loss],
        "back_to_back": _bursts(size),
    }


def _throughput(size: SizeResult) -> ThroughputFields | None:
    if size.throughput is None:
        return None
    rate = size.rate_pps
    return {
        "state": size.throughput.state,
        "rate_pps": rate,
        "of_maximum_percent": None if rate is None else 100 * rate / size.maximum_pps,
        "l2_bps": None if rate is None else 8 * size.size_bytes * rate,
        "l1_bps": None if rate is None else 8 * (size.size_bytes + ETHERNET_OVERHEAD_BYTES) * rate,
        "lower_pps": size.throughput.lower_pps,
        "upper_pps": size.throughput.upper_pps,
        "confirmed_s": size.throughput.confirmed_s,
        "undecided": size.throughput.undecided,
    }


def _latency(size: SizeResult) -> LatencyFields | None:
    trials = size.latency
    if not trials:
        return None
    bounds = [trial.bound_ns for trial in trials if trial.bound_ns is not None]
    jitters = [trial.jitter_sd_ns for trial in trials if trial.jitter_sd_ns is not None]
    return {
        "rate_pps": size.rate_pps,
        "trials": len(trials),
        "min_ns": min(trial.min_ns for trial in trials),
        "mean_ns": statistics.fmean(trial.mean_ns for trial in trials),
        "p50_ns": statistics.fmean(trial.p50_ns for trial in trials),
        "p99_ns": statistics.fmean(trial.p99_ns for trial in trials),
        "p999_ns": statistics.fmean(trial.p999_ns for trial in trials),
        "max_ns": max(trial.max_ns for trial in trials),
        "jitter_sd_ns": statistics.fmean(jitters) if len(jitters) == len(trials) else None,
        "bound_ns": max(bounds) if len(bounds) == len(trials) else None,
        "each": [_latency_trial(trial) for trial in trials],
    }


def _latency_trial(trial: Latencies) -> LatencyTrial:
    return {
        "frames": trial.frames,
        "min_ns": trial.min_ns,
        "mean_ns": trial.mean_ns,
        "p50_ns": trial.p50_ns,
        "p99_ns": trial.p99_ns,
        "p999_ns": trial.p999_ns,
        "max_ns": trial.max_ns,
        "variation_ns": trial.variation_ns,
        "jitter_sd_ns": trial.jitter_sd_ns,
        "bound_ns": trial.bound_ns,
        "lost_packets": trial.lost_packets,
    }


def _loss(loss: LossAt) -> LossFields:
    return {
        "load_percent": loss.load_percent,
        "load_pps": loss.load_pps,
        "sent_packets": loss.sent_packets,
        "lost_packets": loss.lost_packets,
        "loss_percent": loss.loss_percent,
    }


def _bursts(size: SizeResult) -> BurstFields | None:
    if size.burst_frames is None or size.rate_pps is None:
        return None
    lengths = [burst.frames for burst in size.bursts]
    return {
        "searches": len(lengths),
        "frames_mean": size.burst_frames,
        "frames_min": min(lengths),
        "frames_max": max(lengths),
        "frames_sd": statistics.stdev(lengths) if len(lengths) > 1 else None,
        "step_frames": max(burst.step_frames for burst in size.bursts),
        "at_the_limit": any(burst.limited for burst in size.bursts),
        "implied_buffer_s": formulas.implied_buffer_s(size.burst_frames, size.maximum_pps),
        "corrected_buffer_s": formulas.corrected_buffer_s(size.burst_frames, size.rate_pps, size.maximum_pps),
    }
