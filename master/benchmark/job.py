"""A job: its inputs, its progress, and its continuation after an interruption."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, cast

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from pktswarm.master.benchmark.document import Interruption
from pktswarm.master.benchmark.journal import Journal
from pktswarm.master.benchmark.outlook import Outlook
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.files import replace_text
from pktswarm.master.live import job as live_job
from pktswarm.master.live.job import JobProgress
from pktswarm.traffic import VERSION
from pktswarm.traffic.errors import EXIT_BAD_INPUT, BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from pktswarm.master.live.metrics import Served
    from pktswarm.master.live.watch import Watch

FORMAT_VERSION = 1
FILE, TRIALS = "job.json", "trials"
OPTION = "--resume"
MOST_SHOWN = 5
"""Differences in a message."""
OF_A_PROCESS = ("pktswarm_lab",)
"""Variables of an inventory that change when a lab is started again."""
LONGEST_VALUE = 60
Result = TypeVar("Result")


class Inputs(TypedDict):
    """What decides a job's trials. A job is resumed with the same only."""

    pktswarm: str
    scenario: JsonValue
    inventory: JsonValue
    options: JsonValue


class JobFile(TypedDict):
    """job.json."""

    format_version: int
    command: str
    name: str
    began_utc: str
    inputs: Inputs
    interruptions: list[Interruption]


def inputs(scenario: object, inventory: Inventory, options: object) -> Inputs:
    """The inputs of a job. `scenario` and `options`: models, dataclasses, or what JSON has."""
    variables = {key: value for key, value in inventory.variables.items() if key not in OF_A_PROCESS}
    hosts = {"master": inventory.master, "hosts": inventory.hosts, "variables": variables}
    return {
        "pktswarm": VERSION,
        "scenario": _json(scenario),
        "inventory": _json(hosts),
        "options": _json(options),
    }


def check_resumable(folder: Path | None, command: str, given: Inputs) -> Path | None:
    """Return the folder of a job that can be resumed with these inputs; None: none is to be. Raises BadInput."""
    if folder is None:
        return None
    stored = _read(folder)
    if stored["command"] != command:
        raise BadInput(folder, "the job of another command", key=OPTION, value=stored["command"], allowed=command)
    if live_job.is_running(folder):
        raise BadInput(folder, "the job is still running", key=OPTION)
    if found := list(_differences(stored["inputs"], given)):
        more = f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
        problem = f"the job had other inputs: {'; '.join(found[:MOST_SHOWN])}{more}"
        raise BadInput(folder, problem, key=OPTION, allowed="the same scenario, inventory and options")
    return folder


def _read(folder: Path) -> JobFile:
    try:
        document = json.loads((folder / FILE).read_text())
    except (OSError, ValueError):
        document = None
    if not isinstance(document, dict) or document.get("format_version") != FORMAT_VERSION:
        allowed = f"the results folder of a job, with {FILE} of format {FORMAT_VERSION}"
        raise BadInput(folder, "no job that this version can resume", key=OPTION, allowed=allowed)
    return cast(JobFile, document)


def _differences(stored: object, given: object, key: str = "") -> Iterator[str]:
    """Yields each key whose value differs, with both values."""
    if isinstance(stored, dict) and isinstance(given, dict):
        for name in dict.fromkeys([*stored, *given]):
            yield from _differences(stored.get(name), given.get(name), f"{key}.{name}" if key else name)
    elif isinstance(stored, list) and isinstance(given, list) and len(stored) == len(given):
        for index, (was, now) in enumerate(zip(stored, given, strict=True)):
            yield from _differences(was, now, f"{key}.{index}")
    elif stored != given:
        yield f"{key} is {_short(given)}, was {_short(stored)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


@dataclass(frozen=True)
class Names:
    """`command`: of the command line. `name`: the scenario's, or the table's."""

    command: str
    name: str


