"""Distributions of gaps, sizes and durations in the notation of a scenario, and tables of gaps for senders.

docs/sources.md has the parameters. Values have the unit of the key they stand under (seconds, bytes), and may be texts
with a unit.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.random.base import Distribution, Floats, generator
from pktswarm.traffic.random.distributions import (
    Constant,
    Empirical,
    Exponential,
    Gamma,
    Geometric,
    Lognormal,
    Normal,
    Pareto,
    Shaped,
    Uniform,
    Weibull,
    times,
)
from pktswarm.traffic.schedule.due_times import relative_gaps

__all__ = [
    "Constant",
    "Distribution",
    "Empirical",
    "Exponential",
    "Floats",
    "Gamma",
    "Geometric",
    "Lognormal",
    "Normal",
    "Pareto",
    "Shaped",
    "Uniform",
    "Weibull",
    "gap_table",
    "generator",
    "parse",
    "parse_arrivals",
    "times",
]

GAP_ENTRIES = 4096
LARGEST = 1e300
KINDS: dict[str, type[Distribution]] = {
    kind.name: kind
    for kind in (Uniform, Exponential, Normal, Lognormal, Geometric, Pareto, Gamma, Weibull, Constant, Empirical)
}
SHORT = {"constant": "value", "exponential": "mean", "geometric": "mean", "empirical": "file"}
"""Distribution → the parameter that a plain value stands for."""
MODIFIERS = ("at_least", "at_most", "times")
WITH_UNIT = {*KINDS, "value", "values", "least", "most", "mean", "sd", "scale", "at_least", "at_most"}
"""Keys below that of a distribution whose number has the unit of that key; the others have none."""
UNITS = {"on": units.SECONDS, "off": units.SECONDS, "pps": units.PACKET_RATE, "bps": units.BIT_RATE}
"""Keys whose last word is not their unit."""
MEETS = {
    "> 0": lambda value: value > 0,
    ">= 1": lambda value: value >= 1,
    "> 0 and <= 1": lambda value: 0 < value <= 1,
}


def parse(
    where: object,
    key: str,
    value: object,
    *,
    folder: Path = Path(),
    need_mean: bool = False,
    at_least: float | None = None,
) -> Distribution:
    """Parses the distribution of a scenario under `key`. BadInput for an invalid one.

    `need_mean`: it must have a finite mean, above `at_least` if given. `at_least`: the lower limit of its values.
    `folder`: the folder of the file of an empirical one.
    """
    if isinstance(value, Distribution):
        made = value
    elif isinstance(value, Mapping):
        made = _parse_mapping(where, key, value, folder)
    else:
        made = Constant(number(where, key, value))
    _check(where, key, value, made, need_mean, at_least)
    return made


def unit_at(key: str) -> units.Unit:
    """The unit of a number at a dotted key: that of the key, or of the distribution's key above."""
    word = next((word for word in reversed(key.split(".")) if not word.isdecimal() and word not in WITH_UNIT), "")
    return UNITS.get(word) or units.unit_of(word)


def number(where: object, key: str, value: object, limit: str = "", unit: units.Unit | None = None) -> float:
    """A finite number that meets `limit`; a text with a unit where the key, or `unit`, has one."""
    unit = unit or unit_at(key)
    if isinstance(value, str) and unit is not units.PLAIN:
        try:
            value = units.parse(value, unit)
        except units.UnitError as error:
            raise BadInput(where, error.problem, key=key, value=value, allowed=error.allowed) from None
    if not isinstance(value, int | float) or isinstance(value, bool) or not -LARGEST <= value <= LARGEST:
        raise BadInput(where, "not a finite number", key=key, value=value, allowed=limit or "a number")
    if limit and not MEETS[limit](value):
        raise BadInput(where, "out of range", key=key, value=value, allowed=limit)
    return float(value)


def _parse_mapping(where: object, key: str, given: Mapping[str, object], folder: Path) -> Distribution:
    modifiers = {word: given[word] for word in MODIFIERS if word in given}
    value = {word: given[word] for word in given if word not in MODIFIERS}
    if len(value) != 1 or next(iter(value)) not in KINDS:
        problem = "not one distribution"
        raise BadInput(where, problem, key=key, value=value, allowed=", ".join(KINDS))
    name, parameters = next(iter(value.items()))
    if name in SHORT and not isinstance(parameters, Mapping):
        parameters = {SHORT[name]: parameters}
    if not isinstance(parameters, Mapping):
        raise BadInput(
            where, "not a mapping of parameters", key=f"{key}.{name}", value=parameters, allowed=_forms(name)
        )
    if name == "empirical":
        made: Distribution = _empirical(where, f"{key}.{name}", parameters, folder)
    else:
        made = _parse_kind(where, f"{key}.{name}", KINDS[name], parameters)
    return _modified(where, key, made, modifiers) if modifiers else made


def _forms(name: str) -> str:
    if name == "empirical":
        return "file, or values with or without weights"
    return " or ".join(" and ".join(form) for form in KINDS[name].FORMS)


def _parse_kind(where: object, key: str, kind: type[Distribution], given: Mapping[str, object]) -> Distribution:
    if not any(set(given) == set(form) for form in kind.FORMS):
        found = ", ".join(map(str, given)) or "none"
        raise BadInput(where, "wrong parameters", key=key, value=found, allowed=_forms(kind.name))
    checked = {name: number(where, f"{key}.{name}", value, kind.LIMITS.get(name, "")) for name, value in given.items()}
    if kind is Uniform and not checked["least"] < checked["most"]:
        raise BadInput(where, "least must be below most", key=key, value=given)
    if kind is Pareto and "mean" in checked and checked["shape"] <= 1:
        raise BadInput(where, "infinite mean", key=f"{key}.shape", value=given["shape"], allowed="> 1")
    return kind.build(checked)


