"""What was found, as rfc2544.json has it; the tables, the page and the terminal show the same figures."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from pktswarm.master.rfc2544 import formulas
from pktswarm.master.rfc2544.options import WARNING, Asked
from pktswarm.master.rfc2544.procedure import Benchmark, OfSize
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

FORMAT_VERSION = 1
POINTS = ("min", "mean", "p50", "p99", "p999", "max")


def document(benchmark: Benchmark, about: dict[str, Any]) -> dict[str, Any]:
    """Rates in packets/s and bits/s of all streams together, sizes and bits with FCS, times as their names say; None:
    not measured. `about`: the scenario."""
    return {
        "format_version": FORMAT_VERSION,
        **about,
        "form": benchmark.asked.form.name,
        "conformant": False,
        "conformity": benchmark.asked.conformity,
        "deviations": benchmark.asked.deviations,
        "warning": WARNING,
        "status": benchmark.status,
        "problem": benchmark.problem,
        "asked": _asked(benchmark.asked),
        "sizes": [_size(of) for of in benchmark.sizes],
        "trials": [
            {"trial": number, "test": wanted.test, "size_bytes": wanted.size_bytes}
            | {**asdict(trial), "loss_ratio": trial.loss_ratio}
            for number, (wanted, trial) in enumerate(benchmark.trials, 1)
        ],
    }


def _asked(asked: Asked) -> dict[str, Any]:
    own = {name: getattr(asked, name) for name in ("sizes_bytes", "tests", "precision", "longest_burst_s")}
    return {**own, **{name: value for name, value in asdict(asked.form).items() if name != "name"}}


def _size(of: OfSize) -> dict[str, Any]:
    return {
        "size_bytes": of.size_bytes,
        "maximum_pps": of.maximum_pps,
        "problem": of.problem,
        "left_out": of.left_out,
        "throughput": _throughput(of),
        "latency": _latency(of),
        "loss": [{**asdict(one), "loss_percent": one.loss_percent} for one in of.loss],
        "back_to_back": _bursts(of),
    }


def _throughput(of: OfSize) -> dict[str, Any] | None:
    """Bounds are what is known, where there is no rate."""
    if of.throughput is None:
        return None
    rate, found = of.rate_pps, of.throughput
    return {
        "state": found.state,
        "rate_pps": rate,
        "of_maximum_percent": None if rate is None else 100 * rate / of.maximum_pps,
        "l2_bps": None if rate is None else 8 * of.size_bytes * rate,
        "l1_bps": None if rate is None else 8 * (of.size_bytes + ETHERNET_OVERHEAD_BYTES) * rate,
        "lower_pps": found.lower_pps,
        "upper_pps": found.upper_pps,
    }


def _latency(of: OfSize) -> dict[str, Any] | None:
    """Each figure is the mean of its trials' (RFC 2544, 26.2), but the least and the most, which are of all."""
    if not of.latency:
        return None
    each = [asdict(one) for one in of.latency]
    means = {f"{name}_ns": statistics.fmean(one[f"{name}_ns"] for one in each) for name in POINTS}
    bounds = [one.bound_ns for one in of.latency if one.bound_ns is not None]
    jitters = [one.jitter_sd_ns for one in of.latency if one.jitter_sd_ns is not None]
    return {
        "rate_pps": of.rate_pps,
        "trials": len(each),
        **means,
        "min_ns": min(one["min_ns"] for one in each),
        "max_ns": max(one["max_ns"] for one in each),
        "jitter_sd_ns": statistics.fmean(jitters) if len(jitters) == len(each) else None,
        "bound_ns": max(bounds) if len(bounds) == len(each) else None,
        "each": each,
    }


def _bursts(of: OfSize) -> dict[str, Any] | None:
    if of.burst_frames is None or of.rate_pps is None:
        return None
    lengths = [burst.frames for burst in of.bursts]
    limited = any(burst.limited for burst in of.bursts)
    implied_s = formulas.implied_buffer_s(of.burst_frames, of.maximum_pps)
    corrected_s = formulas.corrected_buffer_s(of.burst_frames, of.rate_pps, of.maximum_pps)
    return {
        "searches": len(lengths),
        "frames_mean": of.burst_frames,
        "frames_min": min(lengths),
        "frames_max": max(lengths),
        "frames_sd": statistics.stdev(lengths) if len(lengths) > 1 else None,
        "step_frames": max(burst.step_frames for burst in of.bursts),
        "at_the_limit": limited,
        "implied_buffer_s": implied_s,
        "corrected_buffer_s": corrected_s,
    }
