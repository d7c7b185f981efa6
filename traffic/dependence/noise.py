"""Fractional Gaussian noise of a known Hurst exponent, for the test and calibration of estimators.

Exact, by circulant embedding: R. B. Davies and D. S. Harte, Tests for Hurst effect, Biometrika 74 (1987).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

Floats = NDArray[np.float64]


def autocovariance(hurst: float, lags: int) -> Floats:
    """The autocovariance of noise with variance 1, at the lags 0 to `lags` - 1."""
    k = np.arange(lags, dtype=np.float64)
    power = 2 * hurst
    return np.asarray(((k + 1) ** power - 2 * k**power + np.abs(k - 1) ** power) / 2)


def fractional_noise(hurst: float, length: int, normals: Floats) -> Floats:
    """A series with mean 0 and variance 1 for each row of `normals`, with 2 × `length` standard normal numbers."""
    half = autocovariance(hurst, length + 1)
    # The eigenvalues of the circulant are never negative for this noise; rounding can make them so.
    eigenvalues = np.maximum(fft.rfft(np.concatenate([half, half[-2:0:-1]])).real, 0)
    scaled = np.sqrt(eigenvalues / (4 * length)) * _hermitian(normals, length)
    return np.asarray(fft.irfft(scaled, 2 * length, axis=-1)[..., :length] * (2 * length))


def _hermitian(normals: Floats, length: int) -> NDArray[np.complex128]:
    """The half of a spectrum whose inverse is real and has the right variance at every frequency."""
    spectrum = normals[..., : length + 1] + 0j
    spectrum[..., 1:-1] += 1j * normals[..., length + 1 :]
    spectrum[..., [0, -1]] *= np.sqrt(2)
    return np.asarray(spectrum)


def one_series(hurst: float, length: int, seed: int) -> Floats:
    return fractional_noise(hurst, length, np.random.default_rng(seed).standard_normal(2 * length))
