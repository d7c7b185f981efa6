"""Checks of option values that the benchmarks share. Every error names the option, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable

from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.placement import LEAST_SIZE_BYTES
from pktswarm.traffic.frames.sizes import LARGEST_SIZE_BYTES

LONGEST_TRIAL_S = 3600.0
PRECISION = "0.01% to 50%"
LEAST_PRECISION, MOST_PRECISION = 0.0001, 0.5
WARNING = (
    "Only in an isolated test network, never in a network in use (RFC 6815): the device under test is overloaded on "
    "purpose, again and again."
)


def check_duration(where: object, key: str, seconds: float, longest_s: float, noun: str) -> None:
    """Raise BadInput for a duration that is not positive, or longer than `longest_s`."""
    if not 0 < seconds <= longest_s:
        allowed = f"more than 0, up to {longest_s:g} s"
        raise BadInput(where, f"{noun} duration out of range", key=key, value=seconds, allowed=allowed)


def frame_sizes(where: object, text: str) -> list[int]:
    """Parse the value of --sizes: bytes with FCS, in the given order, each once. Raises BadInput."""
    allowed = f"{LEAST_SIZE_BYTES} to {LARGEST_SIZE_BYTES} bytes with FCS, separated by commas"
    sizes = []
    for word in (part.strip() for part in text.split(",")):
        try:
            size = units.parse(word, units.BYTES, units.Range(LEAST_SIZE_BYTES, most=LARGEST_SIZE_BYTES, whole=True))
        except units.UnitError as error:
            problem = error.problem if "unit" in error.problem else "frame size out of range"
            raise BadInput(where, problem, key="--sizes", value=word, allowed=allowed) from None
        sizes.append(int(size))
    return list(dict.fromkeys(sizes))


def names(where: object, key: str, text: str, known: Iterable[str], noun: str) -> tuple[str, ...]:
    """Parse names separated by commas, in the given order, each once. Raises BadInput for a name not in `known`."""
    given, known = [word.strip() for word in text.split(",")], list(known)
    if unknown := [name for name in given if name not in known]:
        raise BadInput(where, f"there is no such {noun}", key=key, value=unknown[0], allowed=", ".join(known))
    return tuple(dict.fromkeys(given))


def percentage(where: object, key: str, text: str, allowed: str) -> float:
    """Parse 0 or a percentage, as a share of 1. A number without its sign is refused, as it could be packets."""
    try:
        return 0.0 if units.is_number(text) and not float(text) else float(units.share(text))
    except units.UnitError:
        raise BadInput(where, "not a percentage", key=key, value=text, allowed=allowed) from None


def precision(where: object, text: str) -> float:
    """Parse the value of --precision, as a share of 1. Raises BadInput."""
    share = percentage(where, "--precision", text, PRECISION)
    if not LEAST_PRECISION <= share <= MOST_PRECISION:
        raise BadInput(where, "precision out of range", key="--precision", value=text, allowed=PRECISION)
    return share
