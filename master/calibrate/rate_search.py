"""The search for the highest rate that holds, and its confirmation by further runs.

A rate holds if a run at this rate meets the criterion of the caller: all packets are sent in time, or received. This
module makes no runs: the caller passes a function that tries a rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pktswarm.master.plan.capacity import AT_LEAST, CONFIRMED, FAILED, UNCONFIRMED

MOST_STEPS = 16
"""Largest number of rates that a search tries."""
MOST_LOWERED = 5
"""How often a rate is lowered that does not hold again."""


@dataclass(frozen=True)
class Try:
    """One run at a rate. `did_pps`: the rate that the run reached, packets/s. `problem`: why the run is not valid."""

    held: bool
    did_pps: float
    problem: str = ""


@dataclass(frozen=True)
class RateResult:
    """The result of a search. `rate_pps` holds, `above_pps` does not."""

    state: str
    rate_pps: float | None = None
    above_pps: float | None = None
    trials: int = 0
    problem: str = ""


TryRate = Callable[[float], Try]


class _Problem(Exception):
    """A run is not valid, which ends the search."""


class RateSearch:
    """Keeps the highest rate that held below all rates that did not."""

    def __init__(self, try_rate: TryRate, precision: float, confirmations: int) -> None:
        self.try_rate, self.precision, self.confirmations = try_rate, precision, confirmations
        self.held: float | None = None
        self.above: float | None = None
        self.trials = 0

    def search(self, first_pps: float) -> RateResult:
        """Search from a first guess, such as the unpaced rate of a sender, and confirm the result."""
        try:
            self._close_in(first_pps)
            return self._result(CONFIRMED if self._confirmed() else UNCONFIRMED)
        except _Problem as error:
            return self._result(FAILED, str(error))

    def confirm(self, held_pps: float, above_pps: float | None) -> RateResult:
        """Confirm a rate that another search found, at which one run held."""
        self.held, self.above = held_pps, above_pps
        try:
            return self._result(CONFIRMED if self._confirmed() else UNCONFIRMED)
        except _Problem as error:
            return self._result(FAILED, str(error))

    def _result(self, state: str, problem: str = "") -> RateResult:
        if state == CONFIRMED and self.above is None:
            state = AT_LEAST
        rate = None if state == FAILED else self.held
        if state == UNCONFIRMED:
            problem = "no rate held again" if rate is not None else "no rate held"
        return RateResult(state, rate, self.above, self.trials, problem)

    def _try(self, rate_pps: float) -> Try:
        self.trials += 1
        outcome = self.try_rate(rate_pps)
        if outcome.problem:
            raise _Problem(outcome.problem)
        if outcome.held:
            self.held = max(self.held or 0.0, rate_pps)
        else:
            self.above = rate_pps if self.above is None else min(self.above, rate_pps)
            if self.held is not None and self.held >= rate_pps:
                self.held = None
        return outcome

    def _close_in(self, rate_pps: float) -> None:
        """Try rates until the bounds are within the precision."""
        step = self.precision / 2
        for _ in range(MOST_STEPS):
            outcome = self._try(rate_pps)
            if self.held is None:
                if not outcome.did_pps:
                    raise _Problem("nothing was sent")
                # A little below the rate that the run reached, so that the sender has time to spare.
                rate_pps = min(outcome.did_pps, rate_pps) * (1 - self.precision / 2)
                continue
            if self.above is not None and self.held >= self.above * (1 - self.precision):
                return
            rate_pps = self.held * (1 + step)
            if self.above is not None:
                rate_pps = min(rate_pps, (self.held + self.above) / 2)
            step *= 2

    def _confirmed(self) -> bool:
        """Repeat the rate; where it does not hold again, lower it, and require one more run at the lower rate."""
        if self.held is None:
            return False
        once_pps = rate_pps = self.held
        needed = self.confirmations
        for _ in range(MOST_LOWERED):
            if all(self._try(rate_pps).held for _ in range(needed)):
                self.held = rate_pps
                return True
            rate_pps *= 1 - self.precision
            needed = self.confirmations + 1
        self.held = once_pps
        return False
