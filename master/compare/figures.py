"""Figures of a run for comparison: of each stream, each direction of connections, each group, and in total."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pktswarm.master.compare.noise import Value
from pktswarm.master.scenario.expectations import METRICS
from pktswarm.traffic.typed_json import Json

Rows = list[Json]
"""Rows of run.json."""
TOTAL = "all streams"


@dataclass(frozen=True)
class Figure:
    """`worse`: 1 if a higher value is worse, -1 if a lower one is, 0 if neither is a property of the device."""

    key: str
    title: str
    unit: str
    """count, ratio (a share of 1), pps, bps or ns; the title names the unit of display."""
    of: Callable[[Rows], Value | None]
    """Returns None if it was not measured."""
    worse: int = 0
    resolution: float = 0.0
    """Rounding of the results; smaller differences are ignored."""
    clocked: bool = False
    """Its error includes that of the two clocks."""
    derived: bool = False
    """It follows from other figures, and does not count as one more claim."""


@dataclass(frozen=True)
class Measured:
    """Figures of one subject in one run, without those that were not measured."""

    values: dict[str, Value]
    bound_ns: float
    """Error bound of its latencies by the clocks; 0 of a single clock."""


def measured(document: Json) -> dict[str, Measured]:
    """Returns the figures of each subject of run.json: stream, direction of connections, group, TOTAL."""
    return {subject: measured_of(rows, figures) for subject, (rows, figures) in _subjects(document).items()}


def measured_of(rows: Rows, figures: Iterable[Figure]) -> Measured:
    """Returns the figures of one subject."""
    values = {figure.key: value for figure in figures if (value := figure.of(rows)) is not None}
    names = ("latency_bound_ns", "delay_bound_ns", "bound_ns")
    bounds = (_number(row.get(name)) or 0 for row in rows for name in names)
    return Measured(values, max(bounds, default=0))


def _subjects(document: Json) -> dict[str, tuple[Rows, tuple[Figure, ...]]]:
    rows, connections = objects(document.get("rows")), objects(document.get("connections"))
    streams = _by(rows, lambda row: str(row["stream"]))
    ends = _by(connections, lambda row: f"{row['connections']} ({row['direction']})")
    groups = _by(rows, lambda row: f"all {row['group']}" if row.get("group") else "")
    found: dict[str, tuple[Rows, tuple[Figure, ...]]] = {name: (part, STREAM) for name, part in streams.items()}
    found |= {name: (part, CONNECTION) for name, part in ends.items()}
    if len(groups) > 1:
        found |= {name: (part, STREAM) for name, part in groups.items() if name}
    return found | ({TOTAL: (rows, STREAM)} if len(streams) > 1 else {})


def objects(value: object) -> Rows:
    """Returns the objects of a JSON array; none of any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _by(rows: Rows, name: Callable[[Json], str]) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return found


# --- how each is made of its rows ------------------------------------------------------------------------------------


def _known(rows: Rows, name: str) -> list[float] | None:
    """Returns the values of all rows; None if a row lacks it."""
    values = [number for row in rows if (number := _number(row.get(name))) is not None]
    return values if values and len(values) == len(rows) else None


def folded(name: str, fold: Callable[[Iterable[float]], float]) -> Callable[[Rows], Value | None]:
    def of(rows: Rows) -> Value | None:
        values = _known(rows, name)
        return None if values is None else Value(fold(values))

    return of


def _share(part: str, whole: str, events: bool = True) -> Callable[[Rows], Value | None]:
    """A share. `events`: `part` counts independent events, whose own variance it has at least."""

    def of(rows: Rows) -> Value | None:
        parts, wholes = _known(rows, part), _known(rows, whole)
        if parts is None or wholes is None or not sum(wholes):
            return None
        return Value(sum(parts) / sum(wholes), abs(sum(parts)) / sum(wholes) ** 2 if events else 0.0)

    return of


def _count(name: str) -> Callable[[Rows], Value | None]:
    """A count of independent events."""

    def of(rows: Rows) -> Value | None:
        values = _known(rows, name)
        return None if values is None else Value(sum(values), abs(sum(values)))

    return of


def _mean(name: str, weight: str) -> Callable[[Rows], Value | None]:
    def of(rows: Rows) -> Value | None:
        values, weights = _known(rows, name), _known(rows, weight)
        if values is None or weights is None or not sum(weights):
            return None
        return Value(sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights))

    return of


