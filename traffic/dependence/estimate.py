"""The result type of the estimators of the Hurst exponent, and the line fit that most of them use."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.95
Z = 1.959964
"""Normal quantile of a two-sided 95 % interval."""


@dataclass(frozen=True)
class Diagram:
    """The points of an estimator's plot. `x`: time in seconds or frequency in Hz; `y` can be a logarithm."""

    x_name: str
    y_name: str
    x: Floats
    y: Floats
    fitted: Floats
    """The fitted line at `x`; NaN outside the fitted range."""


@dataclass(frozen=True)
class Estimate:
    """A Hurst exponent with its 95 % interval; None if the series has no estimate."""

    name: str
    hurst: float | None
    low: float | None
    high: float | None
    interval: str
    """Method of the interval."""
    scales_s: tuple[float, float] | None
    """The least and the largest scale of the estimate."""
    diagram: Diagram | None = None
    doubts: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Series:
    """Packet counts in equal bins, and the least scale of the analysis."""

    counts: Floats
    bin_s: float
    low_bins: int = 1

    @property
    def coarse(self) -> Floats:
        """The counts in bins of the least scale."""
        return block_sums(self.counts, self.low_bins)

    @property
    def low_s(self) -> float:
        return self.bin_s * self.low_bins


def block_sums(series: Floats, size: int) -> Floats:
    """Sums of `size` neighbours along the last axis, without the incomplete rest."""
    blocks = series.shape[-1] // size
    return np.asarray(series[..., : blocks * size].reshape(*series.shape[:-1], blocks, size).sum(axis=-1))


def line(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Slope and intercept by least squares, of each row of `y`."""
    centred = x - x.mean()
    slope = (y * centred).sum(axis=-1) / (centred**2).sum()
    return slope, y.mean(axis=-1) - slope * x.mean()
