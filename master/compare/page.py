"""The page of a comparison, in the style of a run's report."""

from __future__ import annotations

from typing import Any

from pktswarm.master.compare import wording
from pktswarm.master.compare.comparison import Comparison, Difference
from pktswarm.master.compare.show import cautions
from pktswarm.master.report.render import render

MOST_ROWS = 400
"""Of a table; compare.csv has all."""


def html(comparison: Comparison) -> str:
    return render("compare.html", _context(comparison))


def _context(comparison: Comparison) -> dict[str, Any]:
    document = comparison.document()
    return {
        "document": document,
        "verdict": wording.verdict(comparison),
        "kind": _kind(comparison),
        "explanation": wording.explanation(comparison),
        "cautions": cautions(comparison, document),
        "beyond": [
            {"worse": one.for_the_worse, "words": wording.sentence(one)} for one in wording.beyond_first(comparison)
        ],
        "tables": [_table(comparison, side.letter, side.name) for side in comparison.others],
        "first": {"letter": comparison.first.letter, "name": comparison.first.name},
        "shown": MOST_ROWS,
    }


def _kind(comparison: Comparison) -> str:
    """Of the verdict: its colour, which its words say too."""
    if not comparison.noise_is_known:
        return "doubt"
    return "bad" if comparison.status(fail_on_worse=True) else "good"


def _table(comparison: Comparison, letter: str, name: str) -> dict[str, Any]:
    """Streams that differ by more than noise come first where there are too many rows."""
    found = wording.shown([one for one in comparison.differences if one.side == letter])
    beyond = {one.subject for one in found if one.beyond}
    if len(found) > MOST_ROWS:
        found = sorted(found, key=lambda one: one.subject not in beyond)
    return {"letter": letter, "name": name, "rows": [_row(one) for one in found]}


def _row(one: Difference) -> dict[str, Any]:
    return {
        "subject": one.subject,
        "title": wording.title(one),
        "first": wording.spread(one, first=True),
        "other": wording.spread(one, first=False),
        "difference": wording.number(one.unit, one.difference, sign=True),
        "relative": "" if one.unit == "ratio" else wording.percent(one.relative),
        "noise": "" if one.noise is None else f"±{wording.number(one.unit, one.noise)}",
        "verdict": one.verdict or "not measured on both sides",
        "kind": "bad-word" if one.for_the_worse else "beyond" if one.beyond else "dim",
        "mark": "✗ worse, " if one.for_the_worse else "≠ " if one.beyond else "",
    }
