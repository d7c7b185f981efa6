"""How many frames of a leg were to be sent by now."""

from __future__ import annotations

import numpy as np

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.records import GAP_TABLE_BITS

NS = 1e9


class Due:
    """Of a stream that has a rate; of all else only its schedule knows, and `at` gives None."""

    def __init__(self, leg: Leg) -> None:
        self.whole = leg.intended_packets
        own_pace = leg.kind == "stream" and leg.sequence_file is None and leg.echo_of is None
        steps = leg.rates or ([[0, leg.rate_pps]] if leg.rate_pps else [])
        self.known = own_pace and bool(steps) and self.whole is not None
        self.spread = float(np.std(leg.gap_table)) / (1 << GAP_TABLE_BITS) if leg.gap_table else 0.0
        """Of random gaps: their standard deviation, as a part of their mean."""
        if self.known:
            self._from_ns, self._pps = (np.array(column, dtype=float) for column in zip(*steps, strict=True))
            self._before = np.concatenate([[0.0], np.cumsum(self._pps[:-1] * np.diff(self._from_ns) / NS)])
            self._period_ns = leg.rates_period_ns

    def at(self, time_ns: int) -> int | None:
        """By `time_ns` since the start."""
        if not self.known or self.whole is None:
            return None
        if time_ns <= 0:
            return 0
        passes, rest_ns = divmod(time_ns, self._period_ns) if self._period_ns else (0, time_ns)
        packets = self._in_a_pass(rest_ns)
        if passes and self._period_ns:
            packets += passes * self._in_a_pass(self._period_ns)
        return min(self.whole, round(packets))

    def _in_a_pass(self, time_ns: float) -> float:
        place = int(np.searchsorted(self._from_ns, time_ns, side="right")) - 1
        return float(self._before[place] + self._pps[place] * (time_ns - self._from_ns[place]) / NS)
