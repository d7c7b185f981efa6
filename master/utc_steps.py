"""When a node's UTC was set during a run: its CLOCK_REALTIME less its CLOCK_MONOTONIC is constant but for that.

NTP and PTP that only steer a clock's rate move both alike. The two are read together with each reading of the clock and
with each sample, so a step is known to the distance of two samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """Times are nanoseconds of the master's CLOCK_MONOTONIC."""

    by_ns: int
    after_ns: int
    before_ns: int

    def words(self, start_ns: int) -> str:
        begun_s, ended_s = (self.after_ns - start_ns) / 1e9, (self.before_ns - start_ns) / 1e9
        times = f"between {begun_s:.2f} s and {ended_s:.2f} s after the start"
        return f"its UTC was set by {self.by_ns / 1e9:+,.6f} s {times}"


@dataclass
class UtcSteps:
    """Of one clock, as it is read again and again."""

    found: list[Step] = field(default_factory=list)
    _known: tuple[int, int] | None = None
    """The closest reading since the last step, and how far off it may be."""
    _at_ns: int = 0

    def take(self, at_ns: int, realtime_minus_monotonic_ns: int, within_ns: int) -> None:
        """`within_ns`: how far off the reading may be, because the two clocks were not read at one instant."""
        known, reading = self._known, (realtime_minus_monotonic_ns, within_ns)
        if known is None or within_ns < known[1]:
            self._known = reading
        if known is not None and abs(moved_ns := reading[0] - known[0]) > within_ns + known[1]:
            self.found.append(Step(moved_ns, self._at_ns, at_ns))
            self._known = reading
        self._at_ns = at_ns

    @property
    def spread_ns(self) -> int:
        """Between the earliest and the latest that it said of one instant."""
        place, places = 0, [0]
        for step in self.found:
            place += step.by_ns
            places.append(place)
        return max(places) - min(places)
