"""Compressed video: frames of three kinds in a group-of-pictures pattern."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from pktswarm.traffic.random.parse import Distribution, Lognormal, Shaped, times
from pktswarm.traffic.sources.base import RTP_BYTES, UDP_BYTES, Continuous, Items, checked, law, parameter
from pktswarm.traffic.sources.processes import Spells, Steering, ticks

CELL_PAYLOAD_BYTES = 48


def _pattern(value: Any) -> str | None:
    return value if isinstance(value, str) and value[:1] == "I" and not set(value) - set("IPB") else None


@dataclass(frozen=True, kw_only=True)
class Mpeg(Continuous):
    """After NetSpec (Lee 1998): video frame sizes, by kind. RTP over UDP, one flow a user (or session).

    i_bytes, p_bytes, b_bytes: lognormal cells of 48 bytes; mu 5.1968, 3.7380, 2.8687 and sigma 0.2016, 0.5961, 0.2675:
    Krunz, Sass and Hughes 1995 (The Wizard of Oz); figures from the literature, not checked against the paper.
    gop: 15 frames, 3 from one reference frame to the next: the same.
    frames_a_second: 30: the same.
    """

    gop: str = checked("IBBPBBPBBPBBPBB", _pattern, "letters I, P and B that begin with I")
    frames_a_second: float = parameter(30.0)
    i_bytes: Distribution = law(Shaped(Lognormal(5.1968, 0.2016), times=CELL_PAYLOAD_BYTES))
    p_bytes: Distribution = law(Shaped(Lognormal(3.7380, 0.5961), times=CELL_PAYLOAD_BYTES))
    b_bytes: Distribution = law(Shaped(Lognormal(2.8687, 0.2675), times=CELL_PAYLOAD_BYTES))

    name: ClassVar[str] = "mpeg"
    transport_bytes: ClassVar[int] = UDP_BYTES + RTP_BYTES

    def _sizes(self) -> dict[str, Distribution]:
        return {"I": self.i_bytes, "P": self.p_bytes, "B": self.b_bytes}

    def item_rates(self) -> list[tuple[float, Distribution]]:
        each = self.ticks_a_second(1 / self.frames_a_second) / len(self.gop)
        return [(each * self.gop.count(kind), size) for kind, size in self._sizes().items() if kind in self.gop]

    def scaled(self, factor: float) -> Self:
        """Scales the frame sizes if there are no session arrivals to scale."""
        more = super().scaled(factor)
        sizes: dict[str, Any] = {f"{kind.lower()}_bytes": times(size, factor) for kind, size in self._sizes().items()}
        return replace(self, **sizes) if more is None else more

    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        frame_s = 1 / self.frames_a_second
        begin_s = -self.lead_s() - frame_s
        spells = self.spells(draws, users, duration_s, steering, begin_s)
        if not self.steerable:  # each user at a random place in the pattern
            phase = draws.random(users) * len(self.gop) * frame_s
            spells = Spells(spells.user, spells.begin_s - phase, spells.end_s)
        session, number, start_s = ticks(spells, frame_s, begin_s, duration_s)
        kinds = np.frombuffer(self.gop.encode(), np.uint8)[number % len(self.gop)]
        size = np.empty(kinds.size)
        for kind, distribution in self._sizes().items():
            which = kinds == ord(kind)
            size[which] = distribution.draw(draws, int(which.sum()))
        return Items(start_s, size, spells.user[session], session)
