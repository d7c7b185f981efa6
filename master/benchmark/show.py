"""Output of benchmarks on the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.output import figures_table

NO_BREAK = "\N{NO-BREAK SPACE}"


def trial_outcome(trial: Trial) -> str:
    """The loss of a trial and the limits that it did not meet, or its problem."""
    if trial.problem:
        return trial.problem
    lost = f"lost {trial.lost_packets:,} of {trial.sent_packets:,} ({trial.loss_ratio or 0:.4%})"
    rise = trial.latency_rise_ns_per_s
    queue = [f"the latency rises by {rise / 1e3:,.0f} µs/s"] if rise else []
    return "; ".join([lost, *trial.not_held, *queue])


def wrapped_table(left: Iterable[str], right: Iterable[str]) -> Table:
    """An empty table whose headings wrap on a narrow terminal."""
    return figures_table(left, right, no_wrap=False)


def print_notes(console: Console, notes: Mapping[str, str], states: Collection[str]) -> None:
    """Explain the signs of the states that occur."""
    for state, note in notes.items():
        if state in states:
            console.print(note, style="dim", markup=False, highlight=False)


def print_remarks(console: Console, remarks: Iterable[str]) -> None:
    for remark in remarks:
        console.print(remark, style="yellow", markup=False, highlight=False)


def print_folder(console: Console, folder: Path, conformity: str = "") -> None:
    """Print the end of the output: how far the benchmark conforms to its standard, and where the results are."""
    if conformity:
        console.print(conformity, style="bold", markup=False, highlight=False)
    console.print(f"results: {folder}", soft_wrap=True)
