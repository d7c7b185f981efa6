"""Sides of a comparison: sets of one or more runs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from pktswarm.master.compare.figures import Measured
from pktswarm.master.compare.kinds import KINDS, measured
from pktswarm.master.report.folder import REPEATED, read
from pktswarm.master.report.kinds import REPEAT, document_of, kind_of
from pktswarm.master.report.kinds import RUN as RUN_KIND
from pktswarm.master.results.read_document import RUN
from pktswarm.master.run.repeat import FORMAT_VERSION, RepeatedDocument
from pktswarm.traffic.errors import EXIT_INCOMPLETE, BadInput
from pktswarm.traffic.typed_json import Json

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ALLOWED = f"a run's folder with {RUN}, one with {REPEATED}, or one of {', '.join(KINDS)}"


@dataclass
class Compared:
    """One run, or the results of another command. `document`: run.json, search.json, …"""

    path: Path
    document: Json
    kind: str = RUN_KIND

    @property
    def reason(self) -> str:
        return str(self.document.get("reason") or self.document.get("problem") or "")

    @cached_property
    def environment(self) -> Json:
        """run.json with the nodes: of another command than `run`, that of the first run in the folder; empty: none."""
        if self.kind == RUN_KIND:
            return self.document
        for folder in sorted((self.path / "runs").glob("*")):
            if (folder / RUN).is_file():
                return cast(Json, read(folder).document)
        return {}

    @property
    def whole(self) -> bool:
        """Whether it is complete."""
        return self.document.get("status") != EXIT_INCOMPLETE

    @cached_property
    def figures(self) -> dict[str, Measured]:
        return measured(self.kind, self.document)


@dataclass
class Side:
    """`runs`: those that are compared; `left_out`: incomplete ones, with reasons."""

    letter: str
    name: str
    runs: list[Compared]
    kind: str = RUN_KIND
    left_out: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """Reasons why the compared runs are incomplete, if there is no complete one."""


def sides(words: list[str]) -> list[Side]:
    """Reads the sides; each of `words` is a folder, or several separated by commas. Raises BadInput."""
    if not 2 <= len(words) <= len(LETTERS):
        allowed = f"2 to {len(LETTERS)} folders"
        raise BadInput("compare", "nothing to compare", key="SIDE", value=" ".join(words), allowed=allowed)
    made = [side(letter, word) for letter, word in zip(LETTERS, words, strict=False)]
    first = made[0]
    for other in made[1:]:
        if other.kind != first.kind:
            problem = f"{first.name} is a {first.kind} and {other.name} a {other.kind}"
            raise BadInput("compare", problem, key="SIDE", value=other.name, allowed="results of one command")
    return made


def side(letter: str, word: str) -> Side:
    paths = [Path(word)] if Path(word).is_dir() else [Path(part) for part in word.split(",")]
    found: list[Compared] = []
    left_out: list[str] = []
    for path in paths:
        runs, why = _of_folder(path)
        found, left_out = found + runs, left_out + why
    counted = Counter(run.path.resolve() for run in found)
    if twice := [path for path, count in counted.items() if count > 1]:
        raise BadInput("compare", "a run is given twice on one side", key="SIDE", value=str(twice[0]))
    others = len(paths) - 1
    name = paths[0].resolve().name + (f" and {others} more" if others else "")
    if other := [run for run in found if run.kind != found[0].kind]:
        problem = f"{found[0].path.name} is a {found[0].kind} and {other[0].path.name} a {other[0].kind}"
        raise BadInput("compare", problem, key="SIDE", value=str(other[0].path), allowed="results of one command")
    return _whole_first(Side(letter, name, found, found[0].kind, left_out))


def _whole_first(made: Side) -> Side:
    """Leaves incomplete runs out if there is a complete one."""
    incomplete = [f"{run.path.name}: {run.reason or 'incomplete'}" for run in made.runs if not run.whole]
    if any(run.whole for run in made.runs):
        made.runs = [run for run in made.runs if run.whole]
        made.left_out += incomplete
    else:
        made.doubts = incomplete
    return made


def _of_folder(path: Path) -> tuple[list[Compared], list[str]]:
    """Returns the runs of a folder, and a line on runs that are missing."""
    kind = kind_of(path)
    if kind in KINDS:
        return [Compared(path, document_of(path, kind), kind)], []
    if kind == RUN_KIND:
        return [_run(path)], []
    if kind != REPEAT:
        raise BadInput(path, f"the results of {kind} have no figures to compare", allowed=ALLOWED)
    document = _repeated(path / REPEATED)
    runs = [_run(path / run["folder"]) for run in document["runs"]]
    if not runs:
        raise BadInput(path / REPEATED, "no run is finished", allowed="1 or more")
    missing = document["asked_runs"] - len(runs)
    why = document["problem"] or "missing"
    return runs, [f"{missing} of {document['asked_runs']} runs of {path.resolve().name}: {why}"] if missing else []


def _repeated(path: Path) -> RepeatedDocument:
    """Reads repeat.json. Raises BadInput."""
    try:
        document = json.loads(path.read_text())
        version = document.get("format_version")
    except (ValueError, OSError, AttributeError) as error:
        raise BadInput(path, f"cannot be read: {error}") from None
    if version != FORMAT_VERSION:
        problem = "unsupported format"
        raise BadInput(path, problem, key="format_version", value=version, allowed=str(FORMAT_VERSION))
    return cast(RepeatedDocument, document)


def _run(path: Path) -> Compared:
    """Reads a run. Raises BadInput if it crashed: it has no final counts."""
    results = read(path)
    if results.crashed:
        problem = f"{results.missing[0]}: nothing to compare; `pktswarm report {path}` shows its partial results"
        raise BadInput(path, problem, allowed=ALLOWED)
    return Compared(path, results.document)
