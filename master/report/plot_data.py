"""The points of a plot, for the script of a page: values under the pointer, and zoom."""

from __future__ import annotations

import json
from typing import TypedDict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

POINTS_PER_INCH = 72
DIGITS = 7


class AxisData(TypedDict):
    label: str
    scale: str
    """linear, log or nines."""
    limits: list[float]


class SeriesData(TypedDict):
    name: str
    id: str
    """Identifier of its group in the SVG."""
    steps: bool
    """Whether a value holds until the next point."""
    x: list[float]
    y: list[float]


class PlotData(TypedDict):
    box: list[float]
    """Left, top, right and bottom of the axes, in the coordinates of the SVG."""
    x: AxisData
    y: AxisData
    series: list[SeriesData]


def mark(figure: Figure) -> None:
    """Gives each series an identifier in the SVG; to be called before it is drawn."""
    (axes,) = figure.axes
    for number, artist in enumerate([*axes.get_lines(), *_stairs(axes)]):
        artist.set_gid(f"series-{number}")


def plot_data(figure: Figure, prefix: str) -> str:
    """JSON of the only axes of a marked figure that was drawn. `prefix`: that of the SVG's identifiers."""
    (axes,) = figure.axes
    width, height = (POINTS_PER_INCH * inches for inches in figure.get_size_inches())
    place = axes.get_position()
    box = [place.x0 * width, (1 - place.y1) * height, place.x1 * width, (1 - place.y0) * height]
    series = [
        _series(str(line.get_label()), line.get_xdata(), line.get_ydata(), line.get_drawstyle() == "steps-post")
        for line in axes.get_lines()
    ]
    for stairs in _stairs(axes):
        values, edges, _ = stairs.get_data()
        series.append(_series(str(stairs.get_label()), edges, np.append(values, values[-1]), steps=True))
    top = axes.get_ylim()[1]
    for number, one in enumerate(series):
        one["id"] = f"{prefix}-series-{number}"
        if axes.get_yscale() == "function":  # 100 % is drawn at the top of the axis
            one["y"] = [value if value < top - 1e-9 else 100.0 for value in one["y"]]
    found: PlotData = {
        "box": [round(edge, 2) for edge in box],
        "x": _axis(axes.get_xlabel(), axes.get_xscale(), axes.get_xlim()),
        "y": _axis(axes.get_ylabel(), axes.get_yscale(), axes.get_ylim()),
        "series": series,
    }
    return json.dumps(found, separators=(",", ":"), allow_nan=False)


def _stairs(axes: Axes) -> list[StepPatch]:
    return [patch for patch in axes.patches if isinstance(patch, StepPatch)]


def _axis(label: str, scale: str, limits: tuple[float, float]) -> AxisData:
    return {"label": label, "scale": "nines" if scale == "function" else scale, "limits": _numbers(limits)}


def _series(name: str, x: object, y: object, steps: bool) -> SeriesData:
    return {"name": name, "id": "", "steps": steps, "x": _numbers(x), "y": _numbers(y)}


def _numbers(values: object) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in np.asarray(values, dtype=float).tolist()]
