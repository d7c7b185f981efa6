"""A calibration on the terminal: a line for each figure, and the table at the end."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from pktswarm.master.calibrate.calibration import Calibration
from pktswarm.master.plan.capacity import AT_LEAST, FAILED, UNCONFIRMED, Figure
from pktswarm.master.report.formatting import NOT_MEASURED, bps, pps

NOTES = {
    AT_LEAST: "≥: more could not be tried; of a receiver, all its transmitters together could not overload it",
    UNCONFIRMED: "?: it held once and not again; plans do not use it",
    FAILED: "–: not found; see below",
}


def line(figure: Figure, known: bool) -> str:
    head = f"{figure.node}, {figure.role} by {figure.engine}, {figure.size_bytes} bytes"
    if known:
        return f"{head}: {rate(figure)}, known since {figure.utc}"
    found = f"{rate(figure)}, {figure.state}" if figure.rate_pps is not None else figure.state
    return f"{head}: {found}{f': {figure.problem}' if figure.problem else ''} ({figure.trials} runs)"


def rate(figure: Figure) -> str:
    sign = {AT_LEAST: "≥ ", UNCONFIRMED: "? "}.get(figure.state, "")
    return NOT_MEASURED if figure.rate_pps is None else f"{sign}{pps(figure.rate_pps)}"


def table(done: list[Figure]) -> Table:
    """A figure each; NOTES explains the signs."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    for name in ("node", "role", "engine"):
        made.add_column(name, no_wrap=True)
    for name in ("bytes", "without loss", "L2", "not at", "as fast as it goes", "runs"):
        made.add_column(name, justify="right", no_wrap=True)
    for one in sorted(done, key=lambda one: (one.node, one.role != "transmit", one.engine, one.size_bytes)):
        engine = f"{one.engine} to disk" if one.mode == "capture" else one.engine
        figures = [rate(one), bps(one.l2_bps), pps(one.above_pps), pps(one.top_pps)]
        made.add_row(one.node, one.role, engine, str(one.size_bytes), *figures, str(one.trials))
    return made


def print_found(console: Console, work: Calibration, folder: Path) -> None:
    console.print(table(work.done))
    for state, words in NOTES.items():
        if any(one.state == state for one in work.done):
            console.print(words, style="dim", markup=False, highlight=False)
    console.print(f"wired {work.capacity.wiring}", style="dim", markup=False, highlight=False)
    told = [f"{one.node}, {one.role} by {one.engine}, {one.size_bytes} bytes: {one.problem}" for one in work.done]
    for text in [text for text, one in zip(told, work.done, strict=True) if one.problem]:
        console.print(text, style="yellow", markup=False, highlight=False)
    for text in work.lacking():
        console.print(text, style="dim", markup=False, highlight=False)
    if work.problem:
        console.print(f"it ended: {work.problem}", style="yellow", markup=False, highlight=False)
    console.print(f"capacity: {work.capacity.path}, runs: {folder}", soft_wrap=True)
