"""A figure written to a file, as a picture or as a drawing."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pktswarm.traffic.errors import BadInput


def write(figure: Figure, path: Path) -> None:
    """SVG or PNG by the file's ending. Raises BadInput where it cannot be written."""
    canvas = (FigureCanvasSVG if path.suffix.lower() == ".svg" else FigureCanvasAgg)(figure)
    try:
        canvas.print_figure(path, dpi=110)
    except OSError as error:
        raise BadInput(path, f"cannot be written: {error.strerror}") from None
