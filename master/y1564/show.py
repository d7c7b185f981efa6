"""An activation on the terminal: a line for each trial, and the table at the end."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pktswarm.master.benchmark.show import print_folder, print_remarks, trial_outcome, wrapped_table
from pktswarm.master.report import formatting
from pktswarm.master.y1564.document import ActivationDocument, CheckFields, StepFields
from pktswarm.master.y1564.procedure import Activation

COLOURS = {"pass": "green", "fail": "red", "not known": "yellow"}


def trial_line(activation: Activation) -> str:
    """The last trial."""
    plan, trial = activation.trials[-1]
    load = f"{plan.step.bps / 1e6:,.3f} Mbit/s"
    return f"{plan.service or 'all services'}, {plan.step.name}: {load}: {trial_outcome(trial)}"


def table(rows: list[StepFields]) -> Table:
    """A row for each step of each service."""
    heads = ("Mbit/s sent", "received", "lost", "delay, ms", "variation, ms", "±", "available")
    made = wrapped_table(["service", "step"], heads)
    made.add_column("verdict")
    for row in rows:
        verdict = row["verdict"]
        made.add_row(*map(escape, cells(row)), f"[{COLOURS[verdict]}]{verdict}[/]")
    return made


def cells(row: StepFields) -> list[str]:
    """The row of a step, without its verdict."""
    return [
        row["service"],
        row["step"],
        _mbps(row["load_bps"]),
        _mbps(row["received_bps"]),
        formatting.percent(row["loss_ratio"], 1),
        milliseconds(row["delay_mean_ns"]),
        milliseconds(row["delay_variation_ns"]),
        milliseconds(row["delay_bound_ns"]),
        formatting.percent(row["availability"], 1),
    ]


def milliseconds(value_ns: float | None) -> str:
    return formatting.NOT_MEASURED if value_ns is None else f"{value_ns / 1e6:,.3f}"


def remarks(document: ActivationDocument) -> list[str]:
    """Why steps did not pass, in the order of the steps."""
    lines = []
    for row in [*document["steps"], *document["performance"]]:
        head = f"{row['service']}, {row['step']}"
        lines += [f"{head}: {row['problem']}"] if row["problem"] else []
        lines += [f"{head}: {failed(check)}" for check in row["checks"] if check["holds"] is False]
    return [*lines, *([f"ended early: {document['problem']}"] if document["problem"] else [])]


def failed(check: CheckFields) -> str:
    """A figure that is out of its limits."""
    bounds = (("at least", check["at_least"]), ("at most", check["at_most"]))
    allowed = " and ".join(f"{word} {bound:,.6g}" for word, bound in bounds if bound is not None)
    return f"{check['what']} is {check['found']:,.6g}, agreed: {allowed}"


def print_results(console: Console, document: ActivationDocument, folder: Path) -> None:
    console.print(table([*document["steps"], *document["performance"]]))
    print_remarks(console, remarks(document))
    for service in document["services"]:
        verdict = service["verdict"]
        console.print(f"{escape(service['service'])}: [{COLOURS[verdict]}]{verdict}[/]", highlight=False)
    print_folder(console, folder, document["conformity"])


def _mbps(value_bps: float | None) -> str:
    return formatting.NOT_MEASURED if value_bps is None else f"{value_bps / 1e6:,.3f}"
