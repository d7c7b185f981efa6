"""The page of the benchmarks: the graphs and tables as RFC 2544 asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.ticker import NullLocator

from pktswarm.master.files import replace_text
from pktswarm.master.report import formatting
from pktswarm.master.report.plots import LINES, STYLE, Plot, line_style, new_axes, svg_of
from pktswarm.master.report.render import render
from pktswarm.master.rfc2544.formulas import LOADS_PERCENT
from pktswarm.master.rfc2544.show import burst, cells, remarks
from pktswarm.master.rfc2544.storage import PAGE
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

VERDICTS = {EXIT_AS_EXPECTED: ("Whole", "good"), EXIT_INCOMPLETE: ("Incomplete", "doubt")}
BELOW_ALL = ("A frame size was lost at the lowest rate too", "bad")
TITLES = {
    "throughput": "Throughput",
    "latency": "Latency",
    "loss": "Frame loss rate",
    "back-to-back": "Back-to-back frames",
}
FILES = [
    ("rfc2544.json", "everything that was asked and found"),
    ("throughput.csv", "throughput by frame size, with the theoretical maximum; packets/s and bits/s"),
    ("latency.csv", "a row for each latency trial, ns"),
    ("loss.csv", "a row for each load of the frame loss rate"),
    ("back_to_back.csv", "bursts and buffer times by frame size"),
    ("trials.csv", "a row for each trial, with the folder of its run"),
    ("runs/", "the trials, each a run like any other"),
]


def make(folder: Path, document: dict[str, Any]) -> Path:
    """OSError where it cannot be written."""
    replace_text(folder / PAGE, html(folder, document))
    return folder / PAGE


def html(folder: Path, document: dict[str, Any]) -> str:
    verdict, kind = VERDICTS.get(document["status"], BELOW_ALL)
    tests = document["asked"]["tests"]
    context = {
        "name": document["name"],
        "what": "RFC 2544 benchmarks",
        "folder": folder.resolve().name,
        "path": folder,
        "document": document,
        "tests": tests,
        "titles": [(test, TITLES[test]) for test in tests],
        "outcome": {"verdict": verdict, "kind": kind},
        "summary": [cells(of)[1:] for of in document["sizes"]],
        "remarks": remarks(document),
        "plots": {"throughput": throughput(document["sizes"]), "loss": loss(document["sizes"])},
        "loads": LOADS_PERCENT,
        "loss_heads": ["#frame, bytes", *(f"#{load} %" for load in LOADS_PERCENT)],
        "loss_at": _loss_at,
        "lost": _lost,
        "burst": burst,
        "milliseconds": lambda seconds: f"{1e3 * seconds:,.3f}",
        "command": command(document),
        "files": FILES,
    }
    return render("rfc2544.html", context)


def command(document: dict[str, Any]) -> str:
    asked = document["asked"]
    listed = [("--sizes", asked["sizes_bytes"]), ("--tests", asked["tests"])]
    options = [f"{name} {','.join(map(str, values))}" for name, values in listed]
    options += [f"--{document['form']}", f"--max {document['medium_l1_bps']:.0f}bit"]
    options += [f"--precision {100 * asked['precision']:g}%", f"--longest-burst {asked['longest_burst_s']:g}"]
    head = f"pktswarm rfc2544 {document['scenario_file']} --hosts {document['hosts_file']}"
    return " \\\n  ".join([head, *options])


def throughput(sizes: Sequence[dict[str, Any]]) -> Plot | None:
    """RFC 2544, 26.1: frame rate against frame size, with the theoretical maximum beside. None: there is no rate."""
    found = [of for of in sizes if of["throughput"] and of["throughput"]["rate_pps"] is not None]
    if not found:
        return None
    lines = {
        "theoretical maximum": [(of["size_bytes"], of["maximum_pps"]) for of in sizes],
        "throughput": [(of["size_bytes"], of["throughput"]["rate_pps"]) for of in found],
    }
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes("frame size with FCS, bytes", "frames/s", list(lines))
        _draw(axes, lines)
        axes.set_xscale("log", base=2)
        axes.set_xticks([of["size_bytes"] for of in sizes], [str(of["size_bytes"]) for of in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.tick_params(axis="x", labelsize=8)
        axes.set_ylim(bottom=0)
        svg = svg_of(figure, "throughput", columns)
    told = (f"{of['size_bytes']} bytes: {_of_maximum(of)} of the maximum" for of in found)
    return Plot("Throughput by frame size", svg, "throughput.csv", f"{'; '.join(told)}.")


def loss(sizes: Sequence[dict[str, Any]]) -> Plot | None:
    """RFC 2544, 26.3: loss in percent against the load in percent of the maximum, a line for each frame size."""
    lines = {
        f"{of['size_bytes']} bytes": [(one["load_percent"], one["loss_percent"]) for one in of["loss"]]
        for of in sizes
        if of["loss"]
    }
    if not lines:
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes("load, % of the maximum frame rate", "lost, % of the sent frames", list(lines))
        _draw(axes, lines)
        axes.set_xlim(0, 101)
        axes.set_ylim(-1, 100)
        svg = svg_of(figure, "loss", columns)
    told = (f"{name}: {points[0][1]:.2f} % at {points[0][0]} %" for name, points in lines.items())
    return Plot("Frame loss rate by load", svg, "loss.csv", f"{'; '.join(told)}.")


def _draw(axes: Any, lines: dict[str, list[tuple[float, float]]]) -> None:
    for number, (label, points) in enumerate(lines.items()):
        style = {**line_style(number % len(LINES)), "marker": "o", "markersize": 3}
        axes.plot(*zip(*points, strict=True), label=label, **style)


def _of_maximum(of: dict[str, Any]) -> str:
    return formatting.percent(of["throughput"]["of_maximum_percent"], 100)


def _loss_at(of: dict[str, Any], load_percent: int) -> str:
    at = next((one["loss_percent"] for one in of["loss"] if one["load_percent"] == load_percent), None)
    return formatting.percent(at, 100)


def _lost(of: dict[str, Any]) -> int | None:
    """Of all latency trials together."""
    lost = [one["lost_packets"] for one in of["latency"]["each"]]
    return None if None in lost else sum(lost)
