"""Frame sizes (one, a list in turn, or several by weight, FCS included) and bit rates as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.placement import LEAST_SIZE_BYTES

LARGEST_SIZE_BYTES = 9618
MOST_SIZES = 255
SIMPLE_IMIX = ((64, 7), (594, 4), (1518, 1))
"""The simple IMIX: IP packets of 40, 576 and 1500 bytes, 7 to 4 to 1, in Ethernet frames; see docs/xdp.md."""
ALLOWED = (
    f"a whole number from {LEAST_SIZE_BYTES} to {LARGEST_SIZE_BYTES}, a list of them, imix, {{size: weight, …}} or "
    "{uniform: [smallest, largest]}"
)
FORMS = {
    "anyOf": [
        {"type": "integer", "minimum": LEAST_SIZE_BYTES, "maximum": LARGEST_SIZE_BYTES},
        {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_SIZES,
            "items": {"type": "integer", "minimum": LEAST_SIZE_BYTES, "maximum": LARGEST_SIZE_BYTES},
        },
        {"const": "imix"},
        {"type": "string", "pattern": units.BYTES.pattern},
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": MOST_SIZES,
            "patternProperties": {r"^\d+$": {"type": "integer", "minimum": 1}},
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "uniform": {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "integer"}},
            },
            "required": ["uniform"],
            "additionalProperties": False,
        },
    ]
}
"""JSON Schema of a frame size."""


@dataclass(frozen=True)
class Sizes:
    """`pairs`: (size, weight). Sizes are drawn by weight, or sent `in_turn`, each as many times as its weight."""

    pairs: tuple[tuple[int, int], ...]
    in_turn: bool = False

    @property
    def smallest(self) -> int:
        return min(size for size, _ in self.pairs)

    @property
    def largest(self) -> int:
        return max(size for size, _ in self.pairs)

    @property
    def mean_bytes(self) -> float:
        return sum(size * weight for size, weight in self.pairs) / sum(weight for _, weight in self.pairs)


def in_bytes(given: Any) -> Any:
    """The value of size_bytes with sizes that have units as numbers; other values as they are."""
    if isinstance(given, list):
        return [in_bytes(size) for size in given]
    if isinstance(given, dict):
        return {key: in_bytes(value) if key == "uniform" else value for key, value in given.items()}
    if not isinstance(given, str) or not units.is_number(given, units.BYTES):
        return given
    size = units.parse(given, units.BYTES)
    return int(size) if size.is_integer() else size


def parse_sizes(given: Any) -> Sizes:
    """Parses the value of size_bytes. ValueError with one message for an invalid one."""
    given = in_bytes(given)
    if isinstance(given, list):
        return _checked(((size, 1) for size in given), in_turn=True)
    if given == "imix":
        return Sizes(SIMPLE_IMIX)
    if isinstance(given, dict):
        return _uniform(given["uniform"]) if set(given) == {"uniform"} else _weighted(given)
    return _checked([(given, 1)])


def _checked(pairs: Iterable[tuple[Any, Any]], in_turn: bool = False) -> Sizes:
    made = tuple(pairs)
    if not 1 <= len(made) <= MOST_SIZES:
        raise ValueError(f"{len(made)} sizes; allowed: 1 to {MOST_SIZES}")
    for size, weight in made:
        if not _is_whole(size) or not LEAST_SIZE_BYTES <= size <= LARGEST_SIZE_BYTES:
            raise ValueError(f"invalid size {size!r}; allowed: {ALLOWED}")
        if not _is_whole(weight) or weight < 1:
            raise ValueError(f"invalid weight {weight!r} of size {size}; allowed: a whole number from 1")
    return Sizes(made, in_turn)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _weighted(given: dict[Any, Any]) -> Sizes:
    """Keys are strings in a scenario in JSON."""
    return _checked((int(size) if str(size).isdigit() else size, weight) for size, weight in given.items())


def _uniform(ends: Any) -> Sizes:
    """Every size of the range, or MOST_SIZES in even steps with both ends."""
    if not isinstance(ends, list) or len(ends) != 2:
        raise ValueError(f"invalid range {ends!r}; allowed: uniform: [smallest, largest]")
    first, last = (pair[0] for pair in _checked((end, 1) for end in ends).pairs)
    if first > last:
        raise ValueError(f"invalid range {ends!r}; allowed: the smaller size first")
    steps = min(last - first, MOST_SIZES - 1)
    return Sizes(tuple((first + round(step * (last - first) / max(1, steps)), 1) for step in range(steps + 1)))


# --- bit rates ---


def rate_bps(where: object, key: str, text: str) -> int:
    """Parses a rate in bit/s with its unit. BadInput for an invalid one."""
    try:
        if units.is_number(text):
            raise units.UnitError("a rate without a unit", units.BIT_RATE.forms)
        return round(units.parse(text, units.BIT_RATE, units.Range(above=0)))
    except units.UnitError as error:
        raise BadInput(where, error.problem, key=key, value=text, allowed=error.allowed) from None
