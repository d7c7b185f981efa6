"""Sleeps until a message may have arrived over MPI, which has no call for that: its own waits spin a processor.

MPI sends over TCP sockets of this process (master/run/launch.py sets that), and poll(2) returns when one of them is
readable. That is a hint: MPI is polled afterwards as after a timeout.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import time
from collections.abc import Iterable

LONGEST_S = 0.1
"""Longest sleep: MPI can have work that no socket shows."""
WITHOUT_SOCKETS_S = 0.001
"""Sleep where no socket is MPI's, and after a wakeup: a readable socket need not have a whole message."""
SEARCH_EVERY_S = 0.25
"""Interval between two searches for MPI's sockets."""


class News:
    """The sockets of this process's MPI."""

    def __init__(self) -> None:
        self._sockets: list[int] = []
        self._next_search = 0.0
        self._woken = False

    def wait(self, others: Iterable[int], longest_s: float, under_way: bool = False) -> None:
        """Sleeps for at most `longest_s`. `others`: descriptors that end the sleep too, when readable. `under_way`: a
        message waits to be sent or to be taken, which no readable socket shows."""
        before, self._woken = self._woken, False
        sockets = self._mpi_sockets()
        if before or under_way or not sockets:
            time.sleep(min(longest_s, WITHOUT_SOCKETS_S))
            return
        poll = select.poll()
        for descriptor in (*sockets, *others):
            poll.register(descriptor, select.POLLIN)
        self._woken = bool(poll.poll(min(longest_s, LONGEST_S) * 1e3))

    def _mpi_sockets(self) -> list[int]:
        now = time.monotonic()
        if now >= self._next_search:
            self._next_search = now + SEARCH_EVERY_S
            self._sockets = [int(name) for name in os.listdir("/proc/self/fd") if _is_stream_of_ip(int(name))]  # noqa: PTH208
        return self._sockets


def _is_stream_of_ip(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        this = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # closed since it was listed
        return False
    with this:
        return this.family in (socket.AF_INET, socket.AF_INET6) and this.type == socket.SOCK_STREAM
