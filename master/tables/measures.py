"""Measures of a run of a family: figures of its target streams, from streams.csv's rows and the samples."""

from __future__ import annotations

import csv
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PEAK_NS = 100_000_000
"""Interval of a peak: the reference's samples (Hrustic 2022, table 5.2)."""


@dataclass(frozen=True)
class Measured:
    """Rows of the target streams of a run (results.streams_csv.stream_values), and its results folder."""

    rows: Sequence[Mapping[str, Any]]
    results: Path


@dataclass(frozen=True)
class Measure:
    title: str
    digits: int
    of: Callable[[Measured], float | None]
    """Returns None if it was not measured."""


def _sum(measured: Measured, name: str) -> float | None:
    values = [row.get(name) for row in measured.rows]
    return None if None in values else float(sum(value for value in values if value is not None))


def _loss_ratio(measured: Measured) -> float | None:
    sent, lost = _sum(measured, "sent_packets"), _sum(measured, "lost_packets")
    return None if lost is None or not sent else lost / sent


def _bits(name: str, unit: float) -> Callable[[Measured], float | None]:
    def of(measured: Measured) -> float | None:
        total = _sum(measured, name)
        return None if total is None else total / unit

    return of


def _median_ms(measured: Measured) -> float | None:
    """Returns the median of the streams' medians, weighted by received packets."""
    known = sorted(
        (row["latency_p50_ns"], row["received_packets"])
        for row in measured.rows
        if row.get("latency_p50_ns") is not None
    )
    half = sum(packets for _, packets in known) / 2
    for (median_ns, _), so_far in zip(known, itertools.accumulate(packets for _, packets in known), strict=True):
        if so_far >= half:
            return float(median_ns / 1e6)
    return None


def _bound_ms(measured: Measured) -> float | None:
    """Returns the greatest error bound of the streams' latencies."""
    known = [row["latency_bound_ns"] for row in measured.rows if row.get("latency_bound_ns") is not None]
    return max(known) / 1e6 if known else None


def _sent_ratio(measured: Measured) -> float | None:
    """Returns sent ÷ intended; None of streams without an intended rate."""
    sent, intended = _sum(measured, "sent_packets"), _sum(measured, "intended_packets")
    return None if sent is None or not intended else sent / intended


def _k(measured: Measured) -> float | None:
    """Returns received ÷ intended."""
    received, intended = _sum(measured, "received_packets"), _sum(measured, "intended_packets")
    return None if received is None or not intended else received / intended


def _peak(column: str) -> Callable[[Measured], float | None]:
    def of(measured: Measured) -> float | None:
        streams = {str(row["stream"]) for row in measured.rows}
        return peak_packets(measured.results / "samples.csv", column, streams)

    return of


def peak_packets(samples: Path, column: str, streams: set[str]) -> float | None:
    """Returns the most packets of these streams, over all nodes, in PEAK_NS; None if no node counted.

    Nodes sample at different times, and a sample can lack a leg, so each leg's count on a node is interpolated between
    its samples. Samples closer than PEAK_NS make the peak exact.
    """
    counts: dict[tuple[str, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    with samples.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["stream"] in streams and row[column]:
                leg = row["node"], row["stream"], row["from"], row["to"]
                counts[leg][int(row["time_ns"])] += int(row[column])
    if not counts:
        return None
    for packets in counts.values():
        packets.setdefault(0, 0)  # counts are since the start
    last_ns = max(max(packets) for packets in counts.values())
    times = np.arange(0, last_ns + PEAK_NS, PEAK_NS)
    total = sum(
        np.interp(times, sorted(packets), [packets[at] for at in sorted(packets)]) for packets in counts.values()
    )
    return float(round(np.diff(total).max(initial=0.0)))


MEASURES = {
    "loss_ratio": Measure("Ratio", 4, _loss_ratio),
    "received_gbps": Measure("Gbps", 3, _bits("received_bps", 1e9)),
    "sent_mpps": Measure("Mpps sent", 3, _bits("sent_pps", 1e6)),
    "sent_gbps": Measure("Gbps sent", 3, _bits("sent_bps", 1e9)),
    "latency_p50_ms": Measure("Delay, ms", 3, _median_ms),
    "latency_bound_ms": Measure("±, ms", 3, _bound_ms),
    "sent_ratio": Measure("Sent of intended", 4, _sent_ratio),
    "peak_sent_packets": Measure("Peak out", 0, _peak("sent_packets")),
    "peak_received_packets": Measure("Peak in", 0, _peak("received_packets")),
    "k": Measure("k", 3, _k),
    "lost_packets": Measure("Lost", 0, lambda measured: _sum(measured, "lost_packets")),
    "received_pps": Measure("Packets/s in", 0, _bits("received_pps", 1)),
    "sent_pps": Measure("Packets/s out", 0, _bits("sent_pps", 1)),
    "sent_mbps": Measure("Mbps sent", 1, _bits("sent_bps", 1e6)),
}
ALWAYS = ("sent_ratio", "latency_bound_ms")
"""Measures of every point: they show a sender below its intended rate, and latencies with a large error."""
