"""What the master scatters: the work of one rank. Plain dataclasses that travel as JSON.

`Leg` is the unit of everything: the share of one stream (or trace) that one transmitter sends to one receiver.
It is what a sender executes, what a receiver counts, and one row of `streams.csv`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Role = Literal["transmit", "receive"]
Clock = Literal["monotonic", "ptp"]
FCS_BYTES = 4


@dataclass(frozen=True)
class Leg:
    """One stream's share from one transmitter to one receiver.

    `frame` is for streams: {"headers": [{"ethernet": {...}}, {"ipv4": {...}}, …], "payload": {...}} with every "auto"
    already resolved (see traffic.frames.build). `trace_file` is for traces: a name inside the transmitter's spool
    folder.
    `size_bytes` counts the FCS (RFC 2544); engines that do not are given FCS_BYTES less.
    `rate_pps` None: as fast as the engine can. At least one of `count_packets` and `duration_s` is set;
    for a trace `count_packets` is the packets of one pass times `repeat`.
    """

    id: int
    stream: str
    source: str
    target: str
    kind: Literal["stream", "trace", "connections"]
    engine: str = "auto"
    frame: dict[str, Any] = field(default_factory=dict)
    size_bytes: int = 64
    sizes: list[list[int]] = field(default_factory=list)
    """A stream of several sizes: [size with FCS, weight]; empty: all are size_bytes, else that is the largest."""
    sizes_in_turn: bool = False
    """The sizes one after another, each as often as its weight; else drawn at random by their weights."""
    rate_pps: float | None = None
    rates: list[list[float]] = field(default_factory=list)
    """A rate that changes: [from ns since the start, packets/s] (0: silence until the next), the first one from 0. Then
    rate_pps is not looked at. See traffic.schedule.pace."""
    rates_period_ns: int | None = None
    """`rates` begin again after so long; None: the last one stays."""
    gap_table: list[int] = field(default_factory=list)
    """Random gaps: each is an entry of this, in 2**-20 of the gap of the rate; their mean is exactly 1."""
    seed: int | None = None
    """Of all that is drawn at random; None: the leg's id."""
    count_packets: int | None = None
    duration_s: float | None = None
    intended_packets: int | None = None
    trace_file: str | None = None
    sequence_file: str | None = None
    """A stream whose frames are a source's: when each is due, whose it is and how long, in a file of the transmitter's
    spool folder (traffic.schedule.sequence). `sizes` are then the smallest and the largest."""
    user_field: str = ""
    """Of a sequence: the varying field of the template that stands at the record's user."""
    timing: dict[str, Any] = field(default_factory=dict)
    """A trace's pace: {"mode": "original"|"multiplier"|"pps"|"bps"|"top", "value": float}. Of all: "lead_ns", when the
    first frame is due if that is not the start."""
    repeat: int = 1
    shift: dict[str, int] = field(default_factory=dict)
    """An instance of a trace: what is added to the frames of its file: "user" and "server" (addresses), "port" (the
    user's), "teid". See traffic.replay.shift. Empty: nothing."""
    pools: dict[str, Any] = field(default_factory=dict)
    """Of a trace: {"users": {"first": "10.60.0.1", "count": 3, "prefix6": "fd00::"}, "servers": {…}}: the addresses of
    the instance whose shift is 0."""
    stamped_packets: int | None = None
    """Of a trace that is stamped where its frames have room (options: {"stamp": True}): how many are, of this leg and
    those that are counted with it; fewer where the scenario cuts it off."""
    counted_with: int | None = None
    """The leg in whose row this one is counted: further instances of a trace look alike to a receiver."""
    match: dict[str, Any] = field(default_factory=dict)
    """How a receiver tells this leg's frames from all others: see traffic.counting.match.Match."""
    expect: dict[str, Any] = field(default_factory=dict)
    """Header fields that the device under test is to change ({"ttl": 63}), or may (None): see
    traffic.counting.expect."""
    arrives: dict[str, Any] = field(default_factory=dict)
    """Of a stream, where a device adds or takes away whole headers: {"headers": those that the receiver sees,
    "added_bytes": how much longer a frame is there (less than 0: shorter)}. Empty: those of `frame`."""
    oversize: dict[str, Any] = field(default_factory=dict)
    """Of sessions: what becomes of packets that are longer than the MTU; empty: there are none. {"by": "inner"} or
    {"by": "outer"}, as the scenario says, "mtu_bytes", "ids": [first, last], those of its packets' fragments; and
    "cut", which of its IPv4 headers is cut, "outer" or "inner", where its sender does that. See
    traffic.schedule.fragments."""
    users: dict[str, Any] = field(default_factory=dict)
    """What tells a stream's users apart, if they are counted one by one: {"field": the name of a varying field of the
    template, "by": its name in traffic.counting.kernel_structs.Fields ("teid", "src_ip", "dst_ip", …), "first",
    "step", "count"}.
    User n has the value first + n * step; "shift" and "low": of an IPv6 address these are the upper bits, and the lower
    ones are the same for all. "received": those of them that are others at the receiver (`arrives`).
    Of sessions also "group", "gnb", "direction", "mbr_bps" (None: no limit), and "outer_bytes": what is around a user's
    IP packet in a frame without FCS, as sent and as received."""
    options: dict[str, Any] = field(default_factory=dict)
    """The engine's own settings ("clone_skb", "burst", "threads", …)."""
    background: bool = False
    """Of a stream or trace: told apart from the targets in the results."""
    connection: dict[str, Any] = field(default_factory=dict)
    """Of connections: "protocol" ("tcp", "udp"), "connections" (how many at once), "direction" ("up": from source to
    target, "down", "both"), "block_bytes", "period_ns", "blocks", "duration_ns", "pace_bps", "congestion", "nodelay",
    "send_buffer_bytes", "background", and "items": for each connection its list of [time_ns, bytes], in place of
    blocks of one size. Then, once the nodes have answered: "source_ipv4", "target_ipv4" (with prefix length), "port",
    "datagram_bytes", "drain_s"."""
    answers: int | None = None
    """The leg whose flows this one is the other side of (engine interactive): the ranks of that leg do both."""
    echo_of: int | None = None
    """The leg whose frames come back as this one: its receiver sends `echo_percent` of what it counts to its sender.
    Stream and number in the stamps are this one's, the time is that of the first sending."""
    echo_percent: int = 0
    also_at: list[str] = field(default_factory=list)
    """Hosts beside the target to which its frames may come, for its users move there. Each counts what comes to it."""

    @property
    def group(self) -> str:
        return "background" if self.background else "target"

    @property
    def transmitter(self) -> str:
        """The host whose transmit rank has to do with it; empty: none has, a receiver sends it."""
        if self.echo_of is not None:
            return ""
        return self.source if self.answers is None else self.target

    @property
    def receiver(self) -> str:
        """The host whose receive rank has to do with it."""
        return self.target if self.answers is None else self.source

    @property
    def receivers(self) -> list[str]:
        return [self.receiver, *self.also_at]

    @property
    def to(self) -> str:
        """For tables: where its frames come to."""
        return "+".join([self.target, *self.also_at])


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
    """The interface's, where `plays` has something."""
    plays: list[str] = field(default_factory=list)
    """Addresses for which the guard answers ARP, neighbour discovery and GTP-U echo (traffic.frames.responder), of
    one rank of
    the host."""
    greets: str = ""
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
    plays: list[str] = field(default_factory=list)
    greets: str = ""
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


def to_json(value: Any) -> Any:
    """A dataclass as plain JSON types."""
    return asdict(value)


def leg_from_json(data: dict[str, Any]) -> Leg:
    return Leg(**data)


def send_task_from_json(data: dict[str, Any]) -> SendTask:
    return SendTask(**{**data, "legs": [Leg(**leg) for leg in data["legs"]]})


def receive_task_from_json(data: dict[str, Any]) -> ReceiveTask:
    legs = {name: [Leg(**leg) for leg in data.get(name, [])] for name in ("legs", "echoes")}
    return ReceiveTask(**{**data, **legs})
