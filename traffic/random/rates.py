"""Rates over time: the profile of a scenario as steps, for senders and for the thinning of sources.

A step has the mean of its part of the curve, so the total equals that of the curve. docs/sources.md has the profiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.random.parse import Floats, csv_numbers, csv_rows, generator, number, parse

Times = NDArray[np.int64]
NS = 1e9
RESOLUTION_S = 0.1
MOST_STEPS = 1_000_000
ETHERNET_OVERHEAD_BYTES = 20
"""Preamble, start frame delimiter and interframe gap: the layer 1 overhead of a frame."""
UNITS = {"pps": units.PACKET_RATE, "bps": units.BIT_RATE, "l1_bps": units.BIT_RATE}
DAY_H = 24


@dataclass(frozen=True, eq=False)
class Rates:
    """`rate[i]` (in `unit`) applies from `from_ns[i]` to the next, the last to `until_ns`; from_ns[0] is 0."""

    from_ns: Times
    rate: Floats
    until_ns: int
    unit: str = "pps"

    @property
    def lengths_s(self) -> Floats:
        return np.diff(self.from_ns, append=self.until_ns).astype(np.float64) / NS

    @property
    def integral(self) -> float:
        """Total of packets (or bits)."""
        return float(self.rate @ self.lengths_s)

    @property
    def mean(self) -> float:
        return self.integral / (self.until_ns / NS)

    def at(self, time_s: Any) -> Floats:
        """The rate at these times; the first one before the start, the last one after the end."""
        place = np.searchsorted(self.from_ns / NS, time_s, side="right") - 1
        return np.asarray(self.rate[np.maximum(place, 0)])

    def times(self, factor: float) -> Rates:
        return replace(self, rate=self.rate * factor)

    def in_pps(self, mean_size_bytes: float) -> Rates:
        """The rates in packets/s, for frames with this mean size (with FCS)."""
        overhead = {"bps": 0, "l1_bps": ETHERNET_OVERHEAD_BYTES}
        if self.unit == "pps":
            return self
        bits = 8 * (mean_size_bytes + overhead[self.unit])
        return replace(self.times(1 / bits), unit="pps")

    def pairs(self) -> list[list[float]]:
        """[from_ns, rate] of each step, for a task."""
        return [[start, rate] for start, rate in zip(self.from_ns.tolist(), self.rate.tolist(), strict=True)]


@dataclass(frozen=True)
class Place:
    """The place of a profile in the scenario, and the duration of the run."""

    where: object
    key: str
    duration_s: float
    seed: int
    stream: tuple[int, ...]
    folder: Path
    resolution_s: float = RESOLUTION_S
    unit: units.Unit = units.PACKET_RATE
    """The unit of the rates."""

    @property
    def until_ns(self) -> int:
        return round(self.duration_s * NS)

    def draws(self) -> np.random.Generator:
        return generator(self.seed, *self.stream)

    def within(self, name: str) -> Place:
        return replace(self, key=f"{self.key}.{name}")

    def bad(self, problem: str, value: object = None, allowed: str = "") -> BadInput:
        return BadInput(self.where, problem, key=self.key, value=value, allowed=allowed)

    def number(self, given: Mapping[str, object], name: str, default: float | None = None) -> float:
        return number(self.where, f"{self.key}.{name}", given.get(name, default), unit=self.unit_of(name))

    def above_zero(self, given: Mapping[str, object], name: str, default: float | None = None) -> float:
        return number(self.where, f"{self.key}.{name}", given.get(name, default), "> 0", self.unit_of(name))

    def unit_of(self, name: str) -> units.Unit:
        """The unit that the name gives (every_s); else that of the rates."""
        own = units.unit_of(name)
        return self.unit if own is units.PLAIN else own

    def only(self, given: object, needed: str, optional: str = "") -> dict[str, object]:
        """Returns `given` after a check: all of `needed`, and nothing beyond `needed` and `optional`."""
        allowed = needed + (f"; and {optional}" if optional else "")
        if not isinstance(given, Mapping):
            raise self.bad("not a mapping", given, allowed)
        names = set(given)
        if not set(needed.split()) <= names or not names <= set(f"{needed} {optional}".split()):
            raise self.bad("wrong parameters", ", ".join(map(str, given)) or "none", allowed)
        return dict(given)


def parse_rates(
    where: object,
    key: str,
    value: Any,
    duration_s: float,
    *,
    seed: int = 0,
    stream: tuple[int, ...] = (),
    folder: Path = Path(),
) -> Rates:
    """Parses a profile into steps for a run of `duration_s`. BadInput for an invalid one.

    A plain number is a steady rate in packets/s. `seed` is that of random profiles; profiles with the same
    seed differ by `stream`.
    """
    if not isinstance(value, Mapping):
        value = {"steady": value}
    given = dict(value)
    unit = given.pop("unit", "pps")
    if unit not in UNITS:
        raise BadInput(where, "unknown unit", key=f"{key}.unit", value=unit, allowed=", ".join(UNITS))
    resolution = number(where, f"{key}.resolution_s", given.pop("resolution_s", RESOLUTION_S), "> 0")
    if len(given) != 1 or next(iter(given)) not in PROFILES:
        problem = "not one profile"
        raise BadInput(where, problem, key=key, value=value, allowed=", ".join(PROFILES))
    name, parameters = next(iter(given.items()))
    place = Place(where, f"{key}.{name}", duration_s, seed, stream, folder, resolution, UNITS[unit])
    return _checked(place, replace(PROFILES[name](place, parameters), unit=unit))


def _checked(place: Place, made: Rates) -> Rates:
    if not np.all(made.rate >= 0):
        first = int(np.argmax(~(made.rate >= 0)))
        problem = f"the rate is negative {made.from_ns[first] / NS:g} s after the start"
        raise place.bad(problem, float(made.rate[first]), "0 or more")
    if not made.rate.any():
        raise place.bad("the rate is 0 all the time")
    return made


def _steps(place: Place, starts_s: Any, rates: Any) -> Rates:
    """The steps within the run, without those shorter than 1 ns, and with equal neighbours merged."""
    from_ns = np.round(np.asarray(starts_s, float) * NS).astype(np.int64)
    rate = np.asarray(rates, float)
    lasts = np.diff(from_ns, append=np.iinfo(np.int64).max) > 0
    lasts &= from_ns < place.until_ns
    from_ns, rate = from_ns[lasts], rate[lasts]
    new = np.diff(rate, prepend=np.nan) != 0
    return Rates(from_ns[new], rate[new], place.until_ns)


def _turns(place: Place, every_s: float) -> Floats:
    """The instants 0, every, 2 every, … within the run."""
    count = math.ceil(place.duration_s / every_s)
    if count > MOST_STEPS:
        raise place.bad(f"makes {count} steps", every_s, f"at most {MOST_STEPS}")
    return np.arange(count, dtype=float) * every_s


def _curve(place: Place, area: Callable[[Floats], Floats], bend_s: float = math.inf) -> Rates:
    """Steps up to the resolution, each with the curve's mean; `area`: the curve's integral from 0 to a time.

    From `bend_s` on the curve is flat. It is never negative: values below 0 are rounding errors.
    """
    end_s = min(place.duration_s, bend_s)
    count = math.ceil(end_s / place.resolution_s)
    if count > MOST_STEPS:
        raise place.bad(f"makes {count} steps", place.resolution_s, f"at most {MOST_STEPS}")
    edges_ns = np.round(np.append(np.linspace(0, end_s, count + 1), place.duration_s) * NS)
    edges = np.unique(edges_ns) / NS
    return _steps(place, edges[:-1], np.maximum(np.diff(area(edges)) / np.diff(edges), 0))


# --- profiles ------------------------------------------------------------------------------------------------------


def _steady(place: Place, value: Any) -> Rates:
    return _steps(place, [0.0], [number(place.where, place.key, value, unit=place.unit)])


def _step_wise(place: Place, value: Any) -> Rates:
    given = place.only(value, "start increment interval_s", "until")
    start, increment = place.number(given, "start"), place.number(given, "increment")
    starts = _turns(place, place.above_zero(given, "interval_s"))
    rates = start + increment * np.arange(starts.size)
    if "until" in given:
        until = place.number(given, "until")
        if increment == 0 or (until - start) / increment < 0:
            raise place.within("until").bad("not reached from start by steps of increment", until)
        rates = np.minimum(rates, until) if increment > 0 else np.maximum(rates, until)
    return _steps(place, starts, rates)


def _walk(place: Place, value: Any) -> Rates:
    """The RAN emulator's profile: the rate changes by a fixed amount up to a bound, and then back."""
    given = place.only(value, "between by every_s", "start random")
    low, high = _pair(place.within("between"), given["between"])
    by = place.above_zero(given, "by")
    starts = _turns(place, place.above_zero(given, "every_s"))
    start = place.number(given, "start", low)
    if not low <= start <= high:
        raise place.within("start").bad("out of range", start, f"{low:g} to {high:g}")
    if given.get("random") not in (None, False, True):
        raise place.within("random").bad("neither true nor false", given["random"])
    turns = np.ones(starts.size) if not given.get("random") else place.draws().choice([-1.0, 1.0], starts.size)
    return _steps(place, starts, _bounced(start, turns * by, low, high, bool(given.get("random"))))


