"""The terminal output at the end of a run. Output during a run is in master.live."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pktswarm.master.cluster import dut
from pktswarm.master.results import handover_report, replayed_flows, trace_verify, user_report, users
from pktswarm.master.results.document_rows import PacketSums
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.row import Row
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.results.trace_verify import FlowCountRow
from pktswarm.master.upf.session_results import lines as upf_lines
from pktswarm.traffic.connections.counts import ConnectionRow, figures
from pktswarm.traffic.leg import Leg

COLOURS = {0: "green", 1: "red", 3: "yellow"}
WIDTH_WITHOUT_TERMINAL = 120
MOST_NAMED = 3
"""Receivers of a flow that are listed by name."""


def console(stderr: bool = False) -> Console:
    """A console without emoji codes: `:b:` is a part of IPv6 addresses. Without a terminal the width is unknown, and
    rich's 80 columns would cut figures off."""
    output = Console(stderr=stderr, emoji=False)
    if not output.is_terminal and "COLUMNS" not in os.environ:
        output.width = WIDTH_WITHOUT_TERMINAL
    return output


def print_warnings(console: Console, warnings: Iterable[str]) -> None:
    """Prints the warnings of a plan before its run."""
    for line in warnings:
        console.print(f"warning: {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def table(outcome: Outcome) -> Table:
    """Intended, sent, received and lost packets, rates and k of each flow; totals by stream, by group and over all."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("stream", no_wrap=True)
    table.add_column("from → to", no_wrap=True)
    packets = ("intended\npackets", "sent\npackets", "received\npackets", "lost\npackets")
    _add_figures(table, *packets, "rate\npackets/s", "rate\nMbit/s L2", "k")
    for row in outcome.rows:
        table.add_row(*_cells(row))
    table.add_section()
    *streams, overall = outcome.document["totals"]
    for total in streams:
        table.add_row(*_total_cells(total["stream"], total))
    for group in outcome.document.get("groups", []):
        table.add_row(*_total_cells(f"all {group['group']}", group))
    table.add_row(*_total_cells(overall["stream"], overall), style="bold")
    return table


def stamp_table(outcome: Outcome) -> Table:
    """The figures that need stamps: duplicated, reordered and altered packets; latency with its bound, and jitter. And
    latency by captures."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("stream", no_wrap=True)
    table.add_column("from → to", no_wrap=True)
    times = [f"latency\n{point}\nµs" for point in ("minimum", "p50", "p99", "maximum")]
    _add_figures(
        table, "duplicated\npackets", "reordered\npackets", "altered\npackets", *times, "±\nµs", "jitter\nµs", "by"
    )
    for row in filter(_has_times, outcome.rows):
        values = stream_values(row)
        counts = (values.get("duplicated_packets"), values.get("reordered_packets"), values.get("altered_packets"))
        times_ns = (
            values.get("latency_min_ns"),
            values.get("latency_p50_ns"),
            values.get("latency_p99_ns"),
            values.get("latency_max_ns"),
            values.get("latency_bound_ns"),
            values.get("jitter_sd_ns"),
        )
        figures = ["–" if ns is None else f"{ns / 1e3:,.1f}" for ns in times_ns]
        path, by = escape(f"{row.leg.source} → {_to(row.leg)}"), row.latency_by or ""
        table.add_row(escape(row.leg.stream), path, *map(_count, counts), *figures, by)
    return table


def _add_figures(table: Table, *names: str) -> None:
    """Adds columns of figures. The second line of a name is the unit."""
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)


def _to(leg: Leg) -> str:
    first, *others = leg.receivers
    return leg.to if len(others) < MOST_NAMED else f"{first} and {len(others)} more"


def _has_times(row: Row) -> bool:
    return row.capture.latency is not None or row.received.numbered


def describe_unstamped(row: Row) -> str:
    """The counts of a stamped trace's frames without a stamp; empty where there are none."""
    sent, received = row.sent.unstamped, row.received.unstamped
    if not sent and not received:
        return ""
    lost = None if sent is None or received is None else sent - received
    counts = f"frames without room for a stamp: {_count(sent)} sent, {_count(received)} received, {_count(lost)} lost"
    return f"{row.leg.stream}, {row.leg.source} → {row.leg.target}: {counts}, by count"


def describe_flows(counts: list[FlowCountRow]) -> str:
    """The number of trace flows with loss, and the flow that lost most."""
    flows = [flow for flow in counts if flow["intended_packets"]]
    losing = [(lost, flow) for flow in flows if (lost := flow["lost_packets"]) is not None and lost > 0]
    unknown = sum(flow["lost_packets"] is None for flow in flows)
    text = f"{len(losing):,} of {len(flows):,} flows of traces lost packets, by count"
    text += f"; packets sent of {unknown:,} are not known" if unknown else ""
    if losing:
        lost, worst = max(losing, key=lambda loss: loss[0])
        source = _end(worst.get("source", ""), worst.get("source_port"))
        target = _end(worst.get("target", ""), worst.get("target_port"))
        text += f"; the worst {source} → {target}: {lost:,} of {worst['sent_packets']:,}"
    return f"{text} (flow_counts.csv)"


