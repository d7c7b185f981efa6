"""What the nodes told during a run, kept in order, and what it amounts to: rows, nodes, checks, verdict, status."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import cast

from pktswarm.master.cluster.clock_offsets import Clocks
from pktswarm.master.cluster.node import (
    NodeState,
    dropped_packets,
    failed_packets,
    mended,
    outages,
    received_packets,
    sent_packets,
    unfinished,
)
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.cluster.utc_steps import UtcSteps
from pktswarm.master.dut_host import report as host_report
from pktswarm.master.dut_host.watch import HostDrops
from pktswarm.master.files import utc
from pktswarm.master.plan import interactive
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results import (
    handover_report,
    handover_rows,
    metric_verdicts,
    misdelivered,
    proxy_counts,
    trace_verify,
    user_report,
)
from pktswarm.master.results.clock_faults import ClockFaults, leave_out_stamps
from pktswarm.master.results.count_verdicts import (
    judge,
    judge_connections,
    judge_mbr,
    judge_tunnels,
    with_host_drops,
)
from pktswarm.master.results.document import FORMAT_VERSION, PhaseTime, RunDocument, RunInputs, Verdict
from pktswarm.master.results.document_handover import HandoverResult
from pktswarm.master.results.document_rows import NodeRow, ReplayedFlow
from pktswarm.master.results.doubts import doubts
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.row import Row, stream_values
from pktswarm.master.results.totals import group_totals, node_totals, totals
from pktswarm.master.results.trace_verify import Compared
from pktswarm.master.results.users import Users
from pktswarm.master.scenario.expectations import Expect
from pktswarm.master.upf.moves import Moves
from pktswarm.traffic.connections.counts import ConnectionRow, directions
from pktswarm.traffic.connections.counts import values as connection_values
from pktswarm.traffic.counting import echo
from pktswarm.traffic.counting.tally import Tally
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED
from pktswarm.traffic.frames.stamp import LAYOUT_VERSION
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.codec import to_fields
from pktswarm.traffic.protocol.rank0_events import (
    BarrierLeft,
    Capture,
    Clock,
    Drift,
    Lost,
    Note,
    Phase,
    Piece,
    Rank0Event,
    Start,
    Stopped,
)
from pktswarm.traffic.protocol.rank_events import (
    Counts,
    Failed,
    GuardGone,
    Hello,
    InterfaceGone,
    Left,
    NodeEvent,
    Restored,
    Sample,
    UtcSet,
)
from pktswarm.traffic.protocol.task import ReceiveCount, SendCount, with_fcs

STOPPED = "stopped by the user"
MASTER_WITHIN_NS = 50_000_000
"""A busy master may be interrupted between its two clocks; nothing is measured with its UTC."""


@dataclass(frozen=True)
class Tick:
    """Ten times a second, for a watcher that shows how time passes."""


@dataclass(frozen=True)
class Sessions:
    """A UPF has answered for `done` of the `asked` sessions."""

    done: int
    asked: int


Shown = Rank0Event | Tick | Sessions
"""The events for a watcher of the run."""


class Ledger:
    """Takes every event of rank 0 in `take`; `outcome` makes the results of it at any time."""

    def __init__(self, ranks: list[Rank]) -> None:
        self.nodes = {rank.number: NodeState(rank) for rank in ranks}
        self.resolved = Resolved([])
        self.phases: list[tuple[str, int]] = []
        self.start_ns: int | None = None
        self.start_utc_ns: int | None = None
        self.stopped = ""
        self.over = False
        self.bad_input = ""
        self.barriers: dict[str, dict[int, int]] = {}
        self.notes: list[str] = []
        self.more_doubts: list[str] = []
        """Of what is not the nodes'."""
        self.master_utc = UtcSteps()
        self.moves: Moves | None = None
        """Of users that were to move to other gNBs, once the sessions have ended."""
        self.dut_host: HostDrops | None = None
        """Of the device's host, where it is read."""

    @property
    def phase(self) -> str:
        return self.phases[-1][0] if self.phases else "launch"

    def take(self, event: Rank0Event) -> None:
        match event:
            case Phase(name, at_ns):
                self.phases.append((name, at_ns))
                self.over = name == "over"
            case Note(text):
                self.notes.append(text)
            case Start(at_ns, utc_ns):
                self.start_ns, self.start_utc_ns = at_ns, utc_ns
                self.look_at_master_utc(at_ns, utc_ns - at_ns)
            case Stopped(problem):
                self.stopped = problem or STOPPED
            case Clock(rank):
                self.nodes[rank].take_clock(event)
            case Drift(rank):
                self.nodes[rank].take_check(event)
            case Lost(rank):
                node = self.nodes[rank]
                node.lost = True
                node.problem = f"{event.problem} ({node.last_heard(event.heard_ns, self.start_ns)})"
            case BarrierLeft() | Capture() | Piece():
                pass
            case _:
                self._take_of_node(event, self.nodes[event.rank])

    def _take_of_node(self, event: NodeEvent, node: NodeState) -> None:
        match event:
            case Hello(report=report):
                node.report = report
            case Left():
                self._take_left(event, node)
            case Sample():
                self._take_sample(event, node)
            case InterfaceGone():
                node.link.gone_ns = self.sampled_ns(event)
            case UtcSet(reading=reading):
                node.utc.take(self._ours_ns(event), *astuple(reading))
            case Failed(problem, bad_input):
                node.problem = node.problem or problem
                if bad_input and self.start_ns is None:
                    self.bad_input = self.bad_input or f"{node.rank.host.name}: {problem}"
            case GuardGone():
                node.problem = node.problem or "its guard is gone"
            case Counts():
                node.take_counts(event)
            case Restored(troubles) if troubles:
                node.problem = node.problem or f"could not restore everything: {troubles[0]}"

    def look_at_master_utc(self, at_ns: int, realtime_minus_monotonic_ns: int) -> None:
        self.master_utc.take(at_ns, realtime_minus_monotonic_ns, MASTER_WITHIN_NS)

    def _take_left(self, event: Left, node: NodeState) -> None:
        left_ns = event.at_ns - (event.offset_ns or 0)
        self.barriers.setdefault(event.name, {})[event.rank] = left_ns
        if event.name == "start":
            node.released_ns = left_ns

    def _take_sample(self, event: Sample, node: NodeState) -> None:
        node.sampled = event.interface
        if event.utc is not None:
            node.utc.take(self._ours_ns(event), *astuple(event.utc))
        node.outages.take(self.sampled_ns(event), event.interface)
        node.link.take(self.sampled_ns(event), event.interface)

    def sampled_ns(self, event: Sample | InterfaceGone) -> int:
        """When a sample was taken, since the start instant."""
        return self._ours_ns(event) - (self.start_ns or 0)

    def _ours_ns(self, event: Sample | InterfaceGone | UtcSet) -> int:
        """When a node's event was, on the master's clock."""
        clock = self.nodes[event.rank].clock.get("start")
        return event.at_ns - (0 if clock is None else clock.offset_ns)

    # --- what it amounts to -------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """One row a leg, with what its sender and its receiver counted; a trace's instances are one row."""
        legs = [leg for leg in self.resolved.legs if leg.kind != "connections"]
        rows = {
            leg.id: Row(leg, leg.engine, leg.intended_packets, users=Users(leg) if leg.users else None) for leg in legs
        }
        parts: dict[int, dict[str, Row]] = {leg.id: {} for leg in legs if leg.handover_targets}
        for node in self.nodes.values():
            for sent in node.sent or []:
                _take_sent(rows[sent.leg], sent)
                if sent.first_ns is not None:
                    rows[sent.leg].left_ns = self._monotonic_since_start(sent.first_ns, node)
            for received in node.received or []:
                row = rows[received.leg]
                if row.leg.handover_targets:
                    parts[row.leg.id][node.rank.host.name] = self._part(row.leg, received, node)
                else:
                    self._take_received(row, received, node)
        for leg_id, one in parts.items():
            handover_rows.merge(rows[leg_id], one)
        for row in rows.values():
            if why := self.faults().of_seconds(row.leg, row.engine):
                row.omitted_timing.append(f"the rate sent, because {why}")
                row.seconds = None
            if row.leg.echo_of is not None:
                _take_what_is_echoed(row, rows[row.leg.echo_of])
        folded = fold(rows)
        misdelivered.take(folded, self.nodes.values())
        for row in folded:
            if row.users is not None and (due := self.resolved.by_user.get(row.leg.id)):
                row.users.take_due(*due, row.sent)
            if row.users is not None and self.moves is not None:
                row.users.moves = self.moves.of(row.users.leg)
        return folded

    def _part(self, leg: Leg, count: ReceiveCount, node: NodeState) -> Row:
        """What one of the leg's receivers counted."""
        row = Row(leg, count.engine, marks=count.marks, delays=count.delays, users=Users(leg))
        self._take_received(row, count, node)
        return row

    def _take_received(self, row: Row, count: ReceiveCount, node: NodeState) -> None:
        if row.received is not None:
            row.captured = count.received_packets
            return
        if count.tally is not None:
            row.tally = Tally.from_json(count.tally)
            self._correct_latency(row, node)
        row.received, row.unstamped = count.received_packets, count.unstamped_packets
        row.received_bytes = with_fcs(count.received_bytes, row.received)
        if row.users is not None:
            row.users.take_received(count.users, row.tally is not None and row.tally.distinct is not None)
        row.missed, row.received_frames = count.dropped_packets, count.received_frames
        by_ns = count.utc_less_monotonic_ns
        if count.first_ns is not None and by_ns is None and (why := self.faults().utc_set(node.rank.host.name)):
            row.omitted_timing.append(f"when it came, because {why}")
        row.first_ns = self._since_start(count.first_ns, node, by_ns)
        row.last_ns = self._since_start(count.last_ns, node, by_ns)

    def connection_rows(self) -> list[ConnectionRow]:
        """One row a leg of connections and direction."""
        ends = {(n.rank.host.name, n.rank.role): n for n in self.nodes.values()}
        rows = []
        for leg in (leg for leg in self.resolved.legs if leg.kind == "connections"):
            source, target = ends[leg.source, "transmit"], ends[leg.target, "receive"]
            for direction in directions(leg):
                sender, receiver = (source, target) if direction == "up" else (target, source)
                rows.append(self._connection_row(ConnectionRow(leg, direction), sender, receiver))
        return rows

    def _connection_row(self, row: ConnectionRow, sender: NodeState, receiver: NodeState) -> ConnectionRow:
        sent, received = sender.connections.get(row.leg.id), receiver.connections.get(row.leg.id)
        row.sent = None if sent is None else sent.sent
        row.received = None if received is None else received.received
        here, there = receiver.offset_at(self._middle_ns()), sender.offset_at(self._middle_ns())
        if here is not None and there is not None:
            row.delay_shift_ns = there.offset_ns - here.offset_ns
            row.delay_bound_ns = there.bound_ns + here.bound_ns
        if row.received is not None and self.faults().of_datagrams(row):
            row.received = replace(row.received, delay_blocks=0, jitter_sd_ns=None, goodput_bps=None)
        if received is not None and row.received is not None:
            for name in ("first_ns", "last_ns"):
                at_ns = getattr(row.received, name)
                by_ns = received.realtime_minus_monotonic_ns
                setattr(row, name, self._since_start(None if at_ns is None else at_ns + by_ns, receiver, by_ns))
        return row

    def _correct_latency(self, row: Row, receiver: NodeState) -> None:
        """The receiver counted with the clocks as read before the run. What was read later says how they really stood
        in the middle of it, and how far off a latency may be."""
        host = receiver.rank.host.name
        task = self.resolved.receives.get(host)
        tai = task is not None and task.tai
        found = self.latency_error_ns(row.leg, receiver, self._middle_ns())
        if found is not None and row.tally is not None:
            self._shift_latency(row, found[0], receiver)
        leave_out_stamps(row, self.faults().of_stamps(row.leg, host, tai))

    def _shift_latency(self, row: Row, error_ns: int, receiver: NodeState) -> None:
        """By one constant: frames at either end of the sending may be further off than those in its middle."""
        told = (self.latency_error_ns(row.leg, receiver, at_ns) for at_ns in self._sending_ns())
        row.clock_bound_ns = max(abs(one[0] - error_ns) + one[1] for one in told if one is not None)
        assert row.tally is not None
        if row.tally.latency is not None:
            row.tally = replace(row.tally, latency=row.tally.latency.shifted(error_ns))
        if row.users is not None:
            row.users.shift_ns = error_ns

    def latency_error_ns(self, leg: Leg, receiver: NodeState, at_ns: int) -> tuple[int, int] | None:
        """What is to be added to latencies that were counted with the clocks as read before the run, by what is known
        of the clocks at `at_ns`; and how far off they may be then. None: not known, or it is PTP's own to tell."""
        if leg.echo_of is not None:
            return 0, 0  # sent and received by one clock
        source, target = leg.source, receiver.rank.host.name
        task, clocks = self.resolved.receives.get(target), self.clocks()
        if (task is not None and task.tai) or not {source, target} <= set(clocks.offsets_ns):
            return None
        sender = next(n for n in self.nodes.values() if n.rank.host.name == source and n.rank.role == "transmit")
        here, there = receiver.offset_at(at_ns), sender.offset_at(at_ns)
        if here is None or there is None:
            return None
        return there.offset_ns - here.offset_ns - clocks.between(source, target), here.bound_ns + there.bound_ns

    def clocks(self) -> Clocks:
        """As read before the run: what receivers count latencies with."""
        read = {node.rank.host.name: node.clock["before"] for node in self.nodes.values() if "before" in node.clock}

        return Clocks(
            {host: clock.offset_ns for host, clock in read.items()},
            {host: clock.bound_ns for host, clock in read.items()},
            {host: clock.realtime_minus_monotonic_ns for host, clock in read.items()},
        )

    def _middle_ns(self) -> int:
        return self._sending_ns()[1]

    def _sending_ns(self) -> tuple[int, int, int]:
        """Its begin, middle and end, on the master's clock."""
        times = dict(self.phases)
        start_ns = self.start_ns or times.get("send", 0)
        end_ns = max(start_ns, times.get("drain", times.get("gather", 0)))
        return start_ns, (start_ns + end_ns) // 2, end_ns

    def faults(self) -> ClockFaults:
        return ClockFaults(self.nodes.values(), self.start_ns)

    def _since_start(self, realtime_ns: int | None, node: NodeState, by_ns: int | None = None) -> int | None:
        """A node's UTC reading as nanoseconds since the start instant. `by_ns`: what the node had added to its
        CLOCK_MONOTONIC to make it; None: it is the kernel's, and not known where UTC was set meanwhile."""
        clock = node.clock.get("start") or node.clock.get("before")
        if realtime_ns is None or clock is None or self.start_ns is None:
            return None
        if by_ns is None and self.faults().utc_set(node.rank.host.name):
            return None
        by_ns = clock.realtime_minus_monotonic_ns if by_ns is None else by_ns
        return self._monotonic_since_start(realtime_ns - by_ns, node)

    def _monotonic_since_start(self, node_ns: int, node: NodeState) -> int | None:
        offset = None if self.start_ns is None else node.offset_at(self.start_ns)
        return None if offset is None or self.start_ns is None else int(node_ns - offset.offset_ns - self.start_ns)

    def node_rows(self) -> list[NodeRow]:
        return [self._node_row(node) for node in self.nodes.values()]

    def _node_row(self, node: NodeState) -> NodeRow:
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
            if node.released_ns is None or self.start_ns is None
            else node.released_ns - self.start_ns,
            "problem": node.problem,
        }

    def doubts(self, rows: list[Row] | None = None) -> list[str]:
        """Why the counts cannot be trusted in full; empty when they can. `rows`: where they are made already."""
        rows = self.rows() if rows is None else rows
        found = doubts(list(self.nodes.values()), self.resolved, rows, self.connection_rows())
        return found + self.more_doubts

    def _match_latencies(self, rows: list[Row], compared: Sequence[Compared]) -> None:
        by_leg = {row.leg.id: row for row in rows}
        ends = {(node.rank.host.name, node.rank.role): node for node in self.nodes.values()}
        for one in compared:
            row, leg = by_leg[one.leg.id], one.leg
            sender, receiver = ends[leg.transmitter, "transmit"], ends[leg.receiver, "receive"]
            if why := self.faults().of_capture(leg):
                row.omitted_timing.append(f"what its captures tell of times, because {why}")
            elif self.start_ns is not None and one.agrees(row):
                found = trace_verify.latency(one, row, sender, receiver, self.start_ns, self._middle_ns())
                row.matched, row.matched_bound_ns = found or (None, None)

    def outcome(self, expect: Expect, extra: RunInputs, compared: Sequence[Compared] = ()) -> Outcome:
        """`compared`: of traces, captures beside what was intended."""
        rows, connections = self.rows(), self.connection_rows()
        self._match_latencies(rows, compared)
        counted = [row.users for row in rows if row.users is not None]
        users = user_report.report(counted)
        judged = [
            *judge(expect, rows),
            *metric_verdicts.of_streams(expect, rows),
            *metric_verdicts.of_users(expect, rows),
        ]
        judged += [*judge_tunnels(expect, rows), *judge_mbr(expect, users["mbr"])]
        judged += metric_verdicts.of_sessions(expect, extra.get("upf"))
        moves = None if self.moves is None else self._handover(self.moves, counted)
        judged += metric_verdicts.of_end_markers(expect, moves)
        judged += [*judge_connections(expect, connections), *trace_verify.verdicts(compared)]
        sums = totals(rows)
        lost = sums[-1]["lost_packets"]
        host = None if self.dut_host is None else host_report.document(self.dut_host, lost)
        judged = with_host_drops(judged, host)
        why = self.doubts(rows)
        status, reason = self._status(judged, why)
        flows = flow_rows(rows)
        document = {
            "format_version": FORMAT_VERSION,
            "stamp_layout": LAYOUT_VERSION,
            "status": status,
            "reason": reason,
            "verdicts": judged,
            "doubts": why,
            "start_utc": None if self.start_utc_ns is None else utc(self.start_utc_ns),
            "phases": self._phase_table(),
            "release_skew_ns": self.release_skew_ns(),
            "first_frame_skew_ns": first_frame_skew_ns(rows),
            "engines": self.resolved.choices,
            "notes": self._notes(rows, compared, flows, with_moves=moves is not None),
            "played": proxy_counts.document(self.nodes.values()),
            "ranks": {
                str(n): {"host": s.rank.host.name, "role": s.rank.role, **(s.report.to_json() if s.report else {})}
                for n, s in self.nodes.items()
            },
            "clocks": {str(n): {w: to_fields(c) for w, c in s.clock.items()} for n, s in self.nodes.items()},
            "totals": sums,
            "groups": group_totals(rows),
            "by_node": node_totals(map(stream_values, rows)),
            "rows": [{"leg": row.leg.id, **stream_values(row), **handover_rows.document(row)} for row in rows],
            "flows": flows,
            "connections": [{"leg": row.leg.id, **connection_values(row)} for row in connections],
            "verified": trace_verify.document(compared),
            "latency_by_captures": trace_verify.latencies(rows),
            **({"users": users} if counted else {}),
            **({"handover": moves} if moves else {}),
            **({"dut_host": host} if host else {}),
            **extra,
        }
        counts = trace_verify.flow_rows(compared, rows)
        return Outcome(status, reason, rows, self.node_rows(), connections, cast(RunDocument, document), flows, counts)

    def _notes(
        self, rows: list[Row], compared: Sequence[Compared], flows: list[ReplayedFlow], with_moves: bool
    ) -> list[str]:
        """Observations that do not change the exit status. `with_moves`: end markers are reported with the handover."""
        return [
            *self.resolved.notes,
            *self.notes,
            *host_report.notes(self.dut_host),
            *interactive.trouble(flows),
            *trace_verify.trouble(compared, rows),
            *handover_rows.notes(rows),
            *proxy_counts.notes(self.nodes.values(), ["end_marker"] if with_moves else []),
            *mended(self.nodes.values()),
            *unfinished(self.nodes.values()),
            *outages(self.nodes.values()),
            *misdelivered.notes(rows, self.nodes.values(), self.resolved),
            *(
                f"the master: {step.describe(self.start_ns or 0)}; so are times in the log"
                for step in self.master_utc.found
            ),
            *self.faults().notes(rows),
        ]

    def _handover(self, moves: Moves, users: list[Users]) -> HandoverResult:
        gathered_ns = dict(self.phases).get("gather")
        return handover_report.report(moves, users, self.resolved.proxy_addresses, self.nodes.values(), gathered_ns)

    def _status(self, verdicts: list[Verdict], doubts: list[str]) -> tuple[int, str]:
        if self.stopped:
            return EXIT_INCOMPLETE, self.stopped
        if not self.over:
            return EXIT_INCOMPLETE, f"rank 0 was lost in phase {self.phase!r}"
        if doubts:
            return EXIT_INCOMPLETE, doubts[0]
        failed = [verdict for verdict in verdicts if not verdict["holds"]]
        if failed:
            return EXIT_NOT_AS_EXPECTED, failed[0]["text"]
        return EXIT_AS_EXPECTED, "as expected" if verdicts else "nothing was expected"

    def _phase_table(self) -> list[PhaseTime]:
        return [
            {"phase": name, "at_ns": None if self.start_ns is None else at_ns - self.start_ns, "monotonic_ns": at_ns}
            for name, at_ns in self.phases
        ]

    def release_skew_ns(self) -> dict[str, int]:
        """For each barrier: between the first and the last node to leave it, on the master's clock."""
        return {name: max(left.values()) - min(left.values()) for name, left in self.barriers.items() if len(left) > 1}


