"""The reports of one rank during a run, and their sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pktswarm.master.cluster.clock_offsets import Reading, off_the_line_ns, offset_at, parted
from pktswarm.master.cluster.link_outages import Outages
from pktswarm.master.cluster.link_state import LinkState
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.cluster.utc_steps import UtcSteps
from pktswarm.traffic.connections.counts import EndCount
from pktswarm.traffic.errors import Busy
from pktswarm.traffic.protocol.node_report import NodeReport
from pktswarm.traffic.protocol.proxy_count import ProxyCount
from pktswarm.traffic.protocol.ptp_reading import PtpReading
from pktswarm.traffic.protocol.rank0_events import Clock, Drift
from pktswarm.traffic.protocol.rank_events import Counts
from pktswarm.traffic.protocol.task import ReceiveCount, SendCount


@dataclass
class NodeState:
    """One rank as the master knows it."""

    rank: Rank
    report: NodeReport | None = None
    problem: str = ""
    lost: bool = False
    sent: list[SendCount] | None = None
    """None until the node reports its counts. A count of connections is in `connections` instead."""
    received: list[ReceiveCount] | None = None
    captures: dict[str, int] = field(default_factory=dict)
    """Name → bytes, as reported with the counts."""
    connections: dict[int, EndCount] = field(default_factory=dict)
    """By leg."""
    interface: dict[str, int] | None = None
    outages: Outages = field(default_factory=Outages)
    """Outages of its traffic link."""
    link: LinkState = field(default_factory=LinkState)
    sampled: dict[str, int] | None = None
    """The interface's counters in the last sample; of a node that is lost all that is known."""
    played: ProxyCount | None = None
    """The frames for its proxy addresses."""
    clock: dict[str, Clock] = field(default_factory=dict)
    """When it was read ("before", "start", "after") → the reading."""
    checks: list[Reading] = field(default_factory=list)
    """Quick looks at its clock while frames were sent, a few for each minute."""
    off_the_line_ns: int = 0
    """By how much they contradict the readings, which makes every bound wider."""
    parted: tuple[int, int] | None = None
    """By how much its clock moved against the master's in how long, where that is more than clocks do."""
    utc: UtcSteps = field(default_factory=UtcSteps)
    ptp: list[PtpReading] = field(default_factory=list)
    """With `clock: ptp`, before and after the sending."""
    released_ns: int | None = None

    @property
    def name(self) -> str:
        return f"{self.rank.host.name} ({self.rank.role})"

    def last_message(self, received_ns: int, start_ns: int | None) -> str:
        """When, on the master's clock, and what its interface had counted by then: for one that is lost."""
        if start_ns is None or received_ns < start_ns:
            return "last message before the start"
        way, words = ("tx", "sent") if self.rank.role == "transmit" else ("rx", "received")
        when = f"last message {(received_ns - start_ns) / 1e9:.2f} s after the start"
        if self.sampled is None:
            return when
        return f"{when}; its interface had {words} {self.sampled[f'{way}_packets']:,} packets by its last sample"

    def offset_at(self, at_ns: int) -> Reading | None:
        """Its clock less the master's, at a time of the master's."""
        found = offset_at(self.readings().values(), at_ns)
        return found if found is None else replace(found, bound_ns=found.bound_ns + self.off_the_line_ns)

    def take_clock(self, event: Clock) -> None:
        """Both clocks were read within the round trip."""
        self.clock.setdefault(event.when, event)
        self.utc.take(event.at_ns, event.realtime_minus_monotonic_ns, event.round_trip_ns + 1)
        self._judge_clock()

    def take_check(self, event: Drift) -> None:
        self.checks.append(Reading(event.at_ns, event.offset_ns, event.bound_ns))
        self._judge_clock()

    def take_counts(self, event: Counts) -> None:
        self.captures = {capture.name: capture.bytes for capture in event.captures}
        ends = [(count.leg, count.connections) for count in event.counts]
        self.connections = {leg: EndCount.from_json(end) for leg, end in ends if end is not None}
        frames = [count for count in event.counts if count.connections is None]
        self.sent = [count for count in frames if isinstance(count, SendCount)]
        self.received = [count for count in frames if isinstance(count, ReceiveCount)]
        self.interface, self.played, self.ptp = event.interface, event.played, event.ptp
        self.link.end(event.interface)
        self.problem = self.problem or "; ".join(event.problems)

    def _judge_clock(self) -> None:
        readings = list(self.readings().values())
        self.off_the_line_ns = max(0, off_the_line_ns(readings, self.checks))
        self.parted = parted(readings, self.checks)

    def readings(self) -> dict[str, Reading]:
        """By when they were taken."""
        return {when: Reading(read.at_ns, read.offset_ns, read.bound_ns) for when, read in self.clock.items()}


