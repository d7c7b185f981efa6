"""What the master scatters: the work of one rank. Plain dataclasses that travel as JSON.

`Leg` is the unit of everything: the share of one stream (or trace) that one transmitter sends to one receiver.
It is what a sender executes, what a receiver counts, and one row of `streams.csv`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Role = Literal["transmit", "receive"]
FCS_BYTES = 4


@dataclass(frozen=True)
class Leg:
    """One stream's share from one transmitter to one receiver.

    `frame` is for streams: {"headers": [{"ethernet": {...}}, {"ipv4": {...}}, …], "payload": {...}} with every "auto"
    already resolved (see traffic.frames). `trace_file` is for traces: a name inside the transmitter's spool folder.
    `size_bytes` counts the FCS (RFC 2544); engines that do not are given FCS_BYTES less.
    `rate_pps` None: as fast as the engine can. At least one of `count_packets` and `duration_s` is set;
    for a trace `count_packets` is the packets of one pass times `repeat`.
    """

    id: int
    stream: str
    source: str
    target: str
    kind: Literal["stream", "trace"]
    engine: str = "auto"
    frame: dict[str, Any] = field(default_factory=dict)
    size_bytes: int = 64
    rate_pps: float | None = None
    count_packets: int | None = None
    duration_s: float | None = None
    intended_packets: int | None = None
    trace_file: str | None = None
    timing: dict[str, Any] = field(default_factory=dict)
    """A trace's pace: {"mode": "original"|"multiplier"|"pps"|"bps"|"top", "value": float}."""
    repeat: int = 1
    match: dict[str, Any] = field(default_factory=dict)
    """How a receiver tells this leg's frames from all others: see traffic.match.Match."""
    expect: dict[str, Any] = field(default_factory=dict)
    """Header fields that the device under test is to change ({"ttl": 63}), or may (None): see traffic.expect."""
    options: dict[str, Any] = field(default_factory=dict)
    """The engine's own settings ("clone_skb", "burst", "threads", …)."""


@dataclass(frozen=True)
class SendTask:
    """What a transmitter does: its legs all start at one instant."""

    interface: str
    legs: list[Leg]
    limit_s: float
    """The guard ends every engine after this long, whatever happens."""


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
    ring_mib: int = 64
    engine: str = "auto"
    """One engine, or several joined by "+": the first one's counts are the run's, the others' are a check."""
    offsets_ns: dict[str, int] = field(default_factory=dict)
    """Transmitter → what is added to this node's clock to make it that one's; latencies need it."""


@dataclass
class SendCount:
    """What a sender did on one leg, as its engine says it. None: the engine does not tell."""

    leg: int
    engine: str
    sent_packets: int
    sent_bytes: int | None = None
    """Bytes of the frames without FCS."""
    failed_packets: int = 0
    seconds: float | None = None
    started_ns: int | None = None
    """CLOCK_MONOTONIC of the node when the engine was let go."""
    ended_ns: int | None = None
    note: str = ""
    output: str = ""
    """The engine's own closing words, for the log."""


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
    """traffic.tally.Tally as JSON, of an engine that reads stamps."""


def to_json(value: Any) -> Any:
    """A dataclass as plain JSON types."""
    return asdict(value)


def leg_from_json(data: dict[str, Any]) -> Leg:
    return Leg(**data)


def send_task_from_json(data: dict[str, Any]) -> SendTask:
    return SendTask(**{**data, "legs": [Leg(**leg) for leg in data["legs"]]})


def receive_task_from_json(data: dict[str, Any]) -> ReceiveTask:
    return ReceiveTask(**{**data, "legs": [Leg(**leg) for leg in data["legs"]]})
