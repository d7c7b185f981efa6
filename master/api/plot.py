"""Plots of a result, as matplotlib figures for notebooks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from pktswarm.master.report import over_time
from pktswarm.master.report.folder import SAMPLES
from pktswarm.traffic.errors import PktswarmError


def rates(folder: Path) -> Figure:
    """Packets/s into the device under test and out of it, by the counters of the nodes' interfaces. Raises Error
    without samples."""
    found = over_time.read(folder / SAMPLES, None)
    if found is None:
        raise PktswarmError(f"{folder}: no samples to plot")
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for name, values in (("in", found.in_pps), ("out", found.out_pps)):
        axes.plot(found.edges_s, np.append(values, values[-1]), label=name, drawstyle="steps-post")
    axes.set_xlabel("time since the start, s")
    axes.set_ylabel("packets/s")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure
