"""What the nodes told during a run, kept in order, and what it amounts to: rows, nodes, checks, verdict, status."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from master import interactive
from master.clocks import Clocks, Reading, offset_at
from master.resolve import Rank, Resolved
from master.results import FORMAT_VERSION, Outcome, Row, group, stream_values, utc, with_fcs
from master.scenario import Expect
from master.users import Users
from traffic.connections import ConnectionRow, EndCount, directions
from traffic.connections import values as connection_values
from traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED
from traffic.tally import Tally

Event = dict[str, Any]


@dataclass
class NodeState:
    """One rank as the master knows it."""

    rank: Rank
    report: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    lost: bool = False
    counts: list[dict[str, Any]] | None = None
    """Of frames."""
    connections: dict[int, EndCount] = field(default_factory=dict)
    """By leg."""
    interface: dict[str, int] | None = None
    clock: dict[str, Any] = field(default_factory=dict)
    """When it was read ("before", "start", "after") → rank 0's event."""
    released_ns: int | None = None

    @property
    def name(self) -> str:
        return f"{self.rank.host.name} ({self.rank.role})"

    def offset_at(self, at_ns: int) -> Reading | None:
        """Its clock less the master's, at a time of the master's."""
        readings = [Reading(one["at_ns"], one["offset_ns"], one["bound_ns"]) for one in self.clock.values()]
        return offset_at(readings, at_ns)


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

    @property
    def phase(self) -> str:
        return self.phases[-1][0] if self.phases else "launch"

    def take(self, event: Event) -> None:
        handler = getattr(self, f"_on_{event['event'].replace(' ', '_')}", None)
        if handler is not None:
            handler(event)

    def _on_phase(self, event: Event) -> None:
        self.phases.append((event["name"], event["at_ns"]))
        self.over = event["name"] == "over"

    def _on_note(self, event: Event) -> None:
        self.notes.append(event["text"])

    def _on_hello(self, event: Event) -> None:
        self.nodes[event["rank"]].report = event["report"]

    def _on_clock(self, event: Event) -> None:
        self.nodes[event["rank"]].clock.setdefault(event["when"], event)

    def _on_start(self, event: Event) -> None:
        self.start_ns, self.start_utc_ns = event["at_ns"], event["utc_ns"]

    def _on_left(self, event: Event) -> None:
        left_ns = event["at_ns"] - event["offset_ns"]
        self.barriers.setdefault(event["name"], {})[event["rank"]] = left_ns
        if event["name"] == "start":
            self.nodes[event["rank"]].released_ns = left_ns

    def _on_lost(self, event: Event) -> None:
        node = self.nodes[event["rank"]]
        node.lost, node.problem = True, event["problem"]

    def _on_failed(self, event: Event) -> None:
        node = self.nodes[event["rank"]]
        node.problem = node.problem or event["problem"]
        if event["bad_input"] and self.start_ns is None:
            self.bad_input = self.bad_input or f"{node.rank.host.name}: {event['problem']}"

    def _on_guard_gone(self, event: Event) -> None:
        node = self.nodes[event["rank"]]
        node.problem = node.problem or "its guard is gone"

    def _on_counts(self, event: Event) -> None:
        node = self.nodes[event["rank"]]
        node.counts = [count for count in event["counts"] if count["connections"] is None]
        found = (count for count in event["counts"] if count["connections"] is not None)
        node.connections = {count["leg"]: EndCount.from_json(count["connections"]) for count in found}
        node.interface = event["interface"]

    def _on_restored(self, event: Event) -> None:
        for trouble in event["troubles"]:
            node = self.nodes[event["rank"]]
            node.problem = node.problem or f"could not restore everything: {trouble}"

    def _on_stopped(self, event: Event) -> None:
        self.stopped = event["problem"] or "stopped by the user"

    # --- what it amounts to -------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """One row a leg, with what its sender and its receiver counted; a trace's instances are one row."""
        legs = [leg for leg in self.resolved.legs if leg.kind != "connections"]
        rows = {
            leg.id: Row(leg, leg.engine, leg.intended_packets, users=Users(leg) if leg.users else None) for leg in legs
        }
        for node in self.nodes.values():
            for count in node.counts or []:
                row = rows[count["leg"]]
                if "sent_packets" in count:
                    _take_sent(row, count)
                    if count["first_ns"] is not None:
                        row.left_ns = self._monotonic_since_start(count["first_ns"], node)
                else:
                    self._take_received(row, count, node)
        folded = fold(rows)
        for row in folded:
            if row.users is not None and (due := self.resolved.by_user.get(row.leg.id)):
                row.users.take_due(*due, row.sent)
        return folded

    def _take_received(self, row: Row, count: dict[str, Any], node: NodeState) -> None:
        if row.received is not None:
            row.captured = count["received_packets"]
            return
        if count["tally"] is not None:
            row.tally = Tally.from_json(count["tally"])
            self._correct_latency(row, node)
        row.received = count["received_packets"]
        row.received_bytes = with_fcs(count["received_bytes"], row.received)
        if row.users is not None:
            row.users.take_received(count["users"], row.tally is not None and row.tally.distinct is not None)
        row.missed = count["dropped_packets"]
        row.first_ns = self._since_start(count["first_ns"], node)
        row.last_ns = self._since_start(count["last_ns"], node)

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
        if received is not None and row.received is not None:
            for name in ("first_ns", "last_ns"):
                at_ns = getattr(row.received, name)
                utc_ns = None if at_ns is None else at_ns + received.realtime_minus_monotonic_ns
                setattr(row, name, self._since_start(utc_ns, receiver))
        return row

    def _correct_latency(self, row: Row, receiver: NodeState) -> None:
        """The receiver counted with the clocks as read before the run. What was read later says how they really stood
        in the middle of it, and how far off a latency may be."""
        task = self.resolved.receives.get(receiver.rank.host.name)
        if task is not None and task.tai:
            return  # PTP's own to tell
        clocks = self.clocks()
        source, target = row.leg.source, receiver.rank.host.name
        sender = next(n for n in self.nodes.values() if n.rank.host.name == source and n.rank.role == "transmit")
        here, there = receiver.offset_at(self._middle_ns()), sender.offset_at(self._middle_ns())
        if here is None or there is None or row.tally is None or not {source, target} <= set(clocks.offsets_ns):
            return
        row.clock_bound_ns = here.bound_ns + there.bound_ns
        error_ns = there.offset_ns - here.offset_ns - clocks.between(source, target)
        if row.tally.latency is not None:
            row.tally = replace(row.tally, latency=row.tally.latency.shifted(error_ns))

    def clocks(self) -> Clocks:
        """As read before the run: what receivers count latencies with."""
        read = {node.rank.host.name: node.clock["before"] for node in self.nodes.values() if "before" in node.clock}

        def each(name: str) -> dict[str, int]:
            return {host: int(clock[name]) for host, clock in read.items()}

        return Clocks(each("offset_ns"), each("bound_ns"), each("realtime_minus_monotonic_ns"))

    def _middle_ns(self) -> int:
        """Of the sending, on the master's clock."""
        times = dict(self.phases)
        start_ns = self.start_ns or times.get("send", 0)
        return (start_ns + max(start_ns, times.get("drain", times.get("gather", 0)))) // 2

    def _since_start(self, realtime_ns: int | None, node: NodeState) -> int | None:
        """A node's UTC reading as nanoseconds since the start instant."""
        clock = node.clock.get("start") or node.clock.get("before")
        if realtime_ns is None or clock is None or self.start_ns is None:
            return None
        return self._monotonic_since_start(realtime_ns - clock["realtime_minus_monotonic_ns"], node)

    def _monotonic_since_start(self, node_ns: int, node: NodeState) -> int | None:
        offset = None if self.start_ns is None else node.offset_at(self.start_ns)
        return None if offset is None or self.start_ns is None else int(node_ns - offset.offset_ns - self.start_ns)

    def node_rows(self) -> list[dict[str, Any]]:
        return [self._node_row(node) for node in self.nodes.values()]

    def _node_row(self, node: NodeState) -> dict[str, Any]:
        counts, interface = node.counts, node.interface or {}
        clock = node.clock.get("start") or node.clock.get("before") or {}
        report = node.report.get("interface", {})
        return {
            "node": node.rank.host.name,
            "role": node.rank.role,
            "state": "lost" if node.lost else "failed" if node.problem else "ok",
            "interface": node.rank.host.traffic_interface,
            "driver": report.get("driver"),
            "kernel": node.report.get("kernel"),
            "sent_packets": _told(counts, "sent_packets"),
            "received_packets": _told(counts, "received_packets"),
            "missed_packets": _told(counts, "dropped_packets", every_engine=True),
            "tx_packets": interface.get("tx_packets"),
            "rx_packets": interface.get("rx_packets"),
            "tx_dropped_packets": interface.get("tx_dropped"),
            "rx_dropped_packets": interface.get("rx_dropped"),
            "clock_offset_ns": clock.get("offset_ns"),
            "clock_bound_ns": clock.get("bound_ns"),
            "released_ns": None
            if node.released_ns is None or self.start_ns is None
            else node.released_ns - self.start_ns,
            "problem": node.problem,
        }

    def doubts(self) -> list[str]:
        """Why the counts cannot be trusted in full; empty when they can."""
        doubts = [f"{node.name}: {node.problem}" for node in self.nodes.values() if node.problem]
        for node in self.nodes.values():
            doubts += _against_interface(node) + _bytes_against_interface(node) + self._frames_of_its_own(node)
        doubts += [doubt for row in self.rows() for doubt in self._capture_doubts(row)]
        for row in self.rows():
            doubts += row.users.doubts(row.sent, row.received) if row.users is not None else []
        doubts += self._connection_doubts()
        missing = [row.leg for row in self.rows() if row.sent is None or row.received is None]
        missing += [row.leg for row in self.connection_rows() if row.sent is None or row.received is None]
        if missing and not doubts:
            doubts.append(f"no counts for {missing[0].stream} from {missing[0].source}")
        return doubts

    def _connection_doubts(self) -> list[str]:
        doubts = []
        streams = {leg.id: leg.stream for leg in self.resolved.legs}
        for node in self.nodes.values():
            for leg, end in node.connections.items():
                where = f"{node.name}: {streams[leg]}"
                doubts += [f"{where}: {why}" for why in end.failures]
                if end.received and end.received.dropped:
                    doubts.append(f"{where}: the receiving socket itself dropped {end.received.dropped} datagrams")
        for row in self.connection_rows():
            if row.disagreement:
                doubts.append(f"{row.leg.stream} from {row.source} to {row.target}: {row.disagreement}")
        return doubts

    def _capture_doubts(self, row: Row) -> list[str]:
        """What was captured is all that was counted, one frame in so many of it, or what a filter let through."""
        task = self.resolved.receives.get(row.leg.target)
        every, some = (task.capture_every, bool(task.capture_filter)) if task is not None else (1, False)
        due = _captures_due(row.received, every)
        if row.captured is None or row.captured == due or (some and due is not None and row.captured < due):
            return []
        text = (
            f"{row.leg.target}: the counter has {row.received} packets of {row.leg.stream}, the capture {row.captured}"
        )
        return [text + (f" of {due} (one in {every})" if due != row.received else "")]

    def _frames_of_its_own(self, node: NodeState) -> list[str]:
        """A trace is told by its two MACs: what the sender's kernel adds between them would be counted with it."""
        host = node.rank.host
        traces = any(leg.kind == "trace" and leg.transmitter == host.name for leg in self.resolved.legs)
        # Its kernel is meant to send there, and what it sends is told from the trace by its addresses.
        if any(leg.kind == "connections" and host.name in (leg.source, leg.target) for leg in self.resolved.legs):
            return []
        # A host that receives too announces itself through the same interface.
        if node.rank.role != "transmit" or not traces or "receive" in host.roles or node.counts is None:
            return []
        more = (node.interface or {}).get("tx_packets", 0) - (_told_sent(node.counts) or 0)
        if more <= 0:
            return []
        return [
            f"{node.name}: {more} packets more left {host.traffic_interface} than the engines sent: its kernel sends "
            "frames of its own, which cannot be told from a trace's (take the IP address off that interface)"
        ]

    def outcome(self, expect: Expect, extra: dict[str, Any], more: Sequence[dict[str, Any]] = ()) -> Outcome:
        """`more`: verdicts beside those of `expect`."""
        rows, connections = self.rows(), self.connection_rows()
        verdicts = [*judge(expect, rows), *judge_connections(expect, connections), *more]
        status, reason = self._status(verdicts)
        flows = flow_rows(rows)
        document = {
            "format_version": FORMAT_VERSION,
            "status": status,
            "reason": reason,
            "verdicts": verdicts,
            "doubts": self.doubts(),
            "start_utc": None if self.start_utc_ns is None else utc(self.start_utc_ns),
            "phases": self._phase_table(),
            "release_skew_ns": self.release_skew_ns(),
            "first_frame_skew_ns": first_frame_skew_ns(rows),
            "engines": self.resolved.choices,
            "notes": [*self.resolved.notes, *self.notes, *interactive.trouble(flows)],
            "ranks": {
                str(n): {"host": s.rank.host.name, "role": s.rank.role, **s.report} for n, s in self.nodes.items()
            },
            "clocks": {str(n): s.clock for n, s in self.nodes.items()},
            "totals": totals(rows),
            "groups": group_totals(rows),
            "rows": [{"leg": row.leg.id, **stream_values(row)} for row in rows],
            "flows": flows,
            "connections": [{"leg": row.leg.id, **connection_values(row)} for row in connections],
            **extra,
        }
        return Outcome(status, reason, rows, self.node_rows(), connections, document, flows)

    def _status(self, verdicts: list[dict[str, Any]]) -> tuple[int, str]:
        if self.stopped:
            return EXIT_INCOMPLETE, self.stopped
        if not self.over:
            return EXIT_INCOMPLETE, f"rank 0 was lost in phase {self.phase!r}"
        if doubts := self.doubts():
            return EXIT_INCOMPLETE, doubts[0]
        failed = [verdict for verdict in verdicts if not verdict["holds"]]
        if failed:
            return EXIT_NOT_AS_EXPECTED, failed[0]["text"]
        return EXIT_AS_EXPECTED, "as expected" if verdicts else "nothing was expected"

    def _phase_table(self) -> list[dict[str, Any]]:
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
        if row.leg.counted_with is not None:
            first = rows[row.leg.counted_with]
            first.intended, first.sent = _sum(first.intended, row.intended), _sum(first.sent, row.sent)
            first.sent_bytes = _sum(first.sent_bytes, row.sent_bytes)
            first.seconds = max(filter(None, (first.seconds, row.seconds)), default=None)
            first.left_ns = min((ns for ns in (first.left_ns, row.left_ns) if ns is not None), default=None)
    return [row for row in rows.values() if row.leg.counted_with is None]


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _captures_due(received: int | None, every: int) -> int | None:
    """The first of each so many frames."""
    return None if received is None else -(-received // every)


def _take_sent(row: Row, count: dict[str, Any]) -> None:
    row.engine = count["engine"]
    row.sent = count["sent_packets"]
    row.sent_bytes = with_fcs(count["sent_bytes"], row.sent)
    row.seconds = count["seconds"]
    row.late = count["late_packets"]
    row.resent, row.flows = count["resent_packets"], count["flows"]
    if row.users is not None:
        row.users.take_sent(count["users"])


def _against_interface(node: NodeState) -> list[str]:
    """An engine cannot have sent or taken more than its interface did."""
    if node.counts is None or node.interface is None:
        return []
    figures = {"tx_packets": _told_sent(node.counts), "rx_packets": _told(node.counts, "received_packets")}
    doubts = []
    for counter, told in figures.items():
        if told is not None and told > node.interface[counter]:
            seen = node.interface[counter]
            doubts.append(f"{node.name}: the engines say {told} packets, the interface's {counter} only {seen}")
    missed = _told(node.counts, "dropped_packets", every_engine=True)
    if missed:
        doubts.append(f"{node.name}: the receiver itself missed {missed} packets (ring full): a lower bound")
    return doubts


def _bytes_against_interface(node: NodeState) -> list[str]:
    """As for packets: what connections carried is only a part of the frames' bytes."""
    if node.interface is None:
        return []
    ends = node.connections.values()
    told = {
        "tx_bytes": sum(end.sent.sent_bytes for end in ends if end.sent),
        "rx_bytes": sum(end.received.bytes for end in ends if end.received),
    }
    return [
        f"{node.name}: the connections say {count} bytes, the interface's {name} only {node.interface[name]}"
        for name, count in told.items()
        if count > node.interface[name]
    ]


def flow_rows(rows: list[Row]) -> list[dict[str, Any]]:
    """Of interactive traces: what both ends tell of each flow."""
    back = {row.leg.answers: row for row in rows if row.leg.answers is not None}
    found = []
    for row in rows:
        if row.flows is not None and row.leg.id in back:
            found += interactive.flow_rows(row.leg, row.flows, back[row.leg.id].flows or [])
    return found


def _told(counts: list[dict[str, Any]] | None, key: str, every_engine: bool = False) -> int | None:
    """The sum of a figure over a node's legs; None where nothing has it."""
    given = [count[key] for count in counts or [] if key in count]
    if not every_engine:
        given = [count[key] for count in first_engine([count for count in counts or [] if key in count])]
    return sum(given) if given else None


def _told_sent(counts: list[dict[str, Any]]) -> int | None:
    """All that the engines put on the wire: also what they sent again."""
    sent = _told(counts, "sent_packets")
    return None if sent is None else sent + sum(count.get("resent_packets") or 0 for count in counts)


def first_engine(counts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One count a leg: where two engines receive, the first one's are the run's."""
    legs: dict[int, dict[str, Any]] = {}
    for count in counts:
        legs.setdefault(count["leg"], count)
    return list(legs.values())


def first_frame_skew_ns(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Per engine: how far apart its nodes' first frames left (or arrived, where the engine does not tell), and when
    after the start instant."""
    return {engine: _skew(rows, engine) for engine in sorted({row.engine for row in rows}) if _skew(rows, engine)}


def _skew(rows: list[Row], engine: str) -> dict[str, float]:
    firsts: dict[str, list[int]] = {}
    for row in rows:
        first_ns = row.first_ns if row.left_ns is None else row.left_ns
        if row.engine == engine and first_ns is not None and row.leg.answers is None:
            firsts.setdefault(row.leg.source, []).append(first_ns - int(row.leg.timing.get("lead_ns", 0)))
    nodes = [min(times) for times in firsts.values()]
    if not nodes:
        return {}
    return {"nodes": len(nodes), "skew": max(nodes) - min(nodes), "median_after_start": statistics.median(nodes)}


def totals(rows: list[Row]) -> list[dict[str, Any]]:
    """Per stream and over all: sums of what was measured; a sum with an unmeasured part is None."""
    names = list(dict.fromkeys(row.leg.stream for row in rows))
    streams = [(name, [row for row in rows if row.leg.stream == name]) for name in names]
    return [_total(name, part) for name, part in [*streams, ("total", rows)]]


def group_totals(rows: list[Row]) -> list[dict[str, Any]]:
    """Of targets and of the background, where there are both."""
    names = sorted({group(row.leg) for row in rows}, reverse=True)
    parts = [(name, [row for row in rows if group(row.leg) == name]) for name in names]
    return [_total(name, part, "group") for name, part in parts] if len(parts) > 1 else []


def _total(name: str, rows: list[Row], called: str = "stream") -> dict[str, Any]:
    def add(values: list[int | None]) -> int | None:
        return None if any(value is None for value in values) else sum(value or 0 for value in values)

    intended, sent = add([row.intended for row in rows]), add([row.sent for row in rows])
    received = add([row.received for row in rows])
    return {
        called: name,
        "intended_packets": intended,
        "sent_packets": sent,
        "received_packets": received,
        "lost_packets": add([row.lost for row in rows]),
        "k": received / intended if received is not None and intended else None,
        "k_sender": sent / intended if sent is not None and intended else None,
    }


# --- expectations -----------------------------------------------------------------------------------------------


def judge(expect: Expect, rows: list[Row]) -> list[dict[str, Any]]:
    """One verdict an expectation and stream: {"text", "holds"}. What was not measured does not hold."""
    verdicts = []
    for total in totals(rows)[:-1]:
        name, sent = total["stream"], total["sent_packets"]
        if expect.loss is not None:
            verdicts.append(_loss_verdict(expect.loss, total))
        wanted = total["intended_packets"] if expect.sent == "intended" else None
        wanted = expect.sent.get(name) if isinstance(expect.sent, dict) else wanted
        if wanted is not None:
            verdicts.append(_verdict(f"{name}: sent {sent}, expected {wanted}", sent == wanted))
        if expect.received and name in expect.received:
            received, wanted = total["received_packets"], expect.received[name]
            verdicts.append(_verdict(f"{name}: received {received}, expected {wanted}", received == wanted))
    return verdicts


def judge_connections(expect: Expect, rows: list[ConnectionRow]) -> list[dict[str, Any]]:
    """As for streams, of each direction: blocks sent and received; lost are datagrams, or a TCP's blocks."""
    verdicts = []
    for row in rows:
        name, label = row.leg.stream, f"{row.leg.stream} from {row.source} to {row.target}"
        sent = None if row.sent is None else row.sent.sent_blocks
        received = None if row.received is None else row.received.blocks
        if expect.loss is not None:
            verdicts.append(_loss_verdict(expect.loss, _lost_total(row, label)))
        if expect.sent == "intended" and row.sent is not None and row.sent.intended_blocks is not None:
            wanted: int | None = row.sent.intended_blocks
        else:
            wanted = expect.sent.get(name) if isinstance(expect.sent, dict) else None
        if wanted is not None:
            verdicts.append(_verdict(f"{label}: sent {sent} blocks, expected {wanted}", sent == wanted))
        if expect.received and name in expect.received:
            wanted = expect.received[name]
            verdicts.append(_verdict(f"{label}: received {received} blocks, expected {wanted}", received == wanted))
    return verdicts


def _lost_total(row: ConnectionRow, label: str) -> dict[str, Any]:
    if row.sent is None or row.received is None:
        return {"stream": label, "sent_packets": None, "lost_packets": None}
    sent = row.sent.datagrams if row.udp else row.sent.sent_blocks
    lost = row.lost_datagrams if row.udp else row.sent.sent_blocks - row.received.blocks
    return {"stream": label, "sent_packets": sent, "lost_packets": lost}


def _loss_verdict(loss: int | str, total: dict[str, Any]) -> dict[str, Any]:
    lost, sent = total["lost_packets"], total["sent_packets"]
    text = f"{total['stream']}: lost {lost}, expected at most {loss}"
    if lost is None or not sent:
        return _verdict(text, False)
    allowed = sent * float(loss.rstrip("% ")) / 100 if isinstance(loss, str) else loss
    # More received than sent is no loss, and nothing to be content with either.
    return _verdict(text, 0 <= lost <= allowed)


def _verdict(text: str, holds: bool) -> dict[str, Any]:
    return {"text": text, "holds": holds}
