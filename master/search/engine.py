"""The search by FD.io's MLRsearch (draft-ietf-bmwg-mlrsearch).

For each goal the library chooses loads until two bounds are as close as the precision: the relevant lower bound is the
highest load that meets the goal below all loads that do not, the relevant upper bound is the lowest load that does not.
The rate of a goal is its lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from MLRsearch import Config, GoalResult, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from pktswarm.master.benchmark.attempts import REPEATS, UNFINISHED
from pktswarm.master.benchmark.trial import OWN_LIMIT, Trial
from pktswarm.master.search import confirm
from pktswarm.master.search.goals import EXCEED_RATIO, SearchOptions
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED, PktswarmError

PRECEDING_TARGETS = 2
"""Coarser targets before the final one; the first of them takes one trial for each load."""
LONGEST_SEARCH_S = 7 * 86400.0
REACHED, HIGHEST, BELOW, OPEN = "reached", "holds the highest rate tried", "below the lowest rate tried", "not reached"
AT_LEAST = "a higher rate is undecided"
ROUNDING = 1e-9
"""Relative tolerance of comparisons between loads."""
Bounds = tuple[float | None, float | None]


@dataclass(frozen=True)
class GoalRate:
    """The rate of one goal in packets/s; None: not found. The bounds are those known so far."""

    loss_ratio: float
    state: str
    rate_pps: float | None
    conditional_throughput_pps: float | None
    lower_pps: float | None
    upper_pps: float | None
    confirmed_s: float | None = None
    """Duration of the trial that confirmed the rate; None: not confirmed."""
    undecided: str = ""
    """The next higher rate, and why its confirming trials are invalid; empty: they are valid."""


@dataclass
class Search:
    """`measure_trial` makes a trial of (packets/s, seconds); `on_trial` is called after it."""

    options: SearchOptions
    lowest_pps: float
    highest_pps: float
    measure_trial: Callable[[float, float], Trial]
    on_trial: Callable[[Search], None] = lambda search: None
    trials: list[Trial] = field(default_factory=list)
    known: list[list[Bounds]] = field(default_factory=list)
    """The bounds of each goal after each trial."""
    problem: str = ""
    """Why the search ended early; empty: it did not."""

    def __post_init__(self) -> None:
        self._goals = {loss: self._goal(loss) for loss in self.options.losses}
        config = Config(
            goals=self._goals.values(),
            min_load=self.lowest_pps,
            max_load=self.highest_pps,
            search_duration_max=LONGEST_SEARCH_S,
            warmup_duration=None,
        )
        self._library = MultipleLossRatioSearch(config=config)
        self._confirmed: dict[float, confirm.Confirmation] = {}
        self.confirming_from: int | None = None
        """Index of the first confirming trial."""

    def run(self) -> None:
        """Run the search. An error ends it and keeps its bounds; without any trial it is passed on."""
        self.problem = UNFINISHED
        try:
            self._library.search(measurer=self, debug=lambda _: None)
            self._confirm()
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

    def _confirm(self) -> None:
        """Confirm the rate of each goal by one long trial; a rate that does not hold is replaced by one that does."""
        options = self.options
        if options.confirm_s == 0:
            return
        trial_s = confirm.duration_s(options.confirm_s, options.longest_confirm_s, options.precision, self.trials)
        self.confirming_from = len(self.trials)
        for loss in options.losses:
            rate_pps = self._found(loss).rate_pps
            if rate_pps is None:
                continue
            fails = confirm.shown(rate_pps, loss, self.trials[: self.confirming_from])
            try:
                confirmed = confirm.confirm(
                    rate_pps, loss, self.lowest_pps, options.precision, trial_s, self._attempt, fails
                )
            except confirm.Undecided as error:
                raise _Ended(_held_up(error.trial)) from None
            if confirmed is None:
                raise _Ended(f"no rate held for {trial_s:g} s in {confirm.MOST_TRIALS} confirming trials")
            self._confirmed[loss] = confirmed

    def measure(self, intended_duration: float, intended_load: float) -> Any:
        """Make a trial for the library. A trial that does not measure the device ends the search."""
        trial = self._valid_trial(intended_load, intended_duration)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=trial.sent_packets,
            # A load at which another limit is not met is too high for every goal.
            loss_count=trial.sent_packets if trial.not_held else trial.lost_packets,
        )

    def _valid_trial(self, load_pps: float, duration_s: float) -> Trial:
        """Make a trial that measures the device."""
        trial = self._attempt(load_pps, duration_s)
        if trial.problem:
            raise _Ended(_held_up(trial))
        return trial

    def _attempt(self, load_pps: float, duration_s: float) -> Trial:
        """Make a trial, and repeat it while a node was held up: the last one returned can still be invalid by that."""
        for _ in range(1 + REPEATS):
            self._note_bounds()
            trial = self.measure_trial(load_pps, duration_s)
            self.trials.append(trial)
            self.on_trial(self)
            if not trial.problem:
                break
            if not trial.held_up:
                raise _Ended(trial.problem)
        return trial

    @property
    def confirmed(self) -> set[float]:
        """The goals whose rate is confirmed, by their loss ratio."""
        return set(self._confirmed)

    def confirms(self, index: int) -> bool:
        """Whether the trial of this index is a confirming one."""
        return self.confirming_from is not None and index >= self.confirming_from

    def goals(self) -> list[GoalRate]:
        """The rate of each goal as of now."""
        return [self._rate(loss) for loss in self.options.losses]

    @property
    def status(self) -> int:
        """The exit status; 1: the loss is exceeded even at the lowest rate."""
        if self.problem:
            return EXIT_INCOMPLETE
        states = [goal.state for goal in self.goals()]
        if OPEN in states:
            return EXIT_INCOMPLETE
        return EXIT_NOT_AS_EXPECTED if BELOW in states else EXIT_AS_EXPECTED

    def bounds_after(self, index: int) -> list[Bounds]:
        """The bounds of each goal after the trial of this index; None: not known yet."""
        return self.known[index] if index < len(self.known) else [(None, None)] * len(self.options.losses)

    def _goal(self, loss_ratio: float) -> Any:
        return SearchGoal(
            loss_ratio=loss_ratio,
            exceed_ratio=EXCEED_RATIO if self.options.trials > 1 else 0.0,
            relative_width=self.options.precision,
            initial_trial_duration=self.options.first_trial_s,
            final_trial_duration=self.options.duration_s,
            duration_sum=self.options.duration_s * self.options.trials,
            preceding_targets=PRECEDING_TARGETS,
            fail_fast=False,
        )

    def _note_bounds(self) -> None:
        """Store the bounds after the last trial, which the library has processed by now."""
        while len(self.trials) > len(self.known):
            self.known.append([(goal.lower_pps, goal.upper_pps) for goal in self.goals()])

    def _rate(self, loss_ratio: float) -> GoalRate:
        """The rate of a goal; without one until it is confirmed, if the user wants that."""
        found = self._found(loss_ratio)
        if found.rate_pps is None or self.options.confirm_s == 0:
            return found
        if (confirmed := self._confirmed.get(loss_ratio)) is None:
            return replace(found, state=OPEN, rate_pps=None, conditional_throughput_pps=None)
        rate_pps, failed_pps = confirmed.rate_pps, confirmed.failed_pps
        return GoalRate(
            loss_ratio,
            _confirmed_state(confirmed, found.state),
            rate_pps,
            confirmed.forwarded_pps,
            lower_pps=rate_pps,
            upper_pps=found.upper_pps if failed_pps is None else failed_pps,
            confirmed_s=None if rate_pps is None else confirmed.duration_s,
            undecided="" if confirmed.undecided is None else _undecided(confirmed.undecided),
        )

    def _found(self, loss_ratio: float) -> GoalRate:
        """The rate of a goal by the trials that MLRsearch chose."""
        if not self.trials:
            return GoalRate(loss_ratio, OPEN, None, None, None, None)
        target = self._library.scaling.goal_to_final_target[self._goals[loss_ratio]]
        result = GoalResult.from_bounds(self._library.database.get_relevant_bounds(target=target))
        lower = _load(result.relevant_lower_bound)
        upper = _load(result.relevant_upper_bound)
        state = self._state(lower, upper)
        rate = lower if state in (REACHED, HIGHEST) else None
        throughput = None if rate is None else _load(result.conditional_throughput)
        return GoalRate(loss_ratio, state, rate, throughput, lower, upper)

    def _state(self, lower: float | None, upper: float | None) -> str:
        if lower is None:
            lowest = upper is not None and upper <= self.lowest_pps * (1 + ROUNDING)
            return BELOW if lowest else OPEN
        if upper is None:
            return HIGHEST if lower >= self.highest_pps * (1 - ROUNDING) else OPEN
        return REACHED if lower >= upper * (1 - self.options.precision) * (1 - ROUNDING) else OPEN


def _confirmed_state(confirmed: confirm.Confirmation, found: str) -> str:
    if confirmed.rate_pps is None:
        return BELOW
    if confirmed.undecided is not None:
        return AT_LEAST
    return found if confirmed.failed_pps is None else REACHED


def _held_up(trial: Trial) -> str:
    return f"{trial.problem}, in {1 + REPEATS} trials; {OWN_LIMIT}"


def _undecided(trial: Trial) -> str:
    return f"{trial.intended_pps:,.1f} packets/s is undecided: {trial.problem}, in {1 + REPEATS} trials"


class _Ended(Exception):
    """A trial does not measure the device."""


def _load(bound: Any) -> float | None:
    return None if bound is None else float(bound)
