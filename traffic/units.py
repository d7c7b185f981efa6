"""Numbers with units: the one parser of scenarios, inventories and command-line options. docs/units.md has the table.

A plain number has the unit of its key. k, M, G and T are powers of 1000 in every unit; Ki, Mi and Gi are powers of
1024 and belong to sizes. A spelling that people read in two ways is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*)?")
KILO, KIBI = 1000, 1024
PREFIXES = {"": 1, "k": KILO, "K": KILO, "M": KILO**2, "G": KILO**3, "T": KILO**4}
BARE = {prefix: factor for prefix, factor in PREFIXES.items() if prefix}
LOWER = {"m": KILO**2, "g": KILO**3, "t": KILO**4}
"""Lower case before a whole unit word, as in mbit of tc(8)."""

Factors = Mapping[str, Fraction]


class UnitError(ValueError):
    """A value that is no number of its unit, or out of range. `allowed`: the allowed forms, or the range."""

    def __init__(self, problem: str, allowed: str) -> None:
        self.problem, self.allowed = problem, allowed
        super().__init__(f"{problem} (allowed: {allowed})")


@dataclass(frozen=True)
class Unit:
    """A unit. `symbol`: the unit of a plain number; `noun`: the quantity; `factors`: spelling → plain units.

    `forms`: the spellings and an example, for messages. `ambiguous`: refused spelling → the reason.
    """

    symbol: str
    noun: str
    factors: Factors = field(repr=False)
    forms: str
    ambiguous: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def allowed(self) -> str:
        return f"a number{f' of {self.symbol}' if self.symbol else ''}{f', or {self.forms}' if self.forms else ''}"

    @property
    def pattern(self) -> str:
        """The regular expression of a text, for JSON Schemas."""
        spellings = "|".join(re.escape(one) for one in sorted(self.factors, key=lambda one: (-len(one), one)))
        return rf"^\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?(\s*({spellings}))?\s*$"


def _fractions(factors: Mapping[str, int | Fraction]) -> Factors:
    return {spelling: Fraction(factor) for spelling, factor in factors.items()}


def _prefixed(*words: str) -> dict[str, int]:
    return {prefix + word: factor for word in words for prefix, factor in (PREFIXES | LOWER).items()}


_M_READINGS = {"m": "m is mega, milli or minutes", "g": "write G", "t": "write T"}
_BYTES_NOT_BITS = {
    f"{prefix}{word}": "B is bytes, and the value is in bits"
    for prefix in PREFIXES | LOWER
    for word in ("B", "Bps", "B/s", "byte/s")
}
_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_BYTES = {
    **{"B": 1, "byte": 1, "bytes": 1},
    **{f"{prefix}{word}": PREFIXES[prefix] for prefix in ("k", "M", "G", "T") for word in ("", "B")},
    **{f"{prefix}i{word}": KIBI**power for power, prefix in enumerate("KMG", 1) for word in ("", "B")},
}
_TWO_SIZES = {"K": "K is 1000 or 1024", "KB": "KB is 1000 or 1024 bytes"}
_BITS_NOT_BYTES = {
    prefix + word: "b is bits, and the value is in bytes"
    for prefix in PREFIXES | LOWER
    for word in ("b", "bit", "bits")
}

PLAIN = Unit("", "a number", {}, "")
COUNT = Unit("", "a number", _fractions(BARE), "with k, M, G: 64k, 1.5M", _M_READINGS)
PACKETS = Unit(
    "packets",
    "a number of packets",
    _fractions(BARE | {"packet": 1, "packets": 1}),
    "with k, M, G: 64k, 1.5M",
    _M_READINGS,
)
PACKET_RATE = Unit(
    "packets/s",
    "a packet rate",
    _fractions(BARE | _prefixed("pps", "packets/s") | {"/s": 1}),
    "with pps, kpps, Mpps, Gpps, k, M, G: 1kpps, 1.5M",
    _M_READINGS,
)
BIT_RATE = Unit(
    "bit/s",
    "a bit rate",
    _fractions(BARE | _prefixed("bit", "bit/s") | {prefix + "bps": factor for prefix, factor in PREFIXES.items()}),
    "with bit, kbit, Mbit, Gbit, bit/s, bps, Mbps, k, M, G: 10M, 1gbit, 2.5 Gbit/s",
    _M_READINGS
    | _BYTES_NOT_BITS
    | dict.fromkeys(("mbps", "gbps", "tbps"), "tc(8) reads bytes/s; write Mbps or mbit")
    | {"b": "write bit", "Mb": "write Mbit", "Gb": "write Gbit", "kb": "write kbit"},
)
PER_SECOND = Unit(
    "per second", "a rate", _fractions(BARE | {"/s": 1, "k/s": KILO, "M/s": KILO**2}), "with /s, k, M: 1k, 50/s"
)
SECONDS = Unit(
    "s",
    "a time",
    _SECONDS,
    "with ns, us, ms, s, min, h, d: 20us, 1.5 ms, 2min",
    {"m": "m is minutes or milli", "M": "write min", "sec": "write s"},
)
BYTES = Unit(
    "bytes",
    "a size",
    _fractions(_BYTES),
    "with B, k, kB, M, MB (powers of 1000), Ki, KiB, Mi, MiB (powers of 1024): 64k, 9 kB, 16MiB",
    _TWO_SIZES | _BITS_NOT_BYTES | {"m": "write M", "g": "write G"},
)
PERCENT = Unit("%", "a percentage", _fractions({"%": 1}), "with %: 5 %")
SHARE_PATTERN = r"^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*%\s*$"
"""A percentage with its sign, for JSON Schemas."""


def _scaled(unit: Unit, symbol: str, spelling: str) -> Unit:
    """The same quantity with another unit of plain numbers."""
    base = unit.factors[spelling]
    return replace(unit, symbol=symbol, factors={name: factor / base for name, factor in unit.factors.items()})


MILLISECONDS, MICROSECONDS, NANOSECONDS, HOURS = (_scaled(SECONDS, name, name) for name in ("ms", "us", "ns", "h"))
MEBIBYTES = _scaled(BYTES, "MiB", "MiB")
MEGABITS = _scaled(BIT_RATE, "Mbit/s", "Mbit/s")
KINDS = (PACKET_RATE, BIT_RATE, SECONDS, BYTES, PERCENT)
"""The units by which a message names the quantity of a wrong spelling."""
SUFFIXES = {
    "per_s": PER_SECOND,
    "pps": PACKET_RATE,
    "bps": BIT_RATE,
    "ns": NANOSECONDS,
    "us": MICROSECONDS,
    "ms": MILLISECONDS,
    "s": SECONDS,
    "h": HOURS,
    "bytes": BYTES,
    "packets": PACKETS,
}
"""The last word of a key → its unit."""


def unit_of(key: str) -> Unit:
    """The unit that the end of a key's name gives; PLAIN without one."""
    words = next((words for words in SUFFIXES if key == words or key.endswith(f"_{words}")), None)
    return PLAIN if words is None else SUFFIXES[words]


