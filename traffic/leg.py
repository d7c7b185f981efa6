"""A flow: one stream from one transmitter to one receiver."""

from __future__ import annotations

from dataclasses import field, fields, replace
from typing import Any, ClassVar, Literal

from pktswarm.traffic.frames.description import FrameDescription, Headers
from pktswarm.traffic.plain import plain
from pktswarm.traffic.typed_json import decode_fields, fields_to_json

FIELD_ENGINES = ("xdp", "tc")
"""The two ways of the kernel's sender (kernel/send.bpf.c), which stamp and change any field."""
ANY_FIELD_ENGINE = "field"
"""Leg.engine in a plan: the first of them that works on the node."""
MADE_IN_KERNEL = (*FIELD_ENGINES, ANY_FIELD_ENGINE)


def field_engine(engine: str) -> str:
    """The engine of a flow that needs stamps: the one that the scenario names, or the first that works."""
    return engine if engine in FIELD_ENGINES else ANY_FIELD_ENGINE


TraceMode = Literal["original", "multiplier", "pps", "bps", "top"]


@plain
class MatchData:
    """A traffic.counting.match.Match in JSON types."""

    WRITTEN: ClassVar = ("kind", "mask", "value", "length", "ranges", "others", "stream")
    kind: Literal["stream", "rest"]
    mask: str = ""
    """Hexadecimal, as `value`."""
    value: str = ""
    length: int | None = None
    ranges: tuple[tuple[int, int, int, int], ...] = ()
    """(first bit, bits, lowest value, highest value)."""
    others: tuple[MatchData, ...] = ()
    tags: tuple[tuple[int, int] | None, ...] = ()
    stream: int | None = None


@plain
class RandomStart:
    """The offset at random of one instance of a trace: see traffic.replay.timing.random_times."""

    instance: int
    width_ns: int
    seed: int


@plain
class Timing:
    """The pace of a trace, and the due time of the first frame of any flow."""

    WRITTEN: ClassVar = ("mode", "value", "lead_ns")
    mode: TraceMode = "original"
    value: float = 1.0
    """A factor (multiplier), packets/s (pps) or bits/s of frames with FCS (bps)."""
    lead_ns: int = 0
    """From the start instant to the due time of the first frame."""
    period_ns: int = 0
    """From one pass of a trace to the next; 0: made from its times."""
    random: RandomStart | None = None
    beginner_mac: str = ""
    """Engine interactive: the node that sends the first packet of each flow."""
    answerer_mac: str = ""


@plain
class Shift:
    """Numbers added to the user's address and port, the server's address and the TEID. Of an IPv6 address the last 32
    bits are added to; each field wraps at its width."""

    user: int = 0
    server: int = 0
    port: int = 0
    teid: int = 0

    def __bool__(self) -> bool:
        return self != Shift()


@plain
class AddressPool:
    """Addresses that follow one another."""

    first: str
    """An IPv4 address; empty: the node's is not known."""
    count: int | None
    prefix6: str | None = None
    """A /96 prefix: the IPv6 addresses are it and the IPv4 ones."""


@plain
class ReceivedField:
    """The field that identifies users at the receiver, where a device adds or takes away headers. None: as sent."""

    field: str
    by: str | None = None
    first: int | None = None
    step: int | None = None


@plain
class SessionUsers:
    """Properties of the users of a session group at one gNB."""

    WRITTEN: ClassVar = ("mbr_bps", "outer_bytes")
    group: str
    gnb: str
    direction: Literal["up", "down"]
    mbr_bps: float | None = None
    """Maximum bit rate; None: no limit."""
    outer_bytes: tuple[int, int] = (0, 0)
    """Bytes around a user's IP packet in a frame without FCS, as sent and as received."""


