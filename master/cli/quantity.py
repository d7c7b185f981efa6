"""Option values with units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput


def quantity(option: str, unit: units.Unit, limits: units.Range = units.ANY) -> Callable[[Any], float]:
    """The parser of an option's value. It raises BadInput naming the option."""

    def value(given: Any) -> float:
        try:
            return units.parse(given, unit, limits)
        except units.UnitError as error:
            raise BadInput(option, error.problem, value=given, allowed=error.allowed) from None

    return value


def time_option(option: str, limits: units.Range = units.ANY) -> Callable[[Any], float]:
    return quantity(option, units.SECONDS, limits)


NOT_NEGATIVE = units.Range(least=0)
