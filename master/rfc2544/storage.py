"""The benchmarks on disk: rfc2544.json, and a CSV file for each test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pktswarm.master.benchmark import storage
from pktswarm.master.benchmark.storage import TRIAL_COLUMNS, Row, Table, trial_row
from pktswarm.master.rfc2544.document import About, BenchmarkDocument, SizeFields, document
from pktswarm.master.rfc2544.procedure import Benchmark

THROUGHPUT_COLUMNS = [
    "size_bytes",
    "maximum_pps",
    "throughput_pps",
    "of_maximum_percent",
    "throughput_l2_bps",
    "throughput_l1_bps",
    "lower_pps",
    "upper_pps",
    "state",
]
LATENCY_POINTS = [f"{name}_ns" for name in ("min", "mean", "p50", "p99", "p999", "max", "jitter_sd", "bound")]
LATENCY_COLUMNS = [
    "size_bytes",
    "load_pps",
    "trial",
    "frames",
    *(f"latency_{name}" for name in LATENCY_POINTS),
    "lost_packets",
]
LOSS_COLUMNS = ["size_bytes", "load_percent", "load_pps", "sent_packets", "lost_packets", "loss_percent"]
BURST_COLUMNS = [
    "size_bytes",
    "searches",
    "frames_mean",
    "frames_min",
    "frames_max",
    "frames_sd",
    "step_frames",
    "at_the_limit",
    "implied_buffer_s",
    "corrected_buffer_s",
]
ALL_TRIAL_COLUMNS = ["trial", "test", "size_bytes", *(name for name in TRIAL_COLUMNS if name != "trial")]


class Storage(storage.Storage[Benchmark, About, BenchmarkDocument]):
    kind = "rfc2544"

    def document(self, benchmark: Benchmark) -> BenchmarkDocument:
        return document(benchmark, self.about)

    def tables(self, benchmark: Benchmark, document: BenchmarkDocument) -> Mapping[str, Table]:
        sizes = document["sizes"]
        return {
            "throughput.csv": (THROUGHPUT_COLUMNS, throughput_rows(sizes)),
            "latency.csv": (LATENCY_COLUMNS, latency_rows(sizes)),
            "loss.csv": (LOSS_COLUMNS, loss_rows(sizes)),
            "back_to_back.csv": (BURST_COLUMNS, burst_rows(sizes)),
            "trials.csv": (ALL_TRIAL_COLUMNS, [trial_row(trial, ALL_TRIAL_COLUMNS) for trial in document["trials"]]),
        }


def throughput_rows(sizes: Iterable[SizeFields]) -> Iterator[Row]:
    for size in sizes:
        if (fields := size["throughput"]) is not None:
            yield {
                "size_bytes": size["size_bytes"],
                "maximum_pps": size["maximum_pps"],
                "throughput_pps": fields["rate_pps"],
                "of_maximum_percent": fields["of_maximum_percent"],
                "throughput_l2_bps": fields["l2_bps"],
                "throughput_l1_bps": fields["l1_bps"],
                "lower_pps": fields["lower_pps"],
                "upper_pps": fields["upper_pps"],
                "state": fields["state"],
            }


def latency_rows(sizes: Iterable[SizeFields]) -> Iterator[Row]:
    """A row for each latency trial."""
    for size in sizes:
        latency = size["latency"]
        for number, trial in enumerate([] if latency is None else latency["each"], 1):
            load_pps = None if latency is None else latency["rate_pps"]
            place: Row = {"size_bytes": size["size_bytes"], "load_pps": load_pps, "trial": number}
            figures: Row = {f"latency_{name}": value for name, value in trial.items() if name in LATENCY_POINTS}
            yield {**place, "frames": trial["frames"], **figures, "lost_packets": trial["lost_packets"]}


def loss_rows(sizes: Iterable[SizeFields]) -> Iterator[Row]:
    for size in sizes:
        for loss in size["loss"]:
            yield {"size_bytes": size["size_bytes"], **loss}


def burst_rows(sizes: Iterable[SizeFields]) -> Iterator[Row]:
    for size in sizes:
        if (bursts := size["back_to_back"]) is not None:
            yield {"size_bytes": size["size_bytes"], **bursts}
