"""The report on the dependence in a stream of arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pktswarm.traffic.dependence import rescaled_range, variance_time, wavelet, whittle
from pktswarm.traffic.dependence.arrivals import Integers, chosen_bin_ns, counts
from pktswarm.traffic.dependence.autocorrelation import Autocorrelation, autocorrelation
from pktswarm.traffic.dependence.disturbances import disturbances
from pktswarm.traffic.dependence.estimate import Estimate, Series
from pktswarm.traffic.dependence.gaps import Gaps, gaps
from pktswarm.traffic.errors import BadInput

ESTIMATORS = {module.NAME: module.estimate for module in (variance_time, rescaled_range, wavelet, whittle)}
COARSE_BINS = 1 << 13
"""The estimators use scales from the series' length ÷ this one: dependence is a property of the long ones."""
LEAST_BINS = 64
"""Minimum number of bins of the least scale."""
MOST_BINS = 1 << 24
ARRIVALS = "arrivals"


@dataclass(frozen=True)
class Dependence:
    name: str
    packets: int
    duration_s: float
    bin_ns: int
    bins: int
    dispersion: float
    """The variance of the counts ÷ their mean: 1 for Poisson arrivals."""
    gaps: Gaps
    counts_acf: Autocorrelation | None
    """None for constant counts."""
    gaps_acf: Autocorrelation | None
    """The autocorrelation of the inter-arrival times, as in figure 5.7."""
    least_scale_s: float
    estimates: list[Estimate]
    warnings: list[str]

    @property
    def rate_pps(self) -> float:
        return (self.packets - 1) / self.duration_s


def analyse(
    times_ns: Integers,
    name: str = ARRIVALS,
    bin_ns: int | None = None,
    from_ns: int | None = None,
    estimators: Sequence[str] = tuple(ESTIMATORS),
) -> Dependence:
    """Analyses arrivals. `bin_ns` and the least scale `from_ns` are by default chosen from the data. Raises
    BadInput."""
    check_estimators(estimators)
    width_ns = bin_ns or chosen_bin_ns(times_ns)
    duration_ns = int(times_ns[-1] - times_ns[0])
    packets = counts(times_ns, _checked_bin(name, width_ns, duration_ns))
    inter = gaps(times_ns)
    # The sums of constant counts have a tiny variance by rounding.
    varies = packets.var() > 1e-12 * packets.mean() ** 2
    series, found, doubts = _fitted(name, Series(packets, width_ns / 1e9), from_ns, bool(varies))
    estimates = [ESTIMATORS[one](series) if varies else _nothing(one) for one in estimators]
    warnings = disturbances(series, inter, found) + doubts
    warnings += _not_stationary(estimates) + [f"{one.name}: {doubt}" for one in estimates for doubt in one.doubts]
    return Dependence(
        name, len(times_ns), duration_ns / 1e9, width_ns, len(packets), float(packets.var() / packets.mean()), inter,
        autocorrelation(packets), autocorrelation(np.diff(times_ns).astype(np.float64)), series.low_s,
        estimates, warnings,
    )  # fmt: skip


def check_estimators(names: Sequence[str]) -> None:
    for name in names:
        if name not in ESTIMATORS:
            raise BadInput(
                "dependence", "unknown estimator", key="--estimator", value=name, allowed=", ".join(ESTIMATORS)
            )


def _checked_bin(name: str, bin_ns: int, duration_ns: int) -> int:
    if not 1 <= bin_ns <= duration_ns // LEAST_BINS + 1:
        allowed = f"1 ns to {duration_ns / LEAST_BINS / 1e9:.4g} s: {LEAST_BINS} bins or more in the whole"
        raise BadInput(name, "bin out of range", key="--bin", value=f"{bin_ns / 1e9:g} s", allowed=allowed)
    if duration_ns // bin_ns > MOST_BINS:
        allowed = f"{duration_ns / MOST_BINS / 1e9:.4g} s or more: {MOST_BINS:,} bins at most"
        raise BadInput(name, "bin out of range", key="--bin", value=f"{bin_ns / 1e9:g} s", allowed=allowed)
    return bin_ns


def _fitted(name: str, series: Series, from_ns: int | None, varies: bool) -> tuple[Series, wavelet.Fit, list[str]]:
    """The series with the least scale of all estimators, and the line of the wavelet estimator from it on."""
    diagram = wavelet.logscale(series.counts)
    least = -(-len(series.counts) // COARSE_BINS)
    if from_ns is not None:
        return _from_scale(name, series, diagram, from_ns)
    found = wavelet.straight_from(diagram, max(1, (least - 1).bit_length() + 1))
    return Series(series.counts, series.bin_s, 1 << found.first - 1), found, []


def _from_scale(
    name: str, series: Series, diagram: wavelet.Logscale, from_ns: int
) -> tuple[Series, wavelet.Fit, list[str]]:
    low = 1 << max(0, round(np.log2(max(1.0, from_ns / 1e9 / series.bin_s))))
    if len(series.counts) // low < LEAST_BINS:
        allowed = f"{len(series.counts) * series.bin_s / LEAST_BINS:.4g} s or less"
        raise BadInput(
            name,
            "least scale out of range",
            key="--from",
            value=f"{from_ns / 1e9:g} s",
            allowed=allowed,
        )
    if len(series.counts) // low > COARSE_BINS:
        allowed = f"{len(series.counts) * series.bin_s / COARSE_BINS:.4g} s or more"
        raise BadInput(
            name,
            "least scale out of range",
            key="--from",
            value=f"{from_ns / 1e9:g} s",
            allowed=allowed,
        )
    return Series(series.counts, series.bin_s, low), wavelet.fit(diagram, low.bit_length()), []


def _not_stationary(estimates: list[Estimate]) -> list[str]:
    over = [one.name for one in estimates if one.hurst is not None and one.hurst >= 1]
    if not over:
        return []
    return [f"not stationary: H is 1 or more by {', '.join(over)}: a trend or a few bursts dominate"]


def _nothing(name: str) -> Estimate:
    return Estimate(name, None, None, None, "none: the counts do not vary", None)
