"""Web after NetSpec: one item per request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pktswarm.traffic.random.parse import Distribution, Exponential, Pareto, Shaped
from pktswarm.traffic.sources.base import Items, Source, law
from pktswarm.traffic.sources.processes import Steering, arrivals


@dataclass(frozen=True, kw_only=True)
class Www(Source):
    """After NetSpec (Lee 1998): request inter-arrival time and item size. TCP, one flow a request.

    request_gap_s: exponential, mean 10 s: chosen.
    item_bytes: Pareto. Its shape 1.2 is chosen, from the heavy tails (shape between 1 and 2) that Crovella and
    Bestavros 1997 measured; least 1000 bytes: chosen; at most 2 MB: the bound of 3GPP's web model (also table 1 of
    EURASIP JWCN 2012:287).
    """

    request_gap_s: Distribution = law(Exponential(10.0))
    item_bytes: Distribution = law(Shaped(Pareto(1.2, 1000.0), at_most=2e6))

    name: ClassVar[str] = "www"
    arrival_field: ClassVar[str] = "request_gap_s"

    def item_rates(self) -> list[tuple[float, Distribution]]:
        return [(1 / float(self.request_gap_s.moment(1)), self.item_bytes)]

    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        user, start_s = arrivals(draws, self.request_gap_s, users, -self.lead_s(), duration_s, steering)
        return Items(start_s, self.item_bytes.draw(draws, user.size), user, np.arange(user.size))
