"""The energy of wavelet details against their scale: its slope in a log-log diagram is 2H-1.

P. Abry and D. Veitch, Wavelet analysis of long-range-dependent traffic, IEEE Transactions on Information Theory 44
(1998). It uses the Haar wavelet, because a count in a bin is a Haar coefficient of the arrivals: the transform needs no
initialization, and noise of any H has a straight line from the first octave on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from pktswarm.traffic.dependence.estimate import Diagram, Estimate, Floats, Series, Z

NAME = "wavelet"
INTERVAL = "theory: the details of an octave nearly independent; widened where they scatter more than Gaussian ones"
MIN_DETAILS, MIN_OCTAVES = 4, 4
STRAIGHT = 0.05
"""Minimum probability of a worse fit by chance for a straight range of octaves."""


@dataclass(frozen=True)
class Logscale:
    """The logscale diagram: an entry for each octave, from octave 1 (details between neighbouring bins)."""

    log2_energy: Floats
    deviation: Floats
    """Standard deviation of `log2_energy`: that of Gaussian details, or the observed one if larger."""
    details: Floats
    """Number of details in the octave."""
    top: list[Floats]
    """The details of the octaves that are too coarse for the fit."""

    @property
    def octaves(self) -> Floats:
        return np.arange(1, len(self.details) + 1, dtype=np.float64)


@dataclass(frozen=True)
class Fit:
    first: int
    """The first fitted octave; the last one is that of the diagram."""
    slope: float
    deviation: float
    """Standard deviation of the slope."""
    intercept: float
    quality: float
    """Probability of a worse fit by chance."""

    @property
    def is_straight(self) -> bool:
        return self.quality >= STRAIGHT


def logscale(counts: Floats) -> Logscale:
    sums, energies, deviations, sizes, top = counts, [], [], [], []
    while len(sums) >= 2:
        even, odd = sums[: len(sums) // 2 * 2 : 2], sums[1::2]
        details = (even - odd) / np.sqrt(2)
        sums = (even + odd) / np.sqrt(2)
        if len(details) < MIN_DETAILS:
            top.append(details)
            continue
        energy, deviation = _energy(details)
        energies.append(energy)
        deviations.append(deviation)
        sizes.append(len(details))
    return Logscale(np.array(energies), np.array(deviations), np.array(sizes, np.float64), top)


def _energy(details: Floats) -> tuple[float, float]:
    """log2 of the mean square without the bias of the logarithm (Veitch and Abry 1999), and its standard deviation."""
    squares, count = details**2, len(details)
    mean = max(float(squares.mean()), 1e-100)
    bias = special.digamma(count / 2) / np.log(2) - np.log2(count / 2)
    gaussian = special.polygamma(1, count / 2) / np.log(2) ** 2
    seen = float(squares.var(ddof=1)) / (count * mean**2 * np.log(2) ** 2)
    return float(np.log2(mean) - bias), float(np.sqrt(max(gaussian, seen)))


def fit(diagram: Logscale, first: int) -> Fit:
    """A line through the octaves from `first` on, weighted by the number of details."""
    use = slice(first - 1, None)
    x, y, weight = diagram.octaves[use], diagram.log2_energy[use], diagram.details[use]
    x0, y0 = np.average(x, weights=weight), np.average(y, weights=weight)
    pull = weight * (x - x0) / (weight * (x - x0) ** 2).sum()
    slope = float((pull * y).sum())
    rest = (y - y0 - slope * (x - x0)) / diagram.deviation[use]
    chi2, free = float((rest**2).sum()), len(x) - 2
    widened = max(1.0, np.sqrt(chi2 / free))
    deviation = float(np.sqrt((pull**2 * diagram.deviation[use] ** 2).sum()) * widened)
    return Fit(first, slope, deviation, float(y0 - slope * x0), float(stats.chi2.sf(chi2, free)))


def straight_from(diagram: Logscale, first: int = 1) -> Fit:
    """The widest straight range of octaves up to the coarsest; the straightest one if none is straight."""
    last = len(diagram.details) - MIN_OCTAVES + 1
    fits = [fit(diagram, octave) for octave in range(min(first, last), last + 1)]
    return next((one for one in fits if one.is_straight), max(fits, key=lambda one: one.quality))


def estimate(series: Series) -> Estimate:
    diagram = logscale(series.counts)
    found = fit(diagram, series.low_bins.bit_length())
    hurst, deviation = (found.slope + 1) / 2, found.deviation / 2
    x = 2**diagram.octaves * series.bin_s
    fitted = np.where(diagram.octaves >= found.first, found.intercept + found.slope * diagram.octaves, np.nan)
    drawn = Diagram("scale_s", "log2_energy", x, diagram.log2_energy, fitted)
    doubts = () if found.is_straight else ("the logscale diagram is nowhere straight: no one exponent describes it",)
    scales_s = float(x[found.first - 1]), float(x[-1])
    return Estimate(NAME, hurst, hurst - Z * deviation, hurst + Z * deviation, INTERVAL, scales_s, drawn, doubts)
