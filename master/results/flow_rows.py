"""Rows of streams.csv from the counts of the nodes: one for each flow, or for all instances of a trace."""

from __future__ import annotations

from dataclasses import replace

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.results import handover_rows, misdelivered
from pktswarm.master.results.clock_faults import leave_out_stamps
from pktswarm.master.results.row import Row
from pktswarm.master.results.run_state import RunState
from pktswarm.master.results.users import Users
from pktswarm.traffic.counting import echo
from pktswarm.traffic.counting.tally import Tally
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveCount, SendCount, with_fcs


def rows(state: RunState) -> list[Row]:
    """One row for each leg, with the counts of its sender and receiver; the instances of a trace share a row."""
    legs = [leg for leg in state.resolved.legs if leg.kind != "connections"]
    rows = {leg.id: Row(leg, leg.engine, leg.intended_packets, users=Users(leg) if leg.users else None) for leg in legs}
    _take_counts(state, rows)
    for row in rows.values():
        if why := state.faults().of_seconds(row.leg, row.engine):
            row.omitted_timing.append(f"the send rate, because {why}")
            row.seconds = None
        if row.leg.echo_of is not None:
            _take_echo(row, rows[row.leg.echo_of])
    folded = fold(rows)
    misdelivered.take(folded, state.nodes.values())
    for row in folded:
        if row.users is not None and (due := state.resolved.by_user.get(row.leg.id)):
            row.users.take_due(*due, row.sent)
        if row.users is not None and state.moves is not None:
            row.users.moves = state.moves.of(row.users.leg)
    return folded


def _take_counts(state: RunState, rows: dict[int, Row]) -> None:
    """Enters the counts of all nodes; those of several receivers of one leg are merged."""
    parts: dict[int, dict[str, Row]] = {leg: {} for leg, row in rows.items() if row.leg.handover_targets}
    for node in state.nodes.values():
        for sent in node.sent or []:
            _take_sent(rows[sent.leg], sent)
            if sent.first_ns is not None:
                rows[sent.leg].left_ns = state.monotonic_since_start(sent.first_ns, node)
        for received in node.received or []:
            row = rows[received.leg]
            if row.leg.handover_targets:
                parts[row.leg.id][node.rank.host.name] = _part(state, row.leg, received, node)
            else:
                _take_received(state, row, received, node)
    for leg_id, received_parts in parts.items():
        handover_rows.merge(rows[leg_id], received_parts)


def _part(state: RunState, leg: Leg, count: ReceiveCount, node: NodeState) -> Row:
    """The counts of one of several receivers."""
    row = Row(leg, count.engine, marks=count.marks, delays=count.delays, users=Users(leg))
    _take_received(state, row, count, node)
    return row


def _take_received(state: RunState, row: Row, count: ReceiveCount, node: NodeState) -> None:
    if row.received is not None:
        row.captured = count.received_packets
        return
    if count.tally is not None:
        row.tally = Tally.from_json(count.tally)
        _correct_latency(state, row, node)
    row.received, row.unstamped = count.received_packets, count.unstamped_packets
    row.received_bytes = with_fcs(count.received_bytes, row.received)
    if row.users is not None:
        row.users.take_received(count.users, row.tally is not None and row.tally.distinct is not None)
    row.missed, row.received_frames = count.dropped_packets, count.received_frames
    by_ns = count.utc_less_monotonic_ns
    if count.first_ns is not None and by_ns is None and (why := state.faults().utc_set(node.rank.host.name)):
        row.omitted_timing.append(f"first and last arrival, because {why}")
    row.first_ns = state.since_start(count.first_ns, node, by_ns)
    row.last_ns = state.since_start(count.last_ns, node, by_ns)


def _correct_latency(state: RunState, row: Row, receiver: NodeState) -> None:
    """Corrects latencies, which the receiver counts by the clock readings before the run, by all readings, and sets
    their error bound."""
    host = receiver.rank.host.name
    task = state.resolved.receives.get(host)
    tai = task is not None and task.tai
    found = state.latency_error_ns(row.leg, receiver, state.middle_ns())
    if found is not None and row.tally is not None:
        _shift_latency(state, row, found[0], receiver)
    leave_out_stamps(row, state.faults().of_stamps(row.leg, host, tai))


def _shift_latency(state: RunState, row: Row, error_ns: int, receiver: NodeState) -> None:
    """Shifts all latencies by one constant. The bound includes the error at the begin and the end of sending."""
    errors = (state.latency_error_ns(row.leg, receiver, at_ns) for at_ns in state.sending_ns())
    row.clock_bound_ns = max(abs(error[0] - error_ns) + error[1] for error in errors if error is not None)
    assert row.tally is not None
    if row.tally.latency is not None:
        row.tally = replace(row.tally, latency=row.tally.latency.shifted(error_ns))
    if row.users is not None:
        row.users.shift_ns = error_ns


def fold(rows: dict[int, Row]) -> list[Row]:
    """Adds each leg that is merged into another to the row of that one."""
    for row in rows.values():
        if row.leg.merged_into is not None:
            first = rows[row.leg.merged_into]
            first.intended, first.sent = _sum(first.intended, row.intended), _sum(first.sent, row.sent)
            first.sent_bytes = _sum(first.sent_bytes, row.sent_bytes)
            first.stamped = _sum(first.stamped, row.stamped)
            first.latest_ns = _most(first.latest_ns, row.latest_ns)
            first.late = _sum(first.late, row.late)
            first.seconds = _span_s(first, row)
            first.left_ns = min((ns for ns in (first.left_ns, row.left_ns) if ns is not None), default=None)
    return [row for row in rows.values() if row.leg.merged_into is None]


def _span_s(one: Row, other: Row) -> float | None:
    """Seconds from the first frame of both to the last: instances begin at different times."""
    known = [(row.left_ns, row.seconds) for row in (one, other)]
    ends = [(begun, begun + s * 1e9) for begun, s in known if begun is not None and s is not None]
    if len(ends) == 2:
        return (max(end for _, end in ends) - min(begun for begun, _ in ends)) / 1e9
    return max(filter(None, (one.seconds, other.seconds)), default=None)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _most(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _take_sent(row: Row, count: SendCount) -> None:
    row.engine = count.engine
    row.sent = count.sent_packets
    row.sent_bytes = with_fcs(count.sent_bytes, row.sent)
    row.seconds = count.seconds
    row.late = count.late_packets
    row.sent_frames = count.sent_frames
    row.stamped, row.latest_ns = count.stamped_packets, count.latest_ns
    row.resent, row.flows = count.resent_packets, count.flows
    if row.users is not None:
        row.users.take_sent(count.users)
        row.users.seconds = row.seconds


def _take_echo(row: Row, there: Row) -> None:
    if there.received is not None:
        row.intended = echo.due(there.received, row.leg.echo_percent)
    if row.users is not None:
        row.users.echoes = there.users
