"""The figure of one node: of a transmitter alone, or of a receiver with the transmitters that overload it.

This module makes no runs: the caller passes a function that makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pktswarm.master.benchmark.attempts import REPEATS
from pktswarm.master.benchmark.outlook import Bounds
from pktswarm.master.benchmark.trial import OWN_LIMIT, Trial
from pktswarm.master.calibrate.options import Form
from pktswarm.master.calibrate.rate_search import RateResult, RateSearch, Try
from pktswarm.master.calibrate.runs import STOPPED, Flow, Sent, Stopped
from pktswarm.master.plan.capacity import FAILED
from pktswarm.master.search.engine import BELOW, Search
from pktswarm.master.search.goals import LOWEST_SHARE, SearchOptions

SHARES = (1.0, 0.9, 0.8, 0.7, 0.5)
"""Shares of the sum of the transmitters' rates to try: together they can be slower than alone."""
LOWERED, MOST_LOWERED = 0.8, 3
"""Factor, and how often it applies, to a rate that the transmitters sent once and cannot send again."""
NOT_COUNTED = "lost packets were not counted"
LEAST_PACKETS = 10
"""Smallest number of packets of each transmitter in a trial."""


@dataclass(frozen=True)
class Sender:
    """A transmitter, its fastest engine, and the rate of that engine."""

    node: str
    engine: str
    rate_pps: float


class Transmitter:
    """`sent` makes a run at a rate; None: without pacing."""

    def __init__(self, sent: Callable[[float | None], Sent], form: Form) -> None:
        self.sent, self.form = sent, form
        self.top_pps: float | None = None
        """The rate without pacing."""
        self.trials = 0

    def measure(self) -> RateResult:
        """Measure the transmitter."""
        first = self._run(None)
        if first.problem or not first.did_pps:
            return RateResult(FAILED, trials=1, problem=first.problem or "nothing was sent")
        self.top_pps = first.did_pps
        result = RateSearch(self._try, self.form.precision, self.form.confirmations).search(first.did_pps)
        return replace(result, trials=self.trials)

    def _try(self, rate_pps: float) -> Try:
        """Make a run, and repeat it while the node was held up."""
        sent = self._run(rate_pps)
        for _ in range(REPEATS):
            if sent.problem or not sent.trial.held_up:
                break
            sent = self._run(rate_pps)
        problem = sent.problem or ("" if too_much(sent.trial) else sent.trial.problem)
        return Try(not sent.trial.problem, sent.did_pps, problem)

    def _run(self, rate_pps: float | None) -> Sent:
        self.trials += 1
        return self.sent(rate_pps)


class Receiver:
    """`received` makes a run of flows for a number of seconds. `available`: the transmitters that can send to it."""

    def __init__(
        self, received: Callable[[Sequence[Flow], float], Trial], available: Sequence[Sender], form: Form
    ) -> None:
        self.received, self.form = received, form
        self.available = sorted(available, key=lambda sender: -sender.rate_pps)
        self.senders: list[Sender] = []
        self.trials = 0
        self._short = False
        """Whether the transmitters could not send the last trial."""

    def measure(self) -> RateResult:
        """Measure the receiver. Raises Stopped."""
        largest = self._overload()
        if largest.problem or largest.lost_packets is None:
            return RateResult(FAILED, trials=self.trials, problem=largest.problem or NOT_COUNTED)
        if not largest.lost_packets:
            # All transmitters together do not overload the receiver: it receives at least their rate.
            return self._confirmed(largest.intended_pps, None)
        return self._searched(largest)

    def _overload(self) -> Trial:
        """Return the first trial with loss, with as few transmitters as possible.

        Without any loss, return the trial with the largest load that the transmitters could send.
        """
        largest: Trial | None = None
        for count in range(1, len(self.available) + 1):
            senders, trial = self.available[:count], None
            for share in SHARES:
                trial = self._trial(senders, share * _sum(senders))
                if not too_much(trial):
                    break
            if trial is None or trial.problem:
                return largest or trial or _no_trial()
            if largest is None or trial.lost_packets or trial.intended_pps > largest.intended_pps:
                self.senders, largest = senders, trial
            if trial.lost_packets:
                return trial
        return largest or _no_trial()

    def _searched(self, overloaded: Trial) -> RateResult:
        """Search between the load with loss and a hundredth of it, by MLRsearch."""
        highest, known = overloaded.intended_pps, [overloaded]
        duration_s = self.form.trial_s
        lowest = max(LOWEST_SHARE * highest, LEAST_PACKETS * len(self.senders) / min(1.0, duration_s))

        def measure(load_pps: float, trial_s: float) -> Trial:
            first = known and (load_pps, trial_s) == (highest, overloaded.duration_s)
            return known.pop() if first else self._trial(self.senders, load_pps, trial_s)

        options = SearchOptions(losses=(0.0,), precision=self.form.precision, duration_s=duration_s, trials=1)
        search = Search(options, min(lowest, 0.9 * highest), highest, measure)
        search.run()
        if search.problem.startswith(STOPPED):
            raise Stopped(search.problem)
        goal = search.goals()[0]
        if goal.rate_pps is None:
            below = (
                f"packets were lost at {goal.upper_pps:,.6g} packets/s, the lowest rate tried" if goal.upper_pps else ""
            )
            problem = below if goal.state == BELOW else search.problem
            return RateResult(FAILED, None, goal.upper_pps, self.trials, problem or "the search did not end")
        return self._confirmed(goal.rate_pps, goal.upper_pps)

    def _confirmed(self, rate_pps: float, above_pps: float | None) -> RateResult:
        """Confirm a rate. It is lowered, and takes one more run, where the transmitters cannot send it again."""
        more = 0
        for _ in range(1 + MOST_LOWERED):
            search = RateSearch(self._try, self.form.precision, self.form.confirmations + more)
            result = search.confirm(rate_pps, above_pps)
            if result.state != FAILED or not self._short:
                break
            rate_pps, more = rate_pps * LOWERED, 1
        return replace(result, trials=self.trials)

    def _try(self, rate_pps: float) -> Try:
        trial = self._trial(self.senders, rate_pps)
        for _ in range(REPEATS):
            if not trial.held_up:
                break
            trial = self._trial(self.senders, rate_pps)
        self._short = too_much(trial)
        problem = trial.problem or (NOT_COUNTED if trial.lost_packets is None else "")
        return Try(not problem and trial.lost_packets == 0, rate_pps, problem)

    def _trial(self, senders: Sequence[Sender], load_pps: float, trial_s: float | None = None) -> Trial:
        self.trials += 1
        total_pps = _sum(senders)
        flows = [Flow(sender.node, sender.engine, load_pps * sender.rate_pps / total_pps) for sender in senders]
        return self.received(flows, self.form.trial_s if trial_s is None else trial_s)


def bounds_sent(trials: Sequence[Trial]) -> Bounds:
    """The highest rate that a transmitter sent in time, below the lowest that it did not."""
    upper = min((trial.intended_pps for trial in trials if trial.problem), default=None)
    sent = [trial.intended_pps for trial in trials if not trial.problem]
    return Bounds("sent", max((pps for pps in sent if upper is None or pps < upper), default=None), upper)


def _sum(senders: Sequence[Sender]) -> float:
    return sum(sender.rate_pps for sender in senders)


def too_much(trial: Trial) -> bool:
    """Whether the transmitters could not send a trial."""
    return trial.held_up or OWN_LIMIT in trial.problem


def _no_trial() -> Trial:
    return Trial(0.0, 0.0, problem="no transmitter can overload the receiver")
