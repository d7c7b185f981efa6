"""`run --repeat N`: the same run again and again, in one folder with what became of each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NotRequired, TypedDict

from pktswarm.master.cluster.dut import DutEntry
from pktswarm.master.files import new_folder, replace_text
from pktswarm.master.report.folder import REPEATED
from pktswarm.master.run.run import Finished
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, PktswarmError

FORMAT_VERSION = 1
RUNS = "runs"
UNFINISHED = "interrupted"
"""The problem in repeat.json until the last run has ended."""


class RepeatedRun(TypedDict):
    folder: str
    status: int
    reason: str


class RepeatedDocument(TypedDict):
    """repeat.json."""

    format_version: int
    name: str
    status: int
    problem: str
    asked_runs: int
    runs: list[RepeatedRun]
    dut: NotRequired[DutEntry]
    """Not in the file: a page takes it from the first run."""


class Repeated:
    """`results/<UTC time>-<name>-repeat/`: repeat.json, rewritten after each run, and the runs in `runs/`."""

    def __init__(self, results: Path, name: str, asked: int) -> None:
        self.name, self.asked = name, asked
        self.path = new_folder(results, f"{name}-repeat")
        self.finished: list[Finished] = []
        self.problem = UNFINISHED
        """Why runs are missing; empty when none is."""

    def run(self, once: Callable[[Path], Finished], report: Callable[[Finished], None] = lambda finished: None) -> None:
        """Ends with the first incomplete run; an error before it leaves no folder behind. `once`: makes a run in a
        folder; `report`: called for each run that is kept."""
        try:
            self._runs(once, report)
        except PktswarmError as error:
            if not self.finished:
                raise
            self.problem = str(error)
        finally:
            if not self.finished:
                shutil.rmtree(self.path)
        self.write()

    def _runs(self, once: Callable[[Path], Finished], report: Callable[[Finished], None]) -> None:
        while len(self.finished) < self.asked:
            self.finished.append(once(self.path / RUNS))
            self.write()
            report(self.finished[-1])
            outcome = self.finished[-1].outcome
            if outcome.status == EXIT_INCOMPLETE:
                self.problem = f"run {len(self.finished)} of {self.asked} is incomplete: {outcome.reason}"
                return
        self.problem = ""

    @property
    def status(self) -> int:
        """The exit status: the worst of the runs."""
        if self.problem:
            return EXIT_INCOMPLETE
        return max((run.outcome.status for run in self.finished), default=EXIT_AS_EXPECTED)

    def document(self) -> RepeatedDocument:
        return {
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "status": self.status,
            "problem": self.problem,
            "asked_runs": self.asked,
            "runs": [
                {
                    "folder": str(run.folder.relative_to(self.path)),
                    "status": run.outcome.status,
                    "reason": run.outcome.reason,
                }
                for run in self.finished
            ],
        }

    def write(self) -> None:
        replace_text(self.path / REPEATED, json.dumps(self.document(), indent=2) + "\n")
