"""The plots of a report, as SVG inside the page: with the page's colours, light or dark, and text as text.

The complete data of a plot is in a CSV file beside the page; the plot of many points has fewer.
"""

from __future__ import annotations

import html
import io
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pktswarm.master.output import write_rows
from pktswarm.master.report import plot_data
from pktswarm.master.report.over_time import MOST_STREAMS, Floats, OverTime, thin
from pktswarm.master.report.shapes import Shapes
from pktswarm.master.results.document_rows import RunRow
from pktswarm.master.results.latency_histogram import FILE, Flow, Points

FOLDER = "plots"
MOST_POINTS = 2000
"""Points of one line: more than its pixels, for a zoom."""
WIDTH_IN, HEIGHT_IN, LEGEND_ROW_IN = 6.2, 3.2, 0.2
LABEL_IN, CHARACTER_IN, BELOW_IN, ABOVE_IN, RIGHT_IN = 0.4, 0.09, 0.5, 0.1, 0.2
"""Margins of the axes: for the label on the left, and each character of its marks."""
INK, FAINT = "#010203", "#040506"
LINES = [f"#0a0b{number:02x}" for number in range(MOST_STREAMS)]
"""Placeholders that CSS variables with the page's colours replace."""
COLOURS = {INK: "var(--ink)", FAINT: "var(--line)", **{line: f"var(--plot-{n})" for n, line in enumerate(LINES)}}
DASHES = ("-", "--", "-.", ":")
"""Lines differ by more than their colours."""
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pktswarm",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 9,
}
POINTS = {"min": 0.0, "p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9, "max": 100.0}
"""Recorded point of a latency distribution → percentile."""
P99 = list(POINTS).index("p99")


@dataclass
class Plot:
    title: str
    svg: str
    data: str
    """The CSV file in the results folder."""
    words: str
    """The content of the plot in words, for screen readers."""
    more: list[str] = field(default_factory=list)
    """Further CSV files of the results folder."""


def over_time(found: OverTime, folder: Path) -> list[Plot]:
    """Packets and bits per second, and received and missing packets of each stream; writes their CSV files."""
    rates = [found.begins_s, found.in_pps, found.out_pps, found.in_bps, found.out_bps, found.ends_s]
    data = _write(folder, "throughput.csv", "time_s,in_pps,out_pps,in_bps,out_bps,until_s", _columns(rates))
    pps = {"in": found.in_pps, "out": found.out_pps}
    mbps = {name: bps / 1e6 for name, bps in (("in", found.in_bps), ("out", found.out_bps)) if bps is not None}
    plots = [_lines("packets", "Packets in and out, of the interfaces", "packets/s", found, pps, data)]
    if mbps:
        plots.append(_lines("bits", "Bits in and out, frames of the streams with FCS", "Mbit/s", found, mbps, data))
    if len(found.received_pps) > 1:
        header = "time_s,stream,received_pps,until_s"
        rows = _long(found.begins_s, found.received_pps, found.ends_s)
        data = _write(folder, "received_by_stream.csv", header, rows)
        plots.append(_lines("streams", "Received packets by stream", "packets/s", found, found.received_pps, data))
    losing = {name: values for name, values in found.missing.items() if values.max() > 0}
    if losing:
        data = _write(folder, "missing_by_stream.csv", "time_s,stream,missing_packets", _long(found.ends_s, losing))
        title = "Missing so far (sequence numbers below the highest received)"
        plots.append(_lines("missing", title, "packets", found, losing, data))
    return plots


def latency(rows: Sequence[RunRow], histograms: Mapping[Flow, Points], folder: Path) -> Plot | None:
    """The distribution of each flow: all classes of its histogram, or the recorded percentiles.

    The plot shows the flows with the highest 99th. `rows`: those with latency."""
    if not rows:
        return None
    flows = [(row, _latency_points(row)) for row in rows]
    table = [
        (row["stream"], row["from"], row["to"], percentile, ns)
        for row, points in flows
        for percentile, ns in zip(POINTS.values(), points, strict=True)
    ]
    data = _write(folder, "latency.csv", "stream,from,to,percentile,latency_ns", table)
    worst = sorted(flows, key=lambda flow: -flow[1][P99])[:MOST_STREAMS]
    few = "" if len(worst) == len(rows) else f" of the {len(worst)} flows with the highest 99th percentile"
    low, high = min(points[0] for _, points in flows) / 1e3, max(points[-1] for _, points in flows) / 1e3
    drawn = {
        f"{row['stream']}, {row['from']} → {row['to']}": _shares(
            points, histograms.get((row["stream"], row["from"], row["to"]))
        )
        for row, points in worst
    }
    words = f"Minimum {low:,.1f} µs, maximum {high:,.1f} µs over {len(rows)} flows; each flow is in the table."
    more = [FILE] if histograms else []
    return Plot(f"Latency distribution{few}", _distribution(drawn), data, words, more)


def _latency_points(row: RunRow) -> tuple[int, ...]:
    """The latencies of POINTS, in its order."""
    values = (
        row.get("latency_min_ns"),
        row.get("latency_p50_ns"),
        row.get("latency_p90_ns"),
        row.get("latency_p99_ns"),
        row.get("latency_p999_ns"),
        row.get("latency_max_ns"),
    )
    return tuple(ns for ns in values if ns is not None)


def _shares(points: Sequence[int], histogram: Points | None) -> tuple[Floats, Floats, bool]:
    """Latencies in µs, the percentage of packets up to each, and whether all latencies are among them."""
    if histogram is None:
        return np.array(points) / 1e3, np.array(list(POINTS.values())), False
    ns, packets = np.array(histogram, dtype=float).T
    shares = 100 * np.cumsum(packets) / packets.sum()
    return np.append(ns[0], ns) / 1e3, np.append(0.0, shares), True


def _distribution(flows: Mapping[str, tuple[Floats, Floats, bool]]) -> str:
    """Percentages with an axis that stretches the last ones: each further nine has the same width."""
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes("latency, µs", "packets up to this latency, %", list(flows))
        last = max(float(shares[shares < 100].max(initial=0)) for _, shares, _ in flows.values())
        top = 100 - 10 ** (1 - max(1.0, np.ceil(nines(last) + 0.2)))
        for number, (label, (us, shares, whole)) in enumerate(flows.items()):
            style = {"drawstyle": "steps-post"} if whole else {"marker": "o", "markersize": 3}
            axes.plot(us, np.minimum(shares, top), label=label, **style, **line_style(number))
        axes.set_yscale("function", functions=(nines, not_nines))
        ticks = [tick for tick in NINES if tick < top]
        axes.set_yticks([*ticks, top], [*(f"{tick:g}" for tick in ticks), "100"])
        axes.set_ylim(0, top)
        least, most = (pick(pick(us) for us, _, _ in flows.values()) for pick in (min, max))
        if least > 0:
            axes.set_xscale("log")
            axes.set_xlim(*_at_least_a_decade(least, most))
            _logarithmic(axes.xaxis)
        return svg_of(figure, "latency", columns)


NINES = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)


def nines(percent: Any) -> Any:
    """The position of a percentage: 0 at 0 %, 1 at 90 %, 2 at 99 %."""
    return -np.log10(np.maximum(1e-12, 1 - np.asarray(percent) / 100))


def not_nines(position: Any) -> Any:
    return 100 * (1 - 10.0 ** -np.asarray(position))


def _at_least_a_decade(low: float, high: float) -> tuple[float, float]:
    """Limits of a logarithmic axis with some room on both sides."""
    room = max(1.1, (10 / (high / low)) ** 0.5)
    return low / room, high * room


def latency_over_time(found: OverTime, folder: Path) -> Plot | None:
    """The mean latency of each bin by stream. The plot shows the streams with the highest. None: the samples have no
    latency."""
    some = {name: ~np.isnan(ns) for name, ns in found.latency_ns.items() if not np.isnan(ns).all()}
    if not some:
        return None
    known = {name: (found.begins_s[at], found.ends_s[at], found.latency_ns[name][at]) for name, at in some.items()}
    rows = [
        (name, f"{begin:.10g}", f"{ns:.1f}", f"{end:.10g}")
        for name, columns in known.items()
        for begin, end, ns in zip(*columns, strict=True)
    ]
    data = _write(folder, "latency_over_time.csv", "stream,time_s,latency_mean_ns,until_s", rows)
    highest = sorted(known, key=lambda name: -float(np.median(known[name][2])))[:MOST_STREAMS]
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes("time since the start, s", "latency, µs", highest)
        for number, name in enumerate(highest):
            begins, ends, each = known[name]
            times, values = thin((begins + ends) / 2, each, MOST_POINTS)
            axes.plot(times, values / 1e3, label=name, marker=".", markersize=2, **line_style(number))
        svg = svg_of(figure, "delays", columns)
    medians = (
        f"{name}: median of the means {np.median(ns) / 1e3:,.1f}, maximum {ns.max() / 1e3:,.1f} µs"
        for name, (_, _, ns) in known.items()
    )
    few = "" if len(highest) == len(known) else f" of the {len(highest)} streams with the highest"
    return Plot(f"Latency over time: the mean of each {found.bin_s:g} s{few}", svg, data, f"{'; '.join(medians)}.")


