"""State of a run, for another process: `pktswarm status`.

A run holds a lock on its log while its process lives; the kernel releases it however the process ends, so a run that
died is distinguishable from one that is running. A running one writes its figures to status.json once a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pktswarm.master.live import job as jobs
from pktswarm.master.live.document import LiveDocument, State, StatusDocument
from pktswarm.master.live.job import JobDocument
from pktswarm.master.report.folder import LOG
from pktswarm.master.results.document import RunDocument
from pktswarm.master.results.folder import STATUS
from pktswarm.master.results.read_document import RUN, decode
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, BadInput

RUNS = (f"*/{LOG}", f"runs/*/{LOG}", f"*/runs/*/{LOG}")
"""Logs of single runs, and of those of a search or a table, below a folder of results."""


@dataclass
class Found:
    """`outcome`: run.json of a finished run; `figures`: the newest status.json of any other, if there is one.

    `job`: the job that the run is part of.
    """

    path: Path
    state: State
    figures: LiveDocument | None = None
    outcome: RunDocument | None = None
    job: JobDocument | None = None

    @property
    def is_running(self) -> bool:
        return self.state == "running" or (self.job is not None and self.job["state"] == "running")

    @property
    def exit_status(self) -> int:
        """Returns the status of a finished job, or of a finished run without one."""
        if self.job is not None:
            ended = EXIT_INCOMPLETE if self.job["status"] is None else self.job["status"]
            return EXIT_AS_EXPECTED if self.job["state"] == "running" else ended
        if self.outcome is not None:
            return int(self.outcome["status"])
        return EXIT_AS_EXPECTED if self.state == "running" else EXIT_INCOMPLETE

    def document(self) -> StatusDocument:
        made: StatusDocument = {"results": str(self.path), "state": self.state, "status": None, "reason": None}
        if (run := self.outcome) is not None:
            made |= {"status": run["status"], "reason": run["reason"], "totals": run["totals"]}
        return {**made, "figures": self.figures, "job": self.job}


def find(path: Path) -> Path:
    """Returns `path` if it is a run's folder, else the newest running one below it, else the newest one.

    Raises BadInput.
    """
    if not path.is_dir():
        raise BadInput(path, "there is no such folder", allowed="results, or a run's folder in it")
    if (path / LOG).is_file():
        return path
    runs = sorted((log.parent for pattern in RUNS for log in path.glob(pattern)), key=_modified_s)
    if not runs:
        raise BadInput(path, "no results of a run here", allowed=f"a run's folder, with {LOG}, or a folder of them")
    return ([run for run in runs if _is_running(run)] or runs)[-1]


def look(path: Path) -> Found:
    """Reads the present state of a run's folder, and of its job. Raises BadInput for a run.json of another format."""
    folder = jobs.of_run(path)
    job = None if folder is None else jobs.look(folder)
    if _is_running(path):
        return Found(path, "running", figures=_live(path), job=job)
    data = _read(path / RUN)
    if data is not None:
        return Found(path, "finished", outcome=decode(path / RUN, data), job=job)
    return Found(path, "died", figures=_live(path), job=job)


def _is_running(path: Path) -> bool:
    if (path / RUN).is_file():
        return False
    try:
        with (path / LOG).open() as log:
            fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _modified_s(run: Path) -> float:
    with contextlib.suppress(OSError):
        return (run / LOG).stat().st_mtime
    return 0.0


def _live(path: Path) -> LiveDocument | None:
    document = _read(path / STATUS)
    return None if document is None else cast(LiveDocument, document)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
