"""When a node's UTC was set during a run: its CLOCK_REALTIME less its CLOCK_MONOTONIC is constant but for that.

NTP and PTP that only steer a clock's rate move both alike. The two are read together with each reading of the clock,
with each sample, and when a node's kernel reports that the clock was set.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """Times are nanoseconds of the master's CLOCK_MONOTONIC."""

    by_ns: int | None
    """Net change: a kernel does not report how often the clock was set, and it can have been further away meanwhile.
    None: it was set and set back, or by less than the readings resolve."""
    after_ns: int
    before_ns: int

    def describe(self, start_ns: int) -> str:
        begun_s, ended_s = (self.after_ns - start_ns) / 1e9, (self.before_ns - start_ns) / 1e9
        times = f"between {begun_s:.2f} s and {ended_s:.2f} s after the start"
        by = "and set back" if self.by_ns is None else f"by {self.by_ns / 1e9:+,.6f} s in all"
        return f"its UTC was set {by} {times}"


@dataclass
class UtcSteps:
    """Steps of one clock, from its successive readings."""

    found: list[Step] = field(default_factory=list)
    _known: tuple[int, int] | None = None
    """The closest reading since the last step, and how far off it may be."""
    _at_ns: int = 0
    _asked_ns: int = 0
    """Up to here all that is known to have been set is in `found`."""

    def take(self, at_ns: int, realtime_minus_monotonic_ns: int, within_ns: int, was_set: bool | None = None) -> None:
        """`within_ns`: error bound of the reading, because the two clocks are not read at one instant. `was_set`:
        whether the clock was set since the last report of this flag; None: not checked."""
        known, reading = self._known, (realtime_minus_monotonic_ns, within_ns)
        if known is None or within_ns < known[1]:
            self._known = reading
        if known is not None and abs(moved_ns := reading[0] - known[0]) > within_ns + known[1]:
            self.found.append(Step(moved_ns, self._at_ns, at_ns))
            self._known = reading
        elif was_set and not any(step.before_ns > self._asked_ns for step in self.found):
            self.found.append(Step(None, self._at_ns, at_ns))
        self._at_ns = at_ns
        if was_set is not None:
            self._asked_ns = at_ns
