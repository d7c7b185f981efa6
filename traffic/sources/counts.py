"""Counts: a distribution rounded up to integers from 1, and the mean of the rounding."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pktswarm.traffic.random.parse import Distribution, Floats, Shaped
from pktswarm.traffic.sources.processes import Ints

QUANTILES = 2**16


@lru_cache(maxsize=32)
def quantile_table(law: Distribution) -> Floats:
    """QUANTILES values, enough for the mean of a bounded function."""
    if isinstance(law, Shaped) and law.at_least is None and law.at_most is None:
        return quantile_table(law.inner) * law.times
    return law.quantiles(QUANTILES)


def whole_counts(law: Distribution, draws: np.random.Generator, n: int) -> Ints:
    return np.ceil(np.maximum(law.draw(draws, n), 1)).astype(np.int64)


def mean_count(law: Distribution, unit: float = 1.0) -> float:
    """E[ceil(X / unit)], at least 1; the rounding is bounded, so its mean over quantiles is accurate."""
    quantiles = quantile_table(law) / unit
    added = np.ceil(np.maximum(quantiles, 1)) - quantiles
    return float(law.moment(1)) / unit + float(added.mean())
