"""A search on the terminal: a line for each trial, and the table at the end."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from pktswarm.master.search.engine import BELOW, HIGHEST, OPEN, Found, Search

NO_BREAK = "\N{NO-BREAK SPACE}"
NOTES = {
    HIGHEST: "≥: no more was lost at the highest rate tried; a higher --max tells how much the device holds",
    BELOW: "<: more was lost even at the lowest rate tried",
    OPEN: "–: the search ended before the bounds were close; they are what is known",
}


def trial_line(search: Search) -> str:
    """Of the last one."""
    trial = search.trials[-1]
    head = f"trial {len(search.trials)}: {trial.intended_pps:,.1f} packets/s for {trial.duration_s:g} s"
    if trial.problem:
        return f"{head}: {trial.problem}"
    lost = f"{head}: lost {trial.lost_packets:,} of {trial.sent_packets:,} ({trial.loss_ratio or 0:.4%})"
    return "; ".join([lost, *trial.not_held])


def table(search: Search) -> Table:
    """A goal each; NOTES explains the signs. Headings wrap on a narrow terminal, figures do not."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    for name in ("loss at most", "packets/s", "Mbit/s L2", "Mbit/s L1", "conditional throughput", "lower", "upper"):
        made.add_column(name, justify="right")
    for one in search.found():
        bits = search.bits_at(one.rate_pps)
        rates = [rate(one), _number(bits["l2_bps"], 1e6), _number(bits["l1_bps"], 1e6)]
        bounds = [_number(one.lower_pps), _number(one.upper_pps)]
        made.add_row(f"{100 * one.loss_ratio:g}{NO_BREAK}%", *rates, _number(one.conditional_throughput_pps), *bounds)
    return made


def rate(one: Found) -> str:
    if one.state == BELOW:
        return f"<{NO_BREAK}{_number(one.upper_pps)}"
    return f"≥{NO_BREAK}{_number(one.rate_pps)}" if one.state == HIGHEST else _number(one.rate_pps)


def closing(search: Search) -> str:
    """How much it took, and what the figures are of."""
    took_s = sum(trial.took_s for trial in search.trials)
    decide = f"{search.asked.trials} of {search.asked.duration_s:g} s decide on a load"
    return f"trials: {len(search.trials)}, in {took_s:.0f} s; {decide}; rates are of all searched streams together"


def print_found(console: Console, search: Search, folder: Path) -> None:
    console.print(table(search))
    console.print(f"[dim]{closing(search)}[/]", highlight=False)
    for state, words in NOTES.items():
        if any(one.state == state for one in search.found()):
            console.print(words, style="dim", markup=False, highlight=False)
    if search.problem:
        console.print(f"the search ended: {search.problem}", style="yellow", markup=False, highlight=False)
    console.print(f"results: {folder}", soft_wrap=True)


def _number(value: float | None, unit: float = 1.0) -> str:
    """With six digits or more, so that bounds half a percent apart differ; search.json has them all."""
    if value is None:
        return "–"
    scaled = value / unit
    return f"{scaled:,.{0 if scaled >= 100_000 else 1 if scaled >= 10_000 else 3}f}"
