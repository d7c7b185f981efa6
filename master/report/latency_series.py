"""Latency over time, from the cumulative sums of receivers in samples.csv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Leg = tuple[str, str, str]
"""(stream, from, to)."""


def over_time(edges_ns: Floats, told: Iterable[tuple[Leg, Floats]], means_ns: Mapping[Leg, float]) -> dict[str, Floats]:
    """The mean latency of each stream in each bin, NaN where nothing came. `told`: of each leg a row a sample: time_ns,
    latency_packets, latency_sum_ns; NaN where it tells none. `means_ns`: as streams.csv has them.

    Samples are counted with the clocks as read before the run; what was read after it shifts a leg by one constant,
    which is the difference of the two means. A stream of which a leg tells none has no mean."""
    packets: dict[str, Floats] = {}
    sums: dict[str, Floats] = {}
    untold = set()
    for (stream, source, target), table in told:
        known = table[~np.isnan(table).any(axis=1)]
        mean_ns = means_ns.get((stream, source, target))
        if mean_ns is None or not len(known) or not known[-1, 1]:
            untold.add(stream)
            continue
        shift_ns = mean_ns - known[-1, 2] / known[-1, 1]
        came, sum_ns = (np.interp(edges_ns, known[:, 0], known[:, column], left=0.0) for column in (1, 2))
        packets[stream] = packets.get(stream, 0.0) + np.diff(came)
        sums[stream] = sums.get(stream, 0.0) + np.diff(sum_ns + shift_ns * came)
    return {name: _means(sums[name], packets[name]) for name in packets if name not in untold}


def _means(sums: Floats, packets: Floats) -> Floats:
    """Of less than a packet, between two samples, there is none."""
    some = packets >= 0.5
    means: Floats = np.divide(sums, packets, out=np.full(len(packets), np.nan), where=some)
    return means
