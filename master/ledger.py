"""What the nodes told during a run, kept in order, and what it amounts to: rows, nodes, checks, verdict, status."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from master.resolve import Rank, Resolved
from master.results import FORMAT_VERSION, Outcome, Row, stream_values, utc, with_fcs
from master.scenario import Expect
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
    interface: dict[str, int] | None = None
    clock: dict[str, Any] = field(default_factory=dict)
    released_ns: int | None = None

    @property
    def name(self) -> str:
        return f"{self.rank.host.name} ({self.rank.role})"


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
        node.counts, node.interface = event["counts"], event["interface"]

    def _on_restored(self, event: Event) -> None:
        for trouble in event["troubles"]:
            node = self.nodes[event["rank"]]
            node.problem = node.problem or f"could not restore everything: {trouble}"

    def _on_stopped(self, event: Event) -> None:
        self.stopped = event["problem"] or "stopped by the user"

    # --- what it amounts to -------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """One row a leg, with what its sender and its receiver counted."""
        rows = {leg.id: Row(leg, leg.engine, leg.intended_packets) for leg in self.resolved.legs}
        for node in self.nodes.values():
            for count in node.counts or []:
                row = rows[count["leg"]]
                if node.rank.role == "transmit":
                    _take_sent(row, count)
                else:
                    self._take_received(row, count, node)
        return list(rows.values())

    def _take_received(self, row: Row, count: dict[str, Any], node: NodeState) -> None:
        if row.received is not None:
            row.captured = count["received_packets"]
            return
        if count["tally"] is not None:
            row.tally = Tally.from_json(count["tally"])
            row.clock_bound_ns = self._bound_ns(row.leg.source, node)
        row.received = count["received_packets"]
        row.received_bytes = with_fcs(count["received_bytes"], row.received)
        row.missed = count["dropped_packets"]
        row.first_ns = self._since_start(count["first_ns"], node)
        row.last_ns = self._since_start(count["last_ns"], node)

    def _bound_ns(self, source: str, receiver: NodeState) -> int | None:
        """How far a latency may be off: both ends' clocks are known to a half of a round trip each."""
        sender = next(n for n in self.nodes.values() if n.rank.host.name == source and n.rank.role == "transmit")
        bounds = [node.clock["before"]["bound_ns"] for node in (sender, receiver) if "before" in node.clock]
        return sum(bounds) if len(bounds) == 2 else None

    def _since_start(self, realtime_ns: int | None, node: NodeState) -> int | None:
        """A node's UTC reading as nanoseconds since the start instant, by the clocks read just before it."""
        clock = node.clock.get("start") or node.clock.get("before")
        if realtime_ns is None or clock is None or self.start_ns is None:
            return None
        return int(realtime_ns - clock["realtime_minus_monotonic_ns"] - clock["offset_ns"] - self.start_ns)

    def node_rows(self) -> list[dict[str, Any]]:
        return [self._node_row(node) for node in self.nodes.values()]

    def _node_row(self, node: NodeState) -> dict[str, Any]:
        counts, interface = node.counts, node.interface or {}
        key = "sent_packets" if node.rank.role == "transmit" else "received_packets"
        clock = node.clock.get("start") or node.clock.get("before") or {}
        report = node.report.get("interface", {})
        return {
            "node": node.rank.host.name,
            "role": node.rank.role,
            "state": "lost" if node.lost else "failed" if node.problem else "ok",
            "interface": node.rank.host.traffic_interface,
            "driver": report.get("driver"),
            "kernel": node.report.get("kernel"),
            key: None if counts is None else sum(count[key] for count in first_engine(counts)),
            "missed_packets": sum(count["dropped_packets"] for count in counts)
            if counts is not None and node.rank.role == "receive"
            else None,
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
            doubts += _against_interface(node) + self._frames_of_its_own(node)
        doubts += [
            f"{row.leg.target}: the counter has {row.received} packets of {row.leg.stream}, the capture {row.captured}"
            for row in self.rows()
            if row.captured is not None and row.captured != row.received
        ]
        missing = [row for row in self.rows() if row.sent is None or row.received is None]
        if missing and not doubts:
            doubts.append(f"no counts for {missing[0].leg.stream} from {missing[0].leg.source}")
        return doubts

    def _frames_of_its_own(self, node: NodeState) -> list[str]:
        """A trace is told by its two MACs: what the sender's kernel adds between them would be counted with it."""
        host = node.rank.host
        traces = any(leg.kind == "trace" and leg.source == host.name for leg in self.resolved.legs)
        # A host that receives too announces itself through the same interface.
        if node.rank.role != "transmit" or not traces or "receive" in host.roles or node.counts is None:
            return []
        more = (node.interface or {}).get("tx_packets", 0) - sum(count["sent_packets"] for count in node.counts)
        if more <= 0:
            return []
        return [
            f"{node.name}: {more} packets more left {host.traffic_interface} than the engines sent: its kernel sends "
            "frames of its own, which cannot be told from a trace's (take the IP address off that interface)"
        ]

    def outcome(self, expect: Expect, extra: dict[str, Any]) -> Outcome:
        rows = self.rows()
        verdicts = judge(expect, rows)
        status, reason = self._status(verdicts)
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
            "notes": [*self.resolved.notes, *self.notes],
            "ranks": {
                str(n): {"host": s.rank.host.name, "role": s.rank.role, **s.report} for n, s in self.nodes.items()
            },
            "clocks": {str(n): s.clock for n, s in self.nodes.items()},
            "totals": totals(rows),
            "rows": [{"leg": row.leg.id, **stream_values(row)} for row in rows],
            **extra,
        }
        return Outcome(status, reason, rows, self.node_rows(), document)

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


