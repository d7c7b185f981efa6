"""A comparison on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pktswarm.master.compare import wording
from pktswarm.master.compare.comparison import BEYOND, Comparison, Difference
from pktswarm.master.compare.figures import FIGURES

MOST_SUBJECTS = 12
"""Of a table; those that differ by more than noise come first, compare.csv has all."""
MOST_TOLD = 20


def print_comparison(console: Console, comparison: Comparison, folder: Path) -> None:
    document = comparison.document()
    for side in comparison.sides:
        runs = "1 run" if len(side.runs) == 1 else f"{len(side.runs)} runs"
        console.print(f"{side.letter}  {side.name} ({runs})", markup=False, highlight=False)
    for line in cautions(comparison, document):
        console.print(line, style="yellow", markup=False, highlight=False)
    for other in comparison.others:
        found = [one for one in comparison.differences if one.side == other.letter]
        chosen, left = _chosen(wording.shown(found))
        console.print(table(comparison, other.letter, chosen))
        if left:
            console.print(f"[dim]{left} more streams are in compare.csv[/]")
    _print_told(console, document)
    console.print(f"[dim]{escape(wording.explanation(comparison))}[/]", highlight=False)
    for one in wording.beyond_first(comparison)[: wording.MOST_LINES]:
        colour, word = ("red", "worse") if one.for_the_worse else ("cyan", "different")
        console.print(f"[{colour}]{word}[/]  {escape(wording.sentence(one))}", highlight=False)
    console.print(wording.verdict(comparison), style="bold", highlight=False)
    console.print(f"results: {folder}", soft_wrap=True)


def cautions(comparison: Comparison, document: dict[str, Any]) -> list[str]:
    """Before any figure: what is not as it seems."""
    told = [line for side in comparison.sides for line in wording.doubts(side)]
    for side in document["sides"]:
        told += [f"{side['side']}: {line}" for line in side["not_repetitions"]]
    told += [f"{one['stream']} is in {one['side']} and not in {one['not_in']}" for one in document["in_one_only"]]
    return told


def table(comparison: Comparison, letter: str, differences: list[Difference]) -> Table:
    """Of side A and another one; a section for each stream."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    made.add_column("stream")
    made.add_column("figure", no_wrap=True)
    for name in (comparison.first.letter, letter, f"{letter} − {comparison.first.letter}", "", "noise"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("")
    subject = ""
    for one in differences:
        if one.subject != subject and subject:
            made.add_section()
        made.add_row(escape(one.subject) if one.subject != subject else "", *_cells(one))
        subject = one.subject
    return made


def _cells(one: Difference) -> list[str]:
    noise = "" if one.noise is None else f"±{wording.number(one.unit, one.noise)}"
    colour = "red" if one.for_the_worse else "cyan" if one.verdict == BEYOND else "dim"
    change = wording.number(one.unit, one.difference, sign=True)
    relative = "" if one.relative is None or one.unit == "ratio" else wording.percent(one.relative)
    figures = [wording.spread(one, first=True), wording.spread(one, first=False)]
    return [escape(wording.title(one)), *figures, change, relative, noise, f"[{colour}]{one.verdict}[/]"]


def _chosen(differences: list[Difference]) -> tuple[list[Difference], int]:
    """Those of so many streams, and how many more there are."""
    subjects = list(dict.fromkeys(one.subject for one in differences))
    beyond = {one.subject for one in differences if one.beyond}
    kept = set(sorted(subjects, key=lambda name: name not in beyond)[:MOST_SUBJECTS])
    return [one for one in differences if one.subject in kept], len(subjects) - len(kept)


def _print_told(console: Console, document: dict[str, Any]) -> None:
    for part in ("scenario", "nodes"):
        told = document[part]
        for one in told[:MOST_TOLD]:
            words = f"{part}: {one['key']}: {one['first']} → {one['other']} ({one['side']})"
            console.print(words, style="yellow", markup=False, highlight=False)
        if len(told) > MOST_TOLD:
            console.print(f"{part}: {len(told) - MOST_TOLD} more differences are in compare.json", style="yellow")


def print_repeated(console: Console, figures: list[dict[str, Any]], problem: str, folder: Path) -> None:
    """`figures`: of spread()."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    made.add_column("stream")
    made.add_column("figure", no_wrap=True)
    for name in ("mean", "sd", "least", "most"):
        made.add_column(name, justify="right", no_wrap=True)
    subject = ""
    for one in (one for one in figures if one["most"] or one["least"]):
        if one["subject"] != subject and subject:
            made.add_section()
        name = escape(one["subject"]) if one["subject"] != subject else ""
        numbers = [wording.number(one["unit"], one[key]) for key in ("mean", "sd", "least", "most")]
        made.add_row(name, FIGURES[one["figure"]].title, *numbers)
        subject = one["subject"]
    console.print(made)
    runs = max((one["runs"] for one in figures), default=0)
    console.print(f"[dim]of {runs} whole runs; sd: the standard deviation of a run[/]", highlight=False)
    if problem:
        console.print(f"the repetition ended: {problem}", style="yellow", markup=False, highlight=False)
    console.print(f"results: {folder}", soft_wrap=True)
