"""Output of commands that show figures: a plain table, rows as CSV, a picture."""

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
    """Before anything is computed. Raises BadInput."""
    if path is not None and path.suffix.lower() != ending:
        raise BadInput(command, "another ending is expected", key=option, value=str(path), allowed=ending)
    if path is not None and not path.parent.is_dir():
        raise BadInput(command, "there is no such folder", key=option, value=str(path.parent))


def figures_table(left: Iterable[str], right: Iterable[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def write_rows(path: Path, header: str, rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header.split(","))
        writer.writerows(rows)


def write_figure(figure: Figure, path: Path) -> None:
    """SVG or PNG by the file's ending. Raises BadInput where it cannot be written."""
    # Matplotlib takes longer to load than most commands to run, and few of them draw.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    canvas = (FigureCanvasSVG if path.suffix.lower() == ".svg" else FigureCanvasAgg)(figure)
    try:
        canvas.print_figure(path, dpi=110)
    except OSError as error:
        raise BadInput(path, f"cannot be written: {error.strerror}") from None