def _bounced(rate: float, moves: Floats, low: float, high: float, drawn: bool) -> list[float]:
    """A move beyond the bounds ends at the bound; the next moves lead away from it."""
    rates, way = [], 1.0
    for move in moves.tolist():
        rates.append(rate)
        if drawn:
            way = 1.0
        if (rate >= high and way * move > 0) or (rate <= low and way * move < 0):
            way = -way
        rate = min(high, max(low, rate + way * move))
    return rates


def _pair(place: Place, value: Any) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise place.bad("not two rates", value, "[lower, upper]")
    low, high = (number(place.where, f"{place.key}.{at}", one, unit=place.unit) for at, one in enumerate(value))
    if not low < high:
        raise place.bad("the first rate must be below the second", value)
    return low, high


def _square(place: Place, value: Any) -> Rates:
    given = place.only(value, "rates every_s")
    rates = given["rates"]
    if not isinstance(rates, list | tuple) or len(rates) < 2:
        raise place.within("rates").bad("not two rates or more", rates)
    levels = [number(place.where, f"{place.key}.rates.{at}", one, unit=place.unit) for at, one in enumerate(rates)]
    starts = _turns(place, place.above_zero(given, "every_s"))
    return _steps(place, starts, np.resize(levels, starts.size))


def _ramp(place: Place, value: Any) -> Rates:
    given = place.only(value, "from to over_s")
    first, last, over = place.number(given, "from"), place.number(given, "to"), place.above_zero(given, "over_s")
    if min(first, last) < 0:
        raise place.bad("the rate becomes negative", min(first, last), "0 or more")

    def area(t: Floats) -> Floats:
        inside = np.minimum(t, over)
        return np.asarray(first * inside + (last - first) * inside**2 / (2 * over) + last * (t - inside))

    return _curve(place, area, over)


