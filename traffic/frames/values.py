"""The value of a field as a scenario writes it: constant, varying, or wrong on purpose (`off_by`).

docs/headers.md describes the forms to users; traffic.frames.template executes varying values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard, cast

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.headers import Field
from pktswarm.traffic.frames.template import Mode

FORMS = ("increment", "decrement", "random", "list", "pick")
BESIDE = {
    "increment": {"step", "every", "with", "wrap"},
    "decrement": {"step", "every", "with", "wrap"},
    "random": {"step"},
    "list": {"every", "with", "wrap"},
    "pick": {"weights"},
}
"""Form → the keys allowed beside it. (A message of its own refuses a step of a random field.)"""
ALLOWED = (
    "{increment: [first, last], step: 1}, {decrement: [first, last]}, {random: [first, last]}, {list: [one, two]} or "
    "{pick: [one, two], weights: [5, 1]}; all but random and pick also with: another field, or every: n frames"
)
MOST_VALUES = 65536
"""Largest number of values of a list, and largest sum of weights after division by their common divisor."""
MOST_EVERY = 2**32
WRONG_ON_PURPOSE = ("checksum", "length")


def check_value(name: str, field: Field, value: object, where: object, place: str) -> None:
    """BadInput for a value that the field `name` cannot have; check_link checks `with`."""
    if not isinstance(value, dict):
        parse(field, value, where, place)
    elif "off_by" in value:
        _check_off_by(name, field, value, where, place)
    else:
        _check_varying(field, value, where, place)


def parse(field: Field, value: object, where: object, place: str) -> int:
    try:
        return field.parse(value)
    except ValueError as error:
        problem = "out of range" if "out of range" in str(error) else f"not {_article(field)}"
        raise BadInput(where, problem, key=place, value=value, allowed=field.allowed) from None


def _article(field: Field) -> str:
    return {"mac": "a MAC address", "ipv4": "an IPv4 address", "ipv6": "an IPv6 address"}.get(field.kind, "a number")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_off_by(name: str, field: Field, value: Mapping[str, object], where: object, place: str) -> None:
    if not field.auto or name not in WRONG_ON_PURPOSE:
        raise BadInput(where, "off_by is not possible here", key=place, allowed="computed checksums and lengths")
    by = value["off_by"]
    # 0xffff is 0 to an Internet checksum: off by 0xffff it is right.
    most = field.largest - (name == "checksum")
    if len(value) > 1 or not _is_whole(by) or not 1 <= abs(by) <= most:
        allowed = f"{{off_by: N}}, N from -{most} to {most} without 0"
        raise BadInput(where, "invalid off_by", key=place, value=value, allowed=allowed)


def _check_varying(field: Field, value: Mapping[str, object], where: object, place: str) -> None:
    forms = [form for form in FORMS if form in value]
    if len(forms) != 1 or set(value) - {forms[0]} - BESIDE[forms[0]]:
        raise BadInput(where, "invalid varying value", key=place, value=value, allowed=ALLOWED)
    _check_turns(value, where, place)
    if forms[0] in ("list", "pick"):
        _check_list(field, forms[0], value, where, place)
    else:
        _check_range(field, forms[0], value, where, place)


def _check_turns(value: Mapping[str, object], where: object, place: str) -> None:
    every = value.get("every", 1)
    if not _is_whole(every) or not 1 <= every <= MOST_EVERY or ("every" in value and "with" in value):
        allowed = f"1 to {MOST_EVERY} frames, and not beside with"
        raise BadInput(where, "out of range", key=f"{place}.every", value=every, allowed=allowed)
    if "wrap" in value and ("with" not in value or value["wrap"] is not True):
        raise BadInput(where, "invalid value", key=f"{place}.wrap", value=value["wrap"], allowed="true, beside with")


def _check_range(field: Field, form: str, value: Mapping[str, object], where: object, place: str) -> None:
    ends, step = value[form], value.get("step", 1)
    if not isinstance(ends, list) or len(ends) != 2:
        raise BadInput(where, "not a range", key=f"{place}.{form}", value=ends, allowed="[first, last]")
    first, last = (parse(field, end, where, f"{place}.{form}.{i}") for i, end in enumerate(ends))
    if (first < last) if form == "decrement" else (first > last):
        allowed = "the larger value first" if form == "decrement" else "the smaller value first"
        raise BadInput(
            where, "the ends of the range are in the wrong order", key=f"{place}.{form}", value=ends, allowed=allowed
        )
    if form == "random" and "step" in value:
        raise BadInput(where, "a random range takes no step", key=f"{place}.step", value=step, allowed="leave it out")
    largest = max(1, abs(last - first))
    if not _is_whole(step) or not 1 <= step <= largest:
        allowed = f"a whole number from 1 to {largest}"
        raise BadInput(where, "step out of range", key=f"{place}.step", value=step, allowed=allowed)


def _check_list(field: Field, form: str, value: Mapping[str, object], where: object, place: str) -> None:
    given = value[form]
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_VALUES:
        number = len(given) if isinstance(given, list) else given
        allowed = f"[one, two, …] with 1 to {MOST_VALUES} values"
        raise BadInput(where, "not a list of values", key=f"{place}.{form}", value=number, allowed=allowed)
    for index, one in enumerate(given):
        parse(field, one, where, f"{place}.{form}.{index}")
    if "weights" in value:
        _check_weights(value["weights"], len(given), where, f"{place}.weights")


def _check_weights(weights: object, number: int, where: object, place: str) -> None:
    if not isinstance(weights, list) or len(weights) != number or any(not _is_whole(w) or w < 1 for w in weights):
        allowed = f"a list of {number} whole numbers from 1, one for each value"
        raise BadInput(where, "invalid weights", key=place, value=weights, allowed=allowed)
    total = number_of_places(weights)
    if total > MOST_VALUES:
        allowed = f"a sum of up to {MOST_VALUES}, after division by the common divisor"
        raise BadInput(where, f"the sum of the weights is {total}", key=place, allowed=allowed)


def check_link(
    variation: Variation, value: Mapping[str, object], known: Mapping[str, int], where: object, place: str
) -> None:
    """`known`: name of each varying field that `with` may name → the number of its values."""
    other = value["with"]
    if not isinstance(other, str) or other not in known:
        allowed = ", ".join(known) or "none"
        raise BadInput(where, "no such varying field", key=f"{place}.with", value=other, allowed=allowed)
    own = variation.values
    if own > known[other] or (own < known[other] and "wrap" not in value):
        allowed = "as many, or fewer with wrap: true"
        raise BadInput(where, f"{other} has {known[other]} values", key=place, value=f"{own} values", allowed=allowed)


# --- read ----------------------------------------------------------------------------------------------------------


def off_by(value: object) -> int:
    """The difference from the right value that a field has on purpose; 0 if none."""
    return int(value["off_by"]) if isinstance(value, dict) and "off_by" in value else 0


@dataclass(frozen=True)
class Variation:
    """A checked varying value as numbers."""

    mode: Mode
    first: int
    last: int
    """First and last value; of a list the smallest and the largest."""
    listed: tuple[int, ...] = ()
    step: int = 1
    weights: tuple[int, ...] = ()
    link: str = ""
    """The name of the field that it moves with."""
    every: int = 1

    @classmethod
    def of(cls, field: Field, value: Mapping[str, object]) -> Variation:
        mode = cast(Mode, next(form for form in FORMS if form in value))
        numbers = tuple(field.parse(entry) for entry in cast(Sequence[object], value[mode]))
        in_list = mode in ("list", "pick")
        return cls(
            mode,
            min(numbers) if in_list else numbers[0],
            max(numbers) if in_list else numbers[1],
            numbers if in_list else (),
            cast(int, value.get("step", 1)),
            tuple(cast(Sequence[int], value.get("weights", ()))),
            str(value.get("with", "")),
            cast(int, value.get("every", 1)),
        )

    @property
    def values(self) -> int:
        """The number of its values."""
        return len(self.listed) or abs(self.last - self.first) // self.step + 1

    def keeps_low_bits(self, bits: int) -> bool:
        """Whether it is a counter whose lowest `bits` bits are constant."""
        counts = self.mode in ("increment", "decrement")
        return counts and (self.first == self.last or self.step % (1 << bits) == 0)


def number_of_places(weights: Sequence[int]) -> int:
    return sum(weights) // math.gcd(*weights)


def places(weights: Sequence[int]) -> tuple[int, ...]:
    """Each place in a list as many times as its weight, divided by the common divisor of all weights."""
    common = math.gcd(*weights)
    return tuple(place for place, often in enumerate(weights) for _ in range(often // common))
