"""Cumulative figures of one reporter, and their rates over a window."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from pktswarm.traffic.protocol.task import FCS_BYTES

WINDOW_NS = 1_000_000_000
"""Width of the window; samples farther apart widen it to the last two."""
Figures = Mapping[str, int | None]
N = TypeVar("N", int, float)


class RateWindow:
    """Reports of one leg at one of its ends, or of one interface. Times are since the start."""

    def __init__(self) -> None:
        self._reports: deque[tuple[int, Figures]] = deque()

    def take(self, at_ns: int, figures: Figures) -> None:
        self._reports.append((at_ns, figures))
        while len(self._reports) > 2 and at_ns - self._reports[1][0] >= WINDOW_NS:
            self._reports.popleft()

    @property
    def at_ns(self) -> int:
        return self._reports[-1][0]

    def last(self, name: str) -> int | None:
        return self._reports[-1][1].get(name)

    def change(self, name: str) -> int | None:
        """Returns the change over the window; None unless both of its ends report the figure."""
        first, last = self._reports[0][1].get(name), self.last(name)
        return None if len(self._reports) < 2 or first is None or last is None else last - first

    def rate(self, name: str) -> float | None:
        """Returns the change a second."""
        change, took_ns = self.change(name), self.at_ns - self._reports[0][0]
        return None if change is None or took_ns <= 0 else change * 1e9 / took_ns

    def packet_and_bit_rate(self, packets: str, frame_bytes: str) -> tuple[float | None, float | None]:
        """Returns packets/s, and bit/s with FCS of a byte count without."""
        pps, byte_rate = self.rate(packets), self.rate(frame_bytes)
        return pps, None if pps is None or byte_rate is None else 8 * (byte_rate + FCS_BYTES * pps)


def combine(values: Iterable[N | None], how: Callable[[Iterable[N]], N] = sum) -> N | None:
    """Combines `values`; None if there are none or one of them is None: a sum without a part would be wrong."""
    found = list(values)
    return None if not found or None in found else how([value for value in found if value is not None])
