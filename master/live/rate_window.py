"""Cumulative figures as they come, and their rates."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from pktswarm.traffic.protocol.task import FCS_BYTES

WINDOW_NS = 1_000_000_000
"""Rates are of about the last second, or of the last two samples where these are farther apart."""
Figures = Mapping[str, int | None]


class Track:
    """What was told of one leg at one of its ends, or of one interface. Times are since the start."""

    def __init__(self) -> None:
        self._told: deque[tuple[int, Figures]] = deque()

    def take(self, at_ns: int, figures: Figures) -> None:
        self._told.append((at_ns, figures))
        while len(self._told) > 2 and at_ns - self._told[1][0] >= WINDOW_NS:
            self._told.popleft()

    @property
    def at_ns(self) -> int:
        return self._told[-1][0]

    def last(self, name: str) -> int | None:
        return self._told[-1][1].get(name)

    def change(self, name: str) -> int | None:
        """Over the window; None for what was not told at both of its ends."""
        first, last = self._told[0][1].get(name), self.last(name)
        return None if len(self._told) < 2 or first is None or last is None else last - first

    def rate(self, name: str) -> float | None:
        """A second."""
        change, took_ns = self.change(name), self.at_ns - self._told[0][0]
        return None if change is None or took_ns <= 0 else change * 1e9 / took_ns


def together(values: Iterable[float | None], how: Callable[[list[float]], float] = sum) -> float | None:
    """None where one of them is not known, or there are none: a sum that lacks a part would be a wrong one."""
    known = list(values)
    return None if not known or None in known else how([one for one in known if one is not None])


def rates(track: Track, packets: str, frame_bytes: str) -> tuple[float | None, float | None]:
    """Packets/s and bit/s, the latter with FCS of counts without."""
    pps, byte_rate = track.rate(packets), track.rate(frame_bytes)
    return pps, None if pps is None or byte_rate is None else 8 * (byte_rate + FCS_BYTES * pps)
