"""The benchmarks on the disk: rfc2544.json and a CSV for each test, written anew after each trial; the runs beside."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pktswarm.master.files import replace_text, write_csv
from pktswarm.master.rfc2544.document import POINTS, document
from pktswarm.master.rfc2544.procedure import Benchmark
from pktswarm.master.search import storage
from pktswarm.master.search.storage import TRIAL_COLUMNS

DOCUMENT, PAGE = "rfc2544.json", "report.html"
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
LATENCY_POINTS = [f"{name}_ns" for name in (*POINTS, "jitter_sd", "bound")]
LATENCY_COLUMNS = [
    "size_bytes",
    "load_pps",
    "trial",
    "frames",
    *(f"latency_{p}" for p in LATENCY_POINTS),
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
Rows = Iterable[dict[str, Any]]


class Kept(storage.Kept):
    kind = "rfc2544"

    def write_all(self, benchmark: Benchmark) -> dict[str, Any]:
        """The document, as rfc2544.json has it now."""
        found = document(benchmark, self.about)
        replace_text(self.path / DOCUMENT, json.dumps(found, indent=2) + "\n")
        sizes, trials = found["sizes"], found["trials"]
        tables: dict[str, tuple[list[str], Rows]] = {
            "throughput.csv": (THROUGHPUT_COLUMNS, throughput_rows(sizes)),
            "latency.csv": (LATENCY_COLUMNS, latency_rows(sizes)),
            "loss.csv": (LOSS_COLUMNS, ({"size_bytes": of["size_bytes"], **row} for of in sizes for row in of["loss"])),
            "back_to_back.csv": (BURST_COLUMNS, _with(sizes, "back_to_back")),
            "trials.csv": (ALL_TRIAL_COLUMNS, (_trial_row(trial) for trial in trials)),
        }
        for name, (columns, rows) in tables.items():
            write_csv(self.path / name, columns, rows)
        return found


def throughput_rows(sizes: list[dict[str, Any]]) -> Rows:
    for row in _with(sizes, "throughput"):
        own = {f"throughput_{name}": row.pop(old) for name, old in (("pps", "rate_pps"), ("l2_bps", "l2_bps"))}
        yield {**own, "throughput_l1_bps": row.pop("l1_bps"), **row}


def latency_rows(sizes: list[dict[str, Any]]) -> Rows:
    """One for each trial."""
    for of in sizes:
        for number, one in enumerate((of["latency"] or {"each": []})["each"], 1):
            figures = {f"latency_{name}": one[name] for name in LATENCY_POINTS}
            whose = {"size_bytes": of["size_bytes"], "load_pps": of["latency"]["rate_pps"], "trial": number}
            yield {**whose, "frames": one["frames"], **figures, "lost_packets": one["lost_packets"]}


def _with(sizes: list[dict[str, Any]], test: str) -> Rows:
    """Of the sizes that have it."""
    for of in sizes:
        if of[test] is not None:
            maximum = {"maximum_pps": of["maximum_pps"]} if test == "throughput" else {}
            yield {"size_bytes": of["size_bytes"], **maximum, **of[test]}


def _trial_row(trial: dict[str, Any]) -> dict[str, Any]:
    bits = {"intended_l2_bps": trial["l2_bps"], "intended_l1_bps": trial["l1_bps"]}
    return {name: value for name, value in {**trial, **bits}.items() if name in ALL_TRIAL_COLUMNS}
