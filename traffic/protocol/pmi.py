"""Relays PMI between a rank and the proxy of MPICH that started it, except for one request and one word of the rank.

On a request for PMI_hwloc_xmlfile the proxy writes the topology of its machine to a file in /tmp, which stays there
when the proxy is killed. MPICH reads the topology itself where the proxy has no such file; so the relay answers that.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Iterator

_QUESTION = b"key=PMI_hwloc_xmlfile"
_ANSWER = b"cmd=get_result rc=0 msg=success value=unavailable\n"
_AT_ONCE_BYTES = 1 << 16
FINALIZING = b"pktswarm: finalizing"
"""A line from the rank to the relay alone, which answers with it."""


class Relay:
    """`proxy` and `rank`: the sockets to the two ends."""

    def __init__(self, proxy: socket.socket, rank: socket.socket) -> None:
        self._proxy, self._rank = proxy, rank
        self._begun = b""
        """The begin of a line of the rank."""

    def until_end_of(self, child: int) -> int:
        """Relays until `child` ends. Returns its status, as os.waitpid() does."""
        open_ends = [self._proxy, self._rank]
        with _wakeups() as ended:
            while not (ended_child := os.waitpid(child, os.WNOHANG))[0]:
                ready = select.select([ended, *open_ends], [], [])[0]
                if ended in ready:
                    ended.recv(_AT_ONCE_BYTES)
                if not all(self._pass(end) for end in open_ends if end in ready):
                    self._close()
                    open_ends = []
            return ended_child[1]

    def _pass(self, end: socket.socket) -> bool:
        """Returns False when one of the two ends is gone."""
        try:
            data = end.recv(_AT_ONCE_BYTES)
            if end is self._proxy:
                self._rank.sendall(data)
            else:
                self._ask(data)
        except OSError:
            return False
        return bool(data)

    def _ask(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            if _QUESTION in line:
                self._rank.sendall(_ANSWER)
            elif line == FINALIZING:
                # With -disable-auto-cleanup the proxies send this when the first rank has finalized, as if it had died:
                # the relay would end in the middle of MPI_Finalize. Before that, a rank of the job has died.
                signal.signal(signal.SIGUSR1, signal.SIG_IGN)
                self._rank.sendall(line + b"\n")
            else:
                self._proxy.sendall(line + b"\n")

    def _close(self) -> None:
        for end in (self._proxy, self._rank):
            with contextlib.suppress(OSError):
                end.close()


@contextlib.contextmanager
def _wakeups() -> Iterator[socket.socket]:
    """Readable when a child has ended. Handler and descriptor are put back: a number that is closed gets other uses."""
    ended, wake = socket.socketpair()
    wake.setblocking(False)
    with ended, wake:
        handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        descriptor = signal.set_wakeup_fd(wake.fileno())
        try:
            yield ended
        finally:
            signal.set_wakeup_fd(descriptor)
            signal.signal(signal.SIGCHLD, handler)
