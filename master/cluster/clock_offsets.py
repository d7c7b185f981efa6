"""Nodes' clocks against the master's: from readings before, at the start and after a run to an offset at any time.

Between two readings the offset is taken to move evenly, so a steady drift is removed; beyond the first or the last one
it may have moved by DRIFT, which makes the bound wider.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product

DRIFT = 100e-6
"""How fast two free clocks may part: crystals of 50 ppm, each on the wrong side."""


@dataclass(frozen=True)
class Clocks:
    """Host → what was read of its clock before the run, in nanoseconds: CLOCK_MONOTONIC less the master's, how far off
    that may be, and CLOCK_REALTIME less CLOCK_MONOTONIC."""

    offsets_ns: dict[str, int] = field(default_factory=dict)
    bounds_ns: dict[str, int] = field(default_factory=dict)
    realtime_ns: dict[str, int] = field(default_factory=dict)

    def between(self, source: str, target: str) -> int:
        """What makes the target's clock the source's. KeyError: one of the two was not read."""
        return self.offsets_ns[source] - self.offsets_ns[target]


@dataclass(frozen=True)
class Reading:
    """`offset_ns`: a node's CLOCK_MONOTONIC less the master's at `at_ns` of the master's, to ± `bound_ns`.

    A bound of 0: the two are one clock, which cannot drift from itself."""

    at_ns: int
    offset_ns: int
    bound_ns: int


def parted(readings: Iterable[Reading], checks: Iterable[Reading] = ()) -> tuple[int, int] | None:
    """Where two readings, or a reading and a check, are further apart than two free clocks part in that time: by how
    much the clock moved against the master's, and in how long. The worst of all pairs; None: there is none.

    A clock that is steered hard, or a virtual machine that was halted; nobody knows how it went between the two."""
    known = list(readings)
    pairs = [sorted(pair, key=lambda one: one.at_ns) for pair in product(known, [*known, *checks])]
    one, other = max(pairs, key=lambda pair: _beyond_ns(*pair), default=(None, None))
    if one is None or other is None or _beyond_ns(one, other) <= 0:
        return None
    return other.offset_ns - one.offset_ns, other.at_ns - one.at_ns


def _beyond_ns(one: Reading, other: Reading) -> int:
    """How much further the second is from the first than their bounds and DRIFT explain."""
    explained_ns = one.bound_ns + other.bound_ns + round((other.at_ns - one.at_ns) * DRIFT)
    return abs(other.offset_ns - one.offset_ns) - explained_ns


def off_the_line_ns(readings: Iterable[Reading], checks: Iterable[Reading]) -> int:
    """By how much checks in between contradict what `readings` say of their times, beyond what bounds explain."""
    known = list(readings)
    compared = [(check, offset_at(known, check.at_ns)) for check in checks]
    return max(
        (abs(c.offset_ns - line.offset_ns) - c.bound_ns - line.bound_ns for c, line in compared if line is not None),
        default=0,
    )


def offset_at(readings: Iterable[Reading], at_ns: int) -> Reading | None:
    """The offset at that time with its bound; None without a reading."""
    near = sorted(readings, key=lambda one: one.at_ns)
    if not near:
        return None
    before = [_aged(one, at_ns) for one in near if one.at_ns <= at_ns]
    after = [_aged(one, at_ns) for one in near if one.at_ns > at_ns]
    best = min(before + after, key=lambda one: one.bound_ns)
    if before and after:
        between = _between(_best(near, at_ns, earlier=True), _best(near, at_ns, earlier=False), at_ns)
        best = min(best, between, key=lambda one: one.bound_ns)
    return best


def _best(readings: list[Reading], at_ns: int, earlier: bool) -> Reading:
    """Returns the reading on one side of `at_ns` with the smallest bound at that time."""
    side = [one for one in readings if (one.at_ns <= at_ns) == earlier]
    return min(side, key=lambda one: _aged(one, at_ns).bound_ns)


def _aged(one: Reading, at_ns: int) -> Reading:
    drift_ns = round(abs(at_ns - one.at_ns) * DRIFT) if one.bound_ns else 0
    return Reading(at_ns, one.offset_ns, one.bound_ns + drift_ns)


def _between(first: Reading, last: Reading, at_ns: int) -> Reading:
    """On the line between two readings: as far off as the worse of the two, taken by their weights."""
    part = (at_ns - first.at_ns) / (last.at_ns - first.at_ns)
    offset_ns = first.offset_ns + round((last.offset_ns - first.offset_ns) * part)
    return Reading(at_ns, offset_ns, round(first.bound_ns * (1 - part) + last.bound_ns * part))
