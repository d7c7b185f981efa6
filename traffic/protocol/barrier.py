"""A barrier that its members can be freed from: a death in the middle of one means that it never ends.

By dissemination (Hensgen, Finkel and Manber, 1988), as MPI's own: in round k everybody tells the member 2^k places on,
and hears the one 2^k places back. Of single messages, because MPICH aborts a member of a collective that cannot reach
another one, in all rounds but the last (docs/decisions/0002-dead-ranks.md).
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

AT_ONCE_S = 0.1
"""How long a barrier is waited for awake. One that takes longer may be waiting for the dead: then the members hear what
else is said."""
YIELD_NS = 5_000_000
TAG_BARRIER = 4
"""Between two members messages keep their order, and each barrier has one of each kind: so no two mix."""


class Barrier:
    """Entered when this is made. `group`: a communicator of mpi4py's, whose errors are RuntimeErrors."""

    def __init__(self, group: Any) -> None:
        self._group, self._rank, size = group, group.Get_rank(), group.Get_size()
        self._steps = [1 << number for number in range((size - 1).bit_length())]
        self._heard = [group.Irecv(bytearray(), (self._rank - step) % size, TAG_BARRIER) for step in self._steps]
        self._told: list[Any] = []
        self._failed = False
        self._size = size
        self._advance()

    def left_ns(self, longest_s: float) -> int | None:
        """CLOCK_MONOTONIC in nanoseconds when it was left; None: not within so long.

        Entered only when the master knows that all have arrived, it is short: hence the fine polling.
        """
        begun_ns = time.monotonic_ns()
        while not self._advance():
            if self._failed or time.monotonic_ns() - begun_ns >= longest_s * 1e9:
                return None
            _pause(begun_ns)
        return time.monotonic_ns()

    def _advance(self) -> bool:
        """As far as it goes now; True when all rounds are through."""
        try:
            while self._heard and not self._failed:
                if len(self._told) <= self._round and not self._tell(self._steps[self._round]):
                    return False
                if not self._heard[0].Test():
                    return False
                del self._heard[0]
        except RuntimeError as error:
            self._failed = True
            print(f"a barrier failed: {error}", file=sys.stderr)
        return not self._failed

    @property
    def _round(self) -> int:
        return len(self._steps) - len(self._heard)

    def _tell(self, step: int) -> bool:
        """False where it is refused: by the dead, of whom the master will tell, or by who is not connected yet."""
        try:
            self._told.append(self._group.Isend(b"", (self._rank + step) % self._size, TAG_BARRIER))
        except RuntimeError:
            return False
        return True


def _pause(since_ns: int) -> None:
    """At first only yield, which keeps the release close, then sleep, so that nothing spins when it takes longer."""
    if time.monotonic_ns() - since_ns < YIELD_NS:
        os.sched_yield()
    else:
        time.sleep(0.00002)