@dataclass(frozen=True)
class Range:
    """The allowed values in the plain unit. `above` and `below` are excluded, `least` and `most` included."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    whole: bool = False
    multiple: int | None = None

    def holds(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def describe(self, unit: Unit = PLAIN) -> str:
        """The range in words: more than 0, up to 3600 s."""
        words = []
        if self.least is not None and self.most is not None:
            words = [f"{_text(self.least)} to {_text(self.most)}"]
        else:
            words += [f"{_text(self.least)} or more"] if self.least is not None else []
            words += [f"more than {_text(self.above)}"] if self.above is not None else []
            words += [f"up to {_text(self.most)}"] if self.most is not None else []
        words += [f"below {_text(self.below)}"] if self.below is not None else []
        return ", ".join(words) + (f" {unit.symbol}" if unit.symbol else "")


ANY = Range()


def parse(value: Any, unit: Unit, limits: Range = ANY) -> float:
    """The number in the plain unit: an int where `limits.whole`. Raises UnitError."""
    exact = _exact(value, unit)
    if limits.whole:
        if exact.denominator != 1:
            whole = f"a whole number{f' of {unit.symbol}' if unit.symbol else ''}"
            raise UnitError("not a whole number", f"{whole}{f', {limits.describe(unit)}' if limits != ANY else ''}")
        number: float = int(exact)
    else:
        number = float(exact)
    if not limits.holds(number):
        raise UnitError("out of range", limits.describe(unit))
    if limits.multiple is not None and exact % limits.multiple:
        raise UnitError("out of range", f"a multiple of {limits.multiple}, {limits.describe(unit)}")
    return number


def share(value: Any) -> Fraction:
    """A percentage with its sign, as a share of 1. A plain number could be packets. Raises UnitError."""
    if not isinstance(value, str) or is_number(value):
        raise UnitError("not a percentage", "a number with its sign: 0.1 %")
    part = _of_text(value.strip(), PERCENT)
    if part < 0:
        raise UnitError("out of range", "0 % or more")
    return part / 100


def is_number(value: Any, unit: Unit = PLAIN) -> bool:
    try:
        _exact(value, unit)
    except UnitError:
        return False
    return True


def _exact(value: Any, unit: Unit) -> Fraction:
    if isinstance(value, str):
        return _of_text(value.strip(), unit)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UnitError(f"not {unit.noun}", unit.allowed)
    return Fraction(value)


def _of_text(text: str, unit: Unit) -> Fraction:
    match = NUMBER.fullmatch(text)
    if match is None or len(text) > 100 or (exponent := _exponent(match[1])) is None:
        raise UnitError(f"not {unit.noun}", unit.allowed)
    number = Fraction(match[1]) if exponent else Fraction(0)
    spelling = match[2] or ""
    if not spelling:
        return number
    if spelling in unit.factors:
        return number * unit.factors[spelling]
    if spelling in unit.ambiguous:
        raise UnitError(f"ambiguous unit {spelling!r}: {unit.ambiguous[spelling]}", unit.allowed)
    other = next((kind for kind in KINDS if spelling in kind.factors and spelling not in BARE), None)
    if other is not None:
        raise UnitError(f"wrong unit: {spelling!r} is of {other.noun}, not of {unit.noun}", unit.allowed)
    raise UnitError(f"unknown unit {spelling!r}", unit.allowed)


def _exponent(text: str) -> bool | None:
    """Whether the number is in the range of a float; None: it is not. A Fraction of 1e999999999 fills the memory."""
    value = float(text)
    return None if math.isinf(value) else value != 0


def _text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:g}"
