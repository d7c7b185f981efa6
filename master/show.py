"""What a person sees on the terminal: progress while a run goes, the table when it is over."""

from __future__ import annotations

import time
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from master.ledger import Event, Ledger
from master.results import Outcome, Row, lost_by, stream_values

PHASE_WORDS = {
    "hello": "waiting for the nodes",
    "plan": "planning with what the nodes told",
    "clocks": "reading the nodes' clocks",
    "prepare receivers": "arming the receivers",
    "prepare transmitters": "preparing the transmitters",
    "send": "sending",
    "drain": "waiting for frames in flight",
    "gather": "gathering the counts",
    "restore": "restoring the nodes",
    "over": "over",
}
COLOURS = {0: "green", 1: "red", 3: "yellow"}


class Watch:
    """Follows a run on `console` (standard error, so that the table or JSON on standard output stays clean)."""

    def __init__(self, console: Console, expected_s: float) -> None:
        self.console, self.expected_s = console, expected_s
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.progress.add_task("starting the ranks over SSH", total=None)
        self._sending_since = 0.0

    def __enter__(self) -> Watch:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, ledger: Ledger, event: Event) -> None:
        match event["event"]:
            case "phase":
                self._phase(event["name"])
            case "sample" if self._sending_since:
                self.progress.update(self.task, completed=time.monotonic() - self._sending_since)
            case "lost" | "failed" | "guard_gone":
                node = ledger.nodes[event["rank"]]
                self.console.print(f"[yellow]{escape(node.name)}: {escape(node.problem)}[/]")

    def _phase(self, name: str) -> None:
        words = PHASE_WORDS.get(name, name)
        sending = name == "send"
        self._sending_since = time.monotonic() if sending else 0.0
        self.progress.update(self.task, description=words, total=self.expected_s if sending else None, completed=0)
        if not self.console.is_terminal:
            self.console.print(f"{words} …" if name != "over" else words)


def table(outcome: Outcome) -> Table:
    """Per leg: intended, sent, received, lost, rate in packets and bits, k; totals per stream and over all."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("stream", no_wrap=True)
    table.add_column("from → to", no_wrap=True)
    for name in ("intended", "sent", "received", "lost", "kpkt/s", "Mbit/s", "k"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in outcome.rows:
        table.add_row(*_cells(row))
    table.add_section()
    for total in outcome.document["totals"]:
        table.add_row(*_total_cells(total), style="bold" if total["stream"] == "total" else "")
    return table


def stamp_table(outcome: Outcome) -> Table:
    """What only stamps tell: twice, reordered, altered; latency with its bound, and jitter, in microseconds."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("stream", no_wrap=True)
    table.add_column("from → to", no_wrap=True)
    for name in ("twice", "reord.", "alt.", "min", "p50", "p99", "max", "±", "jitter"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in outcome.rows:
        values = stream_values(row)
        counts = [_count(values.get(f"{name}_packets")) for name in ("duplicated", "reordered", "altered")]
        names = [*(f"latency_{point}_ns" for point in ("min", "p50", "p99", "max", "bound")), "jitter_sd_ns"]
        times = ["–" if values.get(name) is None else f"{values[name] / 1e3:,.1f}" for name in names]
        table.add_row(escape(row.leg.stream), escape(f"{row.leg.source} → {row.leg.target}"), *counts, *times)
    return table


def _cells(row: Row) -> list[str]:
    values = stream_values(row)
    return [
        escape(row.leg.stream),
        escape(f"{row.leg.source} → {row.leg.target}"),
        _count(row.intended),
        _count(row.sent),
        _count(row.received),
        _lost(row.lost),
        _scaled(values["received_pps"] or values["sent_pps"], 1e3),
        _scaled(values["received_bps"] or values["sent_bps"], 1e6),
        "" if row.k is None else f"{row.k:.4f}",
    ]


def _total_cells(total: dict[str, Any]) -> list[str]:
    k = total["k"]
    counts = [_count(total[f"{name}_packets"]) for name in ("intended", "sent", "received")]
    lost = _lost(total["lost_packets"])
    return [escape(total["stream"]), "all", *counts, lost, "", "", "" if k is None else f"{k:.4f}"]


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _lost(value: int | None) -> str:
    return _count(value) if not value else f"[red]{value:,}[/]"


def _scaled(value: float | None, unit: float) -> str:
    return "–" if value is None else f"{value / unit:,.2f}"


def print_outcome(console: Console, outcome: Outcome, folder: object) -> None:
    console.print(table(outcome))
    if any(row.tally is not None for row in outcome.rows):
        console.print(stamp_table(outcome))
    if any(lost_by(row) == "difference" for row in outcome.rows):
        console.print("[dim]lost is sent − received where a stream carries no stamps.[/]")
    console.print("[dim]Sizes and bits count the FCS; latency and jitter are in microseconds.[/]")
    for note in outcome.document["notes"]:
        console.print(f"[dim]note: {escape(note)}[/]")
    for choice in outcome.document["engines"]:
        console.print(f"[dim]{escape(choice)}[/]")
    for doubt in outcome.document["doubts"]:
        console.print(f"[yellow]{escape(doubt)}[/]")
    for verdict in outcome.document["verdicts"]:
        mark = "[green]as expected[/]" if verdict["holds"] else "[red]not as expected[/]"
        console.print(f"{mark}  {escape(verdict['text'])}")
    console.print(f"[{COLOURS[outcome.status]}]exit {outcome.status}: {escape(outcome.reason)}[/]")
    console.print(f"results: {folder}", soft_wrap=True)
