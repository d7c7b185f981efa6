"""Sections of a page that show what a command prints: its tables, with the same cells, and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from pktswarm.master.report.plots import Plot

TEMPLATE = "tabular.html"


@dataclass(frozen=True)
class Grid:
    """A table. A head that begins with # belongs to a column of numbers, as in parts.html."""

    caption: str
    heads: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Section:
    """`key`: the anchor of the section."""

    key: str
    title: str
    grids: Sequence[Grid]
    notes: Sequence[str] = ()
    plots: Sequence[Plot] = field(default_factory=list)


def grid(table: Table, caption: str = "") -> Grid:
    """Convert a table of the terminal. `caption`: its title if left out."""
    heads = [("#" if column.justify == "right" else "") + _plain(column.header) for column in table.columns]
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    title = caption or _plain(table.title or "")
    return Grid(title, heads, [list(cells) for cells in zip(*columns, strict=True)])


def _plain(cell: object) -> str:
    text = cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain
    return " ".join(text.split())