@plain
class FlowUsers:
    """The users of a flow. User n has the value `first` + n * `step` of the field."""

    field: str
    """A varying field of the template, header.field."""
    by: str = ""
    """Its name in traffic.counting.kernel_structs.Fields ("teid", "src_ip", …); empty before the frames are built."""
    first: int = 0
    step: int = 1
    count: int = 0
    shift: int = 0
    """Lowest bit of the values in an IPv6 address; `low` has the bits below."""
    low: int = 0
    """The bits below, the same for all."""
    received: ReceivedField | None = None
    session: SessionUsers | None = None

    @property
    def as_received(self) -> FlowUsers:
        """The users by the field at the receiver."""
        if self.received is None:
            return self
        changes = {name: value for name, value in vars(self.received).items() if value is not None}
        return replace(self, received=None, **changes)

    def to_json(self) -> dict[str, Any]:
        """The fields of `session` are keys beside the others."""
        made: dict[str, Any] = {"field": self.field}
        if self.by:
            made |= {"by": self.by, "first": self.first, "step": self.step, "count": self.count}
        if self.shift:
            made |= {"shift": self.shift, "low": self.low}
        if self.received is not None:
            made["received"] = fields_to_json(self.received)
        return made if self.session is None else {**made, **fields_to_json(self.session)}

    @classmethod
    def from_json(cls, data: object, where: object = "flow", key: str = "users") -> FlowUsers:
        if isinstance(data, dict) and "group" in data:
            names = {each.name for each in fields(SessionUsers)}
            session = {name: value for name, value in data.items() if name in names}
            data = {name: value for name, value in data.items() if name not in names} | {"session": session}
        return decode_fields(cls, data, where, key)


@plain
class Arrival:
    """Frames of a stream as its receiver sees them."""

    WRITTEN: ClassVar = ("added_bytes",)
    headers: Headers
    added_bytes: int = 0
    """Length as received less length as sent."""


@plain
class Oversize:
    """Fragments of packets that are longer than the MTU; see traffic.schedule.fragments."""

    by: Literal["inner", "outer"]
    """The IPv4 header that the scenario has fragmented: the user's, or the tunnel's."""
    mtu_bytes: int | None
    """None: not known before the nodes have reported."""
    ids: tuple[int, int]
    """First and last identification of the stream's packets."""
    cut: Literal["inner", "outer"] | None = None
    """`by`, where the sender makes the fragments; None: the UPF does."""


@plain
class ConnectionShape:
    """The connections of a flow (kind "connections"), and the blocks that each carries."""

    WRITTEN: ClassVar = (
        *("protocol", "connections", "direction", "block_bytes", "period_ns", "blocks", "duration_ns", "pace_bps"),
        *("congestion", "nodelay", "send_buffer_bytes", "background"),
    )
    protocol: Literal["tcp", "udp"] = "tcp"
    connections: int = 1
    """The number of connections at once."""
    direction: Literal["up", "down", "both"] = "up"
    """up: blocks go from source to target."""
    block_bytes: int | None = None
    period_ns: int | None = None
    """From one block to the next; None: as fast as the connection takes them."""
    blocks: int | None = None
    duration_ns: int | None = None
    pace_bps: float | None = None
    congestion: str | None = None
    nodelay: bool = False
    send_buffer_bytes: int | None = None
    background: bool = False
    items: list[list[tuple[int, int]]] | None = None
    """For each connection the (time_ns, bytes) of its blocks, in place of blocks of one size."""
    source_ipv4: str = ""
    """With prefix length, as `target_ipv4`. This and what follows is set once the nodes have reported."""
    target_ipv4: str = ""
    port: int = 0
    datagram_bytes: int = 0
    drain_s: float = 0.0


@plain
class Gateway:
    """The router that the frames of a flow are sent to."""

    WRITTEN: ClassVar = ("address", "mac", "asked_from", "receiver_mac")
    address: str
    mac: str = ""
    """As it answered to ARP or neighbour discovery; this and what follows is set once the nodes have reported."""
    asked_from: str = ""
    """The address of the transmitter that asked."""
    receiver_mac: str = ""
    """The destination MAC address of the frames behind the router."""


