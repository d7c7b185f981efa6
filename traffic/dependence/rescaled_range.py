"""R/S: the range of the summed deviations in a block, in standard deviations, grows as size^H.

B. B. Mandelbrot and J. R. Wallis, Robustness of the rescaled range R/S, Water Resources Research 5 (1969).
"""

from __future__ import annotations

import numpy as np

from pktswarm.traffic.dependence.calibration import INTERVAL, calibration
from pktswarm.traffic.dependence.estimate import Diagram, Estimate, Floats, Series, line

NAME = "rs"
MIN_SIZE, MIN_BLOCKS = 8, 4


def sizes(length: int) -> list[int]:
    return [1 << power for power in range(3, 40) if MIN_SIZE <= 1 << power <= length // MIN_BLOCKS]


def statistics(series: Floats, blocks: list[int]) -> Floats:
    """The mean R/S of the blocks of each size, a row for each series."""
    return np.stack([_mean_rs(series, size) for size in blocks], axis=-1)


def _mean_rs(series: Floats, size: int) -> Floats:
    count = series.shape[-1] // size
    block = series[..., : count * size].reshape(*series.shape[:-1], count, size)
    deviations = block - block.mean(axis=-1, keepdims=True)
    walk = np.cumsum(deviations, axis=-1)
    extent = np.maximum(walk.max(axis=-1), 0) - np.minimum(walk.min(axis=-1), 0)
    spread = np.sqrt((deviations**2).mean(axis=-1))
    # A constant block has no R/S and does not enter the mean.
    ratio = np.divide(extent, spread, out=np.full_like(extent, np.nan), where=spread > 0)
    varies = np.maximum((~np.isnan(ratio)).sum(axis=-1), 1)
    return np.asarray(np.maximum(np.nansum(ratio, axis=-1) / varies, 1e-300))


def raw(series: Floats) -> Floats:
    blocks = sizes(series.shape[-1])
    return line(np.log(blocks), np.log(statistics(series, blocks)))[0]


def estimate(series: Series) -> Estimate:
    coarse = series.coarse
    blocks = sizes(len(coarse))
    hurst, low, high = calibration(raw, len(coarse)).hurst(float(raw(coarse)))
    x, y = np.array(blocks) * series.low_s, np.log10(statistics(coarse, blocks))
    slope, start = line(np.log10(x), y)
    diagram = Diagram("block_s", "log10_rs", x, y, start + slope * np.log10(x))
    return Estimate(NAME, hurst, low, high, INTERVAL, (float(x[0]), float(x[-1])), diagram)
