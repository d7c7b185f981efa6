"""The latency of a trial: of all frames of its streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pktswarm.master.results.row import Row


@dataclass(frozen=True)
class Latencies:
    """Nanoseconds, over all legs: the mean by how many frames each has, the least, the most; of percentiles, of the
    variation (99.9th percentile − least) and of jitter (a standard deviation) the worst leg's. `bound_ns`: how far off
    each may be by the clocks, None: PTP's to tell. `lost_packets`: of the trial."""

    frames: int
    min_ns: int
    mean_ns: float
    p50_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    variation_ns: int
    jitter_sd_ns: float | None
    bound_ns: int | None
    lost_packets: int | None = None


def latencies(rows: Sequence[Row]) -> Latencies | None:
    """None where a leg's was not measured."""
    each = [row.tally.latency for row in rows if row.tally is not None and row.tally.latency is not None]
    if not rows or len(each) != len(rows):
        return None
    frames = sum(one.frames for one in each)
    jitters = [row.tally.jitter.sd_ns for row in rows if row.tally is not None and row.tally.jitter is not None]
    bounds = [row.clock_bound_ns for row in rows if row.clock_bound_ns is not None]
    lost = [row.lost for row in rows]
    return Latencies(
        frames=frames,
        min_ns=min(one.min_ns for one in each),
        mean_ns=sum(one.mean_ns * one.frames for one in each) / frames,
        p50_ns=max(one.p50_ns for one in each),
        p99_ns=max(one.p99_ns for one in each),
        p999_ns=max(one.p999_ns for one in each),
        max_ns=max(one.max_ns for one in each),
        variation_ns=max(one.p999_ns - one.min_ns for one in each),
        jitter_sd_ns=max(jitters) if len(jitters) == len(rows) else None,
        bound_ns=max(bounds) if len(bounds) == len(rows) else None,
        lost_packets=None if None in lost else sum(one or 0 for one in lost),
    )
