"""What a node tells while a run goes, as it travels: lists in a fixed order, for names would be most of what is sent.

All figures are since the start; bytes are without FCS. None: the engine does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Figures = Mapping[str, int | None]
SENT = ("sent_packets", "sent_bytes")
RECEIVED = (
    "packets",
    "bytes",
    "missing",
    "duplicated",
    "reordered",
    "altered",
    "latency_packets",
    "latency_sum_ns",
    "latency_min_ns",
    "latency_max_ns",
)
"""Missing: of the numbers up to the highest that has come, those that have not. Latencies: how many, their sum, and the
least and greatest so far, by the clocks as they were read before the run."""


def pack(legs: Mapping[int, Figures]) -> dict[str, list[list[int | None]]]:
    """`legs`: as engines sample them. A node that echoes tells what it sent and what it received."""
    return {"sent": _packed(legs, SENT), "received": _packed(legs, RECEIVED)}


def unpack(message: Mapping[str, Any], way: str) -> dict[int, dict[str, int | None]]:
    """`way`: "sent" or "received"; leg → its figures, all of SENT or RECEIVED."""
    names = SENT if way == "sent" else RECEIVED
    width = len(names)
    padded = {leg: [*told, *[None] * (width - len(told))] for leg, *told in message[way]}
    return {leg: dict(zip(names, told, strict=True)) for leg, told in padded.items()}


def _packed(legs: Mapping[int, Figures], names: tuple[str, ...]) -> list[list[int | None]]:
    told = {leg: [figures.get(name) for name in names] for leg, figures in legs.items() if names[0] in figures}
    return [[leg, *_without_nothing(values)] for leg, values in told.items()]


def _without_nothing(values: list[int | None]) -> list[int | None]:
    """At the end: what is not told there need not travel."""
    while values and values[-1] is None:
        values.pop()
    return values
