"""The page of the benchmarks, with the graphs and tables that RFC 2544 requires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import matplotlib
from matplotlib.ticker import NullLocator

from pktswarm.master.benchmark.page import Page, write
from pktswarm.master.report import formatting
from pktswarm.master.report.plots import LINES, STYLE, Plot, line_style, new_axes, svg_of
from pktswarm.master.rfc2544.document import (
    BenchmarkDocument,
    LatencyFields,
    LatencyTrial,
    SizeFields,
    ThroughputFields,
)
from pktswarm.master.rfc2544.formulas import LOADS_PERCENT
from pktswarm.master.rfc2544.show import burst, cells, lost_packets, remarks
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

VERDICTS = {EXIT_AS_EXPECTED: ("Complete", "good"), EXIT_INCOMPLETE: ("Incomplete", "doubt")}
BELOW_ALL = ("Frames of a size were lost even at the lowest rate", "bad")
TITLES = {
    "throughput": "Throughput",
    "latency": "Latency",
    "loss": "Frame loss rate",
    "back-to-back": "Back-to-back frames",
}
FILES = [
    ("rfc2544.json", "options, deviations and all results"),
    ("throughput.csv", "throughput by frame size, with the theoretical maximum; packets/s and bits/s"),
    ("latency.csv", "a row for each latency trial, ns"),
    ("loss.csv", "a row for each load of the frame loss rate"),
    ("back_to_back.csv", "bursts and buffer times by frame size"),
    ("trials.csv", "a row for each trial, with the folder of its run"),
    ("runs/", "the runs of the trials"),
]


def make(folder: Path, document: BenchmarkDocument) -> Path:
    """Write the page into the results folder. Raises OSError."""
    return write(folder, html(folder, document))


def html(folder: Path, document: BenchmarkDocument) -> str:
    sizes, tests = [_completed(size) for size in document["sizes"]], document["asked"]["tests"]
    document = {**document, "sizes": sizes}
    page = Page(
        template="rfc2544.html",
        title="RFC 2544 benchmarks",
        verdict=VERDICTS.get(document["status"], BELOW_ALL),
        remarks=remarks(document),
        command=command(document),
        files=FILES,
    )
    return page.html(
        folder,
        document,
        tests=tests,
        titles=[(test, TITLES[test]) for test in tests],
        summary=[cells(size)[1:] for size in sizes],
        plots={"throughput": throughput(sizes), "loss": loss(sizes)},
        loads=LOADS_PERCENT,
        loss_heads=["#frame, bytes", *(f"#{load} %" for load in LOADS_PERCENT)],
        loss_at=_loss_at,
        lost=lambda size: lost_packets(size["latency"]),
        burst=burst,
        milliseconds=lambda seconds: f"{1e3 * seconds:,.3f}",
    )


def _completed(size: SizeFields) -> SizeFields:
    """With the fields that documents of earlier versions lack."""
    throughput, latency = size["throughput"], size["latency"]
    if throughput is not None:
        throughput = cast(ThroughputFields, {**dict.fromkeys(ThroughputFields.__annotations__), **throughput})
    if latency is not None:
        each = [{**dict.fromkeys(LatencyTrial.__annotations__), **trial} for trial in latency["each"]]
        latency = cast(LatencyFields, {**latency, "each": each})
    return {**size, "throughput": throughput, "latency": latency}


def command(document: BenchmarkDocument) -> str:
    asked = document["asked"]
    options = [f"--sizes {','.join(map(str, asked['sizes_bytes']))}", f"--tests {','.join(asked['tests'])}"]
    options += [f"--{document['form']}", f"--max {document['medium_l1_bps']:.0f}bit"]
    options += [f"--precision {100 * asked['precision']:g}%", f"--longest-burst {asked['longest_burst_s']:g}"]
    head = f"pktswarm rfc2544 {document['scenario_file']} --hosts {document['hosts_file']}"
    return " \\\n  ".join([head, *options])


def throughput(sizes: Sequence[SizeFields]) -> Plot | None:
    """RFC 2544, 26.1: frame rate and theoretical maximum against frame size. None: no size has a rate."""
    rates = [(size, fields["rate_pps"]) for size in sizes if (fields := size["throughput"]) is not None]
    points = [(size["size_bytes"], rate_pps) for size, rate_pps in rates if rate_pps is not None]
    if not points:
        return None
    lines = {
        "theoretical maximum": [(size["size_bytes"], size["maximum_pps"]) for size in sizes],
        "throughput": points,
    }
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes("frame size with FCS, bytes", "frames/s", list(lines))
        _draw(axes, lines)
        axes.set_xscale("log", base=2)
        axes.set_xticks([size["size_bytes"] for size in sizes], [str(size["size_bytes"]) for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.tick_params(axis="x", labelsize=8)
        axes.set_ylim(bottom=0)
        svg = svg_of(figure, "throughput", columns)
    shares = (
        f"{size['size_bytes']} bytes: {formatting.percent(100 * rate_pps / size['maximum_pps'], 100)} of the maximum"
        for size, rate_pps in rates
        if rate_pps is not None
    )
    return Plot("Throughput by frame size", svg, "throughput.csv", f"{'; '.join(shares)}.")


def loss(sizes: Sequence[SizeFields]) -> Plot | None:
    """RFC 2544, 26.3: loss in percent against the load in percent of the maximum, a line for each frame size."""
    lines = {
        f"{size['size_bytes']} bytes": [
            (at["load_percent"], at["loss_percent"]) for at in size["loss"] if at["loss_percent"] is not None
        ]
        for size in sizes
        if size["loss"]
    }
    if not lines:
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes("load, % of the maximum frame rate", "lost, % of the sent frames", list(lines))
        _draw(axes, lines)
        axes.set_xlim(0, 101)
        axes.set_ylim(-1, 100)
        svg = svg_of(figure, "loss", columns)
    first = (f"{name}: {points[0][1]:.2f} % at {points[0][0]} %" for name, points in lines.items())
    return Plot("Frame loss rate by load", svg, "loss.csv", f"{'; '.join(first)}.")


def _draw(axes: Any, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    for number, (label, points) in enumerate(lines.items()):
        style = {**line_style(number % len(LINES)), "marker": "o", "markersize": 3}
        axes.plot(*zip(*points, strict=True), label=label, **style)


def _loss_at(size: SizeFields, load_percent: int) -> str:
    share = next((at["loss_percent"] for at in size["loss"] if at["load_percent"] == load_percent), None)
    return formatting.percent(share, 100)
