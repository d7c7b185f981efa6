"""Whether two sets of runs differ by more than chance alone makes such runs differ: Welch's interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_RUNS = 2
"""Of each side; one run tells nothing of how runs scatter."""
ENOUGH_RUNS = 5
"""With fewer the interval of few runs is much wider than they scatter."""


@dataclass(frozen=True)
class Value:
    """A figure of one run. `own_variance`: how far chance alone scatters it where it counts single events, such as
    lost packets: at least as much as independent ones (Poisson). 0 of what is no such count."""

    value: float
    own_variance: float = 0.0


@dataclass(frozen=True)
class Side:
    """A figure over the runs of one side. `sd`: None where there is one run."""

    mean: float
    sd: float | None
    runs: int
    variance: float
    """Of one run: what was seen, and no less than its events scatter by themselves."""

    @property
    def variance_of_mean(self) -> float:
        return self.variance / self.runs


def side(values: Sequence[Value]) -> Side:
    """`values`: one or more."""
    numbers = [one.value for one in values]
    sd = statistics.stdev(numbers) if len(numbers) >= LEAST_RUNS else None
    variance = max((sd or 0.0) ** 2, statistics.fmean(one.own_variance for one in values))
    return Side(statistics.fmean(numbers), sd, len(numbers), variance)


def known(one: Side, other: Side) -> bool:
    return min(one.runs, other.runs) >= LEAST_RUNS


def scattered(one: Side, other: Side) -> bool:
    """Chance can make them differ: a figure that is the same in each run of a side has no noise."""
    return known(one, other) and one.variance + other.variance > 0


def half_width(one: Side, other: Side, confidence: float) -> float | None:
    """Of the interval of the difference of two means that do not scatter alike (Welch 1947, with Satterthwaite's
    degrees of freedom). None where the noise is not known; 0 where nothing scatters."""
    if not known(one, other):
        return None
    of_difference = one.variance_of_mean + other.variance_of_mean
    if of_difference == 0:
        return 0.0
    from scipy.special import stdtrit

    freedom = of_difference**2 / sum(each.variance_of_mean**2 / (each.runs - 1) for each in (one, other))
    return float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(of_difference)


def of_each(confidence: float, figures: int) -> float:
    """The confidence of each of so many intervals, so that all of them hold at once with `confidence` (Bonferroni)."""
    return 1 - (1 - confidence) / max(1, figures)
