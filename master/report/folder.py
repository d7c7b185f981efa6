"""What a results folder has to report: a whole run, or what one that crashed left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pktswarm.master.results.recount import check_format
from pktswarm.traffic.errors import EXIT_INCOMPLETE, BadInput

SAMPLES, LOG, RUN = "samples.csv", "log.jsonl", "run.json"
REPEATED = "repeat.json"


@dataclass
class Results:
    """Of one run. `document` is run.json; of a run that crashed it is what its log tells, in the same shape."""

    path: Path
    document: dict[str, Any]
    crashed: bool = False
    missing: list[str] = field(default_factory=list)
    """What cannot be reported, and why."""


def read(path: Path) -> Results:
    """Raises BadInput where there is no run, or one of a format that this version cannot read."""
    if not path.is_dir():
        raise BadInput(path, "there is no such folder", allowed="a folder under results/")
    file = path / RUN
    try:
        document = json.loads(file.read_text())
    except FileNotFoundError:
        return _left_behind(path, f"{RUN} was never written: the run did not come to its end")
    except (ValueError, OSError) as error:
        return _left_behind(path, f"{RUN} cannot be read: {error}")
    check_format(file, document)
    return Results(path, document)


def _left_behind(path: Path, why: str) -> Results:
    if (path / REPEATED).is_file():
        allowed = "a folder in its runs/, or `pktswarm compare` of the whole"
        raise BadInput(path, "a run that was repeated: each has a report of its own", allowed=allowed)
    if not (path / LOG).is_file() and not (path / SAMPLES).is_file():
        raise BadInput(path, "no results of a run here", allowed=f"a folder with {RUN}, or a run's {LOG}")
    told = _Told()
    lines = _events(path / LOG)
    for event in lines:
        told.take(event)
    document = told.document()
    document["name"] = path.name.partition("-")[2] or path.name
    reason = document["reason"] or f"the run ended in phase {told.phase!r}"
    document["reason"] = f"{reason}; {why}"
    missing = [why, "what was intended, the verdicts and the counts of each stream at the end are not known"]
    return Results(path, document, crashed=True, missing=missing)


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """The last line of a run that crashed may be a part of one."""
    if not path.is_file():
        return
    with path.open(errors="replace") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


class _Told:
    """What the events of a log tell of a run without its end."""

    def __init__(self) -> None:
        self.ranks: dict[str, dict[str, Any]] = {}
        self.clocks: dict[str, dict[str, Any]] = {}
        self.phases: list[tuple[str, int]] = []
        self.start: dict[str, Any] = {}
        self.reason = ""
        self.doubts: list[str] = []
        self.notes: list[str] = []

    @property
    def phase(self) -> str:
        return self.phases[-1][0] if self.phases else "launch"

    def take(self, event: dict[str, Any]) -> None:
        rank = str(event.get("rank"))
        match event.get("event"):
            case "phase":
                self.phases.append((str(event.get("name")), int(event.get("at_ns", 0))))
            case "hello":
                who = {"host": event.get("host", rank), "role": event.get("role", "")}
                self.ranks[rank] = {**who, **event.get("report", {})}
            case "clock":
                self.clocks.setdefault(rank, {})[str(event.get("when"))] = event
            case "start":
                self.start = event
            case "note":
                self.notes.append(str(event.get("text")))
            case "lost" | "failed":
                self.doubts.append(f"{self.ranks.get(rank, {}).get('host', rank)}: {event.get('problem')}")
            case "stopped":
                self.reason = event.get("problem") or "stopped by the user"

    def document(self) -> dict[str, Any]:
        start_ns = self.start.get("at_ns")
        return {
            "status": EXIT_INCOMPLETE,
            "reason": self.reason,
            "doubts": self.doubts,
            "notes": self.notes,
            "start_ns": start_ns,
            "phases": [
                {"phase": name, "at_ns": None if start_ns is None else at_ns - start_ns} for name, at_ns in self.phases
            ],
            "ranks": self.ranks,
            "clocks": self.clocks,
        }
