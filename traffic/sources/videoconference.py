"""Videoconferences: frames of correlated sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from pktswarm.traffic.random.parse import Distribution, Gamma, Shaped, times
from pktswarm.traffic.sources.base import RTP_BYTES, UDP_BYTES, Continuous, Items, checked, law, parameter
from pktswarm.traffic.sources.mpeg import CELL_PAYLOAD_BYTES
from pktswarm.traffic.sources.processes import Spells, Steering, ticks

CELLS_MEAN, CELLS_VARIANCE = 130.3, 5536.0


def _share(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and 0 <= value < 1 else None


@dataclass(frozen=True, kw_only=True)
class Videoconference(Continuous):
    """After NetSpec (Lee 1998): frame size. RTP over UDP, one flow a user (or session).

    picture_bytes: gamma cells of 48 bytes, mean 130.3, variance 5536; frames_a_second: 25; correlation: 0.984 from
    frame to frame, as DAR(1): a frame is as large as the one before with this probability, else drawn anew. Model and
    figures: Heyman, Tabatabai and Lakshman 1992; figures from the literature, not checked against the paper.
    """

    frames_a_second: float = parameter(25.0)
    picture_bytes: Distribution = law(
        Shaped(Gamma(CELLS_MEAN**2 / CELLS_VARIANCE, CELLS_VARIANCE / CELLS_MEAN), times=CELL_PAYLOAD_BYTES)
    )
    correlation: float = checked(0.984, _share, "0 or more and below 1")

    name: ClassVar[str] = "videoconference"
    transport_bytes: ClassVar[int] = UDP_BYTES + RTP_BYTES

    def item_rates(self) -> list[tuple[float, Distribution]]:
        return [(self.ticks_a_second(1 / self.frames_a_second), self.picture_bytes)]

    def scaled(self, factor: float) -> Self:
        """Scales the frame sizes if there are no session arrivals to scale."""
        more = super().scaled(factor)
        return replace(self, picture_bytes=times(self.picture_bytes, factor)) if more is None else more

    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        frame_s = 1 / self.frames_a_second
        begin_s = -self.lead_s() - frame_s
        spells = self.spells(draws, users, duration_s, steering, begin_s)
        if not self.steerable:
            spells = Spells(spells.user, spells.begin_s - draws.random(users) * frame_s, spells.end_s)
        session, _, start_s = ticks(spells, frame_s, begin_s, duration_s)
        anew = (draws.random(session.size) >= self.correlation) | (np.diff(session, prepend=-1) != 0)
        drawn = self.picture_bytes.draw(draws, int(anew.sum()))
        return Items(start_s, drawn[np.cumsum(anew) - 1], spells.user[session], session)
