"""The benchmarks on the terminal: a line for each trial, and the tables at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pktswarm.master.report import formatting
from pktswarm.master.rfc2544.options import LOSS
from pktswarm.master.rfc2544.procedure import Benchmark
from pktswarm.master.search.engine import BELOW, HIGHEST

NO_BREAK = "\N{NO-BREAK SPACE}"


def trial_line(benchmark: Benchmark) -> str:
    """Of the last one."""
    wanted, trial = benchmark.trials[-1]
    of = next(of for of in benchmark.sizes if of.size_bytes == wanted.size_bytes)
    load = f"{wanted.load_pps:,.0f} frames/s ({100 * wanted.load_pps / of.maximum_pps:.1f} %)"
    head = f"{wanted.size_bytes} bytes, {wanted.test}: {load} for {wanted.duration_s:.3g} s"
    if trial.problem:
        return f"{head}: {trial.problem}"
    return f"{head}: lost {trial.lost_packets:,} of {trial.sent_packets:,} ({trial.loss_ratio or 0:.4%})"


def table(document: dict[str, Any]) -> Table:
    """A frame size each: every benchmark's figure."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    heads = ["frame, bytes", "maximum, frames/s", "throughput, frames/s", "% of max.", "Mbit/s L2", "latency, µs", "±"]
    for name in [*heads, "lost at 100 %", "burst, frames", "buffer, ms"]:
        made.add_column(name, justify="right")
    for of in document["sizes"]:
        made.add_row(*cells(of))
    return made


def cells(of: dict[str, Any]) -> list[str]:
    found, latency, bursts = (of[test] or {} for test in ("throughput", "latency", "back_to_back"))
    most = next((one["loss_percent"] for one in of["loss"] if one["load_percent"] == 100), None)
    buffer_s, bits = bursts.get("corrected_buffer_s"), found.get("l2_bps")
    share = found.get("of_maximum_percent")
    return [
        f"{of['size_bytes']}",
        f"{of['maximum_pps']:,.0f}",
        rate(found),
        formatting.NOT_MEASURED if share is None else f"{share:.2f}",
        formatting.NOT_MEASURED if bits is None else f"{bits / 1e6:,.3f}",
        formatting.microseconds(latency.get("mean_ns")),
        formatting.microseconds(latency.get("bound_ns")),
        formatting.NOT_MEASURED if most is None else f"{formatting.percent(most, 100)}".replace(" ", NO_BREAK),
        burst(bursts),
        formatting.NOT_MEASURED if buffer_s is None else f"{1e3 * buffer_s:,.3f}",
    ]


def rate(found: dict[str, Any]) -> str:
    """Frames/s; ≥: the maximum rate was held; <: not even the lowest was."""
    if found.get("state") == BELOW:
        return f"<{NO_BREAK}{found['upper_pps']:,.0f}"
    if found.get("rate_pps") is None:
        return formatting.NOT_MEASURED
    return f"{'≥' + NO_BREAK if found['state'] == HIGHEST else ''}{found['rate_pps']:,.0f}"


def burst(found: dict[str, Any]) -> str:
    """Frames; ≥: the longest that was sent lost none."""
    if not found:
        return formatting.NOT_MEASURED
    return f"{'≥' + NO_BREAK if found['at_the_limit'] else ''}{found['frames_mean']:,.0f}"


def print_found(console: Console, document: dict[str, Any], folder: Path) -> None:
    console.print(table(document))
    if LOSS in document["asked"]["tests"]:
        console.print("frame loss rates at all loads: loss.csv", style="dim")
    for words_ in remarks(document):
        console.print(words_, style="yellow", markup=False, highlight=False)
    console.print(document["conformity"], style="bold", markup=False, highlight=False)
    console.print(f"results: {folder}", soft_wrap=True)


def remarks(document: dict[str, Any]) -> list[str]:
    """What ended early, and what was left out."""
    found = []
    for of in document["sizes"]:
        size = f"{of['size_bytes']} bytes"
        found += [f"{size}: {test}: {why}" for test, why in of["left_out"].items()]
        found += [f"{size} ended: {of['problem']}"] if of["problem"] else []
    return [*found, *([f"ended: {document['problem']}"] if document["problem"] else [])]
