"""Events of rank 0 to the command line, besides those of the nodes' ranks. Instants are on the master's clock.

Rank 0 reports four times a second that it is alive: rank_events.Alive, with rank 0.
"""

from __future__ import annotations

from typing import Literal

from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.codec import Decoder, Event
from pktswarm.traffic.protocol.rank_events import NodeEvent


@plain
class Phase(Event):
    NAME = "phase"
    name: str
    at_ns: int


@plain
class Note(Event):
    NAME = "note"
    text: str


@plain
class Clock(Event):
    """A node's CLOCK_MONOTONIC less the master's, read at `at_ns`. Both are 0 where it is the master's own clock.

    `round_trip_ns`: of the reading, within which the node read CLOCK_REALTIME too."""

    NAME = "clock"
    rank: int
    when: Literal["before", "start", "after"]
    at_ns: int
    offset_ns: int
    bound_ns: int
    round_trip_ns: int
    realtime_minus_monotonic_ns: int


@plain
class Drift(Event):
    """A reading of a node's clock while frames are sent."""

    NAME = "drift"
    rank: int
    at_ns: int
    offset_ns: int
    bound_ns: int


@plain
class Start(Event):
    """The start instant."""

    NAME = "start"
    at_ns: int
    utc_ns: int


@plain
class BarrierLeft(Event):
    """`whole`: all ranks of the group left it together; else they were released one by one."""

    NAME = "barrier"
    group: str
    name: str
    whole: bool
    left_ns: int


@plain
class Lost(Event):
    """`rank` takes no further part in the run."""

    NAME = "lost"
    rank: int
    problem: str
    silent_s: float
    heard_ns: int
    """When its last message came."""


@plain
class Capture(Event):
    """The pieces of a capture of `rank` follow."""

    NAME = "capture"
    rank: int
    name: str
    bytes: int


@plain
class Piece(Event):
    """The next piece of a capture, as raw bytes."""

    NAME = "piece"
    rank: int
    name: str


@plain
class Stopped(Event):
    """The run ended early. `problem` is empty when the user stopped it."""

    NAME = "stopped"
    problem: str


@plain
class Standing(Event):
    """To the cluster's daemon: the ranks wait for a run."""

    NAME = "standing"


@plain
class Occupied(Event):
    """To the cluster's daemon: a run has begun."""

    NAME = "occupied"


Own = Phase | Note | Clock | Drift | Start | BarrierLeft | Lost | Capture | Piece | Stopped
Rank0Event = Own | NodeEvent
decode_rank0_event: Decoder[Rank0Event] = Decoder(Rank0Event)
StandbyEvent = Rank0Event | Standing | Occupied
decode_standby_event: Decoder[StandbyEvent] = Decoder(StandbyEvent)
