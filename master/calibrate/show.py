"""A calibration on the terminal: a line for each figure, and the table at the end."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from pktswarm.master.benchmark.show import print_notes, print_remarks, trial_outcome
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.calibrate.calibration import Calibration
from pktswarm.master.output import figures_table
from pktswarm.master.plan.capacity import AT_LEAST, FAILED, UNCONFIRMED, Figure
from pktswarm.master.report.formatting import NOT_MEASURED, bps, pps

NOTES = {
    AT_LEAST: "≥: no higher rate could be tried; a receiver was not overloaded by all transmitters together",
    UNCONFIRMED: "?: held in one run and not again; plans do not use the rate",
    FAILED: "–: not measured; see below",
}


def line(figure: Figure, known: bool) -> str:
    """One figure. `known`: it was in the capacity file."""
    if known:
        return f"{head(figure)}: {rate(figure)}, measured {figure.utc}"
    result = f"{rate(figure)}, {figure.state}" if figure.rate_pps is not None else figure.state
    return f"{head(figure)}: {result}{f': {figure.problem}' if figure.problem else ''} ({figure.trials} runs)"


def trial_line(trial: Trial, unpaced_pps: float | None) -> str:
    """One trial. `unpaced_pps`: the rate of one without pacing."""
    if unpaced_pps is not None:
        return f"unpaced: {pps(unpaced_pps)} sent"
    return f"{pps(trial.intended_pps)} for {trial.duration_s:g} s: {trial_outcome(trial)}"


def head(figure: Figure) -> str:
    return f"{figure.node}, {figure.role} with {figure.engine}, {figure.size_bytes} bytes"


def rate(figure: Figure) -> str:
    """The rate of a figure, with its sign."""
    sign = {AT_LEAST: "≥ ", UNCONFIRMED: "? "}.get(figure.state, "")
    return NOT_MEASURED if figure.rate_pps is None else f"{sign}{pps(figure.rate_pps)}"


def table(figures: list[Figure]) -> Table:
    """A row for each figure. NOTES explains the signs."""
    made = figures_table(["node", "role", "engine"], ["bytes", "without loss", "L2", "not at", "unpaced", "runs"])
    for figure in sorted(figures, key=lambda each: (each.node, each.role != "transmit", each.engine, each.size_bytes)):
        engine = f"{figure.engine} to disk" if figure.mode == "capture" else figure.engine
        rates = [rate(figure), bps(figure.l2_bps), pps(figure.above_pps), pps(figure.top_pps)]
        made.add_row(figure.node, figure.role, engine, str(figure.size_bytes), *rates, str(figure.trials))
    return made


def print_results(console: Console, calibration: Calibration, folder: Path) -> None:
    figures = calibration.figures
    console.print(table(figures))
    print_notes(console, NOTES, {figure.state for figure in figures})
    console.print(f"wiring: {calibration.capacity.wiring}", style="dim", markup=False, highlight=False)
    print_remarks(console, [f"{head(figure)}: {figure.problem}" for figure in figures if figure.problem])
    for text in calibration.lacking():
        console.print(text, style="dim", markup=False, highlight=False)
    if calibration.problem:
        print_remarks(console, [f"the calibration ended early: {calibration.problem}"])
    console.print(f"capacity: {calibration.capacity.path}, runs: {folder}", soft_wrap=True)
