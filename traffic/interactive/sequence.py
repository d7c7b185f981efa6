"""TCP sequence numbers without their wrap, and which bytes of a stream are there."""

from __future__ import annotations

from dataclasses import dataclass, field

SPAN, HALF = 1 << 32, 1 << 31


@dataclass
class Unwrapped:
    """32-bit numbers as whole ones: each is taken as the nearest to the one before it."""

    last: int | None = None

    def of(self, number: int) -> int:
        if self.last is None:
            self.last = number
        self.last += (number - self.last + HALF) % SPAN - HALF
        return self.last


@dataclass
class Coverage:
    """Bytes that came, from `upto` on: `upto` is the first that is missing."""

    upto: int
    beyond: list[tuple[int, int]] = field(default_factory=list)
    """What came ahead of a gap: [start, end), in order, apart from each other."""

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
