"""Inter-arrival times: their histogram, and their distance from those of a Poisson process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pktswarm.traffic.dependence.arrivals import Integers
from pktswarm.traffic.dependence.estimate import Floats

BINS_PER_DECADE = 10
KS_GAPS = 200_000
"""Maximum number of gaps, evenly picked, for the distance to the exponential: sorting all gaps is slow."""


@dataclass(frozen=True)
class Gaps:
    mean_ns: float
    deviation_ns: float
    least_ns: int
    largest_ns: int
    zero: int
    """Packets with the arrival time of the packet before; no bin of the histogram contains them."""
    ks_exponential: float
    """Kolmogorov–Smirnov distance to the exponential distribution of the same mean: 0 for Poisson arrivals."""
    edges_ns: Floats
    """Edges of the histogram's bins, on a logarithmic scale."""
    packets: Integers

    @property
    def variation(self) -> float:
        """The coefficient of variation: 1 for Poisson arrivals, 0 for a periodic stream."""
        return self.deviation_ns / self.mean_ns


def gaps(times_ns: Integers) -> Gaps:
    found = np.diff(times_ns)
    positive = found[found > 0]
    low, high = np.floor(np.log10(positive.min())), np.floor(np.log10(positive.max())) + 1
    bins = round((high - low) * BINS_PER_DECADE)
    place = ((np.log10(positive) - low) * BINS_PER_DECADE).astype(np.int64)
    packets = np.bincount(np.minimum(place, bins - 1), minlength=bins)
    edges = 10 ** (low + np.arange(bins + 1) / BINS_PER_DECADE)
    mean = float(found.mean())
    zero = len(found) - len(positive)
    extremes = int(found.min()), int(found.max())
    return Gaps(mean, float(found.std()), *extremes, zero, _ks_exponential(found, mean), edges, packets)


def _ks_exponential(found: Integers, mean: float) -> float:
    # A step that is a multiple of a repeat or scale would pick the same packets only: an odd one does not.
    ordered = np.sort(found[:: (len(found) // KS_GAPS) | 1])
    # Equal gaps are one step of the distribution: compared before the first and after the last of them.
    theory = 1 - np.exp(-ordered / mean)
    after = np.searchsorted(ordered, ordered, side="right") / len(ordered)
    before = np.searchsorted(ordered, ordered, side="left") / len(ordered)
    return float(np.maximum(after - theory, theory - before).max())
