"""Trials of a benchmark that goes on where one of them tells nothing of the device: kept, made again, or given up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pktswarm.master.benchmark.latency import Latencies
from pktswarm.master.benchmark.trial import OWN_LIMIT, Trial
from pktswarm.master.results.ledger import STOPPED
from pktswarm.traffic.errors import PktswarmError

REPEATS = 2
"""How often a trial is repeated in which a node was held up."""
UNFINISHED = "the run did not end"
"""The problem of a benchmark on disk until the benchmark ends."""


class NoFigure(Exception):
    """The tester could not do what is needed: what is measured here has no figure of the device."""


@dataclass(frozen=True)
class Told:
    """What came of a trial. `latencies` None: not measured."""

    trial: Trial
    latencies: Latencies | None = None

    @property
    def counts(self) -> tuple[int, int]:
        """Sent and lost packets, of a trial without a problem."""
        if self.trial.sent_packets is None or self.trial.lost_packets is None:
            raise NoFigure("the run has no counts of what was sent and lost")
        return self.trial.sent_packets, self.trial.lost_packets


Wanted = TypeVar("Wanted")
One = TypeVar("One", bound=Told)


class Attempts(Generic[Wanted, One]):
    """`measure` makes one trial; `tell` is called behind each one."""

    def __init__(self, measure: Callable[[Wanted], One], tell: Callable[[], None]) -> None:
        self._measure, self._tell = measure, tell
        self.trials: list[tuple[Wanted, Trial]] = []
        self.ended = ""
        """By the user, or because nothing could be run."""

    def one(self, wanted: Wanted) -> One:
        """PktswarmError where all is over."""
        try:
            told = self._measure(wanted)
        except PktswarmError as error:
            self.ended = str(error)
            raise
        self.trials.append((wanted, told.trial))
        self._tell()
        if told.trial.problem == STOPPED:
            self.ended = STOPPED
            raise PktswarmError(STOPPED)
        return told

    def sound(self, wanted: Wanted, repeats: int = REPEATS) -> One:
        """A trial that tells of the device, the first or one after a node was held up; else NoFigure."""
        for _ in range(1 + repeats):
            told = self.one(wanted)
            if not told.trial.problem:
                return told
            if not told.trial.held_up:
                raise NoFigure(told.trial.problem)
        raise NoFigure(f"{told.trial.problem}, and so {1 + repeats} times; {OWN_LIMIT}")


class Procedure(ABC, Generic[Wanted, One]):
    """Attempts in an order of its own. `tell` is called behind each one."""

    def __init__(self, measure: Callable[[Wanted], One], tell: Callable[[], None]) -> None:
        self.attempts: Attempts[Wanted, One] = Attempts(measure, tell)
        self.problem = UNFINISHED
        """Why all of it ended before its time."""

    @property
    def trials(self) -> list[tuple[Wanted, Trial]]:
        return self.attempts.trials

    def run(self) -> None:
        """Whatever ends it, what was found stays. Errors are passed on where no trial was made."""
        try:
            self._run()
        except PktswarmError as error:
            if not self.trials:
                raise
            self.problem = str(error)
        else:
            self.problem = ""

    @abstractmethod
    def _run(self) -> None:
        """All that is asked. PktswarmError where it cannot go on."""