def _latency(point: str, title: str, of: Callable[[Rows], Value | None]) -> Figure:
    return Figure(f"latency_{point}_ns", f"latency, {title}, µs", "ns", of, worse=1, resolution=1.0, clocked=True)


def _longest(point: str, title: str) -> Figure:
    """A latency of the flow with the longest: percentiles of several flows cannot be combined."""
    return _latency(point, title, folded(f"latency_{point}_ns", max))


STREAM = (
    Figure("intended_packets", "intended, packets", "count", folded("intended_packets", sum)),
    Figure("sent_packets", "sent, packets", "count", folded("sent_packets", sum), derived=True),
    Figure("received_packets", "received, packets", "count", folded("received_packets", sum), derived=True),
    Figure("lost_packets", "lost, packets", "count", _count("lost_packets"), derived=True),
    Figure("loss_ratio", "lost, % of sent", "ratio", _share("lost_packets", "sent_packets"), worse=1),
    Figure("sent_ratio", "sent, % of intended", "ratio", _share("sent_packets", "intended_packets", events=False)),
    Figure(
        "duplicated_ratio", "duplicated, % of received", "ratio", _share("duplicated_packets", "received_packets"), 1
    ),
    Figure("reordered_ratio", "reordered, % of received", "ratio", _share("reordered_packets", "received_packets"), 1),
    Figure("altered_ratio", "altered, % of received", "ratio", _share("altered_packets", "received_packets"), 1),
    Figure(
        "misdelivered_ratio",
        "misdelivered, % of sent",
        "ratio",
        _share("misdelivered_packets", "sent_packets"),
        1,
    ),
    Figure("late_ratio", "sent late, % of sent", "ratio", _share("late_packets", "sent_packets")),
    Figure("sent_pps", "sent, packets/s", "pps", folded("sent_pps", sum), resolution=0.1),
    Figure("received_pps", "received, packets/s", "pps", folded("received_pps", sum), worse=-1, resolution=0.1),
    Figure("sent_bps", "sent, Mbit/s", "bps", folded("sent_bps", sum), resolution=0.1, derived=True),
    Figure("received_bps", "received, Mbit/s", "bps", folded("received_bps", sum), -1, resolution=0.1, derived=True),
    _latency("min", "minimum", folded("latency_min_ns", min)),
    _latency("mean", "mean", _mean("latency_mean_ns", "received_packets")),
    _longest("p50", "median"),
    _longest("p90", "90 %"),
    _longest("p99", "99 %"),
    _longest("p999", "99.9 %"),
    _longest("max", "maximum"),
    Figure("jitter_sd_ns", "jitter (sd), µs", "ns", folded("jitter_sd_ns", max), worse=1, resolution=1.0),
    Figure("jitter_rfc3550_ns", "jitter (RFC 3550), µs", "ns", folded("jitter_rfc3550_ns", max), 1, resolution=1.0),
)
CONNECTION = (
    Figure("sent_blocks", "sent, blocks", "count", folded("sent_blocks", sum), derived=True),
    Figure("received_blocks", "received, blocks", "count", folded("received_blocks", sum), derived=True),
    Figure("goodput_bps", "goodput, Mbit/s", "bps", folded("goodput_bps", sum), worse=-1, resolution=1.0),
    Figure("lost_datagrams_ratio", "lost, % of datagrams", "ratio", _share("lost_datagrams", "sent_datagrams"), 1),
    Figure("retransmitted_segments", "retransmitted, segments", "count", _count("retransmitted_segments"), worse=1),
    Figure("rtt_mean_ns", "mean round trip, µs", "ns", folded("rtt_mean_ns", max), worse=1, resolution=1.0),
    Figure("delay_mean_ns", "mean delay, µs", "ns", folded("delay_mean_ns", max), 1, resolution=1.0, clocked=True),
    Figure("jitter_sd_ns", "jitter (sd), µs", "ns", folded("jitter_sd_ns", max), worse=1, resolution=1.0),
)
NAMED = {"loss": "loss_ratio"} | {
    key: metric.column.replace("_packets", "_ratio") if metric.of else metric.column for key, metric in METRICS.items()
}
"""Key of an expectation (master.scenario.expectations) → figure."""
FIGURES = {figure.key: figure for figure in (*STREAM, *CONNECTION)}
