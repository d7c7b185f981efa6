"""The confirmation of a rate by one long trial: a short one also passes while the queue of the device fills.

RFC 2544, 24 asks for trials of 60 s. A device with a queue of T seconds loses nothing of a load that exceeds its rate
by the share e until T / e seconds have passed; until then the latency rises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pktswarm.master.benchmark.trial import Trial

LEAST_S, LONGEST_S = 10.0, 60.0
"""Range of the duration where the user sets none."""
MOST_TRIALS = 12
MOST_UNDECIDED = 3
"""Successive rates whose trials may be invalid, as a node was held up: so many are a limit of the tester."""


@dataclass(frozen=True)
class Confirmation:
    """The highest rate that held for `duration_s`, in packets/s, as it was sent; None: even the lowest did not.

    `failed_pps`: the lowest rate that did not hold; None: none failed. `undecided`: an invalid trial at a rate between
    `rate_pps` and `failed_pps`; None: there is none.
    """

    duration_s: float
    rate_pps: float | None
    forwarded_pps: float | None = None
    failed_pps: float | None = None
    undecided: Trial | None = None


class Undecided(Exception):
    """The confirming trials are invalid; `trial` is the last."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.problem)
        self.trial = trial


def duration_s(asked_s: float | None, longest_s: float, precision: float, trials: Sequence[Trial]) -> float:
    """Returns the duration of a confirming trial.

    `asked_s` None: the time in which a load that exceeds the device's rate by `precision` fills the longest queue that
    the trials showed, within LEAST_S and LONGEST_S; LONGEST_S where no latency was measured. `longest_s`: its limit.
    """
    if asked_s is not None:
        return asked_s
    delays_s = [trial.queue_delay_ns / 1e9 for trial in trials if trial.queue_delay_ns is not None]
    wanted_s = math.ceil(max(delays_s) / precision) if delays_s else LONGEST_S
    return min(max(wanted_s, LEAST_S), LONGEST_S, longest_s)


def holds(trial: Trial, loss_ratio: float) -> bool:
    """Whether a load lasts: the loss is within the goal, further limits are met, and no queue fills."""
    return _meets(trial, loss_ratio) and not trial.latency_rise_ns_per_s


def _meets(trial: Trial, loss_ratio: float) -> bool:
    """Whether a load meets the goal and further limits, as long as the trial."""
    return trial.loss_ratio is not None and trial.loss_ratio <= loss_ratio and not trial.not_held


def sent_pps(trial: Trial) -> float:
    """Returns the load of a trial as it was sent: below the intended one where delays of a sender stretched it."""
    return trial.intended_pps * min(1.0, trial.duration_s / (trial.sending_s or trial.duration_s))


def lower_pps(trial: Trial, loss_ratio: float, step: float) -> float:
    """Returns the next load below one that did not hold: what the device forwarded, and at least `step` below."""
    load_pps = trial.intended_pps
    by_loss = load_pps * (1 - (trial.loss_ratio or 0.0)) / (1 - loss_ratio)
    by_rise = load_pps / (1 + (trial.latency_rise_ns_per_s or 0.0) / 1e9)
    return min(min(by_loss, by_rise) * (1 - step / 2), load_pps * (1 - step))


def shown(rate_pps: float, loss_ratio: float, trials: Iterable[Trial]) -> Trial | None:
    """The trial that shows that a rate does not last: each valid one within the goal has a queue that fills, and this
    one the slowest. None: the trials do not show it."""
    at_rate = [trial for trial in trials if math.isclose(trial.intended_pps, rate_pps) and not trial.problem]
    within = [trial for trial in at_rate if _meets(trial, loss_ratio)]
    if not within or any(holds(trial, loss_ratio) for trial in within):
        return None
    return min(within, key=lambda trial: trial.latency_rise_ns_per_s or 0.0)


def confirm(
    rate_pps: float,
    loss_ratio: float,
    lowest_pps: float,
    precision: float,
    trial_s: float,
    measure: Callable[[float, float], Trial],
    fails: Trial | None = None,
) -> Confirmation | None:
    """Make trials at `rate_pps` and below, until one holds. None: none of MOST_TRIALS did. `fails`: a trial at
    `rate_pps` that was made before and does not hold; the first one is at the next lower rate then.

    Raises Undecided where the trials at the lowest rate, or at MOST_UNDECIDED rates in succession, are invalid.
    """
    failed_pps, undecided, in_succession = None, None, 0
    if fails is not None and rate_pps > lowest_pps:
        failed_pps, rate_pps = rate_pps, max(lowest_pps, lower_pps(fails, loss_ratio, precision))
    for attempt in range(MOST_TRIALS):
        trial = measure(rate_pps, trial_s)
        if not trial.problem and holds(trial, loss_ratio):
            held_pps = sent_pps(trial)
            return Confirmation(trial_s, held_pps, held_pps * (1 - (trial.loss_ratio or 0.0)), failed_pps, undecided)
        step = min(0.5, precision * 2 ** (attempt // 2))
        if trial.problem:
            undecided, in_succession = trial, in_succession + 1
            if in_succession == MOST_UNDECIDED or rate_pps <= lowest_pps:
                raise Undecided(trial)
            rate_pps = max(lowest_pps, rate_pps * (1 - step))
            continue
        failed_pps, undecided, in_succession = rate_pps, None, 0
        if rate_pps <= lowest_pps:
            return Confirmation(trial_s, None, failed_pps=failed_pps)
        rate_pps = max(lowest_pps, lower_pps(trial, loss_ratio, step))
    return None
