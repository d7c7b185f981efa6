"""A barrier of MPI's that its members can be freed from: a death in the middle of one means that it never ends."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

AT_ONCE_S = 0.1
"""How long a barrier is waited for awake. One that takes longer may be waiting for the dead: then the members hear what
else is said."""
YIELD_NS = 5_000_000


class Barrier:
    """One nonblocking barrier (MPI_Ibarrier), entered when this is made. `group`: a communicator of mpi4py's."""

    def __init__(self, group: Any) -> None:
        self._request: Any = None
        try:
            self._request = group.Ibarrier()
        except RuntimeError as error:
            self._give_up(error)

    def left_ns(self, longest_s: float) -> int | None:
        """CLOCK_MONOTONIC in nanoseconds when it was left; None: not within so long.

        Entered only when the master knows that all have arrived, it is short: hence the fine polling.
        """
        begun_ns = time.monotonic_ns()
        while self._request is not None:
            try:
                if self._request.Test():
                    return time.monotonic_ns()
            except RuntimeError as error:
                self._give_up(error)
            if time.monotonic_ns() - begun_ns >= longest_s * 1e9:
                break
            _pause(begun_ns)
        return None

    def _give_up(self, error: RuntimeError) -> None:
        """mpi4py's errors are RuntimeErrors: a member cannot be reached any more, and the master will say so."""
        self._request = None
        print(f"a barrier of MPI's failed: {error}", file=sys.stderr)


def _pause(since_ns: int) -> None:
    """At first only yield, which keeps the release close, then sleep, so that nothing spins when it takes longer."""
    if time.monotonic_ns() - since_ns < YIELD_NS:
        os.sched_yield()
    else:
        time.sleep(0.00002)
