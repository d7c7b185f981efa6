"""The contract of every engine, sender or receiver: prepare, start, sample, stop, restore.

Engines run inside the root guard of a node, which is single-threaded and must stay responsive: no method may
block for longer than a moment (waiting for an engine to end is `done()`, asked again and again).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount, SendTask


class Engine(ABC):
    name: ClassVar[str]

    @abstractmethod
    def prepare(self) -> None:
        """Check everything and get ready, so that start() is only a release. Raises EngineError or BadInput."""

    @abstractmethod
    def start(self, at_ns: int) -> None:
        """Begin at `at_ns` (CLOCK_MONOTONIC); the guard calls it a little before that instant."""

    @abstractmethod
    def done(self) -> bool:
        """True when the engine has ended by itself (receivers: never, unless they died)."""

    def sample(self) -> dict[int, dict[str, int | None]]:
        """Leg → its counts so far, without stopping: sent_packets of a sender, traffic.counting.tally's names of a
        receiver.

        Empty if the engine has no counts before it stops.
        """
        return {}

    @abstractmethod
    def stop(self) -> None:
        """End it in steps (INT, TERM, KILL) and reap it. May be called at any time, and twice."""

    def other_way(self) -> list[SendCount | ReceiveCount]:
        """After stop(): of an engine that plays both sides of its legs, the counts of those that answer them."""
        return []

    def restore(self) -> None:
        """Undo what prepare() and start() changed on the node. May be called at any time, and twice."""
        return None

    def captures(self) -> list[Path]:
        """Capture files in the spool, if any."""
        return []


class Sender(Engine):
    """Sends the legs of `task` that the plan gave to this engine."""

    def __init__(self, task: SendTask, spool: Path) -> None:
        self.task, self.spool = task, spool

    def ready(self) -> bool:
        """After prepare(): True once start() is only a release. Raises EngineError when it will never be."""
        return True

    def set_rate(self, leg: int, rate_pps: float | None) -> None:
        """Sends a leg at another rate; the frame that is due next keeps its time. 0: nothing, from now on; None: at the
        rate that it had. Raises EngineError where the engine cannot."""
        raise EngineError(self.name, "the rate of a stream that is sent cannot be changed")

    @abstractmethod
    def counts(self) -> list[SendCount]:
        """After stop(): one entry a leg, read from the engine's own words. Raises EngineError, never guesses."""


class Receiver(Engine):
    """Counts (and captures) what arrives for the legs of `task`."""

    def __init__(self, task: ReceiveTask, spool: Path) -> None:
        self.task, self.spool = task, spool
        self.last_arrival_ns: int | None = None
        """CLOCK_MONOTONIC of the last frame, 0 if there was none, as another engine of this interface saw it; None: no
        other engine knows. Set before stop()."""

    def seen_ns(self) -> int | None:
        """What the other engines of this interface get as `last_arrival_ns`."""
        return None

    def start_early(self) -> None:
        """Between prepare() and start(): begins where no other engine's start can disturb this one."""
        return

    @abstractmethod
    def ready(self) -> bool:
        """True once the engine is really receiving."""

    @abstractmethod
    def counts(self) -> list[ReceiveCount]:
        """After stop(): one entry a leg. Raises EngineError, never guesses."""
