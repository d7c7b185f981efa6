"""What one rank has told during a run, and the sums of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pktswarm.master.cluster.clock_offsets import Reading, off_the_line_ns, offset_at, parted
from pktswarm.master.cluster.link_outages import Outages
from pktswarm.master.cluster.link_state import LinkState
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.cluster.utc_steps import UtcSteps
from pktswarm.traffic.connections.counts import EndCount
from pktswarm.traffic.errors import PktswarmError


@dataclass
class NodeState:
    """One rank as the master knows it."""

    rank: Rank
    report: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    lost: bool = False
    counts: list[dict[str, Any]] | None = None
    """Of frames."""
    captures: dict[str, int] = field(default_factory=dict)
    """Name → bytes, as it told them with its counts."""
    connections: dict[int, EndCount] = field(default_factory=dict)
    """By leg."""
    interface: dict[str, int] | None = None
    outages: Outages = field(default_factory=Outages)
    """Of its traffic link."""
    link: LinkState = field(default_factory=LinkState)
    sampled: dict[str, int] | None = None
    """The interface's counters in the last sample; of a node that is lost all that is known."""
    played: dict[str, Any] | None = None
    """What came for the addresses that it played (traffic.frames.responder.Played)."""
    clock: dict[str, Any] = field(default_factory=dict)
    """When it was read ("before", "start", "after") → rank 0's event."""
    checks: list[Reading] = field(default_factory=list)
    """Quick looks at its clock while frames were sent, a few for each minute."""
    off_the_line_ns: int = 0
    """By how much they contradict the readings, which makes every bound wider."""
    parted: tuple[int, int] | None = None
    """By how much its clock moved against the master's in how long, where that is more than clocks do."""
    utc: UtcSteps = field(default_factory=UtcSteps)
    released_ns: int | None = None

    @property
    def name(self) -> str:
        return f"{self.rank.host.name} ({self.rank.role})"

    def last_heard(self, heard_ns: int, start_ns: int | None) -> str:
        """When, on the master's clock, and what its interface had counted by then: for one that is lost."""
        if start_ns is None or heard_ns < start_ns:
            return "last heard before the start"
        way, words = ("tx", "sent") if self.rank.role == "transmit" else ("rx", "received")
        when = f"last heard {(heard_ns - start_ns) / 1e9:.2f} s after the start"
        if self.sampled is None:
            return when
        return f"{when}; its interface had {words} {self.sampled[f'{way}_packets']:,} packets by its last sample"

    def offset_at(self, at_ns: int) -> Reading | None:
        """Its clock less the master's, at a time of the master's."""
        found = offset_at(self.readings().values(), at_ns)
        return found if found is None else replace(found, bound_ns=found.bound_ns + self.off_the_line_ns)

    def take_clock(self, event: dict[str, Any]) -> None:
        """Rank 0's event "clock"; both clocks were read within the round trip."""
        self.clock.setdefault(event["when"], event)
        self.utc.take(event["at_ns"], event["realtime_minus_monotonic_ns"], 2 * event["bound_ns"] + 1)
        self._judge_clock()

    def take_check(self, event: dict[str, Any]) -> None:
        """Rank 0's event "drift"."""
        self.checks.append(Reading(event["at_ns"], event["offset_ns"], event["bound_ns"]))
        self._judge_clock()

    def _judge_clock(self) -> None:
        readings = list(self.readings().values())
        self.off_the_line_ns = max(0, off_the_line_ns(readings, self.checks))
        self.parted = parted(readings, self.checks)

    def readings(self) -> dict[str, Reading]:
        """By when they were taken."""
        taken = self.clock.items()
        return {when: Reading(one["at_ns"], one["offset_ns"], one["bound_ns"]) for when, one in taken}


def reports_by_host(nodes: Iterable[NodeState]) -> dict[str, dict[str, Any]]:
    """What each host told of itself; where it has both roles its transmitter, who alone has tried the interface."""
    return {node.rank.host.name: node.report for node in sorted(nodes, key=lambda one: one.rank.role == "transmit")}


def refuse_held(nodes: Iterable[NodeState]) -> None:
    """PktswarmError where a node works for another master: nothing was sent, and it would spoil both runs' counts."""
    held = {node.rank.host.name: other for node in nodes if (other := node.report["held_by"])}
    if held:
        name, other = next(iter(held.items()))
        more = f" (and {len(held) - 1} more hosts)" if len(held) > 1 else ""
        raise PktswarmError(f"{name}{more}: in use by {other['by']} since {other['since']}; nothing was sent")


def mended(nodes: Iterable[NodeState]) -> list[str]:
    """What their guards found changed by one that was killed, a note each."""
    return [f"{node.rank.host.name}: {one}" for node in nodes for one in node.report.get("mended", [])]


def told(counts: list[dict[str, Any]] | None, key: str, every_engine: bool = False) -> int | None:
    """The sum of a figure over a node's legs; None where nothing has it."""
    given = [count[key] for count in counts or [] if key in count]
    if not every_engine:
        given = [count[key] for count in first_engine([count for count in counts or [] if key in count])]
    return sum(given) if given else None


def told_received_frames(counts: list[dict[str, Any]] | None) -> int | None:
    """What the first engine of each leg took of the interface; None where nothing was told."""
    given = first_engine([count for count in counts or [] if "received_packets" in count])
    frames = [count["received_packets"] if (f := count.get("received_frames")) is None else f for count in given]
    return sum(frames) if frames else None


def failed(counts: list[dict[str, Any]] | None) -> int | None:
    """Packets that the interface's queue did not take; None where an engine of the node does not tell."""
    each = [count.get("failed_packets") for count in counts or [] if "sent_packets" in count]
    known = [packets for packets in each if packets is not None]
    return sum(known) if known and len(known) == len(each) else None


def sum_sent(counts: list[dict[str, Any]]) -> int | None:
    """All that the engines put on the wire: also what they sent again."""
    sent = told(counts, "sent_packets")
    more = (count.get("resent_packets") or _fragments(count) for count in counts)
    return None if sent is None else sent + sum(more)


def _fragments(count: dict[str, Any]) -> int:
    """By how many more frames than packets went out, where these went in fragments."""
    return max(0, int(count.get("sent_frames") or 0) - int(count.get("sent_packets", 0)))


def unfinished(nodes: Iterable[NodeState]) -> list[str]:
    """Of receivers that put fragments together: packets of which not all came, a note each."""
    found = [
        (node.rank.host.name, sum(count.get("unfinished_packets") or 0 for count in node.counts or []))
        for node in nodes
    ]
    return [f"{name}: {number:,} packets of which not all fragments came" for name, number in found if number]


def outages(nodes: Iterable[NodeState]) -> list[str]:
    """When their links were down, and what else happened to them that costs nothing, a note each."""
    found = []
    for node in nodes:
        interface = node.rank.host.traffic_interface
        found += [f"{node.name}: {one}" for one in node.outages.describe(interface) + node.link.notes(interface)]
    return found


def first_engine(counts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One count a leg: where two engines receive, the first one's are the run's."""
    legs: dict[int, dict[str, Any]] = {}
    for count in counts:
        legs.setdefault(count["leg"], count)
    return list(legs.values())
