"""The search itself: FD.io's MLRsearch says what to try next, and what that tells of each goal.

draft-ietf-bmwg-mlrsearch: of each goal it finds a relevant lower bound, the highest load that loses no more than it
may, and a relevant upper bound, the lowest that loses more, and tries loads between them until they are as close as is
asked for. The rate of a goal is its lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from MLRsearch import Config, GoalResult, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from pktswarm.master.benchmark.attempts import REPEATS, UNFINISHED
from pktswarm.master.benchmark.trial import OWN_LIMIT, Trial
from pktswarm.master.search.goals import EXCEED_RATIO, Asked
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED, PktswarmError

PRECEDING_TARGETS = 2
"""Coarser looks before the one that counts; the first of them with one trial for each load."""
LONGEST_SEARCH_S = 7 * 86400.0
REACHED, HIGHEST, BELOW, OPEN = "reached", "holds the highest rate tried", "below the lowest rate tried", "not reached"
ROUNDING = 1e-9
"""Of a bound against the search's limits, and of a width."""
Bounds = tuple[float | None, float | None]


@dataclass(frozen=True)
class Found:
    """Of one goal, in packets/s. `rate_pps` is None where none was found; the bounds are what is known so far."""

    loss_ratio: float
    state: str
    rate_pps: float | None
    conditional_throughput_pps: float | None
    lower_pps: float | None
    upper_pps: float | None


@dataclass
class Search:
    """`measure` makes one trial of (load in packets/s, seconds); `tell` is told each one."""

    asked: Asked
    lowest_pps: float
    highest_pps: float
    measure_trial: Callable[[float, float], Trial]
    tell: Callable[[Search], None] = lambda search: None
    trials: list[Trial] = field(default_factory=list)
    known: list[list[Bounds]] = field(default_factory=list)
    """The bounds of each goal after each trial."""
    problem: str = ""
    """Why it ended before its time."""

    def __post_init__(self) -> None:
        self._goals = {loss: self._goal(loss) for loss in self.asked.losses}
        config = Config(
            goals=self._goals.values(),
            min_load=self.lowest_pps,
            max_load=self.highest_pps,
            search_duration_max=LONGEST_SEARCH_S,
            warmup_duration=None,
        )
        self._library = MultipleLossRatioSearch(config=config)

    def run(self) -> None:
        """Whatever ends it, what was found until then is there. Errors are passed on where no trial was made."""
        self.problem = UNFINISHED
        try:
            self._library.search(measurer=self, debug=lambda _: None)
            self.problem = ""
        except _Ended as error:
            self.problem = str(error)
        except PktswarmError as error:
            if not self.trials:
                raise
            self.problem = str(error)
        except RuntimeError as error:
            self.problem = f"MLRsearch ended the search: {error}"
        self._note_bounds()

    def measure(self, intended_duration: float, intended_load: float) -> Any:
        """What the library calls. What was not sent is no loss of the device: it ends the search."""
        trial = self._tried(intended_load, intended_duration)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=trial.sent_packets,
            # A load at which something else does not hold is too high for every goal.
            loss_count=trial.sent_packets if trial.not_held else trial.lost_packets,
        )

    def _tried(self, load_pps: float, duration_s: float) -> Trial:
        """A trial that tells of the device, the first or one after a node was held up."""
        for _ in range(1 + REPEATS):
            self._note_bounds()
            trial = self.measure_trial(load_pps, duration_s)
            self.trials.append(trial)
            self.tell(self)
            if not trial.problem:
                return trial
            if not trial.held_up:
                raise _Ended(trial.problem)
        raise _Ended(f"{trial.problem}, and so {1 + REPEATS} times; {OWN_LIMIT}")

    def found(self) -> list[Found]:
        """As far as the search has come."""
        return [self._found(loss) for loss in self.asked.losses]

    @property
    def status(self) -> int:
        """The exit status: 1 where the device does not hold even the lowest rate."""
        if self.problem:
            return EXIT_INCOMPLETE
        states = [one.state for one in self.found()]
        if OPEN in states:
            return EXIT_INCOMPLETE
        return EXIT_NOT_AS_EXPECTED if BELOW in states else EXIT_AS_EXPECTED

    def bounds_after(self, number: int) -> list[Bounds]:
        """Of each goal, after so many trials less one; none where they are not known yet."""
        return self.known[number] if number < len(self.known) else [(None, None)] * len(self.asked.losses)

    def _goal(self, loss_ratio: float) -> Any:
        return SearchGoal(
            loss_ratio=loss_ratio,
            exceed_ratio=EXCEED_RATIO if self.asked.trials > 1 else 0.0,
            relative_width=self.asked.precision,
            initial_trial_duration=self.asked.first_trial_s,
            final_trial_duration=self.asked.duration_s,
            duration_sum=self.asked.duration_s * self.asked.trials,
            preceding_targets=PRECEDING_TARGETS,
            fail_fast=False,
        )

    def _note_bounds(self) -> None:
        """After the trials up to now, of which the library has taken in what tells of the device."""
        while len(self.trials) > len(self.known):
            self.known.append([(one.lower_pps, one.upper_pps) for one in self.found()])

    def _found(self, loss_ratio: float) -> Found:
        if not self.trials:
            return Found(loss_ratio, OPEN, None, None, None, None)
        target = self._library.scaling.goal_to_final_target[self._goals[loss_ratio]]
        result = GoalResult.from_bounds(self._library.database.get_relevant_bounds(target=target))
        lower = _load(result.relevant_lower_bound)
        upper = _load(result.relevant_upper_bound)
        state = self._state(lower, upper)
        rate = lower if state in (REACHED, HIGHEST) else None
        throughput = None if rate is None else _load(result.conditional_throughput)
        return Found(loss_ratio, state, rate, throughput, lower, upper)

    def _state(self, lower: float | None, upper: float | None) -> str:
        if lower is None:
            lowest = upper is not None and upper <= self.lowest_pps * (1 + ROUNDING)
            return BELOW if lowest else OPEN
        if upper is None:
            return HIGHEST if lower >= self.highest_pps * (1 - ROUNDING) else OPEN
        return REACHED if lower >= upper * (1 - self.asked.precision) * (1 - ROUNDING) else OPEN

    def document(self) -> dict[str, Any]:
        """For search.json; rates in packets/s, losses as shares of 1."""
        return {
            "status": self.status,
            "problem": self.problem,
            "asked": {**asdict(self.asked), "min_pps": self.lowest_pps, "max_pps": self.highest_pps},
            "goals": [{**asdict(one), **self.bits_at(one.rate_pps)} for one in self.found()],
            "trials": [
                {"trial": number, **asdict(trial), "loss_ratio": trial.loss_ratio}
                for number, trial in enumerate(self.trials, 1)
            ],
        }

    def bits_at(self, rate_pps: float | None) -> dict[str, float | None]:
        at = next((trial for trial in self.trials if trial.intended_pps == rate_pps), None)
        return {"l2_bps": None if at is None else at.l2_bps, "l1_bps": None if at is None else at.l1_bps}


class _Ended(Exception):
    """A trial tells nothing of the device."""


def _load(bound: Any) -> float | None:
    return None if bound is None else float(bound)
