"""The benchmarks on the terminal: a line for each trial, and the table at the end."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from pktswarm.master.benchmark.show import NO_BREAK, print_folder, print_remarks, trial_outcome, wrapped_table
from pktswarm.master.report.formatting import NOT_MEASURED, microseconds, percent
from pktswarm.master.rfc2544.document import BenchmarkDocument, BurstFields, LatencyFields, SizeFields, ThroughputFields
from pktswarm.master.rfc2544.options import LOSS
from pktswarm.master.rfc2544.procedure import Benchmark
from pktswarm.master.search.engine import AT_LEAST, BELOW, HIGHEST


def trial_line(benchmark: Benchmark) -> str:
    """The last trial."""
    plan, trial = benchmark.trials[-1]
    maximum_pps = benchmark.limits[plan.size_bytes].maximum_pps
    load = f"{plan.load_pps:,.0f} frames/s ({100 * plan.load_pps / maximum_pps:.1f} %)"
    return f"{plan.size_bytes} bytes, {plan.test}: {load} for {plan.duration_s:.3g} s: {trial_outcome(trial)}"


def table(document: BenchmarkDocument) -> Table:
    """A row for each frame size."""
    heads = [
        "frame, bytes",
        "maximum, frames/s",
        "throughput, frames/s",
        "% of maximum",
        "Mbit/s L2",
        "latency, µs",
        "±",
    ]
    made = wrapped_table([], [*heads, "lost at 100 %", "burst, frames", "buffer, ms"])
    for size in document["sizes"]:
        made.add_row(*cells(size))
    return made


def cells(size: SizeFields) -> list[str]:
    """The row of a frame size."""
    latency, bursts = size["latency"], size["back_to_back"]
    return [
        f"{size['size_bytes']}",
        f"{size['maximum_pps']:,.0f}",
        *_throughput_cells(size["throughput"]),
        _latency_cell(latency),
        microseconds(None if latency is None else latency["bound_ns"]),
        _loss_at_maximum(size),
        burst(bursts),
        NOT_MEASURED if bursts is None else f"{1e3 * bursts['corrected_buffer_s']:,.3f}",
    ]


def _throughput_cells(throughput: ThroughputFields | None) -> list[str]:
    if throughput is None:
        return [NOT_MEASURED] * 3
    share, bits = throughput["of_maximum_percent"], throughput["l2_bps"]
    return [
        rate(throughput),
        NOT_MEASURED if share is None else f"{share:.2f}",
        NOT_MEASURED if bits is None else f"{bits / 1e6:,.3f}",
    ]


def _latency_cell(latency: LatencyFields | None) -> str:
    """The mean, with the packets that the latency trials lost: the queue of the device overflowed in them."""
    if latency is None:
        return microseconds(None)
    lost = lost_packets(latency)
    return microseconds(latency["mean_ns"]) + (f" (lost{NO_BREAK}{lost:,})" if lost else "")


def lost_packets(latency: LatencyFields | None) -> int | None:
    """The lost packets of all latency trials; None: not measured."""
    lost = [None] if latency is None else [trial["lost_packets"] for trial in latency["each"]]
    return None if None in lost else sum(count or 0 for count in lost)


def _loss_at_maximum(size: SizeFields) -> str:
    share = next((loss["loss_percent"] for loss in size["loss"] if loss["load_percent"] == 100), None)
    return NOT_MEASURED if share is None else percent(share, 100).replace(" ", NO_BREAK)


def rate(throughput: ThroughputFields) -> str:
    """The throughput in frames/s. ≥: the maximum rate was forwarded, or a higher one is undecided; <: frames were lost
    at the lowest rate."""
    if throughput["state"] == BELOW:
        return f"<{NO_BREAK}{throughput['upper_pps']:,.0f}"
    if throughput["rate_pps"] is None:
        return NOT_MEASURED
    sign = f"≥{NO_BREAK}" if throughput["state"] in (AT_LEAST, HIGHEST) else ""
    return f"{sign}{throughput['rate_pps']:,.0f}"


def burst(bursts: BurstFields | None) -> str:
    """The longest burst in frames. ≥: the longest allowed burst lost nothing."""
    if bursts is None:
        return NOT_MEASURED
    return f"{'≥' + NO_BREAK if bursts['at_the_limit'] else ''}{bursts['frames_mean']:,.0f}"


def print_results(console: Console, document: BenchmarkDocument, folder: Path) -> None:
    console.print(table(document))
    if LOSS in document["asked"]["tests"]:
        console.print("frame loss rates at all loads: loss.csv", style="dim")
    print_remarks(console, remarks(document))
    print_folder(console, folder, document["conformity"])


def remarks(document: BenchmarkDocument) -> list[str]:
    """Why tests were left out or ended early, and the loss of latency trials."""
    lines = []
    for size in document["sizes"]:
        head = f"{size['size_bytes']} bytes"
        lines += [f"{head}: {test}: {why}" for test, why in size["left_out"].items()]
        if (throughput := size["throughput"]) and (undecided := throughput.get("undecided")):
            lines.append(f"{head}: throughput: {undecided}")
        if lost := lost_packets(size["latency"]):
            lines.append(f"{head}: the latency trials lost {lost:,} packets: the throughput did not last for them")
        lines += [f"{head}: ended early: {size['problem']}"] if size["problem"] else []
    return [*lines, *([f"ended early: {document['problem']}"] if document["problem"] else [])]