def _sine(place: Place, value: Any) -> Rates:
    """Lowest at midnight, highest at noon: a day of `day_s`, which begins at the hour `from_h`."""
    given = place.only(value, "mean amplitude day_s", "from_h")
    mean, amplitude, day = (
        place.number(given, "mean"),
        place.number(given, "amplitude"),
        place.above_zero(given, "day_s"),
    )
    if abs(amplitude) > mean:
        raise place.within("amplitude").bad("the rate becomes negative", amplitude, f"at most the mean, {mean:g}")
    pulse = 2 * math.pi / day
    begin = place.number(given, "from_h", 0.0) / DAY_H * day

    def area(t: Floats) -> Floats:
        return np.asarray(mean * t - amplitude / pulse * (np.sin(pulse * (t + begin)) - math.sin(pulse * begin)))

    return _curve(place, area)


def _table(place: Place, value: Any) -> Rates:
    """Each rate from its time to the next, the last one to the end; `over_s` scales the times."""
    if not isinstance(value, Mapping):
        value = {"file" if isinstance(value, str) else "points": value}
    where: object = place.where
    if "file" in value:
        given = place.only(value, "file", "over_s until_s")
        where = path = place.folder / str(given["file"])
        times_s, rates = _read_table(path)
    else:
        given = place.only(value, "points", "over_s until_s")
        times_s, rates = _points(place.within("points"), given["points"])
    if times_s[0] != 0:
        raise BadInput(where, "the first time must be 0", key=place.key, value=times_s[0])
    back = [at for at in range(1, len(times_s)) if not times_s[at] > times_s[at - 1]]
    if back:
        raise BadInput(where, "times must ascend", key=place.key, value=times_s[back[0]])
    return _steps(place, np.array(times_s) * _stretch(place, given, times_s[-1]), rates)