def _take_sent(row: Row, count: dict[str, Any]) -> None:
    row.engine = count["engine"]
    row.sent = count["sent_packets"]
    row.sent_bytes = with_fcs(count["sent_bytes"], row.sent)
    row.seconds = count["seconds"]


def _against_interface(node: NodeState) -> list[str]:
    """An engine cannot have sent or taken more than its interface did."""
    if node.counts is None or node.interface is None:
        return []
    sending = node.rank.role == "transmit"
    key, counter = ("sent_packets", "tx_packets") if sending else ("received_packets", "rx_packets")
    told, seen = sum(count[key] for count in first_engine(node.counts)), node.interface[counter]
    doubts = []
    if told > seen:
        doubts.append(f"{node.name}: the engines say {told} packets, the interface's {counter} only {seen}")
    missed = 0 if sending else sum(count["dropped_packets"] for count in node.counts)
    if missed:
        doubts.append(f"{node.name}: the receiver itself missed {missed} packets (ring full): a lower bound")
    return doubts


def first_engine(counts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One count a leg: where two engines receive, the first one's are the run's."""
    legs: dict[int, dict[str, Any]] = {}
    for count in counts:
        legs.setdefault(count["leg"], count)
    return list(legs.values())


def first_frame_skew_ns(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Per engine: how far apart the first frames of its legs arrived, and when after the start instant."""
    skews: dict[str, dict[str, float]] = {}
    for engine in sorted({row.engine for row in rows}):
        firsts = [
            row.first_ns - int(row.leg.timing.get("lead_ns", 0))
            for row in rows
            if row.engine == engine and row.first_ns is not None
        ]
        if firsts:
            spread = max(firsts) - min(firsts)
            skews[engine] = {"legs": len(firsts), "skew": spread, "median_after_start": statistics.median(firsts)}
    return skews


def totals(rows: list[Row]) -> list[dict[str, Any]]:
    """Per stream and over all: sums of what was measured; a sum with an unmeasured part is None."""
    names = list(dict.fromkeys(row.leg.stream for row in rows))
    groups = [(name, [row for row in rows if row.leg.stream == name]) for name in names]
    return [_total(name, group) for name, group in [*groups, ("total", rows)]]


def _total(name: str, rows: list[Row]) -> dict[str, Any]:
    def add(values: list[int | None]) -> int | None:
        return None if any(value is None for value in values) else sum(value or 0 for value in values)

    intended, sent = add([row.intended for row in rows]), add([row.sent for row in rows])
    received = add([row.received for row in rows])
    return {
        "stream": name,
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
