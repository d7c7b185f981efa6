"""The addresses that a field of a header takes."""

from __future__ import annotations

from pktswarm.traffic.frames.address_set import Range
from pktswarm.traffic.frames.headers import HEADERS
from pktswarm.traffic.frames.values import Variation

MOST_STEPS = 4096
"""Values further than one apart that are listed; more of them are the range from the first to the last."""


def ranges_of(header: str, name: str, value: object) -> list[Range]:
    """The ranges of a field with IP addresses; `value` as in a scenario."""
    field = HEADERS[header].fields[name]
    version = 6 if field.kind == "ipv6" else 4
    if not isinstance(value, dict):
        number = field.parse(value)
        return [(version, number, number)]
    variation = Variation.of(field, value)
    if variation.listed:
        return [(version, number, number) for number in sorted(set(variation.listed))]
    first, last = sorted((variation.first, variation.last))
    if variation.step > 1 and variation.values <= MOST_STEPS:
        step = -variation.step if variation.mode == "decrement" else variation.step
        numbers = (variation.first + step * place for place in range(variation.values))
        return [(version, number, number) for number in sorted(numbers)]
    return [(version, first, last)]