def _modified(where: object, key: str, inner: Distribution, modifiers: Mapping[str, object]) -> Distribution:
    factor = number(where, f"{key}.times", modifiers.get("times", 1.0), "> 0")
    low, high = (
        None if modifiers.get(word) is None else number(where, f"{key}.{word}", modifiers[word])
        for word in ("at_least", "at_most")
    )
    made = Shaped(inner, low, high, factor)
    if made.share < 1e-6:
        problem = "fewer than 1 in 1,000,000 values are within at_least and at_most"
        raise BadInput(where, problem, key=key, value=modifiers)
    return made


def _check(where: object, key: str, value: object, made: Distribution, need_mean: bool, at_least: float | None) -> None:
    if at_least is not None and made.support[0] < at_least:
        allowed = f"values of {at_least:g} or more, by at_least"
        raise BadInput(where, f"has values below {at_least:g}", key=key, value=value, allowed=allowed)
    if not need_mean:
        return
    if made.mean is None:
        raise BadInput(where, "no finite mean", key=key, value=value, allowed="a finite mean, by at_most")
    if at_least is not None and made.mean <= at_least:
        raise BadInput(where, f"mean out of range: must be above {at_least:g}", key=key, value=value)


def _empirical(where: object, key: str, given: Mapping[str, object], folder: Path) -> Empirical:
    if set(given) == {"file"} and isinstance(given["file"], str):
        return read_empirical(folder / given["file"])
    if "values" not in given or not set(given) <= {"values", "weights"}:
        found = ", ".join(map(str, given)) or "none"
        raise BadInput(where, "wrong parameters", key=key, value=found, allowed=_forms("empirical"))
    values, weights = given["values"], given.get("weights")
    if not isinstance(values, list | tuple) or not values:
        raise BadInput(where, "no values", key=f"{key}.values", value=values, allowed="a list of numbers")
    if weights is None:
        weights = [1.0] * len(values)
    if not isinstance(weights, list | tuple) or len(weights) != len(values):
        raise BadInput(where, "wrong number of weights", key=f"{key}.weights", value=weights)
    pairs = zip(values, weights, strict=True)
    rows = [(f"{key}.values.{place}", (one, weight)) for place, (one, weight) in enumerate(pairs)]
    return _checked_empirical(where, [(at, number(where, at, v), number(where, at, w)) for at, (v, w) in rows])


def read_empirical(path: Path) -> Empirical:
    """Reads a CSV of `value` or `value,weight`; skips a heading with these names, blank lines and lines with #."""
    rows = [(f"line {line}", *_row(path, line, cells)) for line, cells in csv_rows(path, ("value", "weight"))]
    return _checked_empirical(path, rows)


def _row(path: Path, line: int, cells: list[str]) -> tuple[float, float]:
    if len(cells) > 2:
        raise BadInput(path, "more than two columns", key=f"line {line}", value=cells, allowed="value or value,weight")
    numbers = csv_numbers(path, line, cells)
    return numbers[0], numbers[1] if len(numbers) == 2 else 1.0


def _checked_empirical(where: object, rows: Sequence[tuple[str, float, float]]) -> Empirical:
    for at, value, weight in rows:
        if value < 0 or weight < 0:
            raise BadInput(where, "negative", key=at, value=min(value, weight), allowed="0 or more")
    if not sum(weight for _, _, weight in rows):
        raise BadInput(where, "all weights are 0")
    return Empirical(tuple(value for _, value, _ in rows), tuple(weight for _, _, weight in rows))


def csv_rows(path: Path, heading: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Line numbers and cells of a small CSV, without its heading, blank lines and comments."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(path, f"cannot be read: {error}") from None
    rows: list[tuple[int, list[str]]] = []
    for line, cells in enumerate(csv.reader(text.splitlines()), start=1):
        stripped = [cell.strip() for cell in cells]
        if not any(stripped) or stripped[0].startswith("#"):
            continue
        if not rows and tuple(cell.lower() for cell in stripped) == heading[: len(stripped)]:
            continue
        rows.append((line, stripped))
    if not rows:
        raise BadInput(path, "no values", allowed=",".join(heading))
    return rows


def csv_numbers(path: Path, line: int, cells: list[str]) -> list[float]:
    found = []
    for cell in cells:
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadInput(path, "not a number", key=f"line {line}", value=cell)
        found.append(value)
    return found


# --- gaps ----------------------------------------------------------------------------------------------------------


def parse_arrivals(where: object, key: str, value: object, *, folder: Path = Path()) -> Distribution | None:
    """Parses a stream's arrivals: None for even gaps, else the distribution of the relative gaps."""
    if value == "even":
        return None
    if value == "poisson":
        return Exponential(1.0)
    if not isinstance(value, Mapping):
        allowed = "even, poisson, or a distribution of gaps"
        raise BadInput(where, "invalid arrivals", key=key, value=value, allowed=allowed)
    return parse(where, key, value, folder=folder, need_mean=True, at_least=0)


def gap_table(distribution: Distribution, entries: int = GAP_ENTRIES) -> list[int]:
    """Makes Leg.gap_table: relative gaps in ascending order with a mean of exactly 1, drawn at random.

    They are quantiles of the distribution, rescaled: gaps rarer than one in `entries` are not among them.
    """
    return sorted(relative_gaps(distribution.quantiles(entries)))
