"""The base class of distributions: random values by seed, and their theory.

Every distribution has its moments up to any bound, so the mean of a truncated one is exact.
traffic.random.distributions defines the distributions, traffic.random.parse their notation in a scenario.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SMALLEST_STEP = 2.0**-53
BISECTIONS = 64


def generator(seed: int, *stream: int) -> np.random.Generator:
    """A generator, reproducible by its numbers, and independent of those with another `stream`."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=stream)))


class Distribution(ABC):
    """The distribution of a random value. Subclasses are frozen dataclasses whose fields are the parameters."""

    name: ClassVar[str] = ""
    FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """The sets of parameters in a scenario; the first one is that of the fields."""
    LIMITS: ClassVar[dict[str, str]] = {}
    """Parameter → its limit, a key of traffic.random.parse.MEETS; other parameters can be any number."""

    @classmethod
    def build(cls, given: dict[str, float]) -> Distribution:
        """Makes the distribution from one of FORMS, whose limits are checked."""
        return cls(**given)

    @property
    def support(self) -> tuple[float, float]:
        """The least and the largest possible value."""
        return 0.0, math.inf

    @abstractmethod
    def cdf(self, x: Any) -> Floats:
        """P(X <= x)."""

    @abstractmethod
    def inverse(self, u: Any) -> Floats:
        """The least x with P(X <= x) >= u, for 0 < u < 1."""

    @abstractmethod
    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        """E[X^order; X <= upto] for orders 1 and 2; can be infinite."""

    def draw(self, generator: np.random.Generator, n: int | tuple[int, ...]) -> Floats:
        return self.inverse(_open_uniform(generator, n))

    @property
    def mean(self) -> float | None:
        return _finite(self.moment(1))

    @property
    def variance(self) -> float | None:
        mean, square = self.mean, _finite(self.moment(2))
        return None if mean is None or square is None else max(0.0, square - mean * mean)

    def quantiles(self, n: int) -> Floats:
        """The middles of n parts of equal probability."""
        return self.inverse((np.arange(n) + 0.5) / n)

    def residual(self, generator: np.random.Generator, n: int) -> Floats:
        """Residual times of an interval at a random instant; the mean must be finite.

        A process whose first gap is a residual time is stationary from its first instant.
        """
        u = _open_uniform(generator, n)
        low, high = np.zeros(n), np.full(n, 2 * float(self.moment(1)))
        while n and bool(np.any(short := self._residual_cdf(high) < u)):
            high[short] *= 2
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            left = self._residual_cdf(middle) < u
            low, high = np.where(left, middle, low), np.where(left, high, middle)
        return high

    def _residual_cdf(self, x: Floats) -> Floats:
        return (self.moment(1, x) + x * (1 - self.cdf(x))) / float(self.moment(1))


def _open_uniform(generator: np.random.Generator, n: int | tuple[int, ...]) -> Floats:
    """Uniform values without 0 and 1, whose quantiles can be infinite."""
    return np.asarray(generator.random(n) * (1 - 2 * SMALLEST_STEP) + SMALLEST_STEP)


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
