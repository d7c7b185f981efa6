"""How many of the points of each part went wrong: Dirnberger 2021, figure 6.7, is such a table."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

from pktswarm.master.tables.family import Family


def rows(family: Family, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each part: its points that were measured, those of them where `failures` is above 0, and the reference's."""
    name, found = family.failures, []
    for part in dict.fromkeys(one["labels"][0] for one in told):
        values = [one["measured"].get(name) for one in told if one["labels"][0] == part and not one["problem"]]
        ours = [value for value in values if value is not None]
        theirs = _reference(family, part)
        counts = {"points": len(ours), "failed": sum(value > 0 for value in ours)}
        beside = {"reference_points": len(theirs), "reference_failed": sum(value > 0 for value in theirs)}
        found.append({"part": part, **counts, **beside})
    return found


def table(family: Family, told: list[dict[str, Any]]) -> Table:
    """The reference's in brackets."""
    made = Table(title=f"{family.failures.replace('_', ' ')} above 0", title_justify="left")
    made.box, made.pad_edge = box.SIMPLE_HEAD, False
    for name in (family.axes[0].title or family.axes[0].name, "points", "of them", "%"):
        made.add_column(name, justify="right")
    for one in rows(family, told):
        ours = _percent(one["failed"], one["points"])
        theirs = _percent(one["reference_failed"], one["reference_points"])
        beside = f" [dim]({theirs})[/]" if one["reference_points"] else ""
        made.add_row(str(one["part"]), str(one["points"]), str(one["failed"]), f"{ours}{beside}")
    return made


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}" if whole else "–"


def _reference(family: Family, part: str) -> list[float]:
    """Of all its rows, also those that were not run here."""
    if family.reference is None:
        return []
    place = family.measures.index(family.failures)
    columns = [figures for row in family.reference.figures.get(part, {}).values() for figures in row]
    return [figures[place] for figures in columns if figures[place] is not None]  # type: ignore[misc]
