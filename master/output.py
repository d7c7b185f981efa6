"""Output of commands that show figures: tables, CSV rows, plots."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from pktswarm.traffic.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_picture(path: Path | None, option: str, ending: str, command: str) -> None:
    """Check the path of a plot before anything is computed. Raises BadInput."""
    if path is not None and path.suffix.lower() != ending:
        raise BadInput(command, "wrong file name extension", key=option, value=str(path), allowed=ending)
    if path is not None and not path.parent.is_dir():
        raise BadInput(command, "there is no such folder", key=option, value=str(path.parent))


def figures_table(left: Iterable[str], right: Iterable[str], no_wrap: bool = True) -> Table:
    """Return an empty table with columns aligned to the left, then to the right. `no_wrap`: of the latter."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right", no_wrap=no_wrap)
    return table


def write_rows(path: Path, header: str, rows: Iterable[Iterable[object]]) -> None:
    """Write rows as CSV. `header`: the column names, separated by commas."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header.split(","))
        writer.writerows(rows)


def write_figure(figure: Figure, path: Path) -> None:
    """Write SVG or PNG, by the file name extension. Raises BadInput if the file cannot be written."""
    # Loading matplotlib takes longer than most commands run.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    canvas = (FigureCanvasSVG if path.suffix.lower() == ".svg" else FigureCanvasAgg)(figure)
    try:
        canvas.print_figure(path, dpi=110)
    except OSError as error:
        raise BadInput(path, f"cannot be written: {error.strerror}") from None
