"""Calibration of an estimator by its results for noise of known exponents: bias correction and interval.

Variance–time and R/S are biased for short series, without a usable theory of their variance. The estimator is applied
to fractional Gaussian noise of the same length for a grid of H. The result is the H whose noise has the observed
estimate; the interval contains every H for which that estimate is among the middle 95 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pktswarm.traffic.dependence.estimate import Floats, Z
from pktswarm.traffic.dependence.noise import fractional_noise

GRID = np.array([0.05, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
ROUNDS = 100
SEED = 20240229
INTERVAL = f"{len(GRID)} × {ROUNDS} series of fractional Gaussian noise of the same length, inverted"

Raw = Callable[[Floats], Floats]
"""The uncorrected estimate for each row of a matrix of series."""


@dataclass(frozen=True)
class Calibration:
    """Mean and standard deviation of the raw estimate, for each H of the grid."""

    mean: Floats
    deviation: Floats

    def hurst(self, raw: float) -> tuple[float, float, float]:
        """The exponent and its interval, within the grid."""
        curves = (self.mean, self.mean + Z * self.deviation, self.mean - Z * self.deviation)
        estimate, low, high = (float(np.interp(raw, np.maximum.accumulate(curve), GRID)) for curve in curves)
        return estimate, low, high


@lru_cache(maxsize=32)
def calibration(raw: Raw, length: int) -> Calibration:
    # The same normal numbers for every H: the curves are smooth, and the result is reproducible.
    normals = np.random.default_rng(SEED).standard_normal((ROUNDS, 2 * length))
    seen = [raw(fractional_noise(float(hurst), length, normals)) for hurst in GRID]
    means, deviations = [one.mean() for one in seen], [one.std(ddof=1) for one in seen]
    return Calibration(np.array(means), np.array(deviations))
