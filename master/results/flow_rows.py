"""Rows of streams.csv from the counts of the nodes: one for each flow, or for all instances of a trace."""

from __future__ import annotations

from dataclasses import replace

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.results import handover_rows, misdelivered
from pktswarm.master.results.clock_faults import impossible, leave_out_stamps
from pktswarm.master.results.row import ReceivedCounts, ReceiverCounts, Row, SentCounts
from pktswarm.master.results.run_state import RunState
from pktswarm.master.results.users import Users
from pktswarm.traffic.counting import echo
from pktswarm.traffic.counting.tally import Tally
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveCount, SendCount, with_fcs


def rows(state: RunState) -> list[Row]:
    """One row for each leg, with the counts of its sender and receiver; the instances of a trace share a row."""
    legs = [leg for leg in state.resolved.legs if leg.kind != "connections"]
    rows = {
        leg.id: Row(leg, _intended(state, leg), SentCounts(leg.engine), users=Users(leg) if leg.users else None)
        for leg in legs
    }
    _take_counts(state, rows)
    for row in rows.values():
        if why := state.faults().of_seconds(row.leg, row.sent.engine):
            row.sent.omitted_timing.append(f"the send rate, because {why}")
            row.sent.seconds = None
        if row.leg.echo_of is not None:
            _take_echo(row, rows[row.leg.echo_of])
    folded = fold(rows)
    misdelivered.take(folded, state.nodes.values())
    for row in folded:
        if row.users is not None and (due := state.resolved.by_user.get(row.leg.id)):
            row.users.take_due(*due, row.sent.packets)
        if row.users is not None and state.moves is not None:
            row.users.moves = state.moves.of(row.users.leg)
    return folded


def _intended(state: RunState, leg: Leg) -> int | None:
    """None where the rate was changed while it was sent."""
    return None if leg.held or leg.id in state.rates_set else leg.intended_packets


def _take_counts(state: RunState, rows: dict[int, Row]) -> None:
    """Enters the counts of all nodes; those of several receivers of one leg are merged."""
    receivers: dict[int, dict[str, ReceiverCounts]] = {
        leg_id: {} for leg_id, row in rows.items() if row.leg.handover_targets
    }
    for node in state.nodes.values():
        for sent in node.sent or []:
            _take_sent(rows[sent.leg], sent)
            if sent.first_ns is not None:
                rows[sent.leg].sent.first_ns = state.monotonic_since_start(sent.first_ns, node)
        for received in node.received or []:
            row = rows[received.leg]
            if row.leg.handover_targets:
                receivers[row.leg.id][node.rank.host.name] = _one_of_several(state, row.leg, received, node)
            elif row.received.packets is None:
                row.received = _received(state, row.leg, received, node, row.users)
            else:
                row.capture.packets = received.received_packets
    for leg_id, counts in receivers.items():
        handover_rows.merge(rows[leg_id], counts)


def _one_of_several(state: RunState, leg: Leg, count: ReceiveCount, node: NodeState) -> ReceiverCounts:
    """The counts of one of several receivers."""
    users = Users(leg)
    received = _received(state, leg, count, node, users)
    return ReceiverCounts(received, users, count.marks)


def _received(state: RunState, leg: Leg, count: ReceiveCount, node: NodeState, users: Users | None) -> ReceivedCounts:
    """The counts of a receiver; those of single users are entered in `users`."""
    by_ns = count.utc_less_monotonic_ns
    received = ReceivedCounts(
        packets=count.received_packets,
        bytes=with_fcs(count.received_bytes, count.received_packets),
        frames=count.received_frames,
        unstamped=count.unstamped_packets,
        missed=count.dropped_packets,
        tally=None if count.tally is None else Tally.from_json(count.tally),
        delays=None if count.delays is None else [(ns, frames) for ns, frames in count.delays],
        first_ns=state.since_start(count.first_ns, node, by_ns),
        last_ns=state.since_start(count.last_ns, node, by_ns),
        timed_every=count.timed_every,
    )
    if received.tally is not None:
        _correct_latency(state, leg, received, users, node)
    if users is not None:
        users.take_received(count.users, received.numbered)
    if count.first_ns is not None and by_ns is None and (why := state.faults().utc_set(node.rank.host.name)):
        received.omitted_timing.append(f"first and last arrival, because {why}")
    return received


