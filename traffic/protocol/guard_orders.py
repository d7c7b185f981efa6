"""Orders of a rank, or of another program of the node, to its guard."""

from __future__ import annotations

from typing import Literal

from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.codec import Decoder, Order
from pktswarm.traffic.protocol.neighbours import Question


@plain
class Hold(Order):
    """Hold the node for `run`. `by`: the user and host of the run, for others that want the node."""

    NAME = "hold"
    run: str
    by: str


@plain
class Mend(Order):
    """Restore what killed guards left behind."""

    NAME = "mend"


@plain
class Leftovers(Order):
    """Report what killed guards left behind."""

    NAME = "leftovers"
    interface: str


@plain
class Memory(Order):
    """Report how much memory the guard takes."""

    NAME = "memory"


@plain
class Ptp(Order):
    """Report how PTP steers the clock."""

    NAME = "ptp"


@plain
class Probe(Order):
    """Try the senders on `interface`."""

    NAME = "probe"
    interface: str


@plain
class OpenPort(Order):
    """Open a packet socket on `interface`, and answer for `addresses`."""

    NAME = "open_port"
    interface: str
    mac: str
    addresses: list[str]
    neighbours: list[str]
    """Addresses that are asked for first."""


@plain
class FindNeighbours(Order):
    """Ask for the MAC addresses of neighbours on `interface`."""

    NAME = "find_neighbours"
    interface: str
    mac: str
    questions: list[Question]


@plain
class Exchange(Order):
    """Send `frames` (hexadecimal), and return what arrives: at most `wanted` frames in `seconds`."""

    NAME = "exchange"
    frames: list[str]
    seconds: float
    wanted: int


@plain
class File(Order):
    """Write the raw bytes that follow to the spool."""

    NAME = "file"
    name: str


@plain
class Prepare(Order):
    NAME = "prepare"
    role: Literal["transmit", "receive"]
    task: str
    """The JSON text of a SendTask or ReceiveTask."""


@plain
class Start(Order):
    """Start the engines at `at_ns`, on CLOCK_MONOTONIC."""

    NAME = "start"
    at_ns: int


@plain
class Sample(Order):
    """Report the counts so far."""

    NAME = "sample"


@plain
class Word(Order):
    """The master is alive."""

    NAME = "word"


@plain
class SetRate(Order):
    """Send the leg at another rate from now on. 0: nothing; None: at the rate that it had."""

    NAME = "set_rate"
    leg: int
    rate_pps: float | None


@plain
class Halt(Order):
    """End the sending."""

    NAME = "halt"


@plain
class Stop(Order):
    """End all engines, and report the counts."""

    NAME = "stop"


@plain
class Restore(Order):
    """Restore the node, and end; `kept`: wait for Again instead."""

    NAME = "restore"
    kept: bool = False


@plain
class Again(Order):
    """Serve a further run."""

    NAME = "again"


GuardOrder = (
    Hold
    | Mend
    | Leftovers
    | Memory
    | Ptp
    | Probe
    | OpenPort
    | FindNeighbours
    | Exchange
    | File
    | Prepare
    | Start
    | Sample
    | Word
    | SetRate
    | Halt
    | Stop
    | Restore
    | Again
)
decode_guard_order: Decoder[GuardOrder] = Decoder(GuardOrder)
