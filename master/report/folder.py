"""Reads a results folder: that of a whole run, or the rest that a crashed run left."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from pktswarm.master.results.document import ClockReading, NodeReport, RunDocument, empty_document
from pktswarm.master.results.read_document import RUN, decode
from pktswarm.traffic.errors import EXIT_INCOMPLETE, BadInput

SAMPLES, LOG = "samples.csv", "log.jsonl"
REPEATED = "repeat.json"


@dataclass
class Results:
    """The results of one run. For a crashed run `document` has what its log has."""

    path: Path
    document: RunDocument
    crashed: bool = False
    missing: list[str] = field(default_factory=list)
    """What cannot be reported, and why."""


def read(path: Path) -> Results:
    """Raises BadInput where there is no run, or one that this version cannot read."""
    if not path.is_dir():
        raise BadInput(path, "there is no such folder", allowed="a folder under results/")
    file = path / RUN
    try:
        data = json.loads(file.read_text())
    except FileNotFoundError:
        return _left_behind(path, f"{RUN} was never written: the run did not come to its end")
    except (ValueError, OSError) as error:
        return _left_behind(path, f"{RUN} cannot be read: {error}")
    return Results(path, decode(file, data))


def _left_behind(path: Path, why: str) -> Results:
    if (path / REPEATED).is_file():
        allowed = "a folder in its runs/, or `pktswarm compare` of the whole"
        raise BadInput(path, "this is a repeated run: each of its runs has a report", allowed=allowed)
    if not (path / LOG).is_file() and not (path / SAMPLES).is_file():
        raise BadInput(path, "no results of a run here", allowed=f"a folder with {RUN}, or a run's {LOG}")
    log = _Log()
    for event in _events(path / LOG):
        log.take(event)
    document = log.document()
    document["name"] = path.name.partition("-")[2] or path.name
    reason = document["reason"] or f"the run ended in phase {log.phase!r}"
    document["reason"] = f"{reason}; {why}"
    missing = [why, "unknown: the intended packets, the verdicts and the final counts of each stream"]
    return Results(path, document, crashed=True, missing=missing)


def _events(path: Path) -> Iterator[Mapping[str, JsonValue]]:
    """The events of a log. A line that is cut off, as the last of a crashed run can be, is skipped."""
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


class _Log:
    """The content of a log as a run document."""

    def __init__(self) -> None:
        self.ranks: dict[str, NodeReport] = {}
        self.clocks: dict[str, dict[str, ClockReading]] = {}
        self.phases: list[tuple[str, int]] = []
        self.start_ns: int | None = None
        self.reason = ""
        self.doubts: list[str] = []
        self.notes: list[str] = []

    @property
    def phase(self) -> str:
        return self.phases[-1][0] if self.phases else "launch"

    def take(self, event: Mapping[str, JsonValue]) -> None:
        rank = str(event.get("rank"))
        match event.get("event"):
            case "phase":
                self.phases.append((str(event.get("name")), _integer(event.get("at_ns", 0))))
            case "hello":
                ends = {"host": event.get("host", rank), "role": event.get("role", "")}
                report = event.get("report", {})
                self.ranks[rank] = cast(NodeReport, {**ends, **(report if isinstance(report, dict) else {})})
            case "clock":
                self.clocks.setdefault(rank, {})[str(event.get("when"))] = cast(ClockReading, event)
            case "start":
                self.start_ns = None if event.get("at_ns") is None else _integer(event["at_ns"])
            case "note":
                self.notes.append(str(event.get("text")))
            case "lost" | "failed":
                host = self.ranks[rank]["host"] if rank in self.ranks else rank
                self.doubts.append(f"{host}: {event.get('problem')}")
            case "stopped":
                self.reason = str(event.get("problem") or "stopped by the user")

    def document(self) -> RunDocument:
        document = empty_document(EXIT_INCOMPLETE, self.reason)
        document["doubts"], document["notes"] = self.doubts, self.notes
        document["start_ns"] = start_ns = self.start_ns
        document["phases"] = [
            {"phase": name, "at_ns": None if start_ns is None else at_ns - start_ns} for name, at_ns in self.phases
        ]
        document["ranks"], document["clocks"] = self.ranks, self.clocks
        return document


def _integer(value: JsonValue) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
