"""File transfers in sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pktswarm.traffic.random.parse import Distribution, Exponential, Geometric, Lognormal, Shaped
from pktswarm.traffic.sources.base import Items, Source, law
from pktswarm.traffic.sources.counts import mean_count, whole_counts
from pktswarm.traffic.sources.processes import Steering, arrivals, ragged, running_sums


@dataclass(frozen=True, kw_only=True)
class Ftp(Source):
    """After NetSpec (Lee 1998): session inter-arrival time, number of items, item size. TCP, one flow per session.

    session_gap_s: exponential, for user sessions arrive as a Poisson process (Paxson and Floyd 1995); the mean of
    180 s is the reading time of 3GPP's FTP model.
    items: geometric, mean 3: chosen.
    item_gap_s: from the start of one item to the next, exponential, mean 1 s: chosen, below the 4 s by which Paxson
    and Floyd 1995 part one burst of transfers from the next.
    item_bytes: lognormal, mu 14.45, sigma 0.35 (mean 2 MB, standard deviation 0.722 MB), at most 5 MB: 3GPP's FTP
    model (also table 1 of EURASIP JWCN 2012:287).
    """

    session_gap_s: Distribution = law(Exponential(180.0))
    items_a_session: Distribution = law(Geometric(1 / 3))
    item_gap_s: Distribution = law(Exponential(1.0))
    item_bytes: Distribution = law(Shaped(Lognormal(14.45, 0.35), at_most=5e6))

    name: ClassVar[str] = "ftp"
    arrival_field: ClassVar[str] = "session_gap_s"

    def item_rates(self) -> list[tuple[float, Distribution]]:
        return [(mean_count(self.items_a_session) / float(self.session_gap_s.moment(1)), self.item_bytes)]

    def lead_s(self) -> float:
        return super().lead_s() + 10 * mean_count(self.items_a_session) * float(self.item_gap_s.moment(1))

    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        user, begin_s = arrivals(draws, self.session_gap_s, users, -self.lead_s(), duration_s, steering)
        session, place = ragged(whole_counts(self.items_a_session, draws, user.size))
        gaps = np.where(place == 0, 0.0, self.item_gap_s.draw(draws, session.size))
        start_s = begin_s[session] + running_sums(gaps, session, place)
        return Items(start_s, self.item_bytes.draw(draws, session.size), user[session], session)
