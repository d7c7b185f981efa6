"""Python's garbage collector in commands and in the processes of nodes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc

THRESHOLD = 50_000
"""New objects before a look for cycles; Python's default is 700. Modules and models are a hundred thousand objects that
stay: looking through them again and again is a tenth of the start of a command."""


def collect_rarely() -> None:
    """At its end Python looks through all objects again, about a seventh of the time of a short command: not
    through frozen ones."""
    gc.set_threshold(THRESHOLD, 10, 10)
    atexit.register(gc.freeze)


def give_back() -> None:
    """Between two runs of a process that stays: frees what the last one left in cycles, and returns free memory to the
    kernel. The first time is slower."""
    import ctypes  # a command that hands its work over does not need it

    gc.collect()
    _leave_out_what_is_loaded()
    with contextlib.suppress(AttributeError):  # glibc has it
        ctypes.CDLL(None).malloc_trim(0)


@functools.cache
def _leave_out_what_is_loaded() -> None:
    """It stays: later collections, which look at all that is not frozen, take a fraction of a millisecond."""
    gc.freeze()
