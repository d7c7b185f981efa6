"""Orders of the command line to rank 0."""

from __future__ import annotations

from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.codec import Decoder, Order
from pktswarm.traffic.protocol.neighbours import Question
from pktswarm.traffic.protocol.rank_orders import File


@plain
class Looked(Order):
    """The reports of the nodes were accepted."""

    NAME = "looked"


@plain
class FindNeighbours(Order):
    """`rank` is to ask for the MAC addresses of neighbours on its traffic interface."""

    NAME = "find_neighbours"
    rank: int
    questions: list[Question]


@plain
class HandTask(Order):
    """The task of `rank`; the contents of `files` follow as raw bytes."""

    NAME = "task"
    rank: int
    task: str
    """The JSON text of a SendTask or ReceiveTask, which only the guard decodes."""
    files: list[File]
    sample_every_s: float


@plain
class Go(Order):
    """All tasks are handed out. `kept`: the ranks stay for a further run, if this one is whole and not stopped.
    `receivers_first`: transmitters can only prepare when the receivers are ready."""

    NAME = "go"
    run_limit_s: float
    drain_s: float
    kept: bool = False
    receivers_first: bool = False


@plain
class SetRate(Order):
    """Send a stream's flow from `rank` at another rate from now on. 0: nothing; None: at the rate that it had."""

    NAME = "set_rate"
    rank: int
    leg: int
    rate_pps: float | None


@plain
class Stop(Order):
    """End the run. `problem` is empty when the user stopped it."""

    NAME = "stop"
    problem: str = ""


@plain
class Begin(Order):
    """A further run with these ranks of those that were kept. `patience` multiplies the deadlines."""

    NAME = "begin"
    ranks: list[int]
    patience: float


Rank0Order = Looked | FindNeighbours | HandTask | Go | SetRate | Stop | Begin
decode_rank0_order: Decoder[Rank0Order] = Decoder(Rank0Order)
