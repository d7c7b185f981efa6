"""The variance of block means against the block's size: it falls as size^(2H-2).

W. E. Leland et al., On the self-similar nature of Ethernet traffic, IEEE/ACM Transactions on Networking 2 (1994).
"""

from __future__ import annotations

import numpy as np

from pktswarm.traffic.dependence.calibration import INTERVAL, calibration
from pktswarm.traffic.dependence.estimate import Diagram, Estimate, Floats, Series, line

NAME = "variance-time"
MIN_BLOCKS = 16
"""Minimum number of blocks at the largest block size."""
STEPS_PER_OCTAVE = 2


def sizes(length: int) -> list[int]:
    octaves = np.log2(max(1, length // MIN_BLOCKS))
    steps = np.arange(0, octaves * STEPS_PER_OCTAVE + 1e-9) / STEPS_PER_OCTAVE
    return sorted({round(2**step) for step in steps})


def variances(series: Floats, blocks: list[int]) -> Floats:
    """Variances of the block means of each size, a row for each series."""
    sums = np.concatenate([np.zeros((*series.shape[:-1], 1)), np.cumsum(series, axis=-1)], axis=-1)
    found = [np.var(np.diff(sums[..., ::size], axis=-1), axis=-1, ddof=1) / size**2 for size in blocks]
    return np.stack(found, axis=-1)


def raw(series: Floats) -> Floats:
    blocks = sizes(series.shape[-1])
    slope, _ = line(np.log(blocks), np.log(np.maximum(variances(series, blocks), 1e-300)))
    return np.asarray(1 + slope / 2)


def estimate(series: Series) -> Estimate:
    coarse = series.coarse
    blocks = sizes(len(coarse))
    hurst, low, high = calibration(raw, len(coarse)).hurst(float(raw(coarse)))
    scales_s = series.low_s, series.low_s * blocks[-1]
    return Estimate(NAME, hurst, low, high, INTERVAL, scales_s, _diagram(series, blocks))


def _diagram(series: Series, blocks: list[int]) -> Diagram:
    fine = [size for size in sizes(len(series.counts)) if size < series.low_bins]
    size = np.array([*fine, *(series.low_bins * block for block in blocks)])
    y = np.log10(np.maximum(variances(series.counts / series.bin_s, size.tolist()), 1e-300))
    fitted = np.full(len(size), np.nan)
    slope, start = line(np.log10(size[len(fine) :]), y[len(fine) :])
    fitted[len(fine) :] = start + slope * np.log10(size[len(fine) :])
    return Diagram("block_s", "log10_variance_of_rate_pps", size * series.bin_s, y, fitted)
