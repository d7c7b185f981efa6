"""The autocorrelation ρ(k) (equations 2.1 and 2.2 of Hrustic 2022) and the cumulative sum of |ρ(k)|."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import fft

from pktswarm.traffic.dependence.estimate import Floats

MAX_LAGS = 1000
CHUNK = 1 << 17


@dataclass(frozen=True)
class Autocorrelation:
    """ρ at the lags 1, 2, …"""

    rho: Floats
    length: int
    """Length of the series."""

    @property
    def sums(self) -> Floats:
        """Equation 2.2 up to each lag: it diverges for long-range dependence."""
        return np.asarray(np.cumsum(np.abs(self.rho)))

    @property
    def noise(self) -> Floats:
        """The expected sum for independent values: each |ρ| has mean √(2/πn), so it grows linearly."""
        return np.asarray(np.arange(1, len(self.rho) + 1) * np.sqrt(2 / (np.pi * self.length)))


def autocorrelation(series: Floats, lags: int = MAX_LAGS) -> Autocorrelation | None:
    """The autocorrelation up to `lags` lags and a quarter of the series; None for a constant series."""
    lags = min(lags, len(series) // 4)
    centred = np.asarray(series - series.mean())
    products = np.zeros(lags + 1)
    for at in range(0, len(centred), CHUNK):
        products += _products(centred[at : at + CHUNK], centred[at : at + CHUNK + lags], lags)
    if products[0] <= 1e-12 * float((series**2).sum()):
        return None
    return Autocorrelation(products[1:] / products[0], len(series))


def _products(first: Floats, second: Floats, lags: int) -> Floats:
    """The sum of first[i] × second[i + k], for k from 0 to `lags`."""
    length = fft.next_fast_len(len(second) + lags, real=True)
    spectrum = np.conj(fft.rfft(first, length)) * fft.rfft(second, length)
    return np.asarray(fft.irfft(spectrum, length)[: lags + 1])
