"""Orders of a rank, or of another program of the node, to its guard."""

from __future__ import annotations

from typing import Literal

from pktswarm.traffic.protocol.codec import Decoder, Order, message
from pktswarm.traffic.protocol.neighbours import Question


@message
class Hold(Order):
    """Hold the node for `run`. `by`: the user and host of the run, for others that want the node."""

    NAME = "hold"
    run: str
    by: str


@message
class Mend(Order):
    """Restore what killed guards left behind."""

    NAME = "mend"


@message
class Leftovers(Order):
    """Report what killed guards left behind."""

    NAME = "leftovers"
    interface: str


@message
class Probe(Order):
    """Try the senders on `interface`."""

    NAME = "probe"
    interface: str


@message
class OpenPort(Order):
    """Open a packet socket on `interface`, and answer for `addresses`."""

    NAME = "open_port"
    interface: str
    mac: str
    addresses: list[str]
    neighbours: list[str]
    """Addresses that are asked for first."""


@message
class FindNeighbours(Order):
    """Ask for the MAC addresses of neighbours on `interface`."""

    NAME = "find_neighbours"
    interface: str
    mac: str
    questions: list[Question]


@message
class Exchange(Order):
    """Send `frames` (hexadecimal), and return what arrives: at most `wanted` frames in `seconds`."""

    NAME = "exchange"
    frames: list[str]
    seconds: float
    wanted: int


@message
class File(Order):
    """Write the raw bytes that follow to the spool."""

    NAME = "file"
    name: str


@message
class Prepare(Order):
    NAME = "prepare"
    role: Literal["transmit", "receive"]
    task: str
    """The JSON text of a SendTask or ReceiveTask."""


@message
class Start(Order):
    """Start the engines at `at_ns`, on CLOCK_MONOTONIC."""

    NAME = "start"
    at_ns: int


@message
class Sample(Order):
    """Report the counts so far."""

    NAME = "sample"


@message
class Word(Order):
    """The master is alive."""

    NAME = "word"


@message
class SetRate(Order):
    """Send the leg at another rate from now on."""

    NAME = "set_rate"
    leg: int
    rate_pps: float


@message
class Halt(Order):
    """End the sending."""

    NAME = "halt"


@message
class Stop(Order):
    """End all engines, and report the counts."""

    NAME = "stop"


@message
class Restore(Order):
    """Restore the node, and end; `kept`: wait for Again instead."""

    NAME = "restore"
    kept: bool = False


@message
class Again(Order):
    """Serve a further run."""

    NAME = "again"


GuardOrder = (
    Hold
    | Mend
    | Leftovers
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
