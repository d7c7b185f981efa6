"""The distributions of random values (see traffic.random.base)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from pktswarm.traffic.random.base import SMALLEST_STEP, Distribution, Floats


class _Special:
    """scipy.special, imported at the first use: the import takes half a second, and most runs need none of it."""

    def __getattr__(self, name: str) -> Any:
        from scipy import special

        return getattr(special, name)


special = _Special()


def _power(base: Any, exponent: Any) -> Floats:
    with np.errstate(all="ignore"):
        return np.asarray(np.power(base, exponent), dtype=float)


@dataclass(frozen=True)
class Constant(Distribution):
    value: float
    name = "constant"
    FORMS = (("value",),)

    @property
    def support(self) -> tuple[float, float]:
        return self.value, self.value

    def cdf(self, x: Any) -> Floats:
        return (np.asarray(x) >= self.value).astype(float)

    def inverse(self, u: Any) -> Floats:
        return np.full(np.shape(u), float(self.value))

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        return self.cdf(upto) * self.value**order


@dataclass(frozen=True)
class Uniform(Distribution):
    least: float
    most: float
    name = "uniform"
    FORMS = (("least", "most"),)

    @property
    def support(self) -> tuple[float, float]:
        return self.least, self.most

    def cdf(self, x: Any) -> Floats:
        return np.clip((np.asarray(x, float) - self.least) / (self.most - self.least), 0, 1)

    def inverse(self, u: Any) -> Floats:
        return np.asarray(self.least + np.asarray(u) * (self.most - self.least))

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        x, power = np.clip(upto, self.least, self.most), order + 1
        return np.asarray((x**power - self.least**power) / (power * (self.most - self.least)))


@dataclass(frozen=True)
class Exponential(Distribution):
    mean_value: float
    name = "exponential"
    FORMS = (("mean",), ("rate",))
    LIMITS: ClassVar = {"mean": "> 0", "rate": "> 0"}

    @classmethod
    def build(cls, given: dict[str, float]) -> Distribution:
        return cls(given["mean"] if "mean" in given else 1 / given["rate"])

    def cdf(self, x: Any) -> Floats:
        return np.asarray(-np.expm1(-np.maximum(x, 0) / self.mean_value))

    def inverse(self, u: Any) -> Floats:
        return np.asarray(-self.mean_value * np.log1p(-np.asarray(u)))

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        share = special.gammainc(order + 1, np.maximum(upto, 0) / self.mean_value)
        return np.asarray(math.factorial(order) * self.mean_value**order * share)

    def draw(self, generator: np.random.Generator, n: int | tuple[int, ...]) -> Floats:
        return generator.exponential(self.mean_value, n)

    def residual(self, generator: np.random.Generator, n: int) -> Floats:
        return self.draw(generator, n)


@dataclass(frozen=True)
class Normal(Distribution):
    mean_value: float
    sd: float
    name = "normal"
    FORMS = (("mean", "sd"),)
    LIMITS: ClassVar = {"sd": "> 0"}

    @classmethod
    def build(cls, given: dict[str, float]) -> Distribution:
        return cls(given["mean"], given["sd"])

    @property
    def support(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def cdf(self, x: Any) -> Floats:
        return np.asarray(special.ndtr((np.asarray(x, float) - self.mean_value) / self.sd))

    def inverse(self, u: Any) -> Floats:
        return np.asarray(self.mean_value + self.sd * special.ndtri(u))

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        z = (np.asarray(upto, float) - self.mean_value) / self.sd
        below, density = special.ndtr(z), np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        first = self.mean_value * below - self.sd * density
        if order == 1:
            return np.asarray(first)
        reach = np.where(np.isfinite(z), z, 0) * density
        variance = self.sd**2 * (below - reach)
        return np.asarray(self.mean_value**2 * below - 2 * self.mean_value * self.sd * density + variance)

    def draw(self, generator: np.random.Generator, n: int | tuple[int, ...]) -> Floats:
        return generator.normal(self.mean_value, self.sd, n)


@dataclass(frozen=True)
class Lognormal(Distribution):
    mu: float
    sigma: float
    name = "lognormal"
    FORMS = (("mu", "sigma"), ("mean", "sd"))
    LIMITS: ClassVar = {"sigma": "> 0", "mean": "> 0", "sd": "> 0"}

    @classmethod
    def build(cls, given: dict[str, float]) -> Distribution:
        if "mu" in given:
            return cls(given["mu"], given["sigma"])
        square = math.log1p((given["sd"] / given["mean"]) ** 2)
        return cls(math.log(given["mean"]) - square / 2, math.sqrt(square))

    def cdf(self, x: Any) -> Floats:
        return np.asarray(special.ndtr(self._z(x)))

    def _z(self, x: Any) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray((np.log(np.maximum(x, 0.0)) - self.mu) / self.sigma)

    def inverse(self, u: Any) -> Floats:
        return np.asarray(np.exp(self.mu + self.sigma * special.ndtri(u)))

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        whole = np.exp(order * self.mu + (order * self.sigma) ** 2 / 2)
        return np.asarray(whole * special.ndtr(self._z(upto) - order * self.sigma))

    def draw(self, generator: np.random.Generator, n: int | tuple[int, ...]) -> Floats:
        return generator.lognormal(self.mu, self.sigma, n)


@dataclass(frozen=True)
class Geometric(Distribution):
    """The number of trials up to the first success: 1, 2, …"""

    p: float
    name = "geometric"
    FORMS = (("p",), ("mean",))
    LIMITS: ClassVar = {"p": "> 0 and <= 1", "mean": ">= 1"}

    @classmethod
    def build(cls, given: dict[str, float]) -> Distribution:
        return cls(given["p"] if "p" in given else 1 / given["mean"])

    @property
    def support(self) -> tuple[float, float]:
        return 1.0, 1.0 if self.p == 1 else math.inf

    def cdf(self, x: Any) -> Floats:
        return 1 - _power(1 - self.p, np.maximum(np.floor(x), 0))

    def inverse(self, u: Any) -> Floats:
        if self.p == 1:
            return np.ones(np.shape(u))
        return np.asarray(np.maximum(1.0, np.ceil(np.log1p(-np.asarray(u)) / math.log1p(-self.p))))

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        """The sums of k q^(k-1) and k² q^(k-1) in closed form."""
        q, n = 1 - self.p, np.minimum(np.maximum(np.floor(upto), 0), 1e18)
        rest = _power(q, n)
        if order == 1:
            return np.asarray((1 - (n + 1) * rest + n * rest * q) / self.p)
        tail = (n + 1) ** 2 - (2 * n * n + 2 * n - 1) * q + n * n * q * q
        return np.asarray((1 + q - rest * tail) / self.p**2)


@dataclass(frozen=True)
class Pareto(Distribution):
    shape: float
    least: float
    name = "pareto"
    FORMS = (("shape", "least"), ("shape", "mean"))
    LIMITS: ClassVar = {"shape": "> 0", "least": "> 0", "mean": "> 0"}

    @classmethod
    def build(cls, given: dict[str, float]) -> Distribution:
        shape = given["shape"]
        return cls(shape, given["least"] if "least" in given else given["mean"] * (shape - 1) / shape)

    @property
    def support(self) -> tuple[float, float]:
        return self.least, math.inf

    def cdf(self, x: Any) -> Floats:
        return 1 - _power(self.least / np.maximum(x, self.least), self.shape)

    def inverse(self, u: Any) -> Floats:
        return self.least * _power(1 - np.asarray(u), -1 / self.shape)

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        x, a = np.maximum(np.asarray(upto, float), self.least), self.shape
        if a == order:
            return np.asarray(a * self.least**a * np.log(x / self.least))
        return np.asarray(a * self.least**order * (1 - _power(x / self.least, order - a)) / (a - order))


@dataclass(frozen=True)
class Gamma(Distribution):
    shape: float
    scale: float
    name = "gamma"
    FORMS = (("shape", "scale"), ("mean", "sd"))
    LIMITS: ClassVar = {"shape": "> 0", "scale": "> 0", "mean": "> 0", "sd": "> 0"}

    @classmethod
    def build(cls, given: dict[str, float]) -> Distribution:
        if "shape" in given:
            return cls(given["shape"], given["scale"])
        return cls((given["mean"] / given["sd"]) ** 2, given["sd"] ** 2 / given["mean"])

    def cdf(self, x: Any) -> Floats:
        return np.asarray(special.gammainc(self.shape, np.maximum(x, 0.0) / self.scale))

    def inverse(self, u: Any) -> Floats:
        return np.asarray(self.scale * special.gammaincinv(self.shape, u))

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        share = special.gammainc(self.shape + order, np.maximum(upto, 0.0) / self.scale)
        return np.asarray(self.scale**order * special.poch(self.shape, order) * share)

    def draw(self, generator: np.random.Generator, n: int | tuple[int, ...]) -> Floats:
        return generator.gamma(self.shape, self.scale, n)


@dataclass(frozen=True)
class Weibull(Distribution):
    shape: float
    scale: float
    name = "weibull"
    FORMS = (("shape", "scale"), ("shape", "mean"))
    LIMITS: ClassVar = {"shape": "> 0", "scale": "> 0", "mean": "> 0"}

    @classmethod
    def build(cls, given: dict[str, float]) -> Distribution:
        shape = given["shape"]
        return cls(shape, given["scale"] if "scale" in given else given["mean"] / math.gamma(1 + 1 / shape))

    def cdf(self, x: Any) -> Floats:
        return np.asarray(-np.expm1(-_power(np.maximum(x, 0.0) / self.scale, self.shape)))

    def inverse(self, u: Any) -> Floats:
        return self.scale * _power(-np.log1p(-np.asarray(u)), 1 / self.shape)

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        power = 1 + order / self.shape
        share = special.gammainc(power, _power(np.maximum(upto, 0.0) / self.scale, self.shape))
        return np.asarray(self.scale**order * special.gamma(power) * share)


@dataclass(frozen=True)
class Empirical(Distribution):
    """Measured values with weights."""

    values: tuple[float, ...]
    weights: tuple[float, ...]
    name = "empirical"

    @cached_property
    def _sorted(self) -> tuple[Floats, Floats]:
        """Values, and the probability of each."""
        values, place = np.unique(np.array(self.values, float), return_inverse=True)
        weight = np.bincount(place.ravel(), weights=np.array(self.weights, float))
        return values, weight / weight.sum()

    @cached_property
    def _sums(self) -> tuple[Floats, Floats, Floats]:
        """Moments of order 0, 1 and 2 up to each value, preceded by 0."""
        values, weight = self._sorted
        first, second, third = (np.concatenate([[0.0], np.cumsum(weight * values**order)]) for order in range(3))
        first[-1] = 1.0
        return first, second, third

    @property
    def support(self) -> tuple[float, float]:
        drawn = self._sorted[0][self._sorted[1] > 0]
        return float(drawn[0]), float(drawn[-1])

    def cdf(self, x: Any) -> Floats:
        return self.moment(0, x)

    def inverse(self, u: Any) -> Floats:
        values = self._sorted[0]
        place = np.searchsorted(self._sums[0][1:], np.asarray(u), side="left")
        return np.asarray(values[np.minimum(place, values.size - 1)])

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        return np.asarray(self._sums[order][np.searchsorted(self._sorted[0], upto, side="right")])


@dataclass(frozen=True)
class Shaped(Distribution):
    """Another distribution multiplied by `times` and truncated to two bounds.

    It equals drawing again while a value is out of bounds, and is drawn by the inverse.
    """

    inner: Distribution
    at_least: float | None = None
    at_most: float | None = None
    times: float = 1.0

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        """The bounds in values of the inner distribution: the first is exclusive, the second inclusive."""
        low = -math.inf if self.at_least is None else np.nextafter(self.at_least / self.times, -math.inf)
        return float(low), math.inf if self.at_most is None else self.at_most / self.times

    @cached_property
    def _shares(self) -> tuple[float, float]:
        low, high = self._bounds
        return float(self.inner.cdf(low)), float(self.inner.cdf(high))

    @property
    def share(self) -> float:
        """The probability that a value of the inner distribution is within the bounds."""
        return self._shares[1] - self._shares[0]

    @property
    def support(self) -> tuple[float, float]:
        low, high = (bound * self.times for bound in self.inner.support)
        low = low if self.at_least is None else max(low, self.at_least)
        return low, high if self.at_most is None else min(high, self.at_most)

    def cdf(self, x: Any) -> Floats:
        inside = np.clip(np.asarray(x, float) / self.times, *self._bounds)
        return np.clip((self.inner.cdf(inside) - self._shares[0]) / self.share, 0, 1)

    def inverse(self, u: Any) -> Floats:
        within = np.clip(self._shares[0] + np.asarray(u) * self.share, SMALLEST_STEP, 1 - SMALLEST_STEP)
        return np.clip(self.inner.inverse(within) * self.times, *self.support)

    def moment(self, order: int, upto: Any = math.inf) -> Floats:
        inside = np.clip(np.asarray(upto, float) / self.times, *self._bounds)
        part = self.inner.moment(order, inside)
        if self.at_least is not None:
            part = part - self.inner.moment(order, self._bounds[0])
        return np.asarray(part * (self.times**order / self.share))

    def draw(self, generator: np.random.Generator, n: int | tuple[int, ...]) -> Floats:
        if self.at_least is None and self.at_most is None:
            return self.inner.draw(generator, n) * self.times
        return super().draw(generator, n)


def times(distribution: Distribution, factor: float) -> Distribution:
    """The distribution of its values multiplied by `factor`."""
    if factor == 1:
        return distribution
    if isinstance(distribution, Shaped):
        bounds = [None if b is None else b * factor for b in (distribution.at_least, distribution.at_most)]
        return Shaped(distribution.inner, bounds[0], bounds[1], distribution.times * factor)
    return Shaped(distribution, times=factor)
