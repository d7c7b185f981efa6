"""A comparison on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pktswarm.master.compare import wording
from pktswarm.master.compare.comparison import BEYOND, Comparison, Difference
from pktswarm.master.compare.document import ComparisonDocument, Dispersion
from pktswarm.master.compare.kinds import FIGURES

MOST_SUBJECTS = 12
"""Maximum streams of a table, those that differ by more than the noise first; compare.csv has all."""
MOST_SETTINGS = 20


def print_comparison(console: Console, comparison: Comparison, folder: Path) -> None:
    document = comparison.document()
    for side in comparison.sides:
        runs = "1 run" if len(side.runs) == 1 else f"{len(side.runs)} runs"
        console.print(f"{side.letter}  {side.name} ({runs})", markup=False, highlight=False)
    for line in cautions(comparison, document):
        console.print(line, style="yellow", markup=False, highlight=False)
    for other in comparison.others:
        found = [each for each in comparison.differences if each.side == other.letter]
        chosen, left = _chosen(wording.shown(found))
        console.print(table(comparison, other.letter, chosen))
        if left:
            console.print(f"[dim]{left} more streams in compare.csv[/]")
    _print_settings(console, document)
    if not document["dut"]:
        console.print(f"[dim]{escape(wording.device(comparison))}[/]", highlight=False)
    console.print(f"[dim]{escape(wording.explanation(comparison))}[/]", highlight=False)
    for each in wording.beyond_first(comparison)[: wording.MOST_LINES]:
        colour, word = ("red", "worse") if each.for_the_worse else ("cyan", "different")
        console.print(f"[{colour}]{word}[/]  {escape(wording.sentence(each))}", highlight=False)
    console.print(wording.verdict(comparison), style="bold", highlight=False)
    console.print(f"results: {folder}", soft_wrap=True)


def cautions(comparison: Comparison, document: ComparisonDocument) -> list[str]:
    """Returns incomplete runs, runs that are no repetitions, and streams of one side only."""
    lines = [line for side in comparison.sides for line in wording.doubts(side)]
    for side in document["sides"]:
        lines += [f"{side['side']}: {line}" for line in side["not_repetitions"]]
    only = document["in_one_only"]
    return lines + [f"{each['stream']} is in {each['side']} and not in {each['not_in']}" for each in only]


def table(comparison: Comparison, letter: str, differences: list[Difference]) -> Table:
    """Makes the table of side A and another one, with a section for each stream."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    made.add_column("stream")
    made.add_column("figure", no_wrap=True)
    for name in (comparison.first.letter, letter, f"{letter} − {comparison.first.letter}", "", "noise"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("")
    subject = ""
    for difference in differences:
        if difference.subject != subject and subject:
            made.add_section()
        made.add_row(escape(difference.subject) if difference.subject != subject else "", *_cells(difference))
        subject = difference.subject
    return made


def _cells(difference: Difference) -> list[str]:
    noise = "" if difference.noise is None else f"±{wording.number(difference.unit, difference.noise)}"
    colour = "red" if difference.for_the_worse else "cyan" if difference.verdict == BEYOND else "dim"
    change = wording.number(difference.unit, difference.difference, sign=True)
    relative = "" if difference.relative is None or difference.unit == "ratio" else wording.percent(difference.relative)
    figures = [wording.spread(difference, first=True), wording.spread(difference, first=False)]
    return [escape(wording.title(difference)), *figures, change, relative, noise, f"[{colour}]{difference.verdict}[/]"]


def _chosen(differences: list[Difference]) -> tuple[list[Difference], int]:
    """Returns the differences of the first MOST_SUBJECTS streams, and the number of further streams."""
    subjects = list(dict.fromkeys(difference.subject for difference in differences))
    beyond = {difference.subject for difference in differences if difference.beyond}
    chosen = set(sorted(subjects, key=lambda name: name not in beyond)[:MOST_SUBJECTS])
    return [difference for difference in differences if difference.subject in chosen], len(subjects) - len(chosen)


def _print_settings(console: Console, document: ComparisonDocument) -> None:
    parts = (("device under test", document["dut"]), ("scenario", document["scenario"]), ("nodes", document["nodes"]))
    for part, differences in parts:
        for each in differences[:MOST_SETTINGS]:
            line = f"{part}: {each['key']}: {each['first']} → {each['other']} ({each['side']})"
            console.print(line, style="yellow", markup=False, highlight=False)
        if more := len(differences[MOST_SETTINGS:]):
            console.print(f"{part}: {more} more differences in compare.json", style="yellow")


def dispersion_table(figures: list[Dispersion]) -> Table:
    """A row for each figure that is not 0 in every run."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    made.add_column("stream")
    made.add_column("figure", no_wrap=True)
    for name in ("mean", "sd", "minimum", "maximum"):
        made.add_column(name, justify="right", no_wrap=True)
    subject = ""
    for row in (row for row in figures if row["most"] or row["least"]):
        if row["subject"] != subject and subject:
            made.add_section()
        name = escape(row["subject"]) if row["subject"] != subject else ""
        values = (row["mean"], row["sd"], row["least"], row["most"])
        made.add_row(name, FIGURES[row["figure"]].title, *(wording.number(row["unit"], value) for value in values))
        subject = row["subject"]
    return made


def print_repeated(console: Console, figures: list[Dispersion], problem: str, folder: Path) -> None:
    console.print(dispersion_table(figures))
    runs = max((row["runs"] for row in figures), default=0)
    console.print(f"[dim]{runs} complete runs; sd: standard deviation of a run[/]", highlight=False)
    if problem:
        console.print(f"the repetition ended: {problem}", style="yellow", markup=False, highlight=False)
    console.print(f"results: {folder}", soft_wrap=True)
