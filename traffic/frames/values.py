"""The value of a field as a scenario writes it, checked and read: constant, varying, or wrong on purpose.

docs/headers.md describes the forms to users; traffic.frames.template executes what varies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

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
"""What may stand beside each form. (A step of a random field is refused by its own message.)"""
ALLOWED = (
    "{increment: [first, last], step: 1}, {decrement: [first, last]}, {random: [first, last]}, {list: [one, two]} or "
    "{pick: [one, two], weights: [5, 1]}; all but the drawn ones may go with: another field, or take every: n frames"
)
MOST_VALUES = 65536
"""A list has so many values at most, and weights add up to so much, their common divisor taken out."""
MOST_EVERY = 2**32
WRONG_ON_PURPOSE = ("checksum", "length")


def check_value(name: str, field: Field, value: Any, where: object, place: str) -> None:
    """Raises BadInput for what is no value of the field `name`. What `with` names is left to check_link."""
    if not isinstance(value, dict):
        parse(field, value, where, place)
    elif "off_by" in value:
        _check_off_by(name, field, value, where, place)
    else:
        _check_varying(field, value, where, place)


def parse(field: Field, value: Any, where: object, place: str) -> int:
    try:
        return field.parse(value)
    except ValueError as error:
        problem = "out of range" if "out of range" in str(error) else f"not {_article(field)}"
        raise BadInput(where, problem, key=place, value=value, allowed=field.allowed) from None


def _article(field: Field) -> str:
    return {"mac": "a MAC address", "ipv4": "an IPv4 address", "ipv6": "an IPv6 address"}.get(field.kind, "a number")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_off_by(name: str, field: Field, value: dict[str, Any], where: object, place: str) -> None:
    if not field.auto or name not in WRONG_ON_PURPOSE:
        raise BadInput(where, "it cannot be off", key=place, allowed="computed checksums and lengths")
    by = value["off_by"]
    # 0xffff is 0 to an Internet checksum: off by that much it would be right.
    most = field.largest - (name == "checksum")
    if len(value) > 1 or not _is_whole(by) or not 1 <= abs(by) <= most:
        allowed = f"{{off_by: N}}, from -{most} to {most}, and not 0"
        raise BadInput(where, "not a way to be wrong", key=place, value=value, allowed=allowed)


def _check_varying(field: Field, value: dict[str, Any], where: object, place: str) -> None:
    forms = [form for form in FORMS if form in value]
    if len(forms) != 1 or set(value) - {forms[0]} - BESIDE[forms[0]]:
        raise BadInput(where, "not a varying field", key=place, value=value, allowed=ALLOWED)
    _check_turns(value, where, place)
    if forms[0] in ("list", "pick"):
        _check_list(field, forms[0], value, where, place)
    else:
        _check_range(field, forms[0], value, where, place)


def _check_turns(value: dict[str, Any], where: object, place: str) -> None:
    every = value.get("every", 1)
    if not _is_whole(every) or not 1 <= every <= MOST_EVERY or ("every" in value and "with" in value):
        allowed = f"a whole number of frames, up to {MOST_EVERY}, and not beside with"
        raise BadInput(where, "no such stay", key=f"{place}.every", value=every, allowed=allowed)
    if "wrap" in value and ("with" not in value or value["wrap"] is not True):
        raise BadInput(where, "not understood", key=f"{place}.wrap", value=value["wrap"], allowed="true, beside with")


def _check_range(field: Field, form: str, value: dict[str, Any], where: object, place: str) -> None:
    ends, step = value[form], value.get("step", 1)
    if not isinstance(ends, list) or len(ends) != 2:
        raise BadInput(where, "not a range", key=f"{place}.{form}", value=ends, allowed="[first, last]")
    first, last = (parse(field, end, where, f"{place}.{form}.{i}") for i, end in enumerate(ends))
    if (first < last) if form == "decrement" else (first > last):
        allowed = "the larger value first" if form == "decrement" else "the smaller value first"
        raise BadInput(where, "the range is the wrong way round", key=f"{place}.{form}", value=ends, allowed=allowed)
    if form == "random" and "step" in value:
        raise BadInput(where, "a random field has no step", key=f"{place}.step", value=step, allowed="leave it out")
    largest = max(1, abs(last - first))
    if not _is_whole(step) or not 1 <= step <= largest:
        allowed = f"a whole number from 1 to {largest}"
        raise BadInput(where, "no such step", key=f"{place}.step", value=step, allowed=allowed)


def _check_list(field: Field, form: str, value: dict[str, Any], where: object, place: str) -> None:
    given = value[form]
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_VALUES:
        found = len(given) if isinstance(given, list) else given
        allowed = f"[one, two, …] with 1 to {MOST_VALUES} values"
        raise BadInput(where, "not a list of values", key=f"{place}.{form}", value=found, allowed=allowed)
    for index, one in enumerate(given):
        parse(field, one, where, f"{place}.{form}.{index}")
    if "weights" in value:
        _check_weights(value["weights"], len(given), where, f"{place}.weights")


def _check_weights(weights: Any, number: int, where: object, place: str) -> None:
    if not isinstance(weights, list) or len(weights) != number or any(not _is_whole(w) or w < 1 for w in weights):
        allowed = f"a whole number from 1 for each of the {number} values"
        raise BadInput(where, "not the weights of these values", key=place, value=weights, allowed=allowed)
    total = number_of_places(weights)
    if total > MOST_VALUES:
        allowed = f"weights that add up to at most {MOST_VALUES}, their common divisor taken out"
        raise BadInput(where, f"the weights add up to {total}", key=place, allowed=allowed)


def check_link(field: Field, value: dict[str, Any], known: dict[str, int], where: object, place: str) -> None:
    """`known`: how many values each varying field that it may go with has, by each name that it can be called by."""
    other = value["with"]
    if not isinstance(other, str) or other not in known:
        allowed = ", ".join(known) or "there is none"
        raise BadInput(where, "no such varying field", key=f"{place}.with", value=other, allowed=allowed)
    own = number_of_values(field, value)
    if own > known[other] or (own < known[other] and "wrap" not in value):
        allowed = "as many, or with wrap: true fewer"
        raise BadInput(where, f"{other} has {known[other]} values", key=place, value=f"{own} values", allowed=allowed)


# --- read ----------------------------------------------------------------------------------------------------------


def off_by(value: Any) -> int:
    """By how much a field is wrong on purpose; 0 if it is not."""
    return int(value["off_by"]) if isinstance(value, dict) and "off_by" in value else 0


def mode_of(value: dict[str, Any]) -> Mode:
    return cast(Mode, next(form for form in FORMS if form in value))


def ends_of(field: Field, value: dict[str, Any]) -> tuple[int, int]:
    """First and last value; of a list the smallest and the largest."""
    mode = mode_of(value)
    given = [field.parse(one) for one in value[mode]]
    return (min(given), max(given)) if mode in ("list", "pick") else (given[0], given[1])


def listed(field: Field, value: dict[str, Any]) -> tuple[int, ...]:
    mode = mode_of(value)
    return tuple(field.parse(one) for one in value[mode]) if mode in ("list", "pick") else ()


def number_of_values(field: Field, value: dict[str, Any]) -> int:
    if named := listed(field, value):
        return len(named)
    first, last = ends_of(field, value)
    return int(abs(last - first) // value.get("step", 1) + 1)


def number_of_places(weights: Sequence[int]) -> int:
    return sum(weights) // math.gcd(*weights)


def places(weights: Sequence[int]) -> tuple[int, ...]:
    """Each place in a list as often as its weight says, their common divisor taken out."""
    common = math.gcd(*weights)
    return tuple(place for place, often in enumerate(weights) for _ in range(often // common))
