"""What the master scatters: the work of one rank. Plain dataclasses that travel as JSON.

`Leg` is the unit of everything: the share of one stream (or trace) that one transmitter sends to one receiver.
It is what a sender executes, what a receiver counts, and one row of `streams.csv`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pktswarm.traffic.frames.headers import FCS_BYTES as FCS_BYTES
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.typed_json import decode, fields_to_json

Role = Literal["transmit", "receive"]
Clock = Literal["monotonic", "ptp"]


def with_fcs(frame_bytes: int | None, packets: int | None) -> int | None:
    """Bytes of so many frames as results have them; engines and interfaces count without."""
    return None if frame_bytes is None or packets is None else frame_bytes + packets * FCS_BYTES


@dataclass(frozen=True)
class SendTask:
    """What a transmitter does: its legs all start at one instant."""

    interface: str
    legs: list[Leg]
    limit_s: float
    """The guard ends every engine after this long, whatever happens."""
    clock: Clock = "monotonic"
    """What stamps tell: the node's own clock, or TAI, which PTP steers. Due times are on the former in any case."""
    mac: str = ""
    """The interface's, where `proxy_addresses` has something."""
    proxy_addresses: list[str] = field(default_factory=list)
    """Addresses for which the guard answers ARP, neighbour discovery and GTP-U echo (traffic.frames.responder), of
    one rank of
    the host."""
    arp_targets: str = ""
    """Whom each of their IPv4 addresses asks for first, so that he knows them: the UPF, which may drop what is for a
    neighbour that it has to look for. Empty: nobody."""


@dataclass(frozen=True)
class ReceiveTask:
    """What a receiver does: count `legs` (those whose target it is)."""

    interface: str
    mac: str
    legs: list[Leg]
    limit_s: float
    mode: Literal["capture", "count"] = "capture"
    filter: str = ""
    """An additional filter in pcap syntax; empty: everything addressed to this node."""
    filter_program: str = ""
    """The same as instructions for the receiver xdp: traffic.capture.ebpf.to_hex."""
    ring_mib: int = 64
    engine: str = "auto"
    """One engine, or several joined by "+": the first one's counts are the run's, the others' are a check."""
    offsets_ns: dict[str, int] = field(default_factory=dict)
    """Transmitter → what is added to this node's clock to make it that one's; latencies need it."""
    bounds_ns: dict[str, int] = field(default_factory=dict)
    """Transmitter → how far off that may be."""
    realtime_ns: dict[str, int] = field(default_factory=dict)
    """Transmitter → its CLOCK_REALTIME less its CLOCK_MONOTONIC; the times in pktgen's frames are of the former."""
    tai: bool = False
    """The xdp sender's stamps are of CLOCK_TAI, which PTP keeps the same on all nodes."""
    capture_filter: str = ""
    """Of what counts only this goes into the capture, in pcap syntax."""
    capture_every: int = 1
    """Mode capture beside the receiver xdp: of each leg the first of so many frames is captured."""
    proxy_addresses: list[str] = field(default_factory=list)
    arp_targets: str = ""
    """See SendTask."""
    streams: int = 0
    """How many legs the run has: stamps with numbers below that are its own, whosever they are."""
    echoes: list[Leg] = field(default_factory=list)
    """What goes back of `legs`: each has the one that it is of in `echo_of`."""


