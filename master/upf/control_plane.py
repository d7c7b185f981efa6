"""The N4 side of a run: sessions stand before the nodes have their tasks, load goes on while they send, and what was
set up is deleted and released at the end, whatever the end is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pktswarm.master.scenario.upf import Upf
from pktswarm.master.upf import session_results
from pktswarm.master.upf.background import Background
from pktswarm.master.upf.moves import Moves
from pktswarm.master.upf.sessions import ESTABLISHED, Sessions
from pktswarm.master.upf.signalling_load import Loads
from pktswarm.master.upf.smf import Smf
from pktswarm.traffic.errors import PktswarmError


class ControlPlane:
    """From begin() to end() the association is alive and every session of a group that stays is established."""

    def __init__(self, where: Path, upf: Upf) -> None:
        self.where, self.upf = where, upf
        self.smf = Smf(where, upf)
        self.loads: Loads | None = None
        self.document: dict[str, Any] = {}
        """What became of all of it; there after end()."""
        self.moves: Moves | None = None
        """Of the users that were to move; there after end()."""
        self.standing_s = 0.0
        self.last_word_ns: int | None = None
        """When anything last came from a UPF that was lost (CLOCK_MONOTONIC)."""
        self._background: Background | None = None
        self._ended = False

    @property
    def sessions(self) -> Sessions:
        return self.smf.sessions

    def begin(self) -> None:
        """Raises BadInput, and PktswarmError where a session is refused or its establishment not answered; what was
        set up until then is to be taken down."""
        began = time.monotonic()
        self.smf.associate()
        self.loads = Loads(self.smf)
        self.smf.establish()
        self._refuse_failures()
        self.standing_s = time.monotonic() - began
        self._background = Background(self.smf)
        self._background.__enter__()

    def _refuse_failures(self) -> None:
        words = self._trouble_words()
        rows = self.smf.lasting()
        missing = int((self.sessions.state[rows] != ESTABLISHED).sum())
        if not words and not missing:
            return
        told = f"{missing:,} of {len(rows):,} sessions do not stand" if missing else "not all is as it was asked for"
        raise PktswarmError(f"{self.where}: upf.groups: {told}: {'; '.join(words)}; nothing was sent")

    # --- while hosts send ---------------------------------------------------------------------------------------

    def start_loads(self, at_ns: int) -> None:
        """Churn begins at `at_ns` (CLOCK_MONOTONIC of this machine)."""
        if self.loads is not None:
            self.loads.start(at_ns)

    def stop_loads(self) -> None:
        """No more sessions come; those that are there live out their time."""
        if self.loads is not None:
            self.loads.close(time.monotonic_ns())

    @property
    def trouble(self) -> str:
        """Why there is no user plane any more; empty while there is."""
        if self._background is not None and self._background.problem is not None:
            return f"the SMF failed: {self._background.problem!r}"
        if self.smf.alive or self._ended:
            return ""
        return next((event.words for event in self.smf.events if event.kind in session_results.TROUBLE), "")

    # --- the end ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """May be called twice."""
        if self._ended:
            return
        self._ended = True
        self.take_down()
        if self.loads is not None:
            self.document = {**session_results.document(self.smf, self.loads), "set_up_s": self.standing_s}
            if self.loads.handover is not None:
                self.moves = Moves.of_load(self.loads.handover, time.monotonic_ns())

    def take_down(self) -> None:
        """Deletes and releases what there is."""
        try:
            if self._background is not None:
                self._background.stop()
            if not self.smf.alive:
                self.last_word_ns = self.smf.exchange.heard_ns or None
            if self.loads is not None:
                self.loads.stop()
        finally:
            self.smf.__exit__()

    def doubts(self) -> list[str]:
        """What was not as it was asked for."""
        return [f"N4: {words}" for words in self._trouble_words()]

    def notes(self) -> list[str]:
        """Events on N4 that cost no packet and no session."""
        return [f"N4: {event.words}" for event in self.smf.events if event.kind in session_results.HARMLESS]

    def _trouble_words(self) -> list[str]:
        found = [event.words for event in self.smf.events if event.kind in session_results.TROUBLE]
        for name, one in {} if self.loads is None else session_results.operations(self.smf, self.loads).items():
            found += [f"{name}: {count:,} x {words}" for words, count in one.statistics.failures.items()]
        return found
