"""Tasks that the master scatters to ranks, and the counts that ranks return. Dataclasses that travel as JSON.

A `Leg` (flow) is the share of one stream or trace that one transmitter sends to one receiver. A sender executes it, a
receiver counts it, and it is one row of `streams.csv`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pktswarm.traffic.frames.headers import FCS_BYTES as FCS_BYTES
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.flow_report import FlowReport
from pktswarm.traffic.typed_json import decode, fields_to_json

Role = Literal["transmit", "receive"]
Clock = Literal["monotonic", "ptp"]


def with_fcs(frame_bytes: int | None, packets: int | None) -> int | None:
    """Bytes of `packets` frames with FCS, as results have them; engines and interfaces count without."""
    return None if frame_bytes is None or packets is None else frame_bytes + packets * FCS_BYTES


@plain
class SendTask:
    """Task of a transmitter. All its flows start at one instant."""

    interface: str
    legs: list[Leg]
    limit_s: float
    """The guard ends every engine after this time in any case."""
    clock: Clock = "monotonic"
    """The clock of the stamps: CLOCK_MONOTONIC, or TAI steered by PTP. Due times always use CLOCK_MONOTONIC."""
    mac: str = ""
    """MAC address of the interface; set where `proxy_addresses` is not empty."""
    proxy_addresses: list[str] = field(default_factory=list)
    """Addresses and ranges (traffic.frames.address_set) for which the guard answers ARP, neighbour discovery and GTP-U
    echo (traffic.frames.responder); only one rank of a host has them."""
    neighbours: list[str] = field(default_factory=list)
    """Addresses of the UPF and of gateways, which proxy addresses ask for first: a UPF or a router can drop packets for
    a neighbour that it has yet to resolve."""


@plain
class ReceiveTask:
    """Task of a receiver: count `legs`, whose target it is."""

    interface: str
    mac: str
    legs: list[Leg]
    limit_s: float
    mode: Literal["capture", "count"] = "capture"
    filter: str = ""
    """An additional filter in pcap syntax; empty: everything addressed to this node."""
    filter_program: str = ""
    """`filter` as instructions for the receiver xdp (traffic.capture.ebpf.to_hex)."""
    ring_mib: int = 64
    engine: str = "auto"
    """One engine, or several joined by "+": the first one's counts are the run's, the others' are a check."""
    offsets_ns: dict[str, int] = field(default_factory=dict)
    """Transmitter → offset to add to this node's clock to obtain the transmitter's; latencies need it."""
    bounds_ns: dict[str, int] = field(default_factory=dict)
    """Transmitter → error bound of the offset."""
    realtime_ns: dict[str, int] = field(default_factory=dict)
    """Transmitter → its CLOCK_REALTIME less its CLOCK_MONOTONIC; the times in pktgen's frames are of the former."""
    tai: bool = False
    """The xdp sender's stamps are of CLOCK_TAI, which PTP keeps the same on all nodes."""
    capture_filter: str = ""
    """Restricts the capture, not the counts; pcap syntax."""
    timed_every: int = 1
    """The receiver xdp times two of so many frames in a row, where it needs no lock; all are counted."""
    capture_every: int = 1
    """Mode capture with the receiver xdp: of every n frames of a flow the first is captured."""
    proxy_addresses: list[str] = field(default_factory=list)
    neighbours: list[str] = field(default_factory=list)
    """See SendTask."""
    streams: int = 0
    """Number of flows of the run: stamps with lower stream numbers are of this run."""
    echoes: list[Leg] = field(default_factory=list)
    """Flows that echo `legs`; `echo_of` is the flow that each echoes."""