def _end(address: str, port: int | None) -> str:
    return address if port is None else f"{address} port {port}"


def connection_table(outcome: Outcome) -> Table:
    """Connections, targets first, then the background. Delay and jitter are those of blocks."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("connections", no_wrap=True)
    table.add_column("from → to", no_wrap=True)
    counts = ("", "sent\nblocks", "received\nblocks", "lost\ndatagrams", "goodput\nMbit/s", "resent\nsegments")
    _add_figures(table, *counts, "round trip\nms", "delay\nms", "\n± ms", "jitter\nms")
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
        _count(row.sent.packets),
        _count(row.received.packets),
        _lost(row.lost),
        _rate(values["received_pps"] or values["sent_pps"]),
        _scaled(values["received_bps"] or values["sent_bps"], 1e6),
        "" if row.k is None else f"{row.k:.4f}",
    ]


def _total_cells(name: str, total: PacketSums) -> list[str]:
    k = total["k"]
    counts = (total["intended_packets"], total["sent_packets"], total["received_packets"])
    lost = _lost(total["lost_packets"])
    return [escape(name), "all", *map(_count, counts), lost, "", "", "" if k is None else f"{k:.4f}"]


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _lost(value: int | None) -> str:
    return _count(value) if not value else f"[red]{value:,}[/]"


def _scaled(value: float | None, unit: float) -> str:
    return "–" if value is None else f"{value / unit:,.2f}"


def _rate(value: float | None) -> str:
    """A rate in packets/s, with decimals where they say something."""
    return "–" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:,.4g}"


def print_outcome(console: Console, outcome: Outcome, folder: object) -> None:
    if device := dut.line(outcome.document.get("dut")):
        console.print(f"[dim]device under test: {escape(device)}[/]", highlight=False)
    _print_tables(console, outcome)
    _print_users(console, outcome)
    _print_traces(console, outcome)
    _print_verdict(console, outcome)
    console.print(f"results: {folder}", soft_wrap=True)


def _print_tables(console: Console, outcome: Outcome) -> None:
    if outcome.rows:
        console.print(table(outcome))
    host = outcome.document.get("dut_host")
    if host is not None and host["words"]:
        console.print(escape(host["words"]), highlight=False)
    if outcome.connections:
        console.print(connection_table(outcome))
    if any(_has_times(row) for row in outcome.rows):
        console.print(stamp_table(outcome))


def _print_users(console: Console, outcome: Outcome) -> None:
    for stream in dict.fromkeys(row.leg.stream for row in outcome.rows if row.users is not None):
        legs = [row.users for row in outcome.rows if row.users is not None and row.leg.stream == stream]
        console.print(escape(users.line(legs)))
    document = outcome.document
    counted, handover, upf = document.get("users"), document.get("handover"), document.get("upf")
    lines = [] if counted is None else user_report.lines(counted)
    lines += [] if handover is None else handover_report.lines(handover)
    lines += [] if not upf else [f"N4  {line}" for line in upf_lines(upf)]
    for line in lines:
        console.print(escape(line), highlight=False)


def _print_traces(console: Console, outcome: Outcome) -> None:
    if outcome.flows:
        console.print(replayed_flows.table(outcome.flows))
    for row in outcome.rows:
        for line in filter(None, (describe_unstamped(row), trace_verify.describe(row))):
            console.print(f"[dim]{escape(line)}[/]")
    if outcome.flow_counts:
        console.print(escape(describe_flows(outcome.flow_counts)))
    if any(row.lost_by == "difference" for row in outcome.rows):
        console.print("[dim]lost by count: without stamps, lost is sent − received.[/]")


def _print_verdict(console: Console, outcome: Outcome) -> None:
    document = outcome.document
    for note in document.get("notes", []):
        console.print(f"[dim]note: {escape(note)}[/]")
    for choice in document.get("engines", []):
        console.print(f"[dim]{escape(choice)}[/]")
    for doubt in document["doubts"]:
        console.print(f"[yellow]{escape(doubt)}[/]")
    for verdict in document["verdicts"]:
        mark = "[green]as expected[/]" if verdict["holds"] else "[red]not as expected[/]"
        console.print(f"{mark}  {escape(verdict['text'])}")
    console.print(f"[{COLOURS[outcome.status]}]exit {outcome.status}: {escape(outcome.reason)}[/]")
