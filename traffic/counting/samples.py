"""Samples of a node during a run, encoded as lists in a fixed order, which are shorter than names.

All figures count from the start; bytes are without FCS. None: the engine does not report the figure.
"""

from __future__ import annotations

from collections.abc import Mapping

Figures = Mapping[str, int | None]
Packed = list[list[int | None]]
"""A row for each leg: its number, then its figures without those at the end that are None."""
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
"""`missing`: sequence numbers up to the highest received one that have not been received. Latencies use the clock
offsets measured before the run."""


def pack(legs: Mapping[int, Figures]) -> tuple[Packed, Packed]:
    """Encodes (figures sent, figures received). `legs`: the figures of the engines; a node that echoes has both."""
    return _packed(legs, SENT), _packed(legs, RECEIVED)


def unpack(packed: Packed, names: tuple[str, ...]) -> dict[int, dict[str, int | None]]:
    """Decodes leg → its figures. `names`: SENT or RECEIVED."""
    width = len(names)
    rows = {row[0] or 0: row[1:] for row in packed}
    return {leg: dict(zip(names, [*row, *[None] * (width - len(row))], strict=True)) for leg, row in rows.items()}


def _packed(legs: Mapping[int, Figures], names: tuple[str, ...]) -> Packed:
    rows = {leg: [figures.get(name) for name in names] for leg, figures in legs.items() if names[0] in figures}
    return [[leg, *_trimmed(values)] for leg, values in rows.items()]


def _trimmed(values: list[int | None]) -> list[int | None]:
    """The values without None at the end."""
    while values and values[-1] is None:
        values.pop()
    return values
