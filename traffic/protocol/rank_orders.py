"""Orders of rank 0 to a node's rank. Instants are on the node's CLOCK_MONOTONIC."""

from __future__ import annotations

from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.codec import Decoder, Order
from pktswarm.traffic.protocol.neighbours import Question


@plain
class File:
    name: str
    bytes: int


@plain
class Word(Order):
    """Sent every WORD_INTERVAL_S: the master is alive."""

    NAME = "word"


@plain
class Ping(Order):
    """`count` readings of the clock follow."""

    NAME = "ping"
    count: int


@plain
class FindNeighbours(Order):
    """Ask for the MAC addresses of neighbours on the traffic interface."""

    NAME = "find_neighbours"
    questions: list[Question]


@plain
class Task(Order):
    """Prepare the engines; the contents of `files` follow as one bulk transfer."""

    NAME = "task"
    task: str
    """The JSON text of a SendTask or ReceiveTask, which only the guard decodes."""
    files: list[File]
    arrive: str
    """The barrier at which the rank arrives when it is ready."""
    sample_every_s: float


@plain
class Enter(Order):
    """Enter the barrier `name` at `at_ns`, together with the ranks `members` of the group's communicator, and leave it
    at `leave_ns` where they are all through by then."""

    NAME = "enter"
    name: str
    at_ns: int
    leave_ns: int
    members: list[int]


@plain
class Release(Order):
    """Leave the barrier `name`, which a death keeps from completing."""

    NAME = "release"
    name: str


@plain
class Start(Order):
    """Start sending, and sampling, at `at_ns`."""

    NAME = "start"
    at_ns: int


@plain
class Sample(Order):
    """Start sampling at `at_ns`."""

    NAME = "sample"
    at_ns: int


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
class Fetch(Order):
    """Send the capture `name`."""

    NAME = "fetch"
    name: str


@plain
class Finish(Order):
    """Restore the node. `whole`: no rank was lost, so MPI can be finalized. `kept`: the rank and its guard stay for a
    further run."""

    NAME = "finish"
    whole: bool
    kept: bool = False


@plain
class Again(Order):
    """A further run begins: report the node."""

    NAME = "again"


@plain
class Leave(Order):
    """`whole`: as of Finish."""

    NAME = "leave"
    whole: bool


RankOrder = (
    Word
    | Ping
    | FindNeighbours
    | Task
    | Enter
    | Release
    | Start
    | Sample
    | SetRate
    | Halt
    | Stop
    | Fetch
    | Finish
    | Again
    | Leave
)
decode_rank_order: Decoder[RankOrder] = Decoder(RankOrder)
