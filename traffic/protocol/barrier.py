"""A barrier that its members can give up: after a death in the middle of it, it never completes.

A dissemination barrier (Hensgen, Finkel and Manber, 1988), as MPI's own: in round k each member sends to the one 2^k
places ahead, and receives from the one 2^k places behind. It consists of single messages, because MPICH aborts a member
of a collective that cannot reach another one, in all rounds but the last (docs/decisions/0002-dead-ranks.md).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from pktswarm.traffic.protocol.polling import awaited_ns, pause

AT_ONCE_S = 0.1
"""Timeout of the first wait without other work. A barrier that takes longer may wait for a dead member: then the
members look for other messages."""
TAG_BARRIER = 4
"""One tag for all barriers: messages between two members keep their order, and each barrier has one a round."""


class Barrier:
    """Entered when this is made. `group`: a communicator of mpi4py's, whose errors are RuntimeErrors; `members`: its
    ranks that enter, in the same order on each. `leave_ns`: CLOCK_MONOTONIC at which those leave that are through by
    then, all together; the others leave when they are through."""

    def __init__(self, group: Any, members: Sequence[int], leave_ns: int = 0) -> None:
        self._group, self._members, self._leave_ns = group, members, leave_ns
        self._place = members.index(group.Get_rank())
        self._steps = [1 << number for number in range((len(members) - 1).bit_length())]
        self._expected = [group.Irecv(bytearray(), self._member(-step), TAG_BARRIER) for step in self._steps]
        self._sent: list[Any] = []
        self._failed = False
        self._advance()

    def _member(self, places_ahead: int) -> int:
        return self._members[(self._place + places_ahead) % len(self._members)]

    def left_ns(self, longest_s: float) -> int | None:
        """CLOCK_MONOTONIC in nanoseconds when it was left; None: not within `longest_s`.

        It is entered only when all have arrived, and so is short: hence the fine polling.
        """
        begun_ns = time.monotonic_ns()
        while not self._advance():
            if self._failed or time.monotonic_ns() - begun_ns >= longest_s * 1e9:
                return None
            pause(begun_ns)
        return awaited_ns(self._leave_ns)

    def _advance(self) -> bool:
        """Takes all steps that are possible now. Returns True when all rounds are complete."""
        try:
            while self._expected and not self._failed:
                if len(self._sent) <= self._round and not self._send(self._steps[self._round]):
                    return False
                if not self._expected[0].Test():
                    return False
                del self._expected[0]
        except RuntimeError as error:
            self._failed = True
            print(f"a barrier failed: {error}", file=sys.stderr)
        return not self._failed

    @property
    def _round(self) -> int:
        return len(self._steps) - len(self._expected)

    def _send(self, step: int) -> bool:
        """Returns False where the connection is refused: the member is dead, or not connected yet."""
        try:
            self._sent.append(self._group.Isend(b"", self._member(step), TAG_BARRIER))
        except RuntimeError:
            return False
        return True
