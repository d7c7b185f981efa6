"""Trials of a benchmark: repeated after a disturbance, given up where they say nothing about the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pktswarm.master.benchmark.latency import Latencies
from pktswarm.master.benchmark.trial import OWN_LIMIT, Trial
from pktswarm.master.results.run_state import STOPPED
from pktswarm.traffic.errors import PktswarmError

REPEATS = 2
"""How often a trial is repeated in which a node was held up."""
UNFINISHED = "the run did not end"
"""The problem of a benchmark on disk until the benchmark ends."""


class NoFigure(Exception):
    """The tester could not make a trial that the figure needs, so that the device has no figure."""


@dataclass(frozen=True)
class TrialResult:
    """A trial and its latencies (None: not measured)."""

    trial: Trial
    latencies: Latencies | None = None

    @property
    def counts(self) -> tuple[int, int]:
        """Sent and lost packets of a trial without a problem."""
        if self.trial.sent_packets is None or self.trial.lost_packets is None:
            raise NoFigure("the run has no counts of sent and lost packets")
        return self.trial.sent_packets, self.trial.lost_packets


Plan = TypeVar("Plan")
Result = TypeVar("Result", bound=TrialResult)


class Attempts(Generic[Plan, Result]):
    """The trials so far. `measure` makes one trial; `on_trial` is called after each."""

    def __init__(self, measure: Callable[[Plan], Result], on_trial: Callable[[], None]) -> None:
        self._measure, self._on_trial = measure, on_trial
        self.trials: list[tuple[Plan, Trial]] = []
        self.ended = ""
        """Why no further trial can be made: the user stopped the benchmark, or a run failed."""

    def measure(self, plan: Plan) -> Result:
        """Make one trial. Raises PktswarmError where no further trial can be made."""
        try:
            result = self._measure(plan)
        except PktswarmError as error:
            self.ended = str(error)
            raise
        self.trials.append((plan, result.trial))
        self._on_trial()
        if result.trial.problem == STOPPED:
            self.ended = STOPPED
            raise PktswarmError(STOPPED)
        return result

    def valid(self, plan: Plan, repeats: int = REPEATS) -> Result:
        """Make a trial that measures the device, and repeat it while a node was held up. Raises NoFigure."""
        for _ in range(1 + repeats):
            result = self.measure(plan)
            if not result.trial.problem:
                return result
            if not result.trial.held_up:
                raise NoFigure(result.trial.problem)
        raise NoFigure(f"{result.trial.problem}, in {1 + repeats} trials; {OWN_LIMIT}")


class Procedure(ABC, Generic[Plan, Result]):
    """A sequence of trials. `on_trial` is called after each."""

    def __init__(self, measure: Callable[[Plan], Result], on_trial: Callable[[], None]) -> None:
        self.attempts: Attempts[Plan, Result] = Attempts(measure, on_trial)
        self.problem = UNFINISHED
        """Why the procedure ended early; empty: it did not."""

    @property
    def trials(self) -> list[tuple[Plan, Trial]]:
        return self.attempts.trials

    @property
    @abstractmethod
    def status(self) -> int:
        """The exit status."""

    def run(self) -> None:
        """Run all trials. An error ends the procedure and keeps its results; without any trial it is passed on."""
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
        """Run all trials. Raises PktswarmError where no further trial can be made."""
