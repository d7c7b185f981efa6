"""The counts of the two ends of a leg of connections, and their rows in connections.csv, one for each direction.

"up" is from the leg's source to its target, "down" the reverse. Figures of the sender and of the receiver are from
different nodes and are never mixed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.typed_json import decode_fields

Direction = Literal["up", "down"]
FIRST_PORT = 20000
"""The port of a leg's connections is this one plus the leg's number."""


@dataclass
class SentCount:
    """The sending end of all connections of a leg in one direction. None: not measured."""

    intended_blocks: int | None = None
    intended_bytes: int | None = None
    sent_blocks: int = 0
    sent_bytes: int = 0
    """Bytes passed to the kernel; on TCP acknowledged, unless a failure is reported."""
    late_blocks: int | None = None
    datagrams: int | None = None
    data_segments: int | None = None
    retransmitted_segments: int | None = None
    rtt_min_ns: int | None = None
    rtt_mean_ns: float | None = None
    rtt_sd_ns: float | None = None
    congestion: str | None = None
    first_ns: int | None = None
    last_ns: int | None = None


@dataclass
class ReceivedCount:
    """The receiving end of all connections of a leg in one direction. None: not measured."""

    blocks: int = 0
    bytes: int = 0
    datagrams: int | None = None
    duplicated: int | None = None
    reordered: int | None = None
    dropped: int | None = None
    """Datagrams dropped by the full buffer of the receiving socket."""
    foreign: int | None = None
    goodput_bps: float | None = None
    delay_blocks: int = 0
    delay_min_ns: int | None = None
    delay_mean_ns: float | None = None
    delay_max_ns: int | None = None
    """This node's clock minus the sender's: right up to a constant."""
    jitter_sd_ns: float | None = None
    first_ns: int | None = None
    last_ns: int | None = None


@dataclass
class EndCount:
    """The counts and failures of one end of a leg."""

    sent: SentCount | None = None
    received: ReceivedCount | None = None
    failures: list[str] = field(default_factory=list)
    interrupted: bool = False
    realtime_minus_monotonic_ns: int = 0

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: object, where: object = "connections", key: str = "") -> EndCount:
        return decode_fields(cls, data, where, key)


def directions(leg: Leg) -> tuple[Direction, ...]:
    wanted = leg.connection.direction
    return ("up", "down") if wanted == "both" else (wanted,)


def sends(leg: Leg, at_source: bool) -> bool:
    """Whether this end of the leg sends blocks."""
    return ("up" if at_source else "down") in directions(leg)


@dataclass
class ConnectionRow:
    """One leg in one direction. None: not measured."""

    leg: Leg
    direction: Direction
    sent: SentCount | None = None
    received: ReceivedCount | None = None
    delay_shift_ns: int | None = None
    """Clock offset that is added to the measured delays; None: unknown."""
    delay_bound_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None

    @property
    def source(self) -> str:
        return self.leg.source if self.direction == "up" else self.leg.target

    @property
    def target(self) -> str:
        return self.leg.target if self.direction == "up" else self.leg.source

    @property
    def udp(self) -> bool:
        return self.leg.connection.protocol == "udp"

    @property
    def lost_datagrams(self) -> int | None:
        """Distinct numbers sent and never received."""
        if self.sent is None or self.received is None:
            return None
        if self.sent.datagrams is None or self.received.datagrams is None:
            return None
        return self.sent.datagrams - self.received.datagrams

    @property
    def disagreement(self) -> str:
        """The contradiction between the counts of the two ends; empty if there is none."""
        if self.sent is None or self.received is None:
            return ""
        if not self.udp and self.sent.sent_bytes != self.received.bytes:
            return f"{self.sent.sent_bytes} bytes were sent over TCP and {self.received.bytes} received"
        if self.udp and (self.lost_datagrams or 0) < 0:
            return f"{-(self.lost_datagrams or 0)} more datagrams were received than sent"
        return ""


def values(row: ConnectionRow) -> dict[str, int | str | None]:
    """One row of connections.csv. Bytes and bits are the application's."""
    connection = row.leg.connection
    return {
        "connections": row.leg.stream,
        "from": row.source,
        "to": row.target,
        "direction": row.direction,
        "role": "background" if connection.background else "target",
        "protocol": connection.protocol,
        "parallel": connection.connections,
        **_sent_figures(row),
        **({} if row.sent is None else {"congestion": row.sent.congestion}),
        **_received_figures(row),
        "lost_datagrams": row.lost_datagrams,
    }


def figures(row: ConnectionRow) -> dict[str, int | None]:
    """The numbers of a row of connections.csv."""
    return {**_sent_figures(row), **_received_figures(row), "lost_datagrams": row.lost_datagrams}


def _sent_figures(row: ConnectionRow) -> dict[str, int | None]:
    sent = row.sent
    if sent is None:
        return {}
    names = ("intended_blocks", "sent_blocks", "late_blocks", "intended_bytes", "sent_bytes", "retransmitted_segments")
    made: dict[str, int | None] = {name: getattr(sent, name) for name in names}
    made |= {name: _whole(getattr(sent, name)) for name in ("rtt_min_ns", "rtt_mean_ns", "rtt_sd_ns")}
    return made | {"sent_datagrams": sent.datagrams}


def _received_figures(row: ConnectionRow) -> dict[str, int | None]:
    received = row.received
    if received is None:
        return {}
    made = {
        "received_blocks": received.blocks,
        "received_bytes": received.bytes,
        "received_datagrams": received.datagrams,
        "duplicated_datagrams": received.duplicated,
        "reordered_datagrams": received.reordered,
        "goodput_bps": _whole(received.goodput_bps),
        "jitter_sd_ns": _whole(received.jitter_sd_ns),
        "first_ns": row.first_ns,
        "last_ns": row.last_ns,
    }
    if row.delay_shift_ns is not None and received.delay_blocks:
        for name in ("delay_min_ns", "delay_mean_ns", "delay_max_ns"):
            made[name] = round(getattr(received, name) + row.delay_shift_ns)
        made["delay_bound_ns"] = row.delay_bound_ns
    return made


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


COLUMNS = [
    "connections",
    "from",
    "to",
    "direction",
    "role",
    "protocol",
    "parallel",
    "intended_blocks",
    "sent_blocks",
    "received_blocks",
    "late_blocks",
    "intended_bytes",
    "sent_bytes",
    "received_bytes",
    "sent_datagrams",
    "received_datagrams",
    "lost_datagrams",
    "duplicated_datagrams",
    "reordered_datagrams",
    "goodput_bps",
    "retransmitted_segments",
    "rtt_min_ns",
    "rtt_mean_ns",
    "rtt_sd_ns",
    "delay_min_ns",
    "delay_mean_ns",
    "delay_max_ns",
    "delay_bound_ns",
    "jitter_sd_ns",
    "congestion",
    "first_ns",
    "last_ns",
]
