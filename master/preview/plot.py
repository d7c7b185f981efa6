"""Plot of a preview: rates over time, sizes, inter-arrival times, users."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pktswarm.master.output import write_figure
from pktswarm.master.preview.preview import Preview
from pktswarm.master.preview.tables import all_gaps, sizes_of, total
from pktswarm.traffic.preview.due_frames import Series

MOST_LINES = 9
"""Maximum streams with a line of their own; the colours of more are indistinguishable."""


def draw(found: Preview, path: Path) -> None:
    """Writes PNG or SVG, by the file's suffix."""
    write_figure(_figure(found), path)


def _figure(found: Preview) -> Figure:
    with_users = any(stream.users for stream in found.streams.values())
    rows = 3 if with_users else 2
    figure = Figure(figsize=(12, 3.8 * rows), layout="constrained")
    axes = np.asarray(figure.subplots(rows, 2)).ravel()
    _packets(axes[0], found)
    _bits(axes[1], found)
    _sizes(axes[2], found)
    _gaps(axes[3], found)
    if with_users:
        _users(axes[4], found)
        axes[5].axis("off")
    figure.suptitle(f"{found.name}: traffic of the scenario", fontsize=11)
    return figure


def _lines(found: Preview) -> list[tuple[str, Series]]:
    return [(stream.name, stream.over_time) for stream in found.streams.values()][:MOST_LINES]


def _over_time(axes: Axes, series: Series, amounts: np.ndarray, label: str, **style: object) -> None:
    edges = np.arange(len(amounts) + 1) * series.bin_ns / 1e9
    axes.stairs(amounts / (series.bin_ns / 1e9), edges, label=label, baseline=None, **style)  # type: ignore[arg-type] # style is a dict of keywords


def _packets(axes: Axes, found: Preview) -> None:
    for name, series in _lines(found):
        _over_time(axes, series, series.packets, name)
    if len(found.streams) > 1:
        whole = total(found)
        _over_time(axes, whole, whole.packets, "all", color="black", linewidth=0.8)
    axes.set(xlabel="time, s", ylabel="packets/s", ylim=(0, None))
    axes.set_title(f"packets, in bins of {found.bin_ns / 1e6:g} ms", fontsize=9)
    _legend(axes)


def _bits(axes: Axes, found: Preview) -> None:
    for name, series in _lines(found):
        _over_time(axes, series, series.bits / 1e6, name)
    if len(found.streams) > 1:
        whole = total(found)
        _over_time(axes, whole, whole.bits / 1e6, "all", color="black", linewidth=0.8)
    for each in found.connections[:MOST_LINES]:
        if each.over_time is not None:
            label = f"{each.leg.stream} from {each.leg.source}: blocks"
            _over_time(axes, each.over_time, each.over_time.bits / 1e6, label, linestyle="--")
    axes.set(xlabel="time, s", ylabel="Mbit/s", ylim=(0, None))
    axes.set_title("bits of frames with FCS; of connections: blocks of the application", fontsize=9)
    _legend(axes)


def _sizes(axes: Axes, found: Preview) -> None:
    """Draws the cumulative distribution of sizes."""
    for stream in list(found.streams.values())[:MOST_LINES]:
        rows = np.array(sizes_of(stream.sizes)).reshape(-1, 2)
        sizes = np.concatenate([rows[:1, 0], rows[:, 0]])
        below = np.concatenate([[0], np.cumsum(rows[:, 1]) / max(1, rows[:, 1].sum())])
        axes.plot(sizes, below, drawstyle="steps-post", label=stream.name, marker=".", markersize=3)
    axes.set(xlabel="size with FCS, bytes", ylabel="share of frames up to it", ylim=(0, 1.03))
    axes.set_title("sizes", fontsize=9)
    _legend(axes)


def _gaps(axes: Axes, found: Preview) -> None:
    for name, host, gaps in list(all_gaps(found))[:MOST_LINES]:
        used = np.flatnonzero(gaps.histogram)
        if len(used):
            inside = slice(int(used[0]), int(used[-1]) + 1)
            edges = gaps.edges_ns()[inside.start : inside.stop + 1] / 1e9
            axes.stairs(gaps.histogram[inside], edges, label=f"{name}, {host}")
    axes.set(xscale="log", yscale="log", xlabel="inter-arrival time, s", ylabel="packets")
    axes.set_title("inter-arrival times, ten bins a decade", fontsize=9)
    _legend(axes)


def _users(axes: Axes, found: Preview) -> None:
    for stream in list(found.streams.values())[:MOST_LINES]:
        shares = np.sort([packets for packets, _ in stream.users.values()])[::-1] / max(1, stream.packets)
        if len(shares):
            axes.plot(np.arange(1, len(shares) + 1), shares, ".-", label=f"{stream.name}: {len(shares):,} users")
    axes.set(xlabel="user, the largest first", ylabel="share of packets", ylim=(0, None))
    axes.set_title("users", fontsize=9)
    _legend(axes)


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)
