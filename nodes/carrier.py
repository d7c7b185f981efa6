"""The carrier of an interface across changes that can restart its link.

Some drivers take the link down to switch an offload (e1000e) or to attach an XDP program (igc), on copper for seconds.
What is sent to the interface meanwhile is lost, and neither end counts it.
"""

from __future__ import annotations

import time

from pktswarm.nodes.interface import Interface
from pktswarm.traffic.errors import EngineError

BACK_S, RESTORED_S = 15.0, 8.0
"""Time limits for its return: before a run begins, and when its node is restored."""
POLL_S = 0.01


class Carrier:
    """Made before a change, or the first of several. `expected`: also one that is on its way back already."""

    def __init__(self, interface: Interface, expected: bool = False) -> None:
        self._interface = interface
        self._was_there = expected or interface.carrier
        self._was_back = False
        self._asked: float | None = None

    def is_back(self) -> bool:
        """Asked again and again after a change; True at once where there was no carrier before. Raises EngineError when
        it has not come back within BACK_S of the first question."""
        if not self._was_there or self._interface.carrier:
            self._asked, self._was_back = None, True
            return True
        now = time.monotonic()
        self._asked = now if self._asked is None else self._asked
        if now - self._asked > BACK_S:
            why = "a driver restarts its link for an XDP program or an offload, here or at the far end"
            raise EngineError("link", f"{self._interface.name} has had no carrier for {BACK_S:.0f} s ({why})")
        return False

    def look_again(self) -> None:
        """Before the changes are undone: what was cut meanwhile is not waited for, but what has yet to come back is."""
        if self._was_back:
            self._was_there = self._interface.carrier

    def await_back(self) -> None:
        """Waits for at most RESTORED_S, so that the next run finds the link as this one did."""
        deadline = time.monotonic() + RESTORED_S
        while self._was_there and not self._interface.carrier and time.monotonic() < deadline:
            if not self._interface.exists() or not self._interface.is_up():
                return
            time.sleep(POLL_S)
