"""One master at a time: every guard holds its node for the run that it works for, until it has restored the node.

The hold is a lock (flock) of the guard's process on a file that only root opens. The kernel releases it however the
process ends, and the guard of a killed master ends within 2 s. Both ranks of a host share it: they are of one run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pktswarm.traffic.protocol.codec import from_fields
from pktswarm.traffic.protocol.node_report import Holder

FOLDER = Path("/run/pktswarm")
WAIT_S = 3.0
"""The guards of a run that was killed a moment ago need so long at most to end and restore; no refusal for that."""
_POLL_S = 0.05


def take(run: str, by: str, wait_s: float = WAIT_S, folder: Path = FOLDER) -> Holder | None:
    """Hold this node for `run` while this process lives. Returns another run that holds it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    deadline = time.monotonic() + wait_s
    while (other := _try(run, by, folder)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return other


def holder(folder: Path = FOLDER) -> Holder | None:
    """The run that holds this node."""
    with contextlib.suppress(FileNotFoundError), _alone(folder):
        handle = os.open(folder / "hold", os.O_RDWR)
        try:
            return None if _locked(handle, fcntl.LOCK_EX) else _read(handle)
        finally:
            os.close(handle)
    return None


def _try(run: str, by: str, folder: Path) -> Holder | None:
    with _alone(folder):
        handle = os.open(folder / "hold", os.O_RDWR | os.O_CREAT, 0o600)
        if _locked(handle, fcntl.LOCK_EX):
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            _write(handle, Holder(run, by, since))
        elif (other := _read(handle)).run != run:
            os.close(handle)
            return other
        # Shared from here on, with the run's other rank; the handle stays open as long as the process lives.
        fcntl.flock(handle, fcntl.LOCK_SH)
    return None


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


def _write(handle: int, holder: Holder) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(asdict(holder)).encode(), 0)


def _read(handle: int) -> Holder:
    return from_fields(Holder, json.loads(os.pread(handle, 1 << 16, 0)), f"{FOLDER}/hold")
