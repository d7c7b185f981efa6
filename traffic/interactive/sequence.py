"""TCP sequence numbers without wrap-around, and the received ranges of a stream."""

from __future__ import annotations

from dataclasses import dataclass, field

SPAN, HALF = 1 << 32, 1 << 31


@dataclass
class Unwrapped:
    """Unwraps 32-bit numbers: each becomes the nearest to the one before it."""

    last: int | None = None

    def of(self, number: int) -> int:
        if self.last is None:
            self.last = number
        self.last += (number - self.last + HALF) % SPAN - HALF
        return self.last


@dataclass
class Coverage:
    """The received bytes; `upto` is the first missing one."""

    upto: int
    beyond: list[tuple[int, int]] = field(default_factory=list)
    """Ranges received ahead of a gap: [start, end), ascending and disjoint."""

    def add(self, start: int, end: int) -> None:
        ahead = [*self.beyond, (start, end)] if end > start else self.beyond
        self.beyond = []
        for first, last in sorted(ahead):
            if first <= self.upto:
                self.upto = max(self.upto, last)
            elif self.beyond and first <= self.beyond[-1][1]:
                self.beyond[-1] = (self.beyond[-1][0], max(last, self.beyond[-1][1]))
            else:
                self.beyond.append((first, last))
