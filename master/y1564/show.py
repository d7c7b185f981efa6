"""The activation on the terminal: a line for each run, and the tables at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pktswarm.master.report import formatting
from pktswarm.master.y1564.procedure import Activation

COLOURS = {"pass": "green", "fail": "red", "not known": "yellow"}


def trial_line(activation: Activation) -> str:
    """Of the last one."""
    wanted, trial = activation.trials[-1]
    head = f"{wanted.service or 'all services'}, {wanted.step.name}: {wanted.step.bps / 1e6:,.3f} Mbit/s"
    if trial.problem:
        return f"{head}: {trial.problem}"
    return f"{head}: lost {trial.lost_packets:,} of {trial.sent_packets:,} ({trial.loss_ratio or 0:.4%})"


def table(rows: list[dict[str, Any]]) -> Table:
    """A step of a service each."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    for name in ("service", "step"):
        made.add_column(name)
    for name in ("Mbit/s sent", "received", "lost", "delay, ms", "variation, ms", "±", "available"):
        made.add_column(name, justify="right")
    made.add_column("")
    for row in rows:
        verdict = row["verdict"]
        made.add_row(*map(escape, cells(row)), f"[{COLOURS[verdict]}]{verdict}[/]")
    return made


def cells(row: dict[str, Any]) -> list[str]:
    """Without the verdict."""
    times = [milliseconds(row[f"delay_{name}_ns"]) for name in ("mean", "variation", "bound")]
    ratios = [formatting.percent(row[name], 1) for name in ("loss_ratio", "availability")]
    rates = [_mbps(row["load_bps"]), _mbps(row["received_bps"])]
    return [row["service"], row["step"], *rates, ratios[0], *times, ratios[1]]


def milliseconds(value_ns: float | None) -> str:
    return formatting.NOT_MEASURED if value_ns is None else f"{value_ns / 1e6:,.3f}"


def remarks(document: dict[str, Any]) -> list[str]:
    """Why a step did not pass, in the order of the steps."""
    found = []
    for row in [*document["steps"], *document["performance"]]:
        head = f"{row['service']}, {row['step']}"
        found += [f"{head}: {row['problem']}"] if row["problem"] else []
        found += [f"{head}: {failed(check)}" for check in row["checks"] if check["holds"] is False]
    return [*found, *([f"ended: {document['problem']}"] if document["problem"] else [])]


def failed(check: dict[str, Any]) -> str:
    bounds = [(word, check[key]) for word, key in (("at least", "at_least"), ("at most", "at_most"))]
    allowed = " and ".join(f"{word} {bound:,.6g}" for word, bound in bounds if bound is not None)
    return f"{check['what']} is {check['found']:,.6g}, agreed: {allowed}"


def print_found(console: Console, document: dict[str, Any], folder: Path) -> None:
    console.print(table([*document["steps"], *document["performance"]]))
    for remark in remarks(document):
        console.print(remark, style="yellow", markup=False, highlight=False)
    for service in document["services"]:
        verdict = service["verdict"]
        console.print(f"{escape(service['service'])}: [{COLOURS[verdict]}]{verdict}[/]", highlight=False)
    console.print(document["conformity"], style="bold", markup=False, highlight=False)
    console.print(f"results: {folder}", soft_wrap=True)


def _mbps(value_bps: float | None) -> str:
    return formatting.NOT_MEASURED if value_bps is None else f"{value_bps / 1e6:,.3f}"
