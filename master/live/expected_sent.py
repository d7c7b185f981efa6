"""The number of frames of a leg that are due by a given time."""

from __future__ import annotations

import numpy as np

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.records import GAP_TABLE_BITS

NS = 1e9


class ExpectedSent:
    """Due frames of a stream with a rate. `at` returns None for any other leg: only its schedule has its due times."""

    def __init__(self, leg: Leg) -> None:
        self.total = None if leg.held else leg.intended_packets
        own_pace = leg.kind == "stream" and leg.sequence_file is None and leg.echo_of is None
        steps = leg.rates or ([[0, leg.rate_pps]] if leg.rate_pps else [])
        self.is_known = not leg.held and own_pace and bool(steps) and self.total is not None
        self.gap_variation = float(np.std(leg.gap_table)) / (1 << GAP_TABLE_BITS) if leg.gap_table else 0.0
        """Coefficient of variation of random gaps; 0 of regular ones."""
        if self.is_known:
            self._from_ns, self._pps = (np.array(column, dtype=float) for column in zip(*steps, strict=True))
            self._before = np.concatenate([[0.0], np.cumsum(self._pps[:-1] * np.diff(self._from_ns) / NS)])
            self._period_ns = leg.rates_period_ns

    def forget(self) -> None:
        """The rate was changed: the due frames are not known any more."""
        self.is_known, self.total = False, None

    def at(self, time_ns: int) -> int | None:
        """Returns the frames due `time_ns` after the start."""
        if not self.is_known or self.total is None:
            return None
        if time_ns <= 0:
            return 0
        periods, rest_ns = divmod(time_ns, self._period_ns) if self._period_ns else (0, time_ns)
        packets = self._in_period(rest_ns)
        if periods and self._period_ns:
            packets += periods * self._in_period(self._period_ns)
        return min(self.total, round(packets))

    def _in_period(self, time_ns: float) -> float:
        step = int(np.searchsorted(self._from_ns, time_ns, side="right")) - 1
        return float(self._before[step] + self._pps[step] * (time_ns - self._from_ns[step]) / NS)
