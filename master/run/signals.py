"""Signals that ask the command line to end, and the children that mpiexec leaves behind."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from collections.abc import Callable, Iterator

from pktswarm.traffic.errors import PktswarmError

PR_SET_CHILD_SUBREAPER = 36


@contextlib.contextmanager
def handled(handler: Callable[..., None]) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP call `handler` meanwhile; a SIGHUP that is ignored, as by nohup, stays so."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


@contextlib.contextmanager
def interrupting() -> Iterator[None]:
    """While nothing is sent: the signals raise PktswarmError, so that everything is undone."""

    def end(*_: object) -> None:
        raise PktswarmError("interrupted")

    with handled(end):
        yield


def adopt_orphans() -> None:
    """Children of a killed mpiexec become children of this process, which can then end them by their ids."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
