"""latency_histogram.csv: the packets of each latency, from the histograms of the receivers."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pktswarm.master.results.row import Row
from pktswarm.traffic.errors import BadInput

FILE = "latency_histogram.csv"
COLUMNS = ["stream", "from", "to", "latency_ns", "packets"]
Flow = tuple[str, str, str]
"""(stream, from, to)."""
Points = list[tuple[int, int]]
"""(latency in ns, packets), ascending."""


def rows(flows: Iterable[Row]) -> Iterator[dict[str, object]]:
    for row in flows:
        ends = {"stream": row.leg.stream, "from": row.leg.source, "to": row.leg.to}
        for ns, packets in row.received.delays or []:
            yield {**ends, "latency_ns": ns, "packets": packets}


def read(folder: Path) -> dict[Flow, Points]:
    """The points of each flow of a results folder; empty without the file. Raises BadInput."""
    path = folder / FILE
    found: dict[Flow, Points] = {}
    if not path.is_file():
        return found
    with path.open(newline="", errors="replace") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                point = int(row["latency_ns"]), int(row["packets"])
                found.setdefault((row["stream"], row["from"], row["to"]), []).append(point)
            except (KeyError, TypeError, ValueError):
                raise BadInput(f"{path}:{number}", "not a row of a histogram", allowed=",".join(COLUMNS)) from None
    return {flow: sorted(points) for flow, points in found.items()}


def nearest_rank(points: Sequence[tuple[int, int]], share: float) -> int:
    """The percentile of ascending points, as traffic.counting.tally.percentile."""
    wanted, seen = max(1, math.ceil(share * sum(count for _, count in points))), 0
    for ns, count in points:
        seen += count
        if seen >= wanted:
            return ns
    raise ValueError("an empty histogram has no percentiles")
