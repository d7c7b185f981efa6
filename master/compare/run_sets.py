"""What is compared: sides, each of one run or of runs that were repeated."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pktswarm.master.compare.figures import Measured, measured
from pktswarm.master.report.folder import REPEATED, RUN, read
from pktswarm.master.run.repeat import FORMAT_VERSION
from pktswarm.traffic.errors import EXIT_INCOMPLETE, BadInput

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ALLOWED = f"a run's folder with {RUN}, or one with {REPEATED}"


@dataclass
class Compared:
    """One run."""

    path: Path
    document: dict[str, Any]

    @property
    def whole(self) -> bool:
        """Its counts can be trusted."""
        return self.document.get("status") != EXIT_INCOMPLETE

    @cached_property
    def figures(self) -> dict[str, Measured]:
        return measured(self.document)


@dataclass
class Side:
    """`runs`: those that are compared; `left_out`: those that are not whole, and why."""

    letter: str
    name: str
    runs: list[Compared]
    left_out: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """Where no run is whole, why those that are compared are not."""


def sides(words: list[str]) -> list[Side]:
    """Each of `words` is a folder, or several with commas between them. Raises BadInput."""
    if not 2 <= len(words) <= len(LETTERS):
        allowed = f"2 to {len(LETTERS)} folders"
        raise BadInput("compare", "nothing to compare", key="SIDE", value=" ".join(words), allowed=allowed)
    return [side(letter, word) for letter, word in zip(LETTERS, words, strict=False)]


def side(letter: str, word: str) -> Side:
    paths = [Path(word)] if Path(word).is_dir() else [Path(part) for part in word.split(",")]
    found: list[Compared] = []
    left_out: list[str] = []
    for path in paths:
        runs, why = _of_folder(path)
        found, left_out = found + runs, left_out + why
    counted = Counter(run.path.resolve() for run in found)
    if twice := [path for path, count in counted.items() if count > 1]:
        raise BadInput(
            "compare", "the same run twice on one side would hide its noise", key="SIDE", value=str(twice[0])
        )
    others = len(paths) - 1
    name = paths[0].resolve().name + (f" and {others} more" if others else "")
    return _whole_first(Side(letter, name, found, left_out))


def _whole_first(made: Side) -> Side:
    """A run whose counts cannot be trusted is compared only where there is no other."""
    told = [f"{run.path.name}: {run.document.get('reason', 'incomplete')}" for run in made.runs if not run.whole]
    if any(run.whole for run in made.runs):
        made.runs = [run for run in made.runs if run.whole]
        made.left_out += told
    else:
        made.doubts = told
    return made


def _of_folder(path: Path) -> tuple[list[Compared], list[str]]:
    """Its runs, and what is missing of those that were asked for."""
    if not (path / REPEATED).is_file():
        return [_run(path)], []
    document = _repeated(path / REPEATED)
    runs = [_run(path / one["folder"]) for one in document["runs"]]
    if not runs:
        raise BadInput(path / REPEATED, "no run came to its end", allowed="1 or more")
    missing = document["asked_runs"] - len(runs)
    why = document["problem"] or "they are not there"
    return runs, [f"{missing} of {document['asked_runs']} runs of {path.resolve().name}: {why}"] if missing else []


def _repeated(path: Path) -> dict[str, Any]:
    """Raises BadInput where it cannot be read."""
    try:
        document = json.loads(path.read_text())
        version = document.get("format_version")
    except (ValueError, OSError, AttributeError) as error:
        raise BadInput(path, f"cannot be read: {error}") from None
    if version != FORMAT_VERSION:
        problem = "a format this version cannot read"
        raise BadInput(path, problem, key="format_version", value=version, allowed=str(FORMAT_VERSION))
    return dict(document)


def _run(path: Path) -> Compared:
    """Raises BadInput: a run that crashed has no counts of its end, which is what is compared."""
    results = read(path)
    if results.crashed:
        told = f"{results.missing[0]}, so there is nothing to compare; `pktswarm report {path}` shows what it has"
        raise BadInput(path, told, allowed=ALLOWED)
    return Compared(path, results.document)
