"""The page of a comparison, in the style of a report."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from pktswarm.master.compare import wording
from pktswarm.master.compare.comparison import Comparison, Difference
from pktswarm.master.compare.show import cautions
from pktswarm.master.report.kinds import RUN
from pktswarm.master.report.render import render

MOST_ROWS = 400
"""Maximum rows of a table; compare.csv has all."""


def html(comparison: Comparison, folder: Path) -> str:
    """Makes the page, and writes the data of its plots into the folder of the comparison. Raises OSError."""
    from pktswarm.master.compare.plots import pictures  # matplotlib takes half a second to load

    return render("compare.html", {**_context(comparison), "pictures": pictures(comparison.sides, folder)})


class FigureCells(TypedDict):
    subject: str
    title: str
    first: str
    other: str
    difference: str
    relative: str
    noise: str
    verdict: str
    kind: str
    mark: str


class FigureTable(TypedDict):
    letter: str
    name: str
    rows: list[FigureCells]


def _context(comparison: Comparison) -> dict[str, object]:
    document = comparison.document()
    return {
        "document": document,
        "verdict": wording.verdict(comparison),
        "kind": _kind(comparison),
        "nodes": wording.nodes(comparison),
        "settings": "scenarios" if comparison.first.kind == RUN else "options",
        "device": wording.device(comparison),
        "explanation": wording.explanation(comparison),
        "cautions": cautions(comparison, document),
        "beyond": [
            {"worse": each.for_the_worse, "words": wording.sentence(each)} for each in wording.beyond_first(comparison)
        ],
        "tables": [_table(comparison, side.letter, side.name) for side in comparison.others],
        "first": {"letter": comparison.first.letter, "name": comparison.first.name},
        "shown": MOST_ROWS,
    }


def _kind(comparison: Comparison) -> str:
    """Returns the style of the verdict."""
    if not comparison.noise_is_known:
        return "doubt"
    return "bad" if comparison.status(fail_on_worse=True) else "good"


def _table(comparison: Comparison, letter: str, name: str) -> FigureTable:
    """Makes a table; with too many rows, streams that differ by more than the noise are first."""
    found = wording.shown([each for each in comparison.differences if each.side == letter])
    beyond = {each.subject for each in found if each.beyond}
    if len(found) > MOST_ROWS:
        found = sorted(found, key=lambda each: each.subject not in beyond)
    return {"letter": letter, "name": name, "rows": [_row(each) for each in found]}


def _row(difference: Difference) -> FigureCells:
    return {
        "subject": difference.subject,
        "title": wording.title(difference),
        "first": wording.spread(difference, first=True),
        "other": wording.spread(difference, first=False),
        "difference": wording.number(difference.unit, difference.difference, sign=True),
        "relative": "" if difference.unit == "ratio" else wording.percent(difference.relative),
        "noise": "" if difference.noise is None else f"±{wording.number(difference.unit, difference.noise)}",
        "verdict": difference.verdict or "not measured on both sides",
        "kind": "bad-word" if difference.for_the_worse else "beyond" if difference.beyond else "dim",
        "mark": "✗ worse, " if difference.for_the_worse else "≠ " if difference.beyond else "",
    }