def _correct_latency(
    state: RunState, leg: Leg, received: ReceivedCounts, users: Users | None, receiver: NodeState
) -> None:
    """Corrects latencies, which the receiver counts by the clock readings before the run, by all readings, and sets
    their error bound."""
    host = receiver.rank.host.name
    task = state.resolved.receives.get(host)
    tai = task is not None and task.tai
    error = state.latency_error_ns(leg, receiver, state.middle_ns())
    if error is not None:
        _shift_latency(state, leg, received, users, error[0], receiver)
    why = state.faults().of_stamps(leg, host, tai) or impossible(received, leg.source, host)
    leave_out_stamps(received, users, why)


def _shift_latency(
    state: RunState, leg: Leg, received: ReceivedCounts, users: Users | None, error_ns: int, receiver: NodeState
) -> None:
    """Shifts all latencies by one constant. The bound includes the error at the begin and the end of sending."""
    errors = (state.latency_error_ns(leg, receiver, at_ns) for at_ns in state.sending_ns())
    received.latency_bound_ns = max(abs(error[0] - error_ns) + error[1] for error in errors if error is not None)
    if received.tally is not None and received.latency is not None:
        received.tally = replace(received.tally, latency=received.latency.shifted(error_ns))
    if received.delays is not None:
        received.delays = [(ns + error_ns, frames) for ns, frames in received.delays]
    if users is not None:
        users.shift_ns = error_ns


def fold(rows: dict[int, Row]) -> list[Row]:
    """Adds each leg that is merged into another to the row of that one."""
    for row in rows.values():
        if row.leg.merged_into is not None:
            first = rows[row.leg.merged_into]
            first.intended = _sum(first.intended, row.intended)
            _add_sent(first.sent, row.sent)
    return [row for row in rows.values() if row.leg.merged_into is None]


def _add_sent(total: SentCounts, instance: SentCounts) -> None:
    """Adds the counts of another instance of a trace."""
    total.packets = _sum(total.packets, instance.packets)
    total.bytes = _sum(total.bytes, instance.bytes)
    total.stamped = _sum(total.stamped, instance.stamped)
    total.max_lateness_ns = _most(total.max_lateness_ns, instance.max_lateness_ns)
    total.late = _sum(total.late, instance.late)
    total.seconds = _span_s(total, instance)
    total.first_ns = min((ns for ns in (total.first_ns, instance.first_ns) if ns is not None), default=None)


def _span_s(first: SentCounts, second: SentCounts) -> float | None:
    """Seconds from the first frame of both to the last: instances begin at different times."""
    known = [(sent.first_ns, sent.seconds) for sent in (first, second)]
    ends = [(first_ns, first_ns + s * 1e9) for first_ns, s in known if first_ns is not None and s is not None]
    if len(ends) == 2:
        return (max(end for _, end in ends) - min(first_ns for first_ns, _ in ends)) / 1e9
    return max(filter(None, (first.seconds, second.seconds)), default=None)


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _most(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else max(left, right)


def _take_sent(row: Row, count: SendCount) -> None:
    row.sent = SentCounts(
        engine=count.engine,
        packets=count.sent_packets,
        bytes=with_fcs(count.sent_bytes, count.sent_packets),
        frames=count.sent_frames,
        stamped=count.stamped_packets,
        late=count.late_packets,
        max_lateness_ns=count.latest_ns,
        resent=count.resent_packets,
        seconds=count.seconds,
        flows=count.flows,
    )
    if row.users is not None:
        row.users.take_sent(count.users)
        row.users.seconds = count.seconds


def _take_echo(row: Row, there: Row) -> None:
    """Takes the intended packets of a leg of echoes from those received of the leg `there` that it echoes."""
    if there.received.packets is not None:
        row.intended = echo.due(there.received.packets, row.leg.echo_percent)
    if row.users is not None:
        row.users.echoes = there.users