def sizes(found: Shapes, folder: Path) -> Plot:
    """The cumulative distribution of frame sizes: readable with few sizes and with many."""
    rows = [(one.name, size, packets) for one in found.each for size, packets in one.listed()]
    data = _write(folder, "sizes.csv", "of,size_bytes,packets", rows)
    drawn = found.each[:MOST_STREAMS]
    largest = max(one.listed()[-1][0] for one in drawn)
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes(
            "size with FCS, bytes", "frames up to this size, %", [one.name for one in drawn]
        )
        for number, one in enumerate(drawn):
            each = np.array(one.listed())
            part = np.cumsum(each[:, 1]) / one.packets
            edges = np.concatenate([[0.0], each[:, 0], [1.1 * largest]])
            values = 100 * np.concatenate([[0.0], part, [1.0]])
            axes.plot(edges, values, label=one.name, drawstyle="steps-post", **line_style(number))
        axes.set(xlim=(0, 1.1 * largest), ylim=(0, 103))
        svg = svg_of(figure, "sizes", columns)
    texts = (f"{one.name}: mean {one.mean_bytes:,.1f} bytes, {len(one.listed())} sizes" for one in drawn)
    return Plot("Packet sizes", svg, data, f"{'; '.join(texts)}.")


def gaps(found: Shapes, folder: Path) -> Plot | None:
    """Inter-arrival times, ten bins per decade; None where there are none above 0."""
    edges = found.each[0].gaps.edges_ns()
    counted = [(one, np.flatnonzero(one.gaps.histogram)) for one in found.each]
    counted = [(one, used) for one, used in counted if len(used)]
    rows: list[tuple[object, ...]] = [(one.name, 0, 0, one.gaps.zero) for one in found.each if one.gaps.zero]
    rows += [
        (one.name, f"{edges[n]:.6g}", f"{edges[n + 1]:.6g}", int(one.gaps.histogram[n]))
        for one, used in counted
        for n in used
    ]
    data = _write(folder, "gaps.csv", "of,from_ns,to_ns,packets", rows)
    if not counted:
        return None
    drawn = counted[:MOST_STREAMS]
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes("inter-arrival time, µs", "packets", [one.name for one, _ in drawn])
        for number, (one, used) in enumerate(drawn):
            inside = slice(int(used[0]), int(used[-1]) + 1)
            marks = edges[inside.start : inside.stop + 1] / 1e3
            style = line_style(number)
            axes.stairs(one.gaps.histogram[inside], marks, label=one.name, **style)
        lows, highs = zip(*((edges[used[0]], edges[used[-1] + 1]) for _, used in drawn), strict=True)
        axes.set(xscale="log", yscale="log", xlim=_at_least_a_decade(min(lows) / 1e3, max(highs) / 1e3))
        axes.set_ylim(bottom=0.5, top=2 * max(int(one.gaps.histogram.max()) for one, _ in drawn))
        _logarithmic(axes.xaxis)
        _logarithmic(axes.yaxis)
        svg = svg_of(figure, "gaps", columns)
    texts = (
        f"{one.name}: mean {(one.gaps.mean_ns or 0) / 1e3:,.1f} µs, maximum {one.gaps.largest_ns / 1e3:,.1f} µs"
        for one, _ in drawn
    )
    return Plot("Inter-arrival times, ten bins per decade", svg, data, f"{'; '.join(texts)}.")


# --- drawing ---------------------------------------------------------------------------------------------------------


def _lines(name: str, title: str, unit: str, found: OverTime, series: dict[str, Floats], data: str) -> Plot:
    """A plot with one step between each two edges; of counts, a line between their values at the edges."""
    counts = unit == "packets"
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes("time since the start, s", unit, list(series))
        for number, (label, values) in enumerate(series.items()):
            at_edges = np.append(0.0, values) if counts else np.append(values, values[-1])
            line = thin(found.edges_s, at_edges, MOST_POINTS)
            axes.plot(*line, label=label, drawstyle="default" if counts else "steps-post", **line_style(number))
        axes.set_ylim(bottom=0)
        words = "; ".join(f"{label}: {_summed_up(values, unit)}" for label, values in series.items())
        return Plot(title, svg_of(figure, name, columns), data, f"{words}.")