def _stretch(place: Place, given: Mapping[str, object], last_s: float) -> float:
    """`over_s`: the scaled length of the table, whose own times end at `until_s`."""
    if ("over_s" in given) != ("until_s" in given):
        raise place.bad("over_s and until_s need each other", dict(given), "both: the table ends at until_s")
    if "over_s" not in given:
        return 1.0
    until = place.above_zero(given, "until_s")
    if until <= last_s:
        raise place.within("until_s").bad("must be after the last time", until, f"> {last_s:g}")
    return place.above_zero(given, "over_s") / until


def _read_table(path: Path) -> tuple[list[float], list[float]]:
    times_s, rates = [], []
    for line, cells in csv_rows(path, ("time_s", "rate")):
        if len(cells) != 2:
            raise BadInput(path, "not two columns", key=f"line {line}", value=cells, allowed="time_s,rate")
        time_s, rate = csv_numbers(path, line, cells)
        if rate < 0:
            raise BadInput(path, "a negative rate", key=f"line {line}", value=rate)
        times_s.append(time_s)
        rates.append(rate)
    return times_s, rates


def _points(place: Place, value: Any) -> tuple[list[float], list[float]]:
    if not isinstance(value, list | tuple) or not value:
        raise place.bad("no points", value, "a list of [time_s, rate], or a CSV file")
    for at, point in enumerate(value):
        if not isinstance(point, list | tuple) or len(point) != 2:
            raise place.within(str(at)).bad("not a pair", point, "[time_s, rate]")
    kinds = (units.SECONDS, place.unit)
    pairs = [
        [number(place.where, f"{place.key}.{at}", one, unit=kind) for one, kind in zip(point, kinds, strict=True)]
        for at, point in enumerate(value)
    ]
    return [time_s for time_s, _ in pairs], [rate for _, rate in pairs]


def _on_off(place: Place, value: Any) -> Rates:
    """`rate` for a time drawn from `on`, then `rate_off` (0) for one drawn from `off`, and again."""
    given = place.only(value, "on off rate", "rate_off")
    on, off = (
        parse(place.where, f"{place.key}.{name}", given[name], folder=place.folder, need_mean=True, at_least=0)
        for name in ("on", "off")
    )
    levels = place.number(given, "rate"), place.number(given, "rate_off", 0.0)
    draws, spans, total = place.draws(), [], 0.0
    cycle_s = float(on.moment(1) + off.moment(1))
    while total < place.duration_s:
        count = min(MOST_STEPS, int((place.duration_s - total) / cycle_s * 1.1) + 16)
        part = np.column_stack([on.draw(draws, count), off.draw(draws, count)]).ravel()
        spans.append(part)
        total += float(part.sum())
        if sum(one.size for one in spans) > 2 * MOST_STEPS:
            raise place.bad("changes too often", allowed=f"at most {MOST_STEPS} steps in a run")
    starts = np.concatenate([[0.0], np.cumsum(np.concatenate(spans))[:-1]])
    return _steps(place, starts, np.resize(levels, starts.size))


PROFILES: dict[str, Callable[[Place, Any], Rates]] = {
    "steady": _steady,
    "steps": _step_wise,
    "walk": _walk,
    "square": _square,
    "ramp": _ramp,
    "sine": _sine,
    "table": _table,
    "on_off": _on_off,
}
