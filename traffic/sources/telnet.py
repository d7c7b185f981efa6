"""Telnet: the keystrokes of a terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pktswarm.traffic.random.parse import Distribution, Exponential, Geometric, Lognormal, Pareto, Shaped
from pktswarm.traffic.sources.base import Items, Source, law, sessions
from pktswarm.traffic.sources.processes import Steering, renewals


@dataclass(frozen=True, kw_only=True)
class Telnet(Source):
    """After NetSpec (Lee 1998): session inter-arrival time and duration, packet inter-arrival time and size. TCP.

    session_gap_s: exponential, for user sessions arrive as a Poisson process (Paxson and Floyd 1995); mean 600 s:
    chosen.
    session_s: lognormal with a median of 110 s and a sigma of 2.24 ln 2: the 100 packets in the median, log2-normal
    with a standard deviation of 2.24, of Paxson and Floyd 1995, at their mean of 1.1 s a packet; at most 7200 s:
    chosen.
    packet_gap_s: Pareto with the shape 0.9 that Paxson and Floyd 1995 give for tcplib's; its bounds, 0.1 and 300 s, are
    chosen so that the mean is their 1.1 s.
    packet_bytes: geometric, mean 1.6: chosen, mostly one key a packet.
    A session's packets are stationary: the first comes after a residual gap.
    """

    session_gap_s: Distribution = law(Exponential(600.0))
    session_s: Distribution = law(Shaped(Lognormal(math.log(110), 2.24 * math.log(2)), at_most=7200.0))
    packet_gap_s: Distribution = law(Shaped(Pareto(0.9, 0.1), at_most=300.0))
    packet_bytes: Distribution = law(Geometric(1 / 1.6))

    name: ClassVar[str] = "telnet"
    arrival_field: ClassVar[str] = "session_gap_s"

    def item_rates(self) -> list[tuple[float, Distribution]]:
        share = float(self.session_s.moment(1)) / float(self.session_gap_s.moment(1))
        return [(share / float(self.packet_gap_s.moment(1)), self.packet_bytes)]

    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        found = sessions(draws, self.session_gap_s, self.session_s, users, duration_s, steering)
        begin_s = np.maximum(found.begin_s, 0.0)
        first = begin_s + self.packet_gap_s.residual(draws, begin_s.size)
        session, start_s = renewals(draws, self.packet_gap_s, first, np.minimum(found.end_s, duration_s))
        return Items(start_s, self.packet_bytes.draw(draws, session.size), found.user[session], session)
