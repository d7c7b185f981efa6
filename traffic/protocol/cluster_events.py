"""Events of the daemon of a cluster that stays up, to a command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pktswarm.traffic.errors import EXIT_INCOMPLETE
from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.codec import Decoder, Event
from pktswarm.traffic.protocol.task import Role


@dataclass(frozen=True)
class Place:
    """A rank: its number is its place in the list, from 1 on."""

    host: str
    role: Role


@plain
class Waiting(Event):
    """Others use the cluster, and the command line waits."""

    NAME = "waiting"
    holder: str


@plain
class Starting(Event):
    """The ranks are started."""

    NAME = "starting"


@plain
class Granted(Event):
    """`control`: the abstract Unix socket on which rank 0 begins runs. `notes`: why ranks were started anew."""

    NAME = "granted"
    control: str
    ranks: list[Place]
    notes: list[str]


@plain
class Refused(Event):
    """`status`: the exit status that goes with it. `busy`: others use the cluster."""

    NAME = "refused"
    problem: str
    status: int = EXIT_INCOMPLETE
    busy: bool = False


@plain
class Shown(Event):
    """`holder` is empty while nobody uses it; `trouble`: why its ranks ended; `run`: the name by which its ranks hold
    their nodes (Holder.run), empty without ranks."""

    NAME = "shown"
    hosts_file: str
    state: Literal["up", "in use", "without ranks"]
    run: str
    pid: int
    since: str
    ranks: list[Place]
    holder: str
    waiting: int
    uses: int
    idle_limit_s: float
    idle_s: float
    trouble: str


ClusterEvent = Waiting | Starting | Granted | Refused | Shown
decode_cluster_event: Decoder[ClusterEvent] = Decoder(ClusterEvent)
