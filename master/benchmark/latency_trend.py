"""The trend of the latency within a trial: a queue that fills is a load above what the device forwards."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

SAMPLES_A_TRIAL = 20
"""Least number of samples of a trial from which a trend is read."""
LEAST_RISE_NS = 50_000
DRIFT = 2.0**-13
"""Relative drift of two clocks (122 ppm). A slower rise can be theirs: samples use the offset before the run."""
LEAST_WINDOWS = 3
"""Windows in each third of a trial; with fewer there is no trend."""

Point = tuple[float, float]
"""Time in s and mean latency in ns of the packets between two samples."""
Leg = tuple[str, str, str]
"""Stream, sender, receiver."""


def rise_ns_per_s(samples: Path, streams: Iterable[str]) -> float | None:
    """Returns the fastest rise of the latency of a flow that lasts throughout a trial; 0.0: no flow has one.

    None: no flow of `streams` reports enough latencies. `samples`: samples.csv of the trial's run.
    """
    slopes = [slope for points in _flows(samples, set(streams)).values() if (slope := trend(points)) is not None]
    return max(slopes, default=None)


def trend(points: Sequence[Point]) -> float | None:
    """Returns the rise in ns/s from the first to the last third of the points; 0.0: none. None: too few points.

    A rise needs every point of the last third above every point of the first. By chance this happens with 6 points in
    each once in 924 trials.
    """
    size = len(points) // 3
    if size < LEAST_WINDOWS:
        return None
    first, last = points[:size], points[-size:]
    apart_s = fmean(time_s for time_s, _ in last) - fmean(time_s for time_s, _ in first)
    rise_ns = fmean(latency for _, latency in last) - fmean(latency for _, latency in first)
    separate = min(latency for _, latency in last) > max(latency for _, latency in first)
    real = rise_ns > LEAST_RISE_NS + DRIFT * apart_s * 1e9
    return rise_ns / apart_s if separate and real else 0.0


def _flows(samples: Path, streams: set[str]) -> dict[Leg, list[Point]]:
    """Returns the points of each flow with latencies."""
    flows: dict[Leg, list[Point]] = {}
    last: dict[Leg, tuple[int, int, int]] = {}
    with samples.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["stream"] not in streams or not row["latency_packets"]:
                continue
            leg = (row["stream"], row["from"], row["to"])
            now = int(row["time_ns"]), int(row["latency_packets"]), int(row["latency_sum_ns"])
            before_ns, packets, sum_ns = last.setdefault(leg, now)
            if now[1] > packets:
                middle_s = (before_ns + now[0]) / 2e9
                flows.setdefault(leg, []).append((middle_s, (now[2] - sum_ns) / (now[1] - packets)))
            last[leg] = now
    return flows
