"""What a person sees on the terminal when a run is over; what he sees while it goes is master.live's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pktswarm.master.plan import interactive
from pktswarm.master.results import handover_report, trace_verify, user_report, users
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.row import Row, lost_by, stream_values
from pktswarm.master.upf.session_results import lines as upf_lines
from pktswarm.traffic.connections.counts import ConnectionRow, figures
from pktswarm.traffic.leg import Leg

COLOURS = {0: "green", 1: "red", 3: "yellow"}
WIDTH_WITHOUT_TERMINAL = 120
MOST_NAMED = 3
"""Hosts that a leg may come to."""


def console(stderr: bool = False) -> Console:
    """Where there is no terminal nothing tells its width, and 80 columns would cut figures off. The :b: of an IPv6
    address is no name of a picture."""
    made = Console(stderr=stderr, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = WIDTH_WITHOUT_TERMINAL
    return made


def print_warnings(console: Console, warnings: Iterable[str]) -> None:
    """What a plan says before its run."""
    for line in warnings:
        console.print(f"warning: {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)


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
    *streams, whole = outcome.document["totals"]
    groups = [{**one, "stream": f"all {one['group']}"} for one in outcome.document["groups"]]
    for total in [*streams, *groups, whole]:
        table.add_row(*_total_cells(total), style="bold" if total["stream"] == "total" else "")
    return table


def stamp_table(outcome: Outcome) -> Table:
    """What only stamps tell: twice, reordered, altered; latency with its bound, and jitter, in microseconds. And
    latency from captures."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("stream", no_wrap=True)
    table.add_column("from → to", no_wrap=True)
    for name in ("twice", "reord.", "alt.", "min", "p50", "p99", "max", "±", "jitter", "by"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in outcome.rows:
        if not _has_times(row):
            continue
        values = stream_values(row)
        counts = [_count(values.get(f"{name}_packets")) for name in ("duplicated", "reordered", "altered")]
        names = [*(f"latency_{point}_ns" for point in ("min", "p50", "p99", "max", "bound")), "jitter_sd_ns"]
        times = ["–" if values.get(name) is None else f"{values[name] / 1e3:,.1f}" for name in names]
        path, by = escape(f"{row.leg.source} → {_to(row.leg)}"), row.latency_by or ""
        table.add_row(escape(row.leg.stream), path, *counts, *times, by)
    return table


def _to(leg: Leg) -> str:
    first, *others = leg.receivers
    return leg.to if len(others) < MOST_NAMED else f"{first} and {len(others)} more"


def _has_times(row: Row) -> bool:
    return row.matched is not None or (row.tally is not None and row.tally.distinct is not None)


def unstamped_words(row: Row) -> str:
    """Of a stamped trace: what became of the frames that had no room for one."""
    sent, received = row.unstamped_sent, row.unstamped
    if not sent and not received:
        return ""
    lost = None if sent is None or received is None else sent - received
    path = f"{row.leg.stream}, {row.leg.source} → {row.leg.target}"
    told = f"{_count(sent)} frames without room for a stamp sent, {_count(received)} received"
    return f"{path}: {told}, lost by count {_count(lost)}"


def flow_words(counts: list[dict[str, Any]]) -> str:
    """How many flows of the traces lost something, and which one most."""
    sent = [one for one in counts if one["intended_packets"]]
    known = [one for one in sent if one["lost_packets"] is not None]
    losers = [one for one in known if one["lost_packets"] > 0]
    told = f"{len(sent):,} flows of traces, {len(losers):,} of them lost packets by count"
    told += "" if len(known) == len(sent) else f"; of {len(sent) - len(known):,} it is not known what was sent"
    if losers:
        worst = max(losers, key=lambda one: one["lost_packets"])
        ends = [_end(worst[side], worst[f"{side}_port"]) for side in ("source", "target")]
        told += f", most {' → '.join(ends)}: {worst['lost_packets']:,} of {worst['sent_packets']:,}"
    return f"{told} (flow_counts.csv)"


def _end(address: str, port: int | None) -> str:
    return address if port is None else f"{address} port {port}"


def connection_table(outcome: Outcome) -> Table:
    """Targets first, then the background. Delay and jitter are of blocks."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("connections", no_wrap=True)
    table.add_column("from → to", no_wrap=True)
    for name in ("", "sent", "rec.", "lost", "Mbit/s", "retr.", "rtt", "delay", "±", "jitter"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted(outcome.connections, key=lambda row: row.leg.connection.background):
        style = "dim" if row.leg.connection.background else ""
        table.add_row(*_connection_cells(row), style=style)
    return table


def _connection_cells(row: ConnectionRow) -> list[str]:
    values, connection = figures(row), row.leg.connection
    sent, intended = values.get("sent_blocks"), values.get("intended_blocks")
    of = f" of {intended:,}" if intended is not None and intended != sent else ""
    times = [_scaled(values.get(f"{name}_ns"), 1e6) for name in ("rtt_mean", "delay_mean", "delay_bound", "jitter_sd")]
    return [
        escape(row.leg.stream),
        escape(f"{row.source} → {row.target}"),
        f"{connection.connections} {connection.protocol.upper()}",
        _count(sent) + of,
        _count(values.get("received_blocks")),
        _lost(values.get("lost_datagrams")),
        _scaled(values.get("goodput_bps"), 1e6),
        _count(values.get("retransmitted_segments")),
        *times,
    ]


def _cells(row: Row) -> list[str]:
    values = stream_values(row)
    return [
        escape(row.leg.stream),
        escape(f"{row.leg.source} → {_to(row.leg)}"),
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
    if outcome.rows:
        console.print(table(outcome))
    if host := outcome.document.get("dut_host", {}).get("words"):
        console.print(escape(host), highlight=False)
    if outcome.connections:
        console.print(connection_table(outcome))
        console.print("[dim]Of connections: sent and received blocks, lost datagrams, goodput, times in ms.[/]")
    if any(_has_times(row) for row in outcome.rows):
        console.print(stamp_table(outcome))
    for stream in dict.fromkeys(row.leg.stream for row in outcome.rows if row.users is not None):
        legs = [row.users for row in outcome.rows if row.users is not None and row.leg.stream == stream]
        console.print(escape(users.line(legs)))
    for line in user_report.lines(outcome.document["users"]) if outcome.document.get("users") else ():
        console.print(escape(line), highlight=False)
    for line in handover_report.lines(outcome.document["handover"]) if outcome.document.get("handover") else ():
        console.print(escape(line), highlight=False)
    for line in upf_lines(outcome.document["upf"]) if outcome.document.get("upf") else ():
        console.print(f"N4  {escape(line)}", highlight=False)
    if outcome.flows:
        console.print(interactive.table(outcome.flows))
    for row in outcome.rows:
        for words in filter(None, (unstamped_words(row), trace_verify.describe(row))):
            console.print(f"[dim]{escape(words)}[/]")
    if outcome.flow_counts:
        console.print(escape(flow_words(outcome.flow_counts)))
    if any(lost_by(row) == "difference" for row in outcome.rows):
        console.print("[dim]lost by count: lost is sent − received where a stream or trace carries no stamps.[/]")
    if outcome.rows:
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
