"""Events of a guard. Instants are on the node's CLOCK_MONOTONIC."""

from __future__ import annotations

from dataclasses import field

from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.codec import Decoder, Event
from pktswarm.traffic.protocol.node_report import Holder
from pktswarm.traffic.protocol.proxy_count import ProxyCount
from pktswarm.traffic.protocol.ptp_reading import PtpReading
from pktswarm.traffic.protocol.task import ReceiveCount, SendCount


@plain
class StaleProcess:
    """An engine whose guard is gone."""

    pid: int
    command: str


@plain
class Held(Event):
    """`by`: another run that holds the node; None: the node is held for the run that asked."""

    NAME = "held"
    by: Holder | None
    mended: list[str]


@plain
class Mended(Event):
    NAME = "mended"
    mended: list[str]


@plain
class Leftovers(Event):
    NAME = "leftovers"
    holder: Holder | None
    folders: list[str]
    bytes: int
    processes: list[StaleProcess]
    xdp_program: int
    """The kernel's number of the program on the interface; 0: none."""
    changed: list[str]


@plain
class Memory(Event):
    """The proportional set size of the guard, bytes; None: the kernel does not report it."""

    NAME = "memory"
    pss_bytes: int | None


@plain
class Ptp(Event):
    NAME = "ptp"
    reading: PtpReading


@plain
class Probed(Event):
    """`unfit`: sender → why it cannot work on the interface. `on_request`: those that it can be made fit for, where a
    stream names them."""

    NAME = "probed"
    unfit: dict[str, str]
    on_request: list[str]


@plain
class PortOpened(Event):
    NAME = "port_opened"


@plain
class NeighboursFound(Event):
    """Address → MAC of the neighbours that answered."""

    NAME = "neighbours_found"
    macs: dict[str, str]


@plain
class Exchanged(Event):
    NAME = "exchanged"
    frames: list[str]


@plain
class Ready(Event):
    """The engines are prepared; those of a receiver are receiving."""

    NAME = "ready"


@plain
class Started(Event):
    NAME = "started"
    at_ns: int


@plain
class Sample(Event):
    """Packed by traffic.counting.samples."""

    NAME = "sample"
    at_ns: int
    sent: list[list[int | None]]
    received: list[list[int | None]]


@plain
class RateSet(Event):
    """The leg is sent at this rate since `at_ns`. 0: it is not sent; None: at the rate that it had."""

    NAME = "rate_set"
    leg: int
    rate_pps: float | None
    at_ns: int


@plain
class Done(Event):
    """All senders have ended."""

    NAME = "done"
    at_ns: int


@plain
class Halted(Event):
    NAME = "halted"


@plain
class Failed(Event):
    NAME = "failed"
    problem: str
    bad_input: bool


@plain
class Counts(Event):
    """`captures`: names of files in `spool`."""

    NAME = "counts"
    counts: list[SendCount | ReceiveCount]
    problems: list[str]
    captures: list[str]
    spool: str
    played: ProxyCount | None = None
    ptp: list[PtpReading] = field(default_factory=list)
    """With `clock: ptp`, before and after the sending."""


@plain
class Restored(Event):
    """`troubles`: what could not be restored."""

    NAME = "restored"
    troubles: list[str]


@plain
class Fresh(Event):
    """Answers Again: a further run can begin."""

    NAME = "fresh"


GuardEvent = (
    Held
    | Mended
    | Leftovers
    | Memory
    | Ptp
    | Probed
    | PortOpened
    | NeighboursFound
    | Exchanged
    | Ready
    | Started
    | Sample
    | RateSet
    | Done
    | Halted
    | Failed
    | Counts
    | Restored
    | Fresh
)
decode_guard_event: Decoder[GuardEvent] = Decoder(GuardEvent)