def _summed_up(values: Floats, unit: str) -> str:
    """The final value of a count; the median and the maximum of a rate."""
    if unit == "packets":
        return f"{values[-1]:,.0f} packets at the end"
    median, most = (f"{one:,.0f}" if one >= 1000 else f"{one:,.4g}" for one in (np.median(values), values.max()))
    return f"median {median}, maximum {most} {unit}"


def new_axes(x: str, y: str, labels: list[str]) -> tuple[Figure, Axes, int]:
    """A figure with room above for a legend of `labels`, its axes, and the columns of the legend."""
    longest = max(map(len, labels))
    columns = 4 if longest <= 12 else 2 if longest <= 36 else 1
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN + LEGEND_ROW_IN * -(-len(labels) // columns)))
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    axes.yaxis.set_major_formatter(FuncFormatter(_grouped))
    return figure, axes, columns


def _logarithmic(axis: Axis) -> None:
    """Sets as many marks as fit, written as numbers and not as powers."""
    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high < 1000 * max(low, 1e-9) else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps, numticks=10))
    axis.set_major_formatter(FuncFormatter(_grouped))
    axis.set_minor_formatter(NullFormatter())


def _grouped(value: float, _: object) -> str:
    return f"{value:,g}" if abs(value) < 1e6 else f"{value:,.0f}"


def line_style(number: int) -> dict[str, Any]:
    return {"color": LINES[number], "linestyle": DASHES[number % len(DASHES)], "linewidth": 1.5}


def _set_margins(figure: Figure) -> None:
    """By what stands there. matplotlib's own layout measures each text, which takes half of the time of a plot."""
    width_in, height_in = figure.get_size_inches()
    for axes in figure.axes:
        low, high = sorted(axes.get_ylim())
        format_mark = axes.yaxis.get_major_formatter()
        marks = [format_mark(mark, None) for mark in axes.get_yticks() if low <= mark <= high]
        left_in = LABEL_IN + CHARACTER_IN * max(map(len, marks), default=0)
        above_in = height_in - HEIGHT_IN + ABOVE_IN
        axes.set_position(
            (
                left_in / width_in,
                BELOW_IN / height_in,
                1 - (left_in + RIGHT_IN) / width_in,
                1 - (BELOW_IN + above_in) / height_in,
            )
        )


def svg_of(figure: Figure, name: str, columns: int) -> str:
    """The SVG of a figure, with its points as an attribute. Its identifiers begin with `name`: a page has several."""
    _set_margins(figure)
    figure.legend(loc="upper left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=columns)
    plot_data.mark(figure)
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(text, metadata=nothing)  # type: ignore[no-untyped-call] # matplotlib has no types here
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.S)
    svg = re.sub(r'\b(id="|href="#|url\(#)', rf"\1{name}-", svg).replace("xlink:href", "href")
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)
    for colour, variable in COLOURS.items():
        svg = svg.replace(colour, variable)
    points = html.escape(plot_data.plot_data(figure, name))
    return re.sub(
        r'<svg[^>]*?viewBox="([^"]*)"[^>]*>',
        lambda found: f'<svg viewBox="{found[1]}" aria-hidden="true" focusable="false" data-plot="{points}">',
        svg,
        count=1,
    )


# --- data ------------------------------------------------------------------------------------------------------------


def _columns(columns: list[Floats | None]) -> Iterable[tuple[str, ...]]:
    """Rows of columns; None: a column of empty cells."""
    return zip(*(itertools.repeat("") if one is None else _numbers(one) for one in columns), strict=False)


def _numbers(values: Floats) -> list[str]:
    return [f"{value:.10g}" for value in values.tolist()]


def _long(times: Floats, series: dict[str, Floats], *more: Floats) -> Iterable[tuple[str, ...]]:
    """Rows of time, name and value, and of the columns that all series share."""
    shared = list(map(_numbers, more))
    for name, values in series.items():
        yield from zip(_numbers(times), itertools.repeat(name), _numbers(values), *shared, strict=False)


def _write(folder: Path, name: str, header: str, rows: Iterable[Iterable[object]]) -> str:
    (folder / FOLDER).mkdir(exist_ok=True)
    write_rows(folder / FOLDER / name, header, rows)
    return f"{FOLDER}/{name}"
