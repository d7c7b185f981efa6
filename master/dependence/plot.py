"""Plot of the dependence in arrivals: a row of four diagrams for each case (2 × 2 for a single one)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from pktswarm.master.output import write_figure
from pktswarm.traffic.dependence import Dependence, Estimate

DRAW_IN_CASES = ("variance-time", "wavelet")


def draw(reports: list[Dependence], path: Path) -> None:
    """Writes PNG or SVG, by the file's suffix."""
    write_figure(_figure(reports), path)


def _figure(reports: list[Dependence]) -> Figure:
    single = len(reports) == 1
    rows, columns = (2, 2) if single else (len(reports), 4)
    figure = Figure(figsize=(11, 8) if single else (17, 3.2 * rows), layout="constrained")
    axes = np.asarray(figure.subplots(rows, columns)).reshape(len(reports), 4)
    for row, report in zip(axes, reports, strict=True):
        _gaps(row[0], report)
        _sums(row[1], report)
        for place, name in zip(row[2:], DRAW_IN_CASES, strict=True):
            _diagram(place, next((each for each in report.estimates if each.name == name), None), name)
    return figure


def _gaps(axes: Axes, report: Dependence) -> None:
    gaps = report.gaps
    middle = np.sqrt(gaps.edges_ns[:-1] * gaps.edges_ns[1:]) / 1e9
    axes.stairs(gaps.packets, gaps.edges_ns / 1e9, fill=True, color="tab:blue", alpha=0.6, label="observed")
    inside = np.diff(-np.exp(-gaps.edges_ns / gaps.mean_ns)) * (report.packets - 1)
    axes.plot(middle, inside, color="tab:gray", linewidth=1, label="exponential")
    axes.set(
        xscale="log",
        yscale="log",
        ylim=(0.7, 3 * max(gaps.packets.max(), 1)),
        xlabel="inter-arrival time, s",
        ylabel="packets",
    )
    axes.set_title(f"{report.name}: {report.packets:,} packets, {gaps.zero:,} gaps of 0", fontsize=9)
    axes.legend(fontsize=7)


def _sums(axes: Axes, report: Dependence) -> None:
    """Draws equation 2.2, as the right column of figure 5.7: growth of the sum with the lag."""
    for acf, what, colour in ((report.counts_acf, "counts", "tab:blue"), (report.gaps_acf, "gaps", "tab:orange")):
        if acf is not None:
            lags = np.arange(1, len(acf.rho) + 1)
            axes.plot(lags, acf.sums, color=colour, label=f"of {what}")
            axes.plot(lags, acf.noise, color=colour, linewidth=0.8, linestyle=":", label=f"of {what}, if independent")
    axes.set(xlabel=f"lag (bins of {report.bin_ns / 1e6:.4g} ms; packets)", ylabel="Σ|ρ|")
    axes.set_title("sum of the autocorrelation", fontsize=9)
    if axes.lines:
        axes.legend(fontsize=7)


def _diagram(axes: Axes, estimate: Estimate | None, name: str) -> None:
    if estimate is None or estimate.diagram is None or estimate.hurst is None:
        axes.set_title(f"{name}: not estimated", fontsize=9)
        return
    drawn = estimate.diagram
    axes.plot(drawn.x, drawn.y, "o", markersize=3, color="tab:blue")
    axes.plot(drawn.x, drawn.fitted, color="tab:red", linewidth=1)
    axes.set(xscale="log", xlabel=drawn.x_name, ylabel=drawn.y_name)
    # Below a decade matplotlib labels every minor tick, and the labels overlap.
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title(f"{name}: H = {estimate.hurst:.2f} ({estimate.low:.2f} to {estimate.high:.2f})", fontsize=9)
