"""The longest burst at the maximum rate that a device takes without loss: a search of its own (RFC 9004, 5.2)."""

from __future__ import annotations

import math

FIRST_SHARE = 16
"""A search begins with so small a part of the longest burst that may be sent."""
GROWTH = 4


class BurstSearch:
    """`next` says how many frames to send, `take` is told what came of it. Lengths in frames.

    Bursts grow until one loses frames. A queue in front of something that forwards at a steady rate passes on of a
    burst that is too long what it holds, and a part of the rest: two such bursts tell both, and so how long a burst it
    takes whole; for the first one the part is `share`, the throughput's of the maximum rate, less than 1. The search
    goes there first, and only then by halves. `parts`: so many senders share a burst, each to a whole frame.
    """

    def __init__(self, longest: int, share: float, precision: float, parts: int = 1) -> None:
        self.longest, self.share, self.precision, self.parts = longest, share, precision, parts
        self.held, self.lost = 0, longest + 1
        """The longest that was taken whole, and the shortest that was not."""
        self._too_long: dict[int, int] = {}
        """Burst that lost frames → how many it passed on."""
        self._by_halves = False

    @property
    def over_the_limit(self) -> bool:
        """No burst that may be sent was too long."""
        return self.held > self.longest - self.parts

    @property
    def step(self) -> int:
        """Bounds that are so close are close enough (RFC 9004's minimum step size)."""
        return self._step(self.lost)

    def _step(self, frames: float) -> int:
        return max(1 if self.parts == 1 else 2 * self.parts, math.ceil(self.precision * frames))

    def next(self) -> int | None:
        """None: the search is over, `held` is what it found."""
        if self.over_the_limit or self.lost - self.held <= self.step:
            return None
        if not self._too_long:
            return min(self.longest, GROWTH * self.held or max(self.parts, self.longest // FIRST_SHARE))
        if not self._by_halves:
            guess = self._guess()
            around = max(0.5, self._step(guess) / 2 - 1)  # so that both bounds there are close enough
            for wanted in (math.floor(guess - around), math.ceil(guess + around)):
                if self.held < wanted < self.lost:
                    return wanted
        return (self.held + self.lost) // 2

    def take(self, frames: int, lost: int) -> None:
        """Of a burst of `frames`, of which the device lost some or none."""
        before = self.held, self.lost
        if not lost:
            self.held = max(self.held, frames)
        else:
            self.lost = min(self.lost, frames)
            self._too_long[frames] = frames - lost
        # Parts are rounded: a burst may have the length of one before.
        self._by_halves = before == (self.held, self.lost)

    def _guess(self) -> float:
        """Where as much comes out as goes in, by the two shortest that were too long."""
        (frames, passed), *others = sorted(self._too_long.items())[:2]
        share = self.share
        if others:
            longer, more = others[0]
            share = min(max(0.0, (more - passed) / (longer - frames)), self.share)
        return (passed - frames * share) / (1 - share)
