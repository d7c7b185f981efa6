"""Warnings about conditions that invalidate an exponent: too little data, a trend, a period."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from pktswarm.traffic.dependence.estimate import Floats, Series, block_sums
from pktswarm.traffic.dependence.gaps import Gaps
from pktswarm.traffic.dependence.wavelet import Fit, Logscale, fit, logscale
from pktswarm.traffic.dependence.whittle import periodogram

SHORT_BINS = 1024
"""Length from which the intervals are narrower than about ±0.1."""
FALSE_ALARM = 1e-4
PERIODIC_VARIATION = 0.2
PACED_DISPERSION = 0.5
LONGEST = 1 << 18
WINDOW = 65
"""Ordinates of the periodogram around a line."""
TREND_SIGMAS = 4.0


def disturbances(series: Series, gaps: Gaps, found: Fit) -> list[str]:
    warnings = [_short(series), _equal_gaps(gaps) or _paced(series), _line(series), _trend(series, found)]
    return [warning for warning in warnings if warning]


def _short(series: Series) -> str:
    bins = len(series.counts) // series.low_bins
    if bins >= SHORT_BINS:
        return ""
    return (
        f"short: {bins} bins of the least scale, under {SHORT_BINS}; the intervals are wide, and a trend or a few "
        "bursts can pass for dependence"
    )


def _equal_gaps(gaps: Gaps) -> str:
    if gaps.variation > PERIODIC_VARIATION:
        return ""
    return (
        f"periodic: the gaps are all near {gaps.mean_ns:,.0f} ns (coefficient of variation {gaps.variation:.2g}); "
        "the exponent says nothing about such a stream"
    )


def _paced(series: Series) -> str:
    """Several periodic streams at once: gaps seem random, but counts hardly vary."""
    dispersion = float(series.counts.var() / series.counts.mean())
    if dispersion > PACED_DISPERSION:
        return ""
    return (
        f"paced: the counts vary less than those of Poisson arrivals (variance / mean {dispersion:.2g}), as of several "
        "periodic streams; the exponent describes the little that is left"
    )


def _line(series: Series) -> str:
    """A line in the spectrum: an ordinate far above the ones around it, which are exponential for any noise."""
    sums = -(-len(series.counts) // LONGEST)
    power = periodogram(block_sums(series.counts, sums))
    total = float(power.sum())
    if len(power) < WINDOW or total <= 0:
        return ""
    around = ndimage.median_filter(power, WINDOW, mode="reflect") / np.log(2)
    # The first ordinates of long-range dependent counts are steep, and are tested separately.
    ratio = power / np.maximum(around, 1e-9 * total / len(power))
    ratio[: WINDOW // 2] = _against_slope(power[:WINDOW])[: WINDOW // 2]
    stands_out = ratio >= np.log(len(power) / FALSE_ALARM)
    # One period in the whole series is a trend.
    stands_out[0] = False
    if not stands_out.any():
        return ""
    place = int(np.argmax(np.where(stands_out, power, 0))) + 1
    period_s = len(series.counts) * series.bin_s / place
    return f"periodic: the counts have a line at {1 / period_s:.4g} Hz (every {period_s:.4g} s)"


def _against_slope(power: Floats) -> Floats:
    """Each ordinate against the power law through all of them, whose logarithms scatter around it."""
    x, y = np.log(np.arange(1, len(power) + 1)), np.log(np.maximum(power, 1e-300))
    centred = x - x.mean()
    slope = (centred * (y - np.median(y))).sum() / (centred**2).sum()
    rest = y - slope * x
    # The median of the logarithm of an exponential variable is log(log 2).
    return np.asarray(np.exp(np.minimum(rest - np.median(rest) + np.log(np.log(2)), 700)))


def _trend(series: Series, found: Fit) -> str:
    """Whether the exponent changes when a parabola is subtracted: it does for a trend, hardly for dependence."""
    counts = series.counts
    x = np.linspace(-1, 1, len(counts))
    basis = np.stack([x, x**2 - (x**2).mean()])
    weights = (basis @ (counts - counts.mean())) / (basis**2).sum(axis=1)
    without = fit(logscale(counts - weights @ basis), found.first)
    before, after = (found.slope + 1) / 2, (without.slope + 1) / 2
    explained = _coarse_excess(logscale(counts), found)
    deviation = max(without.deviation, 1e-9) / 2
    if abs(before - after) < 2 * deviation and explained < TREND_SIGMAS:
        return ""
    half = len(counts) // 2
    change = float(counts[half:].mean() / max(counts[:half].mean(), 1e-300) - 1)
    return (
        f"trend or level shift: from the first half to the second the rate changes by {change:+.0%}; without a "
        f"parabola the wavelet's exponent is {after:.2f} in place of {before:.2f}"
    )


def _coarse_excess(diagram: Logscale, found: Fit) -> float:
    """The largest detail of the octaves outside the fit, in standard deviations expected by the fit."""
    octaves = len(diagram.details) + 1 + np.arange(len(diagram.top))
    expected = 2 ** ((found.intercept + found.slope * octaves) / 2)
    found_there = [float(np.abs(top).max()) for top in diagram.top]
    return float(max((one / sd for one, sd in zip(found_there, expected, strict=True)), default=0.0))
