"""Counts and response times of requests to the UPF."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from pktswarm.master.upf.document import RequestCounts, ResponseTimes
from pktswarm.traffic.counting.latency_histogram import HISTOGRAM_BITS, HISTOGRAM_BUCKETS, percentiles

FOLD_EVERY = 1 << 16


class Times:
    """Response times, ns, from a request's first transmission. Percentiles within 0.8 % (traffic.counting.tally)."""

    def __init__(self) -> None:
        self.count, self.sum_ns, self.min_ns, self.max_ns = 0, 0, 0, 0
        self._buckets = np.zeros(HISTOGRAM_BUCKETS, dtype=np.int64)
        self._recent = array("q")

    def add(self, value_ns: int) -> None:
        self._recent.append(value_ns)
        if len(self._recent) >= FOLD_EVERY:
            self._fold()

    def _fold(self) -> None:
        if not self._recent:
            return
        values = np.frombuffer(self._recent, dtype=np.int64)
        least, most = int(values.min()), int(values.max())
        self.min_ns = least if not self.count else min(self.min_ns, least)
        self.max_ns = max(self.max_ns, most)
        self.count += len(values)
        self.sum_ns += int(values.sum())
        # traffic.counting.tally.bucket, vectorized: frexp's exponent is the bit length (exact below 2**53).
        shift = np.maximum(0, np.frexp(values.astype(np.float64))[1] - 1 - HISTOGRAM_BITS)
        places = np.minimum((shift << HISTOGRAM_BITS) + (values >> shift), HISTOGRAM_BUCKETS - 1)
        self._buckets += np.bincount(places, minlength=HISTOGRAM_BUCKETS)
        del values
        self._recent = array("q")

    def to_json(self) -> ResponseTimes:
        self._fold()
        if not self.count:
            return {"count": 0, "min_ns": None, "mean_ns": None, "p50_ns": None, "p99_ns": None, "max_ns": None}
        median_ns, p99_ns = percentiles(self._buckets.tolist(), (0.5, 0.99))
        return {
            "count": self.count,
            "min_ns": self.min_ns,
            "mean_ns": self.sum_ns / self.count,
            "p50_ns": min(self.max_ns, max(self.min_ns, median_ns)),
            "p99_ns": min(self.max_ns, max(self.min_ns, p99_ns)),
            "max_ns": self.max_ns,
        }


@dataclass
class Statistics:
    """Counts of one kind of request: requested = accepted + failed + outstanding."""

    requested: int = 0
    accepted: int = 0
    repeated: int = 0
    """Retransmissions after T1."""
    late: int = 0
    """Responses after the timeout."""
    other_seid: int = 0
    """Responses whose header has another SEID than the session's."""
    failures: Counter[str] = field(default_factory=Counter)
    """By group and described cause."""
    response: Times = field(default_factory=Times)
    first_ns: int = 0
    last_ns: int = 0

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    @property
    def outstanding(self) -> int:
        return self.requested - self.accepted - self.failed

    @property
    def seconds(self) -> float:
        """Time from the first request to the last response."""
        return max(0, self.last_ns - self.first_ns) / 1e9

    def to_json(self) -> RequestCounts:
        seconds = self.seconds
        return {
            "requested": self.requested,
            "accepted": self.accepted,
            "failed": self.failed,
            "failures": dict(self.failures),
            "outstanding": self.outstanding,
            "repeated": self.repeated,
            "late": self.late,
            "other_seid": self.other_seid,
            "seconds": seconds,
            "per_s": self.accepted / seconds if seconds else None,
            "response": self.response.to_json(),
        }
