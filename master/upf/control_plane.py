"""The N4 side of a run.

Sessions are established before the nodes get their tasks; load is generated while they send; sessions are deleted and
the association released at the end, whatever ends the run.
"""

from __future__ import annotations

import time
from pathlib import Path

from pktswarm.master.scenario.upf import Upf
from pktswarm.master.upf import session_results
from pktswarm.master.upf.background import Background
from pktswarm.master.upf.document import N4Document
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
        self.document: N4Document = {}
        """Results; empty before end()."""
        self.moves: Moves | None = None
        """Handovers of the run; None before end(), or without any."""
        self.set_up_s = 0.0
        self.last_word_ns: int | None = None
        """Time of the last datagram from a UPF that is lost (CLOCK_MONOTONIC)."""
        self._background: Background | None = None
        self._ended = False

    @property
    def sessions(self) -> Sessions:
        return self.smf.sessions

    def begin(self) -> None:
        """Sets up the association and the sessions.

        Raises BadInput, and PktswarmError if a session is refused or its establishment is not answered; take_down()
        is to be called then.
        """
        began = time.monotonic()
        self.smf.associate()
        self.loads = Loads(self.smf)
        self.smf.establish()
        self._refuse_failures()
        self.set_up_s = time.monotonic() - began
        self._background = Background(self.smf)
        self._background.__enter__()

    def _refuse_failures(self) -> None:
        troubles = self._troubles()
        rows = self.smf.lasting()
        missing = int((self.sessions.state[rows] != ESTABLISHED).sum())
        if not troubles and not missing:
            return
        problem = f"{missing:,} of {len(rows):,} sessions not established" if missing else "a request failed"
        raise PktswarmError(f"{self.where}: upf.groups: {problem}: {'; '.join(troubles)}; nothing was sent")

    # --- while hosts send ---------------------------------------------------------------------------------------

    def start_loads(self, at_ns: int) -> None:
        """Starts churn and handover at `at_ns` (CLOCK_MONOTONIC of this machine)."""
        if self.loads is not None:
            self.loads.start(at_ns)

    def stop_loads(self) -> None:
        """Starts no further procedure; existing sessions reach the end of their lifetime."""
        if self.loads is not None:
            self.loads.close(time.monotonic_ns())

    @property
    def trouble(self) -> str:
        """The reason why the user plane is lost; empty while it is not."""
        if self._background is not None and self._background.problem is not None:
            return f"N4: the SMF failed: {self._background.problem!r}"
        if self.smf.alive or self._ended:
            return ""
        return next((f"N4: {event.words}" for event in self.smf.events if event.kind in session_results.TROUBLE), "")

    # --- the end ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Takes everything down and makes the results. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        self.take_down()
        if self.loads is not None:
            self.document = session_results.document(self.smf, self.loads)
            self.document["set_up_s"] = self.set_up_s
            if self.loads.handover is not None:
                self.moves = Moves.of_load(self.loads.handover, time.monotonic_ns())

    def take_down(self) -> None:
        """Deletes sessions and releases the association."""
        try:
            if self._background is not None:
                self._background.stop()
            if not self.smf.alive:
                self.last_word_ns = self.smf.exchange.received_ns or None
            if self.loads is not None:
                self.loads.stop()
        finally:
            self.smf.__exit__()

    def doubts(self) -> list[str]:
        """Returns events and failed requests that make the run incomplete."""
        return [f"N4: {trouble}" for trouble in self._troubles()]

    def notes(self) -> list[str]:
        """Returns events on N4 that cost no packet and no session."""
        return [f"N4: {event.words}" for event in self.smf.events if event.kind in session_results.HARMLESS]

    def _troubles(self) -> list[str]:
        found = [event.words for event in self.smf.events if event.kind in session_results.TROUBLE]
        for name, operation in {} if self.loads is None else session_results.operations(self.smf, self.loads).items():
            found += [f"{name}: {count:,} x {reason}" for reason, count in operation.statistics.failures.items()]
        return found
