"""Web over QUIC: pages of many objects on one connection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pktswarm.traffic.random.parse import Constant, Distribution, Exponential, Lognormal, Shaped
from pktswarm.traffic.sources.base import UDP_BYTES, Items, Source, law, parameter
from pktswarm.traffic.sources.counts import mean_count, whole_counts
from pktswarm.traffic.sources.processes import Steering, arrivals, ragged

QUIC_BYTES = 27
"""Short header (1 byte, connection ID of 8, packet number of 2: RFC 9000, section 17.3.1) and AEAD tag of 16."""
DATAGRAM_BYTES = 1200
"""Smallest allowed maximum datagram size (RFC 9000, section 14)."""
MAIN_MEDIAN_BYTES, PAGE_MEDIAN_BYTES, MEDIAN_REQUESTS = 18_000, 2_311_000, 66


@dataclass(frozen=True, kw_only=True)
class WebQuic(Source):
    """Pages: the server's handshake, a main object, then its embedded objects, all on one connection (flow).

    page_gap_s: exponential, mean 30 s: the reading time of 3GPP's web model.
    handshake_bytes: 3600, three times the client's first 1200: what a server may send before it knows the address
    (RFC 9000, section 8.1); that it sends all of it is chosen. rtt_s: to the main object, 50 ms: chosen.
    main_bytes: lognormal, median 18 kB (HTML of the median page, Web Almanac 2024), sigma 1.37 and at most 2 MB as in
    3GPP's web model.
    parse_s: from the main object to the others, exponential, mean 0.13 s: 3GPP's web model.
    objects: lognormal, median 65 (66 requests of the median mobile page, Web Almanac 2024), sigma 0.8 and at most 500:
    chosen.
    object_bytes: lognormal, mean 35 kB (2,311 kB of the median mobile page, Web Almanac 2024, over its objects), sigma
    1.5 and at most 5 MB: chosen. 3GPP's figures: table 1 of EURASIP JWCN 2012:287.
    """

    page_gap_s: Distribution = law(Exponential(30.0))
    handshake_bytes: float = parameter(3600.0)
    rtt_s: float = parameter(0.05)
    main_bytes: Distribution = law(Shaped(Lognormal(math.log(MAIN_MEDIAN_BYTES), 1.37), at_most=2e6))
    parse_s: Distribution = law(Exponential(0.13))
    objects: Distribution = law(Shaped(Lognormal(math.log(MEDIAN_REQUESTS - 1), 0.8), at_most=500.0))
    object_bytes: Distribution = law(
        Shaped(
            Lognormal(math.log((PAGE_MEDIAN_BYTES - MAIN_MEDIAN_BYTES) / (MEDIAN_REQUESTS - 1)) - 1.5**2 / 2, 1.5),
            at_most=5e6,
        )
    )

    name: ClassVar[str] = "web_quic"
    transport_bytes: ClassVar[int] = UDP_BYTES + QUIC_BYTES
    largest_payload: ClassVar[int] = DATAGRAM_BYTES - QUIC_BYTES
    arrival_field: ClassVar[str] = "page_gap_s"

    def item_rates(self) -> list[tuple[float, Distribution]]:
        pages = 1 / float(self.page_gap_s.moment(1))
        objects = pages * mean_count(self.objects)
        return [(pages, Constant(self.handshake_bytes)), (pages, self.main_bytes), (objects, self.object_bytes)]

    def lead_s(self) -> float:
        page_bytes = mean_count(self.objects) * float(self.object_bytes.moment(1))
        return super().lead_s() + 10 * (page_bytes * 8 / self.link_bps + self.rtt_s + float(self.parse_s.moment(1)))

    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        user, begin_s = arrivals(draws, self.page_gap_s, users, -self.lead_s(), duration_s, steering)
        main_s = begin_s + self.rtt_s
        page, _ = ragged(whole_counts(self.objects, draws, user.size))
        objects_s = (main_s + self.parse_s.draw(draws, user.size))[page]
        pages = np.arange(user.size)
        hello = np.full(user.size, self.handshake_bytes)
        sizes = hello, self.main_bytes.draw(draws, user.size), self.object_bytes.draw(draws, page.size)
        flow = np.concatenate([pages, pages, page])
        return Items(np.concatenate([begin_s, main_s, objects_s]), np.concatenate(sizes), user[flow], flow)
