"""Figures of every kind of result, for comparison. A run's are those of master.compare.figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pktswarm.master.compare import figures
from pktswarm.master.compare.figures import NAMED, Figure, Measured, folded, measured_of, objects
from pktswarm.master.report.kinds import RUN, TABLE
from pktswarm.master.tables.measures import MEASURES
from pktswarm.master.tables.netspec import METRICS
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.typed_json import Json

Subjects = Iterator[tuple[str, Json]]
"""Subject → a row with its figures."""
POLICING = "policing"


def _figure(
    key: str,
    title: str,
    unit: str,
    worse: int = 0,
    resolution: float = 0.0,
    clocked: bool = False,
    derived: bool = False,
) -> Figure:
    return Figure(key, title, unit, folded(key, max), worse, resolution, clocked, derived)


def _latency(point: str, title: str) -> Figure:
    return _figure(f"latency_{point}_ns", f"latency, {title}, µs", "ns", worse=1, resolution=1.0, clocked=True)


@dataclass(frozen=True)
class Kind:
    """A kind of result with one row for each subject."""

    subjects: Callable[[Json], Subjects]
    figures: tuple[Figure, ...]


def _search(document: Json) -> Subjects:
    for goal in objects(document.get("goals")):
        yield f"loss of at most {100 * _number(goal['loss_ratio']):g} %", goal


def _rfc2544(document: Json) -> Subjects:
    for size in objects(document.get("sizes")):
        throughput, latency = _part(size, "throughput"), _part(size, "latency")
        bursts = _part(size, "back_to_back")
        loss = {f"loss_{each['load_percent']}_ratio": each.get("loss_percent") for each in objects(size.get("loss"))}
        at_maximum = loss.get("loss_100_ratio")
        row: Json = {
            **latency,
            "rate_pps": throughput.get("rate_pps"),
            "l2_bps": throughput.get("l2_bps"),
            "maximum_loss_ratio": None if at_maximum is None else _number(at_maximum) / 100,
            "burst_frames": bursts.get("frames_mean"),
        }
        yield f"{size['size_bytes']} bytes", row


def _y1564(document: Json) -> Subjects:
    """Above the CIR + EIR a service loses what the device polices: its loss is no figure."""
    for step in [*objects(document.get("steps")), *objects(document.get("performance"))]:
        row = {key: value for key, value in step.items() if key != "loss_ratio" or step["step"] != POLICING}
        yield f"{step['service']}, {step['step']}", row


def _calibrate(document: Json) -> Subjects:
    for each in objects(document.get("figures")):
        mode = " to disk" if each.get("mode") == "capture" else ""
        yield f"{each['node']}, {each['role']} with {each['engine']}{mode}, {each['size_bytes']} bytes", each


def _table(document: Json) -> Subjects:
    for point in objects(document.get("points")):
        if "labels" in point:
            labels, measured = point["labels"], _part(point, "measured")
            subject = ", ".join(map(str, labels)) if isinstance(labels, list) else str(labels)
        else:
            subject, measured = f"{point['set']}, {point['background_mbps']} Mbit/s, {point['target']}", point
        yield subject, {f"table.{name}": value for name, value in measured.items()}


def _sessions(document: Json) -> Subjects:
    for name, counts in _part(document, "operations").items():
        if isinstance(counts, dict):
            times = {f"response_{key}": value for key, value in _part(counts, "response").items()}
            yield (
                name,
                {**{key: counts.get(key) for key in ("requested", "accepted", "failed", "repeated", "per_s")}, **times},
            )


def _part(row: Json, key: str) -> Json:
    part = row.get(key)
    return part if isinstance(part, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


RATE = _figure("rate_pps", "rate, packets/s", "pps", worse=-1, resolution=0.1)
BITS = _figure("l2_bps", "rate, Mbit/s", "bps", worse=-1, resolution=0.1, derived=True)
KINDS = {
    "search": Kind(
        _search,
        (
            RATE,
            BITS,
            _figure("conditional_throughput_pps", "conditional throughput, packets/s", "pps", -1, 0.1, derived=True),
        ),
    ),
    "rfc2544": Kind(
        _rfc2544,
        (
            RATE,
            BITS,
            *(_latency(point, title) for point, title in (("min", "minimum"), ("mean", "mean"), ("p50", "median"))),
            *(_latency(point, title) for point, title in (("p99", "99 %"), ("p999", "99.9 %"), ("max", "maximum"))),
            _figure("maximum_loss_ratio", "lost at 100 %, % of sent", "ratio", worse=1),
            _figure("burst_frames", "longest burst, frames", "count", worse=-1),
        ),
    ),
    "y1564": Kind(
        _y1564,
        (
            _figure("received_bps", "received, Mbit/s", "bps", worse=-1, resolution=0.1),
            _figure("loss_ratio", "lost, % of sent", "ratio", worse=1),
            _figure("delay_mean_ns", "mean delay, µs", "ns", worse=1, resolution=1.0, clocked=True),
            _figure("delay_variation_ns", "delay variation, µs", "ns", worse=1, resolution=1.0),
            _figure("availability", "available, %", "ratio", worse=-1),
        ),
    ),
    "calibrate": Kind(
        _calibrate, (RATE, _figure("top_pps", "rate without pacing, packets/s", "pps", worse=-1, resolution=0.1))
    ),
    TABLE: Kind(
        _table,
        (
            *(_figure(f"table.{name}", measure.title, "number") for name, measure in MEASURES.items()),
            *(_figure(f"table.{name}", title, "number") for name, (title, _) in METRICS.items()),
        ),
    ),
    "sessions": Kind(
        _sessions,
        (
            _figure("requested", "requested", "count"),
            _figure("accepted", "accepted", "count"),
            _figure("failed", "failed", "count", worse=1),
            _figure("repeated", "repeated", "count", worse=1),
            _figure("per_s", "requests/s", "number", worse=-1),
            *(
                _figure(f"response_{point}_ns", f"response, {title}, µs", "ns", worse=1)
                for point, title in (("mean", "mean"), ("p50", "median"), ("p99", "99 %"), ("max", "maximum"))
            ),
        ),
    ),
}
FIGURES = {figure.key: figure for kind in KINDS.values() for figure in kind.figures} | figures.FIGURES
"""All figures by key. A key has one title and unit whatever the kind."""


def measured(kind: str, document: Json) -> dict[str, Measured]:
    """Returns the figures of each subject of a document."""
    if kind == RUN:
        return figures.measured(document)
    known = KINDS[kind]
    return {subject: measured_of([row], known.figures) for subject, row in known.subjects(document)}


def figures_of(kind: str, keys: Iterable[str], used: bool) -> list[str]:
    """Returns the figures of `--figure`. BadInput for an unknown one, and one without better and worse values."""
    named = NAMED if kind == RUN else {figure.key: figure.key for figure in KINDS[kind].figures}
    found = []
    for key in keys:
        figure = FIGURES.get(named.get(key, ""))
        if figure is None or not figure.worse:
            known = [name for name, column in named.items() if column in FIGURES and FIGURES[column].worse]
            allowed = ", ".join(known) or "none: a table has no figures that are worse when they are higher or lower"
            raise BadInput("compare", "not a figure", key="--figure", value=key, allowed=allowed)
        if not used:
            problem = "no effect without --fail-on-worse"
            raise BadInput("compare", problem, key="--figure", value=key, allowed="with --fail-on-worse")
        found.append(figure.key)
    return found
