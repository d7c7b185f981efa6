"""Latency over time, from the cumulative sums of receivers in samples.csv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Leg = tuple[str, str, str]
"""(stream, from, to)."""


def over_time(
    edges_ns: Floats, samples: Iterable[tuple[Leg, Floats]], means_ns: Mapping[Leg, float]
) -> dict[str, Floats]:
    """Mean latency of each stream between each two edges, NaN where no packet arrived. `samples`: for each leg, a row
    per sample: time_ns, latency_packets, latency_sum_ns; NaN where not reported: before the first packet, or at all.
    `means_ns`: as in streams.csv.

    Samples use the clock offsets read before the run. The offsets read after it shift a leg by one constant, the
    difference of the two means. A stream with a leg that reports no latency has no mean."""
    packets: dict[str, Floats] = {}
    sums: dict[str, Floats] = {}
    unreported = set()
    for (stream, source, target), table in samples:
        known = _from_zero(table)
        mean_ns = means_ns.get((stream, source, target))
        if mean_ns is None or not len(known) or not known[-1, 1]:
            unreported.add(stream)
            continue
        shift_ns = mean_ns - known[-1, 2] / known[-1, 1]
        came, sum_ns = (np.interp(edges_ns, known[:, 0], known[:, column], left=0.0) for column in (1, 2))
        packets[stream] = packets.get(stream, 0.0) + np.diff(came)
        sums[stream] = sums.get(stream, 0.0) + np.diff(sum_ns + shift_ns * came)
    return {name: _means(sums[name], packets[name]) for name in packets if name not in unreported}


def _from_zero(table: Floats) -> Floats:
    """The known rows, and those before them: nothing had arrived."""
    unknown = np.isnan(table).any(axis=1)
    if unknown.all():
        return table[:0]
    before = np.arange(len(table)) < np.argmin(unknown)
    filled = np.where(before[:, None] & np.isnan(table), 0.0, table)
    return filled[before | ~unknown]


def _means(sums: Floats, packets: Floats) -> Floats:
    """Mean latency per bin; NaN where an interval, interpolated between samples, holds less than half a packet."""
    some = packets >= 0.5
    means: Floats = np.divide(sums, packets, out=np.full(len(packets), np.nan), where=some)
    return means