def fold(rows: dict[int, Row]) -> list[Row]:
    """Each leg that is counted with another added to that one's row."""
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
    """From the first frame of both to the last: instances do not begin together."""
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


def _take_what_is_echoed(row: Row, there: Row) -> None:
    if there.received is not None:
        row.intended = echo.due(there.received, row.leg.echo_percent)
    if row.users is not None:
        row.users.echoes = there.users


def flow_rows(rows: list[Row]) -> list[ReplayedFlow]:
    """Of interactive traces: what both ends tell of each flow."""
    back = {row.leg.answers: row for row in rows if row.leg.answers is not None}
    flows = []
    for row in rows:
        if row.flows is not None and row.leg.id in back:
            flows += interactive.flow_rows(row.leg, row.flows, back[row.leg.id].flows or [])
    return cast(list[ReplayedFlow], flows)


def first_frame_skew_ns(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Per engine: how far apart its nodes' first frames left (or arrived, where the engine does not tell), and when
    after the start instant: of a trace, whose first packet may be due later, after that was due."""
    return {engine: _skew(rows, engine) for engine in sorted({row.engine for row in rows}) if _skew(rows, engine)}


def _skew(rows: list[Row], engine: str) -> dict[str, float]:
    firsts: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        first_ns = row.first_ns if row.left_ns is None else row.left_ns
        first = row.leg.answers is None and row.leg.echo_of is None
        if row.engine == engine and first_ns is not None and first:
            firsts.setdefault(row.leg.source, []).append((first_ns, row.leg.timing.lead_ns))
    nodes = [first_ns - lead_ns for first_ns, lead_ns in map(min, firsts.values())]
    if not nodes:
        return {}
    return {"nodes": len(nodes), "skew": max(nodes) - min(nodes), "median_after_start": statistics.median(nodes)}
