"""Noise of the difference between two sets of runs: Welch's interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_RUNS = 2
"""Minimum runs of each side."""
ENOUGH_RUNS = 5
"""With fewer runs the interval is much wider than their dispersion."""


@dataclass(frozen=True)
class Value:
    """A figure of one run. `own_variance`: of a count of independent events (Poisson), such as lost packets; else 0."""

    value: float
    own_variance: float = 0.0


@dataclass(frozen=True)
class Side:
    """A figure over the runs of one side. `sd`: None of one run."""

    mean: float
    sd: float | None
    runs: int
    variance: float
    """Variance of a run: the observed one, at least that of its events."""

    @property
    def variance_of_mean(self) -> float:
        return self.variance / self.runs


def side(values: Sequence[Value]) -> Side:
    """Combines the values of one or more runs."""
    numbers = [value.value for value in values]
    sd = statistics.stdev(numbers) if len(numbers) >= LEAST_RUNS else None
    variance = max((sd or 0.0) ** 2, statistics.fmean(value.own_variance for value in values))
    return Side(statistics.fmean(numbers), sd, len(numbers), variance)


def known(first: Side, other: Side) -> bool:
    return min(first.runs, other.runs) >= LEAST_RUNS


def scattered(first: Side, other: Side) -> bool:
    """Returns whether the figure varies between runs."""
    return known(first, other) and first.variance + other.variance > 0


def half_width(first: Side, other: Side, confidence: float) -> float | None:
    """Returns half the width of the interval of the difference of two means of unequal variance.

    (Welch 1947, with Satterthwaite's degrees of freedom.) None if the noise is unknown; 0 without variance.
    """
    if not known(first, other):
        return None
    of_difference = first.variance_of_mean + other.variance_of_mean
    if of_difference == 0:
        return 0.0
    from scipy.special import stdtrit

    freedom = of_difference**2 / sum(each.variance_of_mean**2 / (each.runs - 1) for each in (first, other))
    return float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(of_difference)


def of_each(confidence: float, figures: int) -> float:
    """Returns the confidence of each interval for all of them to hold at once with `confidence` (Bonferroni)."""
    return 1 - (1 - confidence) / max(1, figures)