@dataclass
class SendCount:
    """What a sender did on one leg, as its engine says it. None: the engine does not tell."""

    leg: int
    engine: str
    sent_packets: int
    sent_bytes: int | None = None
    """Bytes of the frames without FCS."""
    failed_packets: int | None = None
    """Not taken by the interface's queue, which was full, or refused by the kernel; None: the engine does not tell."""
    late_packets: int | None = None
    """Sent after their due times; None also where there are no due times."""
    skipped_packets: int | None = None
    """Not sent, because their due time was over (late: skip)."""
    stamped_packets: int | None = None
    """Of a stamped trace: how many of sent_packets had a stamp."""
    sent_frames: int | None = None
    """Of a leg whose packets go out in fragments: the device took so many; None: as many as packets. `sent_packets` are
    those of which it took every fragment, and `sent_bytes` theirs, each as in one frame."""
    latest_ns: int | None = None
    """How late a frame left at most; None where that is not known."""
    users: list[int] | None = None
    """Sent packets of each user, in the order of Leg.users."""
    seconds: float | None = None
    started_ns: int | None = None
    """CLOCK_MONOTONIC of the node when the engine was let go."""
    ended_ns: int | None = None
    first_ns: int | None = None
    """CLOCK_MONOTONIC of the node when the first frame left."""
    resent_packets: int | None = None
    """Sent once more because nothing acknowledged them (engine interactive); not in sent_packets."""
    flows: list[dict[str, Any]] | None = None
    """traffic.interactive.machine.FlowReport of each flow."""
    note: str = ""
    output: str = ""
    """The engine's own closing words, for the log."""
    connections: dict[str, Any] | None = None
    """Of a leg of connections, in place of packets: see traffic.connections.counts.EndCount."""


@dataclass
class ReceiveCount:
    """What a receiver counted for one leg. Times are UTC nanoseconds of the node's CLOCK_REALTIME."""

    leg: int
    engine: str
    received_packets: int
    received_bytes: int | None = None
    """Bytes of the frames without FCS."""
    first_ns: int | None = None
    last_ns: int | None = None
    dropped_packets: int = 0
    """Frames the engine itself failed to take (ring full): the count is then a lower bound."""
    note: str = ""
    output: str = ""
    tally: dict[str, Any] | None = None
    """traffic.counting.tally.Tally as JSON, of an engine that reads stamps."""
    unstamped_packets: int | None = None
    """Of a stamped trace: how many of received_packets had none; `tally` is of the others."""
    received_frames: int | None = None
    """Where packets came in fragments: in how many frames the received ones; None: as many as packets."""
    unfinished_packets: int | None = None
    """Of a receiver that puts fragments together, on its first leg: packets of which not all came."""
    users: dict[str, str] | None = None
    """traffic.counting.users.COLUMNS, packed, in the order of Leg.users; behind the last user what is no user's."""
    connections: dict[str, Any] | None = None
    """As SendCount's."""
    marks: str | None = None
    """Of a leg that other nodes count too: the numbers that came here (traffic.counting.sequence_bitmap, packed)."""
    delays: list[list[int]] | None = None
    """Of such a leg: [latency in ns, frames], as its histogram has them."""
    misdelivered: dict[str, int] | None = None
    """On its first leg, of a receiver that reads stamps: leg → packets of it that came here and are for another."""
    utc_less_monotonic_ns: int | None = None
    """What was added to the node's CLOCK_MONOTONIC to make these times; None: they were UTC, or TAI, from the start."""


def legs_of(engine: str, legs: list[Leg]) -> list[Leg]:
    """Those that a receiver counts: connections are the socket engine's, interactive traces are counted by the engine
    that plays them, frames are the others'."""
    return [leg for leg in legs if _counted_by(leg) == (engine if engine in ("socket", "interactive") else "")]


def _counted_by(leg: Leg) -> str:
    """The engine that alone can count it; empty: any that counts frames."""
    if leg.kind == "connections":
        return "socket"
    return leg.engine if leg.engine == "interactive" else ""


def share_of(engine: str, engines: list[str], task: ReceiveTask) -> ReceiveTask:
    """What one of a receiver's engines is to do: a capture beside a counter takes what its own filter lets through."""
    filters = [task.filter, task.capture_filter if engine == "netsniff-ng" and "xdp" in engines else ""]
    both = " and ".join(f"({one})" for one in filters if one) if all(filters) else "".join(filters)
    return replace(task, legs=legs_of(engine, task.legs), filter=both)


def to_json(value: SendTask | ReceiveTask | SendCount | ReceiveCount) -> dict[str, Any]:
    return fields_to_json(value, whole=True)


def leg_from_json(data: object, where: object = "flow") -> Leg:
    return Leg.from_json(data, where)


def send_task_from_json(data: object) -> SendTask:
    return decode(SendTask, data, "transmit task")


def receive_task_from_json(data: object) -> ReceiveTask:
    return decode(ReceiveTask, data, "receive task")
