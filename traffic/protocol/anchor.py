"""Splits the process that the launcher started: it stays as the anchor, and the rank runs in a session of its own.

mpiexec ends a whole job when one of its proxies is lost, and a proxy kills what it started when mpiexec is gone. MPI
itself needs both only until all ranks have found each other (docs/decisions/0007).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from typing import NoReturn, Protocol

from pktswarm.traffic.protocol import unprivileged
from pktswarm.traffic.protocol.pmi import FINALIZING, Relay

PR_SET_PDEATHSIG = 1


class Launcher(Protocol):
    @property
    def lives(self) -> bool: ...
    def hold(self) -> None: ...
    def release(self) -> None: ...
    def finalizing(self) -> None: ...


class NoAnchor:
    """For a rank that SSH started: the end of the connection shows where it reads."""

    lives = True

    def hold(self) -> None:
        pass

    def release(self) -> None:
        pass

    def finalizing(self) -> None:
        pass


class Anchor:
    """The rank's side. The anchor is its parent while it lives."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @property
    def lives(self) -> bool:
        return os.getppid() == self._pid

    def hold(self) -> None:
        """Until release() this process ends with the anchor. A change of its user cancels this."""
        die_with_parent(signal.SIGTERM)
        if not self.lives:  # it ended before that
            os._exit(1)

    @staticmethod
    def release() -> None:
        """All ranks are connected: the launcher is not needed any more."""
        die_with_parent(0)

    @staticmethod
    def finalizing() -> None:
        """Just before MPI_Finalize: returns when the anchor ignores the proxies' signal."""
        with contextlib.suppress(OSError):  # it has ended: MPI_Finalize reports that
            os.write(_proxy(), FINALIZING + b"\n")
            while os.read(_proxy(), 1) not in (b"\n", b""):
                pass


def drop(user: str) -> Anchor:
    """Returns in the rank. The anchor becomes `user`, relays between rank and proxy, and ends with the rank's exit
    status."""
    ours, theirs = socket.socketpair()
    anchor, rank = os.getpid(), os.fork()
    if rank == 0:
        os.setsid()  # a proxy kills process groups
        ours.close()
        os.dup2(theirs.fileno(), _proxy())
        theirs.close()
        return Anchor(anchor)
    theirs.close()
    unprivileged.become(user)
    status = Relay(socket.socket(fileno=_proxy()), ours).until_end_of(rank)
    os._exit(abs(os.waitstatus_to_exitcode(status)))


def leave(status: int) -> NoReturn:
    """Ends the rank. Python's own end frees each object, which copies what the rank shares with the anchor: 25 ms of a
    processor."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _proxy() -> int:
    """The descriptor of MPICH's process manager interface."""
    return int(os.environ["PMI_FD"])


def die_with_parent(number: int) -> None:
    """The kernel sends this process the signal when its parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no signal at the parent's end")
