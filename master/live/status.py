"""What another terminal asks: which run goes on here, and how far it is.

A run holds a lock on its log for as long as its process lives, which the kernel takes back whatever ends it: one that
died is told from one that goes on. While it goes it writes its figures into status.json, once a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pktswarm.master.report.folder import LOG, RUN
from pktswarm.master.results.folder import STATUS
from pktswarm.master.results.recount import check_format
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, BadInput

RUNS = (f"*/{LOG}", f"runs/*/{LOG}", f"*/runs/*/{LOG}")
"""In a folder of results: runs, and those of a search or a table."""
State = Literal["running", "finished", "died"]


@dataclass
class Found:
    """`outcome` is run.json of a run that has finished; `figures` the last ones of any other, if it told some."""

    path: Path
    state: State
    figures: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None

    @property
    def exit_status(self) -> int:
        """Of a run that has finished its own."""
        if self.outcome is not None:
            return int(self.outcome["status"])
        return EXIT_AS_EXPECTED if self.state == "running" else EXIT_INCOMPLETE

    def document(self) -> dict[str, Any]:
        told: dict[str, Any] = {"results": str(self.path), "state": self.state, "status": None, "reason": None}
        if self.outcome is not None:
            told |= {name: self.outcome[name] for name in ("status", "reason", "totals")}
        return told | {"figures": self.figures}


def find(path: Path) -> Path:
    """`path`: a run's own folder, or one of results: the newest run there that goes on, else the newest. BadInput."""
    if not path.is_dir():
        raise BadInput(path, "there is no such folder", allowed="results, or a run's folder under it")
    if (path / LOG).is_file():
        return path
    runs = sorted((log.parent for pattern in RUNS for log in path.glob(pattern)), key=_written_at)
    if not runs:
        raise BadInput(path, "no results of a run here", allowed=f"a run's folder, with {LOG}, or a folder of them")
    return ([run for run in runs if _goes_on(run)] or runs)[-1]


def look(path: Path) -> Found:
    """Now, at a run's folder. BadInput for a run.json of another format."""
    if _goes_on(path):
        return Found(path, "running", figures=_read(path / STATUS))
    outcome = _read(path / RUN)
    if outcome is not None:
        check_format(path / RUN, outcome)
        return Found(path, "finished", outcome=outcome)
    return Found(path, "died", figures=_read(path / STATUS))


def _goes_on(path: Path) -> bool:
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


def _written_at(run: Path) -> float:
    with contextlib.suppress(OSError):
        return (run / LOG).stat().st_mtime
    return 0.0


def _read(file: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
