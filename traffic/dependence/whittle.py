"""Local Whittle: the exponent that fits the lowest frequencies of the periodogram best.

P. M. Robinson, Gaussian semiparametric estimation of long range dependence, Annals of Statistics 23 (1995).
"""

from __future__ import annotations

import numpy as np
from scipy import fft, optimize

from pktswarm.traffic.dependence.estimate import Diagram, Estimate, Floats, Series, Z

NAME = "whittle"
INTERVAL = "theory: normal, from the curvature of the likelihood over the frequencies used"
BANDWIDTH = 0.65
"""The lowest length^0.65 frequencies, where fractional noise is still a power law."""
BOUNDS = (-0.4, 1.49)
DRAWN_POINTS = 200


def periodogram(counts: Floats) -> Floats:
    """The periodogram at the frequencies 1, 2, … ÷ the series' length."""
    spectrum = fft.rfft(counts - counts.mean())[1:]
    return np.asarray(np.abs(spectrum) ** 2 / len(counts))


def frequencies_used(length: int, low_bins: int) -> int:
    return max(4, min(int(length**BANDWIDTH), length // (2 * low_bins)))


def estimate(series: Series) -> Estimate:
    power = periodogram(series.counts)
    number = frequencies_used(len(series.counts), series.low_bins)
    hurst = local_whittle(power[:number])
    spread = np.log(np.arange(1, number + 1))
    deviation = float(0.5 / np.sqrt(((spread - spread.mean()) ** 2).sum()))
    length_s = len(series.counts) * series.bin_s
    drawn = _diagram(power, number, hurst, length_s)
    scales_s = length_s / number, length_s
    return Estimate(NAME, hurst, hurst - Z * deviation, hurst + Z * deviation, INTERVAL, scales_s, drawn)


def local_whittle(power: Floats) -> float:
    frequency = np.arange(1, len(power) + 1, dtype=np.float64)
    mean_log = float(np.log(frequency).mean())

    def objective(hurst: float) -> float:
        level = float((frequency ** (2 * hurst - 1) * power).mean())
        return float(np.log(max(level, 1e-300)) - (2 * hurst - 1) * mean_log)

    return float(optimize.minimize_scalar(objective, bounds=BOUNDS, method="bounded").x)


def _diagram(power: Floats, number: int, hurst: float, length_s: float) -> Diagram:
    """Means of the periodogram over increasing ranges of frequency: single ordinates vary by a factor of ten."""
    edges = np.unique(np.geomspace(1, len(power) + 1, DRAWN_POINTS).astype(np.intp))
    width = np.diff(edges)
    mean = np.add.reduceat(power, edges[:-1] - 1) / width
    middle = (edges[:-1] + edges[1:] - 1) / 2
    frequency = np.arange(1, number + 1, dtype=np.float64)
    level = (frequency ** (2 * hurst - 1) * power[:number]).mean()
    fitted = np.where(middle <= number, np.log10(max(level, 1e-300)) + (1 - 2 * hurst) * np.log10(middle), np.nan)
    return Diagram("frequency_hz", "log10_power", middle / length_s, np.log10(np.maximum(mean, 1e-300)), fitted)
