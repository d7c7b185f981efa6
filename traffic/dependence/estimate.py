"""What every estimator of the Hurst exponent answers with, and the straight line that most of them draw."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.95
Z = 1.959964
"""The normal quantile that leaves 2.5 % on either side."""


@dataclass(frozen=True)
class Diagram:
    """The points of an estimator's plot. `x` is a time in seconds or a frequency in Hz; `y` may be a logarithm."""

    x_name: str
    y_name: str
    x: Floats
    y: Floats
    fitted: Floats
    """The fitted line at `x`; NaN outside the range that was fitted."""


@dataclass(frozen=True)
class Estimate:
    """A Hurst exponent with its 95 % interval. None where the series does not tell."""

    name: str
    hurst: float | None
    low: float | None
    high: float | None
    interval: str
    """How the interval was made."""
    scales_s: tuple[float, float] | None
    """The least and the largest scale that the estimate rests on."""
    diagram: Diagram | None = None
    doubts: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Series:
    """Packets in each of equal bins, and the scale from which on they are looked at."""

    counts: Floats
    bin_s: float
    low_bins: int = 1

    @property
    def coarse(self) -> Floats:
        """The counts added up to bins of the least scale."""
        return block_sums(self.counts, self.low_bins)

    @property
    def low_s(self) -> float:
        return self.bin_s * self.low_bins


def block_sums(series: Floats, size: int) -> Floats:
    """Sums of `size` neighbours along the last axis; what is left over at the end is left out."""
    blocks = series.shape[-1] // size
    return np.asarray(series[..., : blocks * size].reshape(*series.shape[:-1], blocks, size).sum(axis=-1))


def line(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Slope and intercept by least squares, of each row of `y`."""
    centred = x - x.mean()
    slope = (y * centred).sum(axis=-1) / (centred**2).sum()
    return slope, y.mean(axis=-1) - slope * x.mean()
