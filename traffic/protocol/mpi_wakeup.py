"""Sleep until something may have come over MPI, which has no call for that: its own waits spin a processor.

What MPI sends goes over TCP sockets of this process (master/run/launch.py sees to that), and poll(2) tells when one
of them
has something to read. That is a hint, not the news: MPI is asked afterwards as if the time had gone by.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import time
from collections.abc import Iterable

LONGEST_S = 0.1
"""However still the sockets are: MPI may have something to do that none of them shows."""
WITHOUT_SOCKETS_S = 0.001
"""Between two looks where no socket is MPI's, and behind a wake: what shows itself need not be a whole message."""
FOUND_FOR_S = 0.25
"""How long the sockets that were found are taken for all there are."""


class News:
    """Of this process's MPI."""

    def __init__(self) -> None:
        self._sockets: list[int] = []
        self._find_again_at = 0.0
        self._woken = False

    def wait(self, others: Iterable[int], longest_s: float, under_way: bool = False) -> None:
        """At most so long. `others`: descriptors by which the process is told something, besides MPI's. `under_way`:
        something of ours waits to be sent, which no socket to be read tells of."""
        before, self._woken = self._woken, False
        sockets = self._found()
        if before or under_way or not sockets:
            time.sleep(min(longest_s, WITHOUT_SOCKETS_S))
            return
        poll = select.poll()
        for descriptor in (*sockets, *others):
            poll.register(descriptor, select.POLLIN)
        self._woken = bool(poll.poll(min(longest_s, LONGEST_S) * 1e3))

    def _found(self) -> list[int]:
        now = time.monotonic()
        if now >= self._find_again_at:
            self._find_again_at = now + FOUND_FOR_S
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
