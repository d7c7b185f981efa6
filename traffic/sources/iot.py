"""IoT devices with periodic reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pktswarm.traffic.random.parse import Distribution, Empirical, Pareto, Shaped
from pktswarm.traffic.sources.base import UDP_BYTES, Items, Source, law
from pktswarm.traffic.sources.counts import quantile_table
from pktswarm.traffic.sources.processes import Steering, ragged

COAP_BYTES = 4
"""The fixed header (RFC 7252, section 3)."""
SHORTEST_INTERVAL_S = 1e-3


@dataclass(frozen=True, kw_only=True)
class Iot(Source):
    """Periodic reports; CoAP over UDP, one flow per device. A user is a device with its own interval and phase.

    interval_s: 40 % of devices once a day, 40 % every 2 hours, 15 % every hour, 5 % every 30 minutes; report_bytes:
    Pareto, shape 2.5, 20 to 200 bytes: 3GPP TR 45.820, annex E.2, mobile autonomous reporting (periodic reports).
    """

    interval_s: Distribution = law(
        Empirical((86_400.0, 7_200.0, 3_600.0, 1_800.0), (40.0, 40.0, 15.0, 5.0)), at_least=SHORTEST_INTERVAL_S
    )
    report_bytes: Distribution = law(Shaped(Pareto(2.5, 20.0), at_most=200.0))

    name: ClassVar[str] = "iot"
    transport_bytes: ClassVar[int] = UDP_BYTES + COAP_BYTES
    arrival_field: ClassVar[str] = "interval_s"

    def item_rates(self) -> list[tuple[float, Distribution]]:
        return [(float((1 / quantile_table(self.interval_s)).mean()), self.report_bytes)]

    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        interval_s = self.interval_s.draw(draws, users) / steering.peak
        first = draws.random(users) * interval_s
        counts = np.ceil(np.maximum(duration_s - first, 0) / interval_s).astype(np.int64)
        user, place = ragged(counts)
        start_s = first[user] + place * interval_s[user]
        kept = steering.kept(draws, start_s)
        user, start_s = user[kept], start_s[kept]
        return Items(start_s, self.report_bytes.draw(draws, user.size), user, user)
