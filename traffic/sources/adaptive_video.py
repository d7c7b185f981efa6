"""Adaptive video on demand: segments at the bit rates of a ladder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from pktswarm.traffic.ragged import repeat
from pktswarm.traffic.random.parse import Distribution, Floats, Gamma, times
from pktswarm.traffic.sources.base import Continuous, Items, checked, law, parameter
from pktswarm.traffic.sources.processes import Ints, Spells, Steering, running_sums, ticks


def _ladder(value: Any) -> tuple[float, ...] | None:
    if not isinstance(value, list | tuple) or not value:
        return None
    plain = all(isinstance(one, int | float) and not isinstance(one, bool) and one > 0 for one in value)
    return tuple(float(one) for one in value) if plain else None


def _half(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and 0 <= value <= 0.5 else None


@dataclass(frozen=True, kw_only=True)
class AdaptiveVideo(Continuous):
    """A segment every `segment_s`, sent at the rate of the link. TCP, one flow per user (or session).

    ladder_bps: the variants that Apple's HLS Authoring Specification suggests for H.264; from the literature, not
    checked against it.
    segment_s: 6: the same.
    switch: the probability of one rung up before a segment, and of one down: 0.1, chosen. At the ladder's ends the
    rung stays, so all are equally frequent.
    variation: a segment's size by that of its rung, gamma, mean 1, standard deviation 0.2: chosen.
    startup_segments: fetched at once when a session begins, 3: the distance RFC 8216, section 6.3.3, has a player keep.
    """

    ladder_bps: tuple[float, ...] = checked(
        (145e3, 365e3, 730e3, 1.1e6, 2e6, 3e6, 4.5e6, 6e6, 7.8e6), _ladder, "a list of bit rates above 0"
    )
    segment_s: float = parameter(6.0)
    switch: float = checked(0.1, _half, "0 to 0.5")
    variation: Distribution = law(Gamma(25.0, 0.04))
    startup_segments: int = checked(
        3, lambda value: value if isinstance(value, int) and value >= 1 else None, "a whole number, 1 or more"
    )

    name: ClassVar[str] = "adaptive_video"

    def item_rates(self) -> list[tuple[float, Distribution]]:
        each = self._segments_a_second() / len(self.ladder_bps)
        return [(each, times(self.variation, rung * self.segment_s / 8)) for rung in self.ladder_bps]

    def _segments_a_second(self) -> float:
        more = 0.0 if self.session_gap_s is None else (self.startup_segments - 1) / float(self.session_gap_s.moment(1))
        return self.ticks_a_second(self.segment_s) + more

    def scaled(self, factor: float) -> Self:
        """Scales the ladder if there are no session arrivals to scale."""
        more = super().scaled(factor)
        return replace(self, ladder_bps=tuple(r * factor for r in self.ladder_bps)) if more is None else more

    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        begin_s = -self.lead_s() - self.segment_s
        spells = self.spells(draws, users, duration_s, steering, begin_s)
        if not self.steerable:
            spells = Spells(spells.user, spells.begin_s - draws.random(users) * self.segment_s, spells.end_s)
        session, number, start_s = ticks(spells, self.segment_s, begin_s, duration_s)
        if self.steerable:
            session, start_s = self._with_startup(session, number, start_s)
        rate = np.array(self.ladder_bps)[self._rungs(draws, session)]
        size = rate * (self.segment_s / 8) * self.variation.draw(draws, session.size)
        return Items(start_s, size, spells.user[session], session)

    def _with_startup(self, session: Ints, number: Ints, start_s: Floats) -> tuple[Ints, Floats]:
        often = np.where(number == 0, self.startup_segments, 1)
        return repeat(session, often), repeat(start_s, often)

    def _rungs(self, draws: np.random.Generator, session: Ints) -> Ints:
        """An unbounded walk folded onto the ladder, which equals one that stays at the ends."""
        count = len(self.ladder_bps)
        u = draws.random(session.size)
        steps = (u < self.switch).astype(float) - (u > 1 - self.switch)
        place = np.diff(session, prepend=-1) == 0
        steps = np.where(place, steps, draws.integers(0, 2 * count, session.size))
        walk = running_sums(steps, session, place.astype(np.int64)).astype(np.int64) % (2 * count)
        return np.where(walk < count, walk, 2 * count - 1 - walk)
