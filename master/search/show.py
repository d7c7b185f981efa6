"""A search on the terminal: a line for each trial, and the table at the end."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from pktswarm.master.benchmark.show import (
    NO_BREAK,
    print_folder,
    print_notes,
    print_remarks,
    trial_outcome,
    wrapped_table,
)
from pktswarm.master.report.formatting import NOT_MEASURED
from pktswarm.master.search.document import GoalFields, SearchDocument
from pktswarm.master.search.engine import AT_LEAST, BELOW, HIGHEST, OPEN, Search

NOTES = {
    HIGHEST: "≥: the highest rate tried meets the goal; a higher --max finds the rate of the device",
    AT_LEAST: "≥: the rate is confirmed; a higher one could not be confirmed, as a node of the tester was held up",
    BELOW: "<: the lowest rate tried exceeds the loss",
    OPEN: "–: the search ended before the bounds reached the precision, or before the rate was confirmed",
}


def trial_line(search: Search) -> str:
    """The last trial."""
    trial = search.trials[-1]
    load = f"{trial.intended_pps:,.1f} packets/s for {trial.duration_s:g} s"
    kind = "confirming trial" if search.confirms(len(search.trials) - 1) else "trial"
    return f"{kind} {len(search.trials)}: {load}: {trial_outcome(trial)}"


def table(goals: list[GoalFields]) -> Table:
    """A row for each goal. NOTES explains the signs."""
    heads = ("loss at most", "packets/s", "Mbit/s L2", "Mbit/s L1", "conditional throughput", "lower", "upper")
    made = wrapped_table([], heads)
    for goal in goals:
        rates = [rate(goal), _number(goal["l2_bps"], 1e6), _number(goal["l1_bps"], 1e6)]
        rates += [_number(goal["conditional_throughput_pps"]), _number(goal["lower_pps"]), _number(goal["upper_pps"])]
        made.add_row(f"{100 * goal['loss_ratio']:g}{NO_BREAK}%", *rates)
    return made


def rate(goal: GoalFields) -> str:
    """The rate of a goal in packets/s, with its sign."""
    if goal["state"] == BELOW:
        return f"<{NO_BREAK}{_number(goal['upper_pps'])}"
    sign = f"≥{NO_BREAK}" if goal["state"] in (AT_LEAST, HIGHEST) else ""
    return f"{sign}{_number(goal['rate_pps'])}"


def closing(document: SearchDocument) -> str:
    """The number and the duration of the trials."""
    trials, options = document["trials"], document["asked"]
    took_s = sum(trial["took_s"] for trial in trials)
    decide = f"{options['trials']} of {options['duration_s']:g} s decide on a rate"
    confirmed = {goal["confirmed_s"] for goal in document["goals"]} - {None}
    decide += "".join(f", one of {confirmed_s:g} s confirms it" for confirmed_s in confirmed)
    return f"trials: {len(trials)}, in {took_s:.0f} s; {decide}; rates are the sum of all searched streams"


def rises(goals: list[GoalFields]) -> list[str]:
    """A sentence for each rate at which the latency rose throughout the trial."""
    return [
        f"{rate(goal)} packets/s: the latency rose by {rise / 1e3:,.0f} µs/s throughout the trial: a queue fills, and "
        "the rate does not last"
        for goal in goals
        if goal["rate_pps"] is not None and (rise := goal["latency_rise_ns_per_s"])
    ]


def undecided(goals: list[GoalFields]) -> list[str]:
    """A sentence for each goal with a rate below one whose confirming trials are invalid."""
    return [goal["undecided"] for goal in goals if goal["undecided"]]


def print_results(console: Console, document: SearchDocument, folder: Path) -> None:
    console.print(table(document["goals"]))
    console.print(f"[dim]{closing(document)}[/]", highlight=False)
    print_notes(console, NOTES, {goal["state"] for goal in document["goals"]})
    print_remarks(console, rises(document["goals"]) + undecided(document["goals"]))
    if document["problem"]:
        print_remarks(console, [f"the search ended early: {document['problem']}"])
    print_folder(console, folder)


def _number(value: float | None, unit: float = 1.0) -> str:
    """Format with at least six digits, so that bounds half a percent apart differ."""
    if value is None:
        return NOT_MEASURED
    scaled = value / unit
    return f"{scaled:,.{0 if scaled >= 100_000 else 1 if scaled >= 10_000 else 3}f}"
