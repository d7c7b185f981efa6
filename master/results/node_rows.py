"""Rows of nodes.csv and of connections.csv from the reports of the nodes."""

from __future__ import annotations

from dataclasses import replace

from pktswarm.master.cluster.node import (
    NodeState,
    dropped_packets,
    failed_packets,
    received_packets,
    sent_packets,
)
from pktswarm.master.results.document_rows import NodeRow
from pktswarm.master.results.run_state import RunState
from pktswarm.traffic.connections.counts import ConnectionRow, directions

NODE_COLUMNS = [
    "node",
    "role",
    "state",
    "interface",
    "driver",
    "kernel",
    "sent_packets",
    "received_packets",
    "missed_packets",
    "tx_packets",
    "rx_packets",
    "tx_dropped_packets",
    "rx_dropped_packets",
    "tx_error_packets",
    "rx_error_packets",
    "failed_packets",
    "clock_offset_ns",
    "clock_bound_ns",
    "released_ns",
    "problem",
]


def node_rows(state: RunState) -> list[NodeRow]:
    return [_node_row(state, node) for node in state.nodes.values()]


def _node_row(state: RunState, node: NodeState) -> NodeRow:
    interface, report = node.interface or {}, node.report
    clock = node.clock.get("start") or node.clock.get("before")
    return {
        "node": node.rank.host.name,
        "role": node.rank.role,
        "state": "lost" if node.lost else "failed" if node.problem else "ok",
        "interface": node.rank.host.traffic_interface,
        "driver": report.interface.driver if report and report.interface.exists else None,
        "kernel": report.kernel if report else None,
        "sent_packets": sent_packets(node),
        "received_packets": received_packets(node),
        "missed_packets": dropped_packets(node),
        "tx_packets": interface.get("tx_packets"),
        "rx_packets": interface.get("rx_packets"),
        "tx_dropped_packets": interface.get("tx_dropped"),
        "rx_dropped_packets": interface.get("rx_dropped"),
        "tx_error_packets": interface.get("tx_errors"),
        "rx_error_packets": interface.get("rx_errors"),
        "failed_packets": failed_packets(node),
        "clock_offset_ns": clock.offset_ns if clock else None,
        "clock_bound_ns": clock.bound_ns if clock else None,
        "released_ns": None
        if node.released_ns is None or state.start_ns is None
        else node.released_ns - state.start_ns,
        "problem": node.problem,
    }


def connection_rows(state: RunState) -> list[ConnectionRow]:
    """One row for each leg of connections and direction."""
    ends = {(n.rank.host.name, n.rank.role): n for n in state.nodes.values()}
    rows = []
    for leg in (leg for leg in state.resolved.legs if leg.kind == "connections"):
        source, target = ends[leg.source, "transmit"], ends[leg.target, "receive"]
        for direction in directions(leg):
            sender, receiver = (source, target) if direction == "up" else (target, source)
            rows.append(_connection_row(state, ConnectionRow(leg, direction), sender, receiver))
    return rows


def _connection_row(state: RunState, row: ConnectionRow, sender: NodeState, receiver: NodeState) -> ConnectionRow:
    sent, received = sender.connections.get(row.leg.id), receiver.connections.get(row.leg.id)
    row.sent = None if sent is None else sent.sent
    row.received = None if received is None else received.received
    here, there = receiver.offset_at(state.middle_ns()), sender.offset_at(state.middle_ns())
    if here is not None and there is not None:
        row.delay_shift_ns = there.offset_ns - here.offset_ns
        row.delay_bound_ns = there.bound_ns + here.bound_ns
        if row.udp:  # arrivals are of UTC
            row.delay_bound_ns += min(clock.round_trip_ns for clock in receiver.clock.values())
    if row.received is not None and state.faults().of_datagrams(row):
        row.received = replace(row.received, delay_blocks=0, jitter_sd_ns=None, goodput_bps=None)
    if received is not None and row.received is not None:
        for name in ("first_ns", "last_ns"):
            at_ns = getattr(row.received, name)
            by_ns = received.realtime_minus_monotonic_ns
            setattr(row, name, state.since_start(None if at_ns is None else at_ns + by_ns, receiver, by_ns))
    return row
