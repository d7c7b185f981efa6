"""The highest rate that holds: found, then confirmed by further runs at that rate, with one above it that did not hold.

Pure: what is tried, and whether it held, comes from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pktswarm.master.plan.capacity import AT_LEAST, CONFIRMED, FAILED, UNCONFIRMED

MOST_STEPS = 16
"""Of a search among a sender's own rates."""
MOST_LOWERED = 5
"""How often a rate that did not hold again is lowered."""


@dataclass(frozen=True)
class Try:
    """One run at a rate. `held`: all of it was sent in its time, and (of a receiver) received. `did_pps`: what it came
    to, packets/s. `problem`: the run says nothing."""

    held: bool
    did_pps: float
    problem: str = ""


@dataclass(frozen=True)
class Held:
    """`rate_pps` held; `above_pps` did not."""

    state: str
    rate_pps: float | None = None
    above_pps: float | None = None
    trials: int = 0
    problem: str = ""


Tried = Callable[[float], Try]


class _Problem(Exception):
    """A run that says nothing ends it."""


class Ladder:
    """Remembers the highest rate that held below all that did not."""

    def __init__(self, tried: Tried, precision: float, confirmations: int) -> None:
        self.tried, self.precision, self.confirmations = tried, precision, confirmations
        self.held: float | None = None
        self.above: float | None = None
        self.trials = 0

    def found(self, first_pps: float) -> Held:
        """From a first guess, such as what a sender does when it sends as fast as it can."""
        try:
            self._close_in(first_pps)
            return self._result(CONFIRMED if self._confirmed() else UNCONFIRMED)
        except _Problem as error:
            return self._result(FAILED, str(error))

    def confirmed(self, held_pps: float, above_pps: float | None) -> Held:
        """Of a rate that was found elsewhere, and held once."""
        self.held, self.above = held_pps, above_pps
        try:
            return self._result(CONFIRMED if self._confirmed() else UNCONFIRMED)
        except _Problem as error:
            return self._result(FAILED, str(error))

    def _result(self, state: str, problem: str = "") -> Held:
        if state == CONFIRMED and self.above is None:
            state = AT_LEAST
        rate = None if state == FAILED else self.held
        if state == UNCONFIRMED:
            problem = "no rate held again" if rate is not None else "no rate held"
        return Held(state, rate, self.above, self.trials, problem)

    def _try(self, rate_pps: float) -> Try:
        self.trials += 1
        one = self.tried(rate_pps)
        if one.problem:
            raise _Problem(one.problem)
        if one.held:
            self.held = max(self.held or 0.0, rate_pps)
        else:
            self.above = rate_pps if self.above is None else min(self.above, rate_pps)
            if self.held is not None and self.held >= rate_pps:
                self.held = None
        return one

    def _close_in(self, rate_pps: float) -> None:
        step = self.precision / 2
        for _ in range(MOST_STEPS):
            one = self._try(rate_pps)
            if self.held is None:
                if not one.did_pps:
                    raise _Problem("nothing was sent")
                # What it came to, a little less: asked for that much it has time to spare.
                rate_pps = min(one.did_pps, rate_pps) * (1 - self.precision / 2)
                continue
            if self.above is not None and self.held >= self.above * (1 - self.precision):
                return
            rate_pps = self.held * (1 + step)
            if self.above is not None:
                rate_pps = min(rate_pps, (self.held + self.above) / 2)
            step *= 2

    def _confirmed(self) -> bool:
        """Whether the rate holds as often again; where it does not, a lower one, which then has to hold once more."""
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
