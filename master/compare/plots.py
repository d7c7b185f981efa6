"""Plots of a comparison: one run of each side beside the others, on equal axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np

from pktswarm.master.compare.figures import objects
from pktswarm.master.compare.run_sets import Compared, Side
from pktswarm.master.output import write_rows
from pktswarm.master.report import over_time
from pktswarm.master.report.folder import SAMPLES
from pktswarm.master.report.over_time import MOST_STREAMS, Floats, OverTime, thin
from pktswarm.master.report.plots import (
    FOLDER,
    MOST_POINTS,
    POINTS,
    STYLE,
    Plot,
    line_style,
    new_axes,
    svg_of,
)
from pktswarm.traffic.typed_json import Json

HEADROOM = 1.05
"""Upper end of an axis, in terms of the largest value."""
Series = dict[str, tuple[Floats, Floats]]
"""Name of a line → its x and y values."""


@dataclass(frozen=True)
class Kind:
    """A figure that is drawn once for each side. `steps`: a value holds until the next."""

    key: str
    title: str
    x: str
    y: str
    columns: str
    steps: bool = False


PACKETS = Kind("packets", "Packets in and out", "time since the start, s", "packets/s", "time_s,packets_per_s", True)
DELAYS = Kind("delays", "Mean latency over time", "time since the start, s", "latency, µs", "time_s,latency_us")
LATENCY = Kind(
    "latency", "Latency distribution", "percentile (0: min, 100: max)", "latency, µs", "percentile,latency_us"
)


@dataclass(frozen=True)
class Pictures:
    """The plots of one kind: one for each side that has the figure."""

    title: str
    plots: list[Plot]
    missing: list[str]
    """Letters of the sides without the figure."""


def pictures(sides: Sequence[Side], folder: Path) -> list[Pictures]:
    """Draws the first run of each side, and writes the data into the folder of the comparison."""
    found: dict[Kind, dict[str, Series]] = {PACKETS: {}, DELAYS: {}, LATENCY: {}}
    for side in sides:
        for kind, series in _of_run(side.runs[0]):
            if series:
                found[kind][side.letter] = series
    return [_pictures(kind, panels, sides, folder) for kind, panels in found.items() if panels]


def _of_run(run: Compared) -> Iterator[tuple[Kind, Series]]:
    rows = objects(run.document.get("rows"))
    yield LATENCY, _distribution(rows)
    samples = _samples(run, rows)
    if samples is not None:
        middle_s = samples.begins_s + samples.bin_s / 2
        edges_s = np.append(samples.begins_s, samples.begins_s[-1] + samples.bin_s)
        rates = {"in": samples.in_pps, "out": samples.out_pps}
        yield PACKETS, {name: (edges_s, np.append(each, each[-1])) for name, each in rates.items()}
        yield (
            DELAYS,
            {
                name: (middle_s[known], each[known] / 1e3)
                for name, each in samples.latency_ns.items()
                if (known := ~np.isnan(each)).any()
            },
        )


def _samples(run: Compared, rows: Sequence[Json]) -> OverTime | None:
    streams = list(dict.fromkeys(str(row["stream"]) for row in rows))[:MOST_STREAMS]
    scenario = run.document.get("scenario")
    per_s = scenario.get("samples_per_s") if isinstance(scenario, dict) else None
    means = {
        (str(row["stream"]), str(row["from"]), str(row["to"])): float(mean)
        for row in rows
        if isinstance(mean := row.get("latency_mean_ns"), (int, float))
    }
    bin_s = 1 / per_s if isinstance(per_s, (int, float)) and per_s else None
    return over_time.read(run.path / SAMPLES, streams, bin_s, means)


def _distribution(rows: Sequence[Json]) -> Series:
    """The recorded percentiles of the first flows with latency. The x values are their places."""
    places = np.arange(len(POINTS), dtype=np.float64)
    series: Series = {}
    for row in rows:
        points = [row.get(f"latency_{name}_ns") for name in POINTS]
        values = [point / 1e3 for point in points if isinstance(point, (int, float))]
        if len(values) == len(places) and len(series) < MOST_STREAMS:
            series[f"{row['stream']}, {row['from']} → {row['to']}"] = places, np.array(values)
    return series


def _pictures(kind: Kind, panels: dict[str, Series], sides: Sequence[Side], folder: Path) -> Pictures:
    (folder / FOLDER).mkdir(exist_ok=True)
    data = f"{FOLDER}/{kind.key}.csv"
    write_rows(folder / data, f"side,line,{kind.columns}", _table(kind, panels))
    limits = _limits(panels)
    plots = [
        Plot(f"{side.letter}: {side.runs[0].path.name}", _svg(kind, side, panels, limits), data, _words(panels, side))
        for side in sides
        if side.letter in panels
    ]
    return Pictures(kind.title, plots, [side.letter for side in sides if side.letter not in panels])


def _table(kind: Kind, panels: dict[str, Series]) -> Iterable[tuple[str, ...]]:
    percentiles = list(POINTS.values())
    for letter, series in panels.items():
        for name, (xs, ys) in series.items():
            for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
                yield letter, name, f"{percentiles[int(x)] if kind is LATENCY else x:.10g}", f"{y:.10g}"


def _limits(panels: dict[str, Series]) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of both axes: those of all sides together. The y axis begins at 0, or at the smallest negative value."""
    xs = np.concatenate([x for series in panels.values() for x, _ in series.values()])
    ys = np.concatenate([y for series in panels.values() for _, y in series.values()])
    return (float(xs.min()), float(xs.max())), (min(0.0, float(ys.min())), HEADROOM * max(float(ys.max()), 1e-9))


def _svg(
    kind: Kind, side: Side, panels: dict[str, Series], limits: tuple[tuple[float, float], tuple[float, float]]
) -> str:
    labels = list(dict.fromkeys(name for series in panels.values() for name in series))[:MOST_STREAMS]
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes(kind.x, kind.y, labels)
        for number, label in enumerate(labels):
            # A line has the same style on every side; one without values keeps its place in the legend.
            xs, ys = panels[side.letter].get(label, (np.array([]), np.array([])))
            xs, ys = thin(xs, ys, MOST_POINTS) if len(xs) else (xs, ys)
            style = "steps-post" if kind.steps else "default"
            axes.plot(xs, ys, label=label, drawstyle=style, marker=".", markersize=2, **line_style(number))
        axes.set(xlim=limits[0], ylim=limits[1])
        if kind is LATENCY:
            axes.set_xticks(range(len(POINTS)), [f"{percentile:g}" for percentile in POINTS.values()])
        return svg_of(figure, f"{kind.key}-{side.letter}", columns)


def _words(panels: dict[str, Series], side: Side) -> str:
    each = (
        f"{name}: median {np.median(ys):,.6g}, maximum {ys.max():,.6g}" for name, (_, ys) in panels[side.letter].items()
    )
    return f"{'; '.join(each)}."