class Job:
    """Keeps the progress of a job in its folder, and holds the folder's lock. `served`: the server of --metrics."""

    def __init__(
        self,
        folder: Path,
        names: Names,
        given: Inputs,
        console: Console,
        served: Served | None = None,
        resumed: bool = False,
    ) -> None:
        self.folder, self.names, self.console, self.served = folder, names, console, served
        self.replaying = False
        """Whether the last trial was a stored one."""
        self.kept = 0
        """The number of stored trials in its journals."""
        self._lock = _locked(folder)
        self._outlook = Outlook(0)
        self._rate_pps: float | None = None
        if resumed:
            self._file = _continued(folder)
        else:
            began = _utc()
            self._file = {
                "format_version": FORMAT_VERSION,
                "command": names.command,
                "name": names.name,
                "began_utc": began,
                "inputs": given,
                "interruptions": [],
            }
        self.progress = self._progress(None, "")
        self.resumed = resumed

    @property
    def interruptions(self) -> list[Interruption]:
        return self._file["interruptions"]

    def journal(self, result: type[Result], problem: Callable[[Result], str], part: str = "") -> Journal[Result]:
        """The stored trials of the job, or of a part of it. `problem`: see Journal."""
        made = Journal(self.folder / TRIALS / part, result, problem, self._used)
        self.kept += made.kept
        return made

    def begin(self, outlook: Outlook, kept: str = "") -> None:
        """Note the begin, or of a resumed job its continuation. `kept`: what is not made again."""
        replace_text(self.folder / FILE, json.dumps(self._file, indent=2) + "\n")
        if self.resumed:
            self.console.print(f"resumed: {kept} of {self.folder} are kept", markup=False, highlight=False)
        self.note(outlook)

    def begin_trial(self, rate_pps: float | None) -> None:
        """Note the rate of a trial that begins; None: it has none."""
        left = self._outlook.left_trials
        self._outlook = replace(self._outlook, left_trials=None if left is None else max(1, left))
        self._rate_pps = rate_pps
        self._update()

    def note(self, outlook: Outlook) -> None:
        """Note what is known after a trial."""
        self._outlook, self._rate_pps = outlook, None
        if not self.replaying:
            self._update()

    def newest(self) -> JobProgress:
        """The newest progress, for the live document of a run."""
        return self.progress

    def watch(self, watch: Watch) -> None:
        """Serve the metrics of a run of the job."""
        if self.served is not None and self.served.start(lambda: watch.document):
            self.console.print(f"metrics: {self.served.url}", highlight=False)

    def remarks(self) -> str:
        """The bounds and the estimate, to be printed after a trial."""
        return "; ".join([*live_job.bounds(self.progress["bounds"]), *live_job.estimate(self.progress)])

    def end(self, status: int, problem: str) -> None:
        """Note the end. After an early one, but for bad input, print the command that continues the job."""
        if not problem:
            self._outlook = replace(self._outlook, left_trials=0)
        self._update(status, problem)
        if problem and status != EXIT_BAD_INPUT:
            self.console.print(f"to continue: {self.progress['resume']}", markup=False, highlight=False, soft_wrap=True)
        self.close()

    def discard(self) -> None:
        """Remove the folder of a job that made no trial. A resumed one keeps it."""
        self.close()
        if not self.resumed:
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _used(self, replayed: bool) -> None:
        self.replaying = replayed

    def _update(self, status: int | None = None, problem: str = "") -> None:
        self.progress = self._progress(status, problem)
        live_job.write(self.folder, self.progress)

    def _progress(self, status: int | None, problem: str) -> JobProgress:
        outlook, now = self._outlook, datetime.now(UTC)
        running = status is None
        end = now + timedelta(seconds=outlook.left_s) if outlook.left_s is not None and running else None
        return {
            "format_version": live_job.FORMAT_VERSION,
            "command": self.names.command,
            "name": self.names.name,
            "utc": _utc(),
            "began_utc": self._file["began_utc"],
            "stage": outlook.stage,
            "part": outlook.part,
            "parts": outlook.parts,
            "trial": outlook.trials + running,
            "expected_trials": None if outlook.left_trials is None else outlook.trials + outlook.left_trials,
            "rate_pps": self._rate_pps,
            "bounds": [
                {"goal": each.goal, "lower_pps": each.lower_pps, "upper_pps": each.upper_pps} for each in outlook.bounds
            ],
            "estimated_end_utc": None if end is None else end.strftime(UTC_FORM),
            "status": status,
            "problem": problem,
            "resume": command_line(self.folder),
        }


UTC_FORM = "%Y-%m-%dT%H:%M:%SZ"


def command_line(folder: Path) -> str:
    """The command of this process, with the option that continues the job of a folder."""
    words = iter(sys.argv[1:])
    kept = [word for word in words if not (word.startswith(f"{OPTION}=") or (word == OPTION and next(words, "")))]
    return shlex.join(["pktswarm", *kept, OPTION, str(folder)])


def _continued(folder: Path) -> JobFile:
    """job.json of an interrupted job, with the interruption."""
    stored, before = _read(folder), live_job.read(folder)
    whole = before is not None and before["status"] is not None and not before["problem"]
    if not whole:
        interrupted = stored["began_utc"] if before is None else before["utc"]
        stored["interruptions"].append({"interrupted_utc": interrupted, "resumed_utc": _utc()})
    return stored


def _locked(folder: Path) -> int | None:
    """Lock a folder; None: its file system has no locks. Raises BadInput if another process holds it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise BadInput(folder, "a job in this folder is still running", key=OPTION) from None
    except OSError:
        os.close(lock)
        return None
    return lock


def _utc() -> str:
    return time.strftime(UTC_FORM, time.gmtime())


def _json(value: object) -> JsonValue:
    found: JsonValue = json.loads(json.dumps(to_jsonable_python(value)))
    return found
