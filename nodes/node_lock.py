"""One master at a time: every guard holds its node for the run that it works for, until it has restored the node.

The hold is a lock (flock) of the guard's process on a file that only root opens. So it goes with the process, whatever
ends that, and the guard of a master who was killed ends within 2 s. Both ranks of a host share it: they are of one run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path("/run/pktswarm")
WAIT_S = 3.0
"""The guards of a run that was killed a moment ago need so long at most to end and restore; no refusal for that."""
_POLL_S = 0.05


def take(run: str, by: str, wait_s: float = WAIT_S, folder: Path = FOLDER) -> dict[str, Any]:
    """Hold this node for `run` while this process lives. {} when that is so; else who holds it: run, by, since."""
    folder.mkdir(mode=0o700, exist_ok=True)
    deadline = time.monotonic() + wait_s
    while (other := _try(run, by, folder)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return other


def holder(folder: Path = FOLDER) -> dict[str, Any]:
    """Who holds this node; {} when nobody does."""
    with contextlib.suppress(FileNotFoundError), _alone(folder):
        handle = os.open(folder / "hold", os.O_RDWR)
        try:
            return {} if _locked(handle, fcntl.LOCK_EX) else _told(handle)
        finally:
            os.close(handle)
    return {}


def _try(run: str, by: str, folder: Path) -> dict[str, Any]:
    with _alone(folder):
        handle = os.open(folder / "hold", os.O_RDWR | os.O_CREAT, 0o600)
        if _locked(handle, fcntl.LOCK_EX):
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            _tell(handle, {"run": run, "by": by, "since": since})
        elif (other := _told(handle))["run"] != run:
            os.close(handle)
            return other
        # Shared from here on, with the run's other rank; the handle stays open as long as the process lives.
        fcntl.flock(handle, fcntl.LOCK_SH)
    return {}


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else looks or takes meanwhile: from exclusive to shared a lock is let go for a moment."""
    handle = os.open(folder / "gate", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tell(handle: int, words: dict[str, Any]) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(words).encode(), 0)


def _told(handle: int) -> dict[str, Any]:
    words = json.loads(os.pread(handle, 1 << 16, 0))
    if not isinstance(words, dict) or not {"run", "by", "since"} <= set(words):
        raise ValueError(f"{FOLDER}/hold says {words!r}")
    return words
