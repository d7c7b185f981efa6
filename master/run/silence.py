"""How long rank 0 has reported nothing: a frozen process keeps its connection open."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

LONGEST_S = 4.5
"""Rank 0 reports four times a second that it lives. With all patience it is given up after so long."""
MOST_BETWEEN_LOOKS_S = 0.5
"""The most that counts of the time between two looks: a command line that stood still is not rank 0's silence."""


@dataclass
class SilenceTimer:
    """Counts only time in which the command line looked for reports."""

    silent_s: float = 0.0
    _looked_at: float = field(default_factory=lambda: time.monotonic())

    def look(self, reported: bool) -> None:
        now = time.monotonic()
        self.silent_s = 0.0 if reported else self.silent_s + min(now - self._looked_at, MOST_BETWEEN_LOOKS_S)
        self._looked_at = now

    def is_over(self, patience: float) -> bool:
        return self.silent_s > LONGEST_S * patience