def reports_by_host(nodes: Iterable[NodeState]) -> dict[str, dict[str, Any]]:
    """Host → its report; where it has both roles that of its transmitter, which alone has tried the interface."""
    ordered = sorted(nodes, key=lambda node: node.rank.role == "transmit")
    return {node.rank.host.name: node.report.to_json() for node in ordered if node.report is not None}


def refuse_held(nodes: Iterable[NodeState]) -> None:
    """Raises Busy where a node works for another master: nothing was sent, and it would spoil both runs' counts."""
    held = {node.rank.host.name: other for node in nodes if node.report and (other := node.report.held_by)}
    if held:
        name, other = next(iter(held.items()))
        more = f" (and {len(held) - 1} more hosts)" if len(held) > 1 else ""
        raise Busy(f"{name}{more}: in use by {other.by} since {other.since}; nothing was sent")


def mended(nodes: Iterable[NodeState]) -> list[str]:
    """A note for each setting that a killed guard had changed."""
    return [f"{node.rank.host.name}: {text}" for node in nodes if node.report for text in node.report.mended]


def sent_packets(node: NodeState) -> int | None:
    """Over the node's legs; None where no engine counts."""
    return sum(count.sent_packets for count in first_engine(node.sent)) if node.sent else None


def received_packets(node: NodeState) -> int | None:
    return sum(count.received_packets for count in first_engine(node.received)) if node.received else None


def received_frames(node: NodeState) -> int | None:
    """Frames that the first engine of each leg took from the interface; None where none counts."""
    counts = first_engine(node.received or [])
    frames = [count.received_packets if count.received_frames is None else count.received_frames for count in counts]
    return sum(frames) if frames else None


def dropped_packets(node: NodeState) -> int | None:
    """Frames that the receiving engines failed to take.

    A capture that has all frames of a leg missed none of them: what it had not read at its end is of others, such as a
    router's solicitations.
    """
    if not node.received:
        return None
    first = {count.leg: count for count in first_engine(node.received)}
    short = [one for one in node.received if one is first[one.leg] or not _has_all(one, first[one.leg])]
    return sum(count.dropped_packets for count in short)


def _has_all(capture: ReceiveCount, counted: ReceiveCount) -> bool:
    return capture.received_packets == counted.received_packets


def failed_packets(node: NodeState) -> int | None:
    """Packets that the interface's queue did not take; None where an engine of the node does not report them."""
    each = [count.failed_packets for count in node.sent or []]
    known = [packets for packets in each if packets is not None]
    return sum(known) if known and len(known) == len(each) else None


def sum_sent(node: NodeState) -> int | None:
    """All packets and fragments that the engines sent, those sent again included."""
    packets = sent_packets(node)
    more = (count.resent_packets or _fragments(count) for count in node.sent or [])
    return None if packets is None else packets + sum(more)


def _fragments(count: SendCount) -> int:
    """The frames beyond one a packet, where packets went out in fragments."""
    return max(0, (count.sent_frames or 0) - count.sent_packets)


def unfinished(nodes: Iterable[NodeState]) -> list[str]:
    """A note for each receiver that put fragments together and missed some."""
    counts = [(node.rank.host.name, node.received or []) for node in nodes]
    sums = [(name, sum(count.unfinished_packets or 0 for count in received)) for name, received in counts]
    return [f"{name}: {packets:,} packets with missing fragments" for name, packets in sums if packets]


def outages(nodes: Iterable[NodeState]) -> list[str]:
    """A note for each outage of a link, and for each other change of it that costs no packets."""
    notes = []
    for node in nodes:
        interface = node.rank.host.traffic_interface
        notes += [f"{node.name}: {text}" for text in node.outages.describe(interface) + node.link.notes(interface)]
    return notes


C = TypeVar("C", SendCount, ReceiveCount)


def first_engine(counts: list[C]) -> list[C]:
    """One count a leg: where two engines receive, the first one's are the run's."""
    legs: dict[int, C] = {}
    for count in counts:
        legs.setdefault(count.leg, count)
    return list(legs.values())