@dataclass
class SendCount:
    """Count of a sender for one flow, as its engine reports it. None: the engine does not report it."""

    leg: int
    engine: str
    sent_packets: int
    sent_bytes: int | None = None
    """Bytes of the frames without FCS."""
    failed_packets: int | None = None
    """Refused by the full queue of the interface or by the kernel; None: the engine does not report it."""
    late_packets: int | None = None
    """Sent after their due times; None also without due times."""
    skipped_packets: int | None = None
    """Not sent because their due time had passed (late: skip)."""
    stamped_packets: int | None = None
    """Packets of a stamped trace that had a stamp."""
    sent_frames: int | None = None
    """Frames that the device took of a leg whose packets are sent in fragments; None: one for each packet.
    `sent_packets` counts packets of which it took every fragment, and `sent_bytes` their bytes, each as one frame."""
    latest_ns: int | None = None
    """Greatest lateness of a frame; None: not known."""
    users: list[int] | None = None
    """Sent packets of each user, in the order of Leg.users."""
    seconds: float | None = None
    started_ns: int | None = None
    """CLOCK_MONOTONIC of the node when the engine was released."""
    ended_ns: int | None = None
    first_ns: int | None = None
    """CLOCK_MONOTONIC of the node when the first frame left."""
    resent_packets: int | None = None
    """Sent again without an acknowledgement (engine interactive); not part of sent_packets."""
    flows: list[FlowReport] | None = None
    """The report on each flow of an interactive trace."""
    note: str = ""
    output: str = ""
    """Last output of the engine, for the log."""
    connections: dict[str, Any] | None = None
    """Count of a flow of connections (traffic.connections.counts.EndCount), in place of packets."""


@dataclass
class ReceiveCount:
    """Count of a receiver for one flow. Times are UTC nanoseconds of the node's CLOCK_REALTIME."""

    leg: int
    engine: str
    received_packets: int
    received_bytes: int | None = None
    """Bytes of the frames without FCS."""
    first_ns: int | None = None
    last_ns: int | None = None
    dropped_packets: int = 0
    """Frames that the engine lost itself (ring full): the count is then a lower bound."""
    note: str = ""
    output: str = ""
    tally: dict[str, Any] | None = None
    """traffic.counting.tally.Tally as JSON; None: the engine reads no stamps."""
    unstamped_packets: int | None = None
    """Packets of a stamped trace without a stamp; `tally` counts the others."""
    received_frames: int | None = None
    """Frames of the received packets, which can be fragments; None: one for each packet."""
    unfinished_packets: int | None = None
    """Packets with missing fragments, in the count of the first flow of a receiver that reassembles."""
    users: dict[str, str] | None = None
    """traffic.counting.users.COLUMNS, packed, in the order of Leg.users; the last entry counts packets of no user."""
    connections: dict[str, Any] | None = None
    """As SendCount's."""
    marks: str | None = None
    """Sequence numbers received here of a flow that several nodes count (traffic.counting.sequence_bitmap, packed)."""
    delays: list[list[int]] | None = None
    """[latency in ns, frames], from the histogram; None: not timed, or the receiver counts too many flows."""
    misdelivered: dict[str, int] | None = None
    """Flow → its packets that arrived at this wrong receiver; in the count of the first flow of a receiver that reads
    stamps."""
    utc_less_monotonic_ns: int | None = None
    """Added to the node's CLOCK_MONOTONIC for these times; None: the engine measured UTC or TAI."""
    timed_every: int = 1
    """See ReceiveTask, as the receiver did it: 1 where it timed each frame."""


def legs_of(engine: str, legs: list[Leg]) -> list[Leg]:
    """The flows that a receiving engine counts: socket counts connections, interactive the traces that it plays, the
    others count frames."""
    return [leg for leg in legs if _counted_by(leg) == (engine if engine in ("socket", "interactive") else "")]


def _counted_by(leg: Leg) -> str:
    """The only engine that can count the flow; empty: any that counts frames."""
    if leg.kind == "connections":
        return "socket"
    return leg.engine if leg.engine == "interactive" else ""


def share_of(engine: str, engines: list[str], task: ReceiveTask) -> ReceiveTask:
    """The task of one engine of a receiver. A capture beside a counter has the capture filter too."""
    filters = [task.filter, task.capture_filter if engine == "netsniff-ng" and "xdp" in engines else ""]
    both = " and ".join(f"({one})" for one in filters if one) if all(filters) else "".join(filters)
    return replace(task, legs=legs_of(engine, task.legs), filter=both)


def to_json(value: SendTask | ReceiveTask | SendCount | ReceiveCount) -> dict[str, Any]:
    return fields_to_json(value, whole=True)


def leg_from_json(data: object, where: object = "flow") -> Leg:
    return decode(Leg, data, where)


def send_task_from_json(data: object) -> SendTask:
    return decode(SendTask, data, "transmit task")


def receive_task_from_json(data: object) -> ReceiveTask:
    return decode(ReceiveTask, data, "receive task")
