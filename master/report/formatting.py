"""Formats figures with their units. A figure that was not measured is a dash, never 0."""

from __future__ import annotations

NOT_MEASURED = "–"


def count(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:,.0f}"


def percent(part: float | None, whole: float | None) -> str:
    """A share below 0.01 % keeps two significant digits."""
    if part is None or not whole:
        return NOT_MEASURED
    share = 100 * part / whole
    return f"{share:.2f} %" if share == 0 or abs(share) >= 0.01 else f"{share:.2g} %"


def ratio(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.6f}".rstrip("0").rstrip(".")


def microseconds(value_ns: float | None) -> str:
    return NOT_MEASURED if value_ns is None else f"{value_ns / 1e3:,.1f}"


def pps(value: float | None) -> str:
    return _scaled(value, "packets/s")


def bps(value: float | None) -> str:
    return _scaled(value, "bit/s")


def seconds(value_ns: float | None) -> str:
    return NOT_MEASURED if value_ns is None else f"{value_ns / 1e9:,.3f}"


def cpus(value: float | None) -> str:
    """The number of busy processors."""
    return NOT_MEASURED if value is None else f"{value:.2f}"


def _scaled(value: float | None, unit: str) -> str:
    """At least four digits, with an SI prefix."""
    if value is None:
        return NOT_MEASURED
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:,.3f} {prefix}{unit}"
    return f"{value:,.1f} {unit}"
