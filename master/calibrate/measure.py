"""One node's figure: a transmitter's, alone; and a receiver's, with as many transmitters as it takes to overload it.

What is tried comes from outside, so that all of this is tested without a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pktswarm.master.benchmark.attempts import REPEATS
from pktswarm.master.benchmark.trial import OWN_LIMIT, Trial
from pktswarm.master.calibrate.options import Form
from pktswarm.master.calibrate.rate_search import Held, Ladder, Try
from pktswarm.master.calibrate.runs import STOPPED, Flow, Sent, Stopped
from pktswarm.master.plan.capacity import FAILED
from pktswarm.master.search.engine import BELOW, Search
from pktswarm.master.search.goals import LOWEST_SHARE, SearchOptions

SHARES = (1.0, 0.9, 0.8, 0.7, 0.5)
"""Of what several transmitters can send each alone: together they may stand in each other's way."""
LOWERED, MOST_LOWERED = 0.8, 3
"""What they could send once and cannot again is lowered so much, so often."""
LEAST_PACKETS = 10
"""Of each transmitter in a trial."""


@dataclass(frozen=True)
class Able:
    """A transmitter, and what it can send by its best engine."""

    node: str
    engine: str
    rate_pps: float


class Transmitter:
    """`sent`: a run at a rate, or as fast as it goes (None)."""

    def __init__(self, sent: Callable[[float | None], Sent], form: Form) -> None:
        self.sent, self.form = sent, form
        self.top_pps: float | None = None
        """As fast as it goes."""
        self.trials = 0

    def found(self) -> Held:
        first = self._run(None)
        if first.problem or not first.did_pps:
            return Held(FAILED, trials=1, problem=first.problem or "nothing was sent")
        self.top_pps = first.did_pps
        held = Ladder(self._try, self.form.precision, self.form.confirmations).found(first.did_pps)
        return replace(held, trials=self.trials)

    def _try(self, rate_pps: float) -> Try:
        """A node that was held up for once is tried again."""
        one = self._run(rate_pps)
        for _ in range(REPEATS):
            if one.problem or not one.trial.held_up:
                break
            one = self._run(rate_pps)
        trial = one.trial
        short = trial.held_up or OWN_LIMIT in trial.problem
        return Try(not trial.problem, one.did_pps, one.problem or ("" if short else trial.problem))

    def _run(self, rate_pps: float | None) -> Sent:
        self.trials += 1
        return self.sent(rate_pps)


class Receiver:
    """`received`: a run of these flows for so many seconds. `able`: those who can send to it."""

    def __init__(self, received: Callable[[Sequence[Flow], float], Trial], able: Sequence[Able], form: Form) -> None:
        self.received, self.form = received, form
        self.able = sorted(able, key=lambda one: -one.rate_pps)
        self.senders: list[Able] = []
        self.trials = 0
        self._short = False
        """The last trial was more than its transmitters could send."""

    def found(self) -> Held:
        """Raises Stopped where the user ends it."""
        most = self._overload()
        if most.problem or most.lost_packets is None:
            return Held(FAILED, trials=self.trials, problem=most.problem or "what was lost was not counted")
        if not most.lost_packets:
            # All of them together are no more than it takes: it holds that at least.
            return self._confirmed(most.intended_pps, None)
        return self._searched(most)

    def _overload(self) -> Trial:
        """The trial in which it lost something, with as few transmitters as do; else the one with all of them, or the
        most of it that they could send together."""
        whole: Trial | None = None
        for count in range(1, len(self.able) + 1):
            senders, trial = self.able[:count], None
            for share in SHARES:
                trial = self._trial(senders, share * _sum(senders))
                if not _too_much(trial):
                    break
            if trial is None or trial.problem:
                return whole or trial or _nobody()
            if whole is None or trial.lost_packets or trial.intended_pps > whole.intended_pps:
                self.senders, whole = senders, trial
            if trial.lost_packets:
                return trial
        return whole or _nobody()

    def _searched(self, overloaded: Trial) -> Held:
        """Between the load that was too much and a hundredth of it, by MLRsearch."""
        highest, known = overloaded.intended_pps, [overloaded]
        duration_s = self.form.trial_s
        lowest = max(LOWEST_SHARE * highest, LEAST_PACKETS * len(self.senders) / min(1.0, duration_s))

        def measure(load_pps: float, trial_s: float) -> Trial:
            first = known and (load_pps, trial_s) == (highest, overloaded.duration_s)
            return known.pop() if first else self._trial(self.senders, load_pps, trial_s)

        wanted = SearchOptions(losses=(0.0,), precision=self.form.precision, duration_s=duration_s, trials=1)
        search = Search(wanted, min(lowest, 0.9 * highest), highest, measure)
        search.run()
        if search.problem.startswith(STOPPED):
            raise Stopped(search.problem)
        one = search.goals()[0]
        if one.rate_pps is None:
            below = f"it lost packets at {one.upper_pps:,.6g} packets/s, the lowest rate tried" if one.upper_pps else ""
            why = below if one.state == BELOW else search.problem
            return Held(FAILED, None, one.upper_pps, self.trials, why or "the search did not come to its end")
        return self._confirmed(one.rate_pps, one.upper_pps)

    def _confirmed(self, rate_pps: float, above_pps: float | None) -> Held:
        """At a lower rate, and once more, where its transmitters cannot send this one again."""
        more = 0
        for _ in range(1 + MOST_LOWERED):
            ladder = Ladder(self._try, self.form.precision, self.form.confirmations + more)
            held = ladder.confirmed(rate_pps, above_pps)
            if held.state != FAILED or not self._short:
                break
            rate_pps, more = rate_pps * LOWERED, 1
        return replace(held, trials=self.trials)

    def _try(self, rate_pps: float) -> Try:
        trial = self._trial(self.senders, rate_pps)
        for _ in range(REPEATS):
            if not trial.held_up:
                break
            trial = self._trial(self.senders, rate_pps)
        self._short = _too_much(trial)
        problem = trial.problem or ("what was lost was not counted" if trial.lost_packets is None else "")
        return Try(not problem and trial.lost_packets == 0, rate_pps, problem)

    def _trial(self, senders: Sequence[Able], load_pps: float, trial_s: float | None = None) -> Trial:
        self.trials += 1
        whole = _sum(senders)
        flows = [Flow(one.node, one.engine, load_pps * one.rate_pps / whole) for one in senders]
        return self.received(flows, self.form.trial_s if trial_s is None else trial_s)


def _sum(senders: Sequence[Able]) -> float:
    return sum(one.rate_pps for one in senders)


def _too_much(trial: Trial) -> bool:
    """For the transmitters."""
    return trial.held_up or OWN_LIMIT in trial.problem


def _nobody() -> Trial:
    return Trial(0.0, 0.0, problem="no transmitter can send to it what it could lose")
