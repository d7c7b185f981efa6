"""The latency of a trial, over all frames of its streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pktswarm.master.results.row import Row


@dataclass(frozen=True)
class Latencies:
    """Latencies in nanoseconds over all flows.

    The mean is weighted by the frames of each flow. Percentiles, the variation (99.9th percentile − minimum) and the
    jitter (a standard deviation) are those of the worst flow. `bound_ns`: error bound of the clocks; None: unknown, the
    clocks are steered by PTP. `lost_packets`: the lost packets of the trial.
    """

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
    """Combine the latencies of all flows; None: the latency of a flow was not measured."""
    flows = [row.received.latency for row in rows if row.received.latency is not None]
    if not rows or len(flows) != len(rows):
        return None
    frames = sum(flow.frames for flow in flows)
    tallies = [row.received.tally for row in rows]
    jitters = [tally.jitter.sd_ns for tally in tallies if tally is not None and tally.jitter is not None]
    bounds = [row.received.latency_bound_ns for row in rows if row.received.latency_bound_ns is not None]
    lost = [row.lost for row in rows]
    return Latencies(
        frames=frames,
        min_ns=min(flow.min_ns for flow in flows),
        mean_ns=sum(flow.mean_ns * flow.frames for flow in flows) / frames,
        p50_ns=max(flow.p50_ns for flow in flows),
        p99_ns=max(flow.p99_ns for flow in flows),
        p999_ns=max(flow.p999_ns for flow in flows),
        max_ns=max(flow.max_ns for flow in flows),
        variation_ns=max(flow.p999_ns - flow.min_ns for flow in flows),
        jitter_sd_ns=max(jitters) if len(jitters) == len(rows) else None,
        bound_ns=max(bounds) if len(bounds) == len(rows) else None,
        lost_packets=None if None in lost else sum(count or 0 for count in lost),
    )
