"""Progress of a job: a command that makes many runs (search, rfc2544, y1564, calibrate, table).

The job writes it into `progress.json` of its folder, and each of its runs into the live document. A job holds a lock on
its folder while its process lives.
"""

from __future__ import annotations

import fcntl
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypedDict, cast

from pktswarm.master.files import replace_text

FORMAT_VERSION = 1
PROGRESS = "progress.json"
JobState = Literal["running", "finished", "interrupted", "died"]


class JobBounds(TypedDict):
    """The rates between which a figure lies by the trials so far; None: no trial shows one yet."""

    goal: str
    lower_pps: float | None
    upper_pps: float | None


class JobProgress(TypedDict):
    """`utc`: of this document. None: not known.

    `part` of `parts`: of frame sizes, services, figures or points. `trial`: the one in progress, or of an ended job
    their number. `expected_trials` and `estimated_end_utc` are estimates.
    """

    format_version: int
    command: str
    name: str
    utc: str
    began_utc: str
    stage: str
    part: int | None
    parts: int | None
    trial: int
    expected_trials: int | None
    rate_pps: float | None
    bounds: list[JobBounds]
    estimated_end_utc: str | None
    status: int | None
    """The exit status; None until the job ends."""
    problem: str
    """Why it ended early; empty: it did not."""
    resume: str
    """The command that continues it."""


class JobDocument(JobProgress):
    """The job in the output of `pktswarm status --json`."""

    results: str
    state: JobState


def no_job() -> JobProgress | None:
    """The job of a run that belongs to none."""
    return None


def write(folder: Path, progress: JobProgress) -> None:
    replace_text(folder / PROGRESS, json.dumps(progress, indent=2) + "\n")


def read(folder: Path) -> JobProgress | None:
    """Returns the progress of the job of a folder; None: there is none."""
    try:
        document = json.loads((folder / PROGRESS).read_text())
    except (OSError, ValueError):
        return None
    return cast(JobProgress, document) if isinstance(document, dict) else None


def of_run(run: Path) -> Path | None:
    """Returns the folder of the job that a run belongs to; None: to none."""
    folder = run.parent.parent
    return folder if run.parent.name == "runs" and (folder / PROGRESS).is_file() else None


def look(folder: Path) -> JobDocument | None:
    """Returns the present state of the job of a folder; None: there is none."""
    progress = read(folder)
    return None if progress is None else {**progress, "results": str(folder), "state": _state(folder, progress)}


def _state(folder: Path, progress: JobProgress) -> JobState:
    if is_running(folder):
        return "running"
    if progress["status"] is None:
        return "died"
    return "interrupted" if progress["problem"] else "finished"


def is_running(folder: Path) -> bool:
    """Returns whether the process of a job lives."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(lock)
    return False


# --- in words ---------------------------------------------------------------------------------------------------


def headline(progress: JobProgress) -> str:
    """Describes the progress in one line, for the terminal and `pktswarm status`."""
    parts = [progress["stage"]] if progress["stage"] else []
    if progress["part"] is not None and progress["parts"] is not None:
        parts.append(f"part {progress['part']} of {progress['parts']}")
    if progress["status"] is not None:
        return "; ".join([f"{progress['command']}: {progress['trial']} trials", *bounds(progress["bounds"])])
    rate_pps = progress["rate_pps"]
    rate = "" if rate_pps is None else f" at {rate_pps:,.0f} packets/s"
    parts += [f"trial {progress['trial']}{rate}", *bounds(progress["bounds"]), *estimate(progress)]
    return f"{progress['command']}: {'; '.join(parts)}"


def bounds(given: list[JobBounds]) -> list[str]:
    """Describes the bounds so far."""
    lines = []
    for each in given:
        lower, upper = each["lower_pps"], each["upper_pps"]
        if lower is None and upper is None:
            continue
        head = f"{each['goal']}: " if len(given) > 1 else ""
        if lower is not None and upper is not None:
            lines.append(f"{head}between {lower:,.0f} and {upper:,.0f} packets/s")
        else:
            lines.append(f"{head}{'below' if lower is None else 'at least'} {lower or upper:,.0f} packets/s")
    return lines


def estimate(progress: JobProgress) -> list[str]:
    """Describes the trials left and the end, as estimates."""
    expected, end = progress["expected_trials"], progress["estimated_end_utc"]
    words = [] if expected is None else [f"about {expected} trials in all"]
    return words + ([] if end is None else [f"estimated end {clock(end)}"])


def clock(utc: str) -> str:
    """Returns a UTC time as 14:05:09 UTC, with its date on another day."""
    at = datetime.fromisoformat(utc)
    form = "%H:%M:%S UTC" if at.date() == datetime.now(UTC).date() else "%Y-%m-%d %H:%M UTC"
    return at.strftime(form)
