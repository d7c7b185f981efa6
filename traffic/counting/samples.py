"""What a node tells while a run goes, as it travels: lists in a fixed order, for names would be most of what is sent.

All figures are since the start; bytes are without FCS. None: the engine does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping

Figures = Mapping[str, int | None]
Packed = list[list[int | None]]
"""A row for each leg: its number, then its figures; those at the end that are None are left out."""
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


def pack(legs: Mapping[int, Figures]) -> tuple[Packed, Packed]:
    """The figures sent and the figures received. `legs`: as engines sample them; a node that echoes has both."""
    return _packed(legs, SENT), _packed(legs, RECEIVED)


def unpack(packed: Packed, names: tuple[str, ...]) -> dict[int, dict[str, int | None]]:
    """Leg → its figures. `names`: SENT or RECEIVED."""
    width = len(names)
    rows = {row[0] or 0: row[1:] for row in packed}
    return {leg: dict(zip(names, [*row, *[None] * (width - len(row))], strict=True)) for leg, row in rows.items()}


def _packed(legs: Mapping[int, Figures], names: tuple[str, ...]) -> Packed:
    told = {leg: [figures.get(name) for name in names] for leg, figures in legs.items() if names[0] in figures}
    return [[leg, *_without_nothing(values)] for leg, values in told.items()]


def _without_nothing(values: list[int | None]) -> list[int | None]:
    """At the end: what is not told there need not travel."""
    while values and values[-1] is None:
        values.pop()
    return values