@plain
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
    frame: FrameDescription = field(default_factory=FrameDescription)
    size_bytes: int = 64
    sizes: list[list[int]] = field(default_factory=list)
    """[size with FCS, weight] of a stream of several sizes, size_bytes is the largest; empty: all have that."""
    sizes_in_turn: bool = False
    """True: the sizes in order, each as often as its weight; False: drawn at random by weight."""
    rate_pps: float | None = None
    rates: list[list[float]] = field(default_factory=list)
    """A rate that changes: [from ns since the start, packets/s] (0: silence until the next), the first one from 0. Then
    rate_pps is not looked at. See traffic.schedule.pace."""
    rates_period_ns: int | None = None
    """Period after which `rates` start again; None: the last one stays."""
    gap_table: list[int] = field(default_factory=list)
    """Entries from which gaps are drawn, in 2**-20 of the mean gap; their mean is exactly 1. Empty: even gaps."""
    seed: int | None = None
    """Seed of all random values; None: the id."""
    count_packets: int | None = None
    duration_s: float | None = None
    intended_packets: int | None = None
    trace_file: str | None = None
    sequence_file: str | None = None
    """A stream whose frames are a source's: when each is due, whose it is and how long, in a file of the transmitter's
    spool folder (traffic.schedule.sequence). `sizes` are then the smallest and the largest."""
    user_field: str = ""
    """The varying field of the template that a record of a sequence sets to its user."""
    timing: Timing = field(default_factory=lambda: Timing())
    repeat: int = 1
    shift: Shift = field(default_factory=lambda: Shift())
    """The difference of an instance of a trace from the frames of its file."""
    pools: dict[str, AddressPool] = field(default_factory=dict)
    """"users" and "servers" of a trace: the addresses of the instance whose shift is 0."""
    stamped_packets: int | None = None
    """Stamped packets of a trace that is stamped where its frames have room (options: {"stamp": True}), in this leg and
    those that are counted with it; fewer where the scenario cuts it off."""
    merged_into: int | None = None
    """The leg in whose row this one is counted: further instances of a trace look alike to a receiver."""
    match: MatchData | None = None
    """How a receiver distinguishes this flow's frames from all others; None before the nodes have reported."""
    expect: dict[str, Any] = field(default_factory=dict)
    """Header fields that the device under test is to change ({"ttl": 63}), or may (None): see
    traffic.counting.expect."""
    arrives: Arrival | None = None
    """Frames as received, where a device adds or takes away headers; None: as sent."""
    oversize: Oversize | None = None
    """Packets of sessions that are longer than the MTU; None: there are none."""
    users: FlowUsers | None = None
    """The users of a flow that are counted one by one."""
    options: dict[str, Any] = field(default_factory=dict)
    """Settings of the engine ("clone_skb", "burst", "threads", …)."""
    held: bool = False
    """Nothing is sent until it is started (SetRate)."""
    steered: bool = False
    """A program can change its rate, or stop and start it, while it is sent."""
    background: bool = False
    """The flow is background traffic: the results list it apart from the targets."""
    connection: ConnectionShape = field(default_factory=lambda: ConnectionShape())
    answers: int | None = None
    """The leg whose flows this one is the other side of (engine interactive): the ranks of that leg do both."""
    echo_of: int | None = None
    """The leg whose frames come back as this one: its receiver sends `echo_percent` of what it counts to its sender.
    Stream and number in the stamps are this one's, the time is that of the first sending."""
    echo_percent: int = 0
    handover_targets: list[str] = field(default_factory=list)
    """Hosts beside the target that can receive its frames because its users move there. Each counts its own."""
    gateway: Gateway | None = None
    """None: the frames are sent to the MAC address of the target, of the UPF, or of the scenario."""

    def to_json(self) -> dict[str, Any]:
        made = fields_to_json(self, whole=True)
        empty: dict[str, Any] = {name: {} for name in _TABLES if getattr(self, name) in (None, _TABLES[name])}
        if self.rates or self.gap_table:
            empty.pop("timing", None)
        return {**made, **empty}

    @property
    def group(self) -> str:
        return "background" if self.background else "target"

    @property
    def transmitter(self) -> str:
        """The host whose transmit rank handles the flow; empty: a receiver sends it."""
        if self.echo_of is not None:
            return ""
        return self.source if self.answers is None else self.target

    @property
    def receiver(self) -> str:
        """The host whose receive rank handles the flow."""
        return self.target if self.answers is None else self.source

    @property
    def receivers(self) -> list[str]:
        return [self.receiver, *self.handover_targets]

    @property
    def to(self) -> str:
        """The receiving hosts, for tables."""
        return "+".join([self.target, *self.handover_targets])


_TABLES: dict[str, object] = {
    "match": None,
    "users": None,
    "arrives": None,
    "oversize": None,
    "timing": Timing(),
    "connection": ConnectionShape(),
}
"""Fields that run.json has as an empty object where they have this value."""
