"""Share of failed points in each part of a table (Dirnberger 2021, figure 6.7)."""

from __future__ import annotations

from typing import TypedDict

from rich import box
from rich.table import Table

from pktswarm.master.tables.family import Family, PointResult


class PartRow(TypedDict):
    """Measured points of a part, and those of them whose measure `failures` is above 0; the same of the reference."""

    part: str
    points: int
    failed: int
    reference_points: int
    reference_failed: int


def rows(family: Family, points: list[PointResult]) -> list[PartRow]:
    name, found = family.failures, []
    for part in dict.fromkeys(point["labels"][0] for point in points):
        values = [
            point["measured"].get(name) for point in points if point["labels"][0] == part and not point["problem"]
        ]
        ours = [value for value in values if value is not None]
        theirs = _reference(family, part)
        row: PartRow = {
            "part": part,
            "points": len(ours),
            "failed": sum(value > 0 for value in ours),
            "reference_points": len(theirs),
            "reference_failed": sum(value > 0 for value in theirs),
        }
        found.append(row)
    return found


def table(family: Family, points: list[PointResult]) -> Table:
    """Makes the table, with the reference's share in brackets."""
    made = Table(title=f"{family.failures.replace('_', ' ')} above 0", title_justify="left")
    made.box, made.pad_edge = box.SIMPLE_HEAD, False
    for name in (family.axes[0].title or family.axes[0].name, "points", "of them", "%"):
        made.add_column(name, justify="right")
    for row in rows(family, points):
        ours = _percent(row["failed"], row["points"])
        theirs = _percent(row["reference_failed"], row["reference_points"])
        beside = f" [dim]({theirs})[/]" if row["reference_points"] else ""
        made.add_row(row["part"], str(row["points"]), str(row["failed"]), f"{ours}{beside}")
    return made


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}" if whole else "–"


def _reference(family: Family, part: str) -> list[float]:
    """Returns the reference's values of all rows, measured here or not."""
    if family.reference is None:
        return []
    place = family.measures.index(family.failures)
    columns = [figures for row in family.reference.figures.get(part, {}).values() for figures in row]
    return [value for figures in columns if (value := figures[place]) is not None]
