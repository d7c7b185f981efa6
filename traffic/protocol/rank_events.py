"""Events of a node's rank. Rank 0 adds the number of the rank and passes them on to the command line."""

from __future__ import annotations

from dataclasses import field

from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.codec import Decoder, Event
from pktswarm.traffic.protocol.node_report import NodeReport
from pktswarm.traffic.protocol.proxy_count import ProxyCount
from pktswarm.traffic.protocol.ptp_reading import PtpReading
from pktswarm.traffic.protocol.rank_orders import File
from pktswarm.traffic.protocol.task import ReceiveCount, SendCount


@plain
class UtcReading:
    """CLOCK_REALTIME less CLOCK_MONOTONIC, to `within_ns`. `was_set`: the clock was set since the last reading."""

    realtime_minus_monotonic_ns: int
    within_ns: int
    was_set: bool


@plain
class RankEvent(Event):
    rank: int = field(default=0, kw_only=True)
    """Set by rank 0, by where the message came from. Instants are on the node's CLOCK_MONOTONIC."""


@plain
class Hello(RankEvent):
    NAME = "hello"
    host: str
    role: str
    report: NodeReport


@plain
class Alive(RankEvent):
    """The answer to the master's word."""

    NAME = "alive"


@plain
class NeighboursFound(RankEvent):
    """Address → MAC of the neighbours that answered."""

    NAME = "neighbours_found"
    macs: dict[str, str]


@plain
class Arrived(RankEvent):
    """The rank waits at the barrier `name`."""

    NAME = "arrived"
    name: str
    at_ns: int | None = None
    """When the sending ended, at the barrier "done"."""


@plain
class Left(RankEvent):
    """The rank left the barrier `name`."""

    NAME = "left"
    name: str
    at_ns: int
    offset_ns: int | None = None
    """Set by rank 0: the node's clock less the master's."""


@plain
class Started(RankEvent):
    NAME = "started"
    at_ns: int


@plain
class RateSet(RankEvent):
    """The leg is sent at this rate since `at_ns`. 0: it is not sent; None: at the rate that it had."""

    NAME = "rate_set"
    leg: int
    rate_pps: float | None
    at_ns: int


@plain
class Halted(RankEvent):
    NAME = "halted"


@plain
class Failed(RankEvent):
    """`bad_input`: by the input, not by the node."""

    NAME = "failed"
    problem: str
    bad_input: bool


@plain
class GuardGone(RankEvent):
    NAME = "guard_gone"


@plain
class Counts(RankEvent):
    NAME = "counts"
    counts: list[SendCount | ReceiveCount]
    problems: list[str]
    played: ProxyCount | None
    interface: dict[str, int] | None
    """The change of the interface's counters since the engines were ready; None: the interface is gone."""
    captures: list[File]
    ptp: list[PtpReading] = field(default_factory=list)
    """With `clock: ptp`, before and after the sending."""


@plain
class Restored(RankEvent):
    """`troubles`: what could not be restored."""

    NAME = "restored"
    troubles: list[str]


@plain
class InterfaceGone(RankEvent):
    NAME = "interface gone"
    at_ns: int


@plain
class Sample(RankEvent):
    """Counts since the start. `sent` and `received` are packed by traffic.counting.samples."""

    NAME = "sample"
    at_ns: int
    sent: list[list[int | None]]
    received: list[list[int | None]]
    interface: dict[str, int]
    utc: UtcReading | None


@plain
class UtcSet(RankEvent):
    """CLOCK_REALTIME was set."""

    NAME = "utc set"
    at_ns: int
    reading: UtcReading


NodeEvent = (
    Hello
    | Alive
    | NeighboursFound
    | Arrived
    | Left
    | Started
    | RateSet
    | Halted
    | Failed
    | GuardGone
    | Counts
    | Restored
    | InterfaceGone
    | Sample
    | UtcSet
)
decode_node_event: Decoder[NodeEvent] = Decoder(NodeEvent)
