"""Associations that a UPF may still hold after the SMF that made them has ended.

A UPF that does not implement the release of an association (eUPF, open5gs), or whose SMF was killed, goes on sending
heartbeats. Unanswered ones are counted, and the association is deleted some seconds later: together with the next
run's, if that began meanwhile and the UPF takes the two for one (eUPF). So the end of an association is recorded, and
the next SMF waits until the UPF's timer is harmless. The record lasts no longer than the machine is up.
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
"""An association that is set up again so soon is kept: no UPF is known that gives up earlier (N1 times T1)."""
MOST_HELD_S = 20.0
"""How long a UPF is taken to count heartbeats: eUPF's default is three of 5 s, and up to 5 s before the first one."""
REFRESH_S = 1.0


@dataclass(frozen=True)
class Unreleased:
    """An association as its SMF saw it last. `seen_s`: CLOCK_BOOTTIME."""

    upf_stamp: int
    seen_s: float

    def left_s(self, upf_stamp: int | None) -> float:
        """Returns for how long the UPF may still delete it; 0 if it restarted since (another recovery time stamp)."""
        age_s = now_s() - self.seen_s
        is_counting = upf_stamp == self.upf_stamp and HARMLESS_S < age_s < MOST_HELD_S
        return MOST_HELD_S - age_s if is_counting else 0.0


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Record:
    """The record of one pair of addresses. Where there is no folder for it (not root), nothing is kept."""

    def __init__(self, smf: str, upf: str, folder: Path | None = None) -> None:
        self.path = (folder or _folder()) / f"{smf}-{upf}.json".replace(":", "_")
        self._written_s = -REFRESH_S

    def read(self) -> Unreleased | None:
        """Returns what is recorded; None if nothing is, or if it cannot be read."""
        try:
            return Unreleased(**json.loads(self.path.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, upf_stamp: int) -> None:
        """Records that the association is alive now, once a second at most."""
        if now_s() - self._written_s < REFRESH_S:
            return
        self._written_s = now_s()
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            self.path.write_text(json.dumps(asdict(Unreleased(upf_stamp, now_s()))))
        except OSError:
            pass  # the next run then begins without waiting, as with a UPF that was never seen

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # one that stays costs the next run a wait, and no count
            self.path.unlink(missing_ok=True)


def _folder() -> Path:
    """The user's own, or root's: nobody else writes there."""
    own = Path(os.environ.get("XDG_RUNTIME_DIR") or "/none")
    return own / FOLDER.name if own.is_dir() else FOLDER
