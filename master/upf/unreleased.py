"""Associations that a UPF may still hold after the end of their SMF.

A UPF that does not implement Association Release (eUPF, open5gs), or whose SMF was killed, continues to send
heartbeats. It counts unanswered ones and deletes the association some seconds later; a UPF that takes the next run's
association for the same (eUPF) deletes that. So the end of an association is recorded, and the next SMF waits until the
UPF's timer is harmless. The record is lost with a reboot, as its clock is.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path("/run/pktswarm-n4")
HARMLESS_S = 5.0
"""Time in which a new association is safe: no known UPF has a shorter timeout (N1 × T1)."""
MOST_HELD_S = 20.0
"""Assumed maximum timeout of a UPF: eUPF's default is three heartbeats of 5 s, and up to 5 s before the first."""
REFRESH_S = 1.0


@dataclass(frozen=True)
class Unreleased:
    """The last state of an association. `seen_s`: CLOCK_BOOTTIME."""

    upf_stamp: int
    seen_s: float

    def left_s(self, upf_stamp: int | None) -> float:
        """Returns the time in which the UPF may still delete it; 0 after a restart (another recovery time stamp)."""
        age_s = now_s() - self.seen_s
        is_counting = upf_stamp == self.upf_stamp and HARMLESS_S < age_s < MOST_HELD_S
        return MOST_HELD_S - age_s if is_counting else 0.0


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Record:
    """The record of one pair of addresses; without a writable folder (not root) nothing is recorded."""

    def __init__(self, smf: str, upf: str, folder: Path | None = None) -> None:
        self.path = (folder or _folder()) / f"{smf}-{upf}.json".replace(":", "_")
        self._written_s = -REFRESH_S

    def read(self) -> Unreleased | None:
        """Returns the record; None if there is none, or an unreadable one."""
        try:
            return Unreleased(**json.loads(self.path.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, upf_stamp: int) -> None:
        """Records that the association is alive now, at most once a second."""
        if now_s() - self._written_s < REFRESH_S:
            return
        self._written_s = now_s()
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            self.path.write_text(json.dumps(asdict(Unreleased(upf_stamp, now_s()))))
        except OSError:
            pass  # the next run does not wait then, as with an unknown UPF

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # a record that stays costs the next run a wait, no count
            self.path.unlink(missing_ok=True)


def _folder() -> Path:
    """Returns a folder that no other user can write to: the user's own, or root's."""
    own = Path(os.environ.get("XDG_RUNTIME_DIR") or "/none")
    return own / FOLDER.name if own.is_dir() else FOLDER
