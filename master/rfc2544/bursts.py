"""The search for the longest burst at the maximum rate that a device forwards without loss (RFC 9004, 5.2)."""

from __future__ import annotations

import math

FIRST_SHARE = 16
"""Divisor of the longest allowed burst: the first burst of a search."""
GROWTH = 4
"""Factor between successive bursts until one loses frames."""


class BurstSearch:
    """`next` returns the length to try, and `take` processes its loss. Lengths in frames.

    Bursts grow until one loses frames. A queue before a steady forwarder forwards, of a burst that is too long, the
    frames that the queue holds and a share of the others. Two such bursts determine both numbers, and so the longest
    burst without loss; after the first one the share is `share`, throughput ÷ maximum rate, less than 1. The search
    tries the computed length first, and bisects if that does not move a bound. `parts`: number of senders, each of
    which sends a whole number of frames.
    """

    def __init__(self, longest: int, share: float, precision: float, parts: int = 1) -> None:
        self.longest, self.share, self.precision, self.parts = longest, share, precision, parts
        self.held, self.lost = 0, longest + 1
        """The longest burst without loss, and the shortest with loss."""
        self._too_long: dict[int, int] = {}
        """Length of a burst that lost frames → number of forwarded frames."""
        self._by_halves = False

    @property
    def over_the_limit(self) -> bool:
        """Whether the longest allowed burst lost nothing."""
        return self.held > self.longest - self.parts

    @property
    def step(self) -> int:
        """The distance of the bounds that ends the search (RFC 9004's minimum step size)."""
        return self._step(self.lost)

    def _step(self, frames: float) -> int:
        return max(1 if self.parts == 1 else 2 * self.parts, math.ceil(self.precision * frames))

    def next(self) -> int | None:
        """Return the next length; None: the search is over and `held` is its result."""
        if self.over_the_limit or self.lost - self.held <= self.step:
            return None
        if not self._too_long:
            return min(self.longest, GROWTH * self.held or max(self.parts, self.longest // FIRST_SHARE))
        if not self._by_halves:
            guess = self._guess()
            # Half a step on each side, so that two bounds there end the search.
            around = max(0.5, self._step(guess) / 2 - 1)
            for wanted in (math.floor(guess - around), math.ceil(guess + around)):
                if self.held < wanted < self.lost:
                    return wanted
        return (self.held + self.lost) // 2

    def take(self, frames: int, lost: int) -> None:
        """Process a burst of `frames`, of which the device lost `lost`."""
        before = self.held, self.lost
        if not lost:
            self.held = max(self.held, frames)
        else:
            self.lost = min(self.lost, frames)
            self._too_long[frames] = frames - lost
        # Parts are rounded, so that a burst can have the length of an earlier one.
        self._by_halves = before == (self.held, self.lost)

    def _guess(self) -> float:
        """The length at which nothing is lost, computed from the two shortest bursts that lost frames."""
        (frames, passed), *others = sorted(self._too_long.items())[:2]
        share = self.share
        if others:
            longer, more = others[0]
            share = min(max(0.0, (more - passed) / (longer - frames)), self.share)
        return (passed - frames * share) / (1 - share)
