"""UTC of this node: how far it is from CLOCK_MONOTONIC, and whether anybody has set it since the last look.

A timer of CLOCK_REALTIME with TFD_TIMER_CANCEL_ON_SET (timerfd_create(2)) is cancelled whenever the clock is set, so a
clock that is set and set back between two readings is not missed. Steering its rate is not setting it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time

from pktswarm.traffic.protocol.rank_events import UtcReading

TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET = 1, 2
FAR_S = 2**33 if ctypes.sizeof(ctypes.c_long) == 8 else 2**31 - 1
"""Beyond any run, and within what the kernel's nanoseconds reach (the year 2242), or a time of 32 bits (2038)."""


class _Timerspec(ctypes.Structure):
    """struct itimerspec"""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class Utc:
    """Raises OSError where there is no such timer (before Linux 3.0)."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.timerfd_create(time.CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        far = _Timerspec(0, 0, FAR_S, 0)
        flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET
        if self.descriptor < 0 or libc.timerfd_settime(self.descriptor, flags, ctypes.byref(far), None):
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd: {os.strerror(number)}")

    def was_set(self) -> bool:
        """Since this was last asked."""
        try:
            os.read(self.descriptor, 8)
        except BlockingIOError:
            return False
        except OSError as problem:
            if problem.errno != errno.ECANCELED:
                raise
        return True

    def read(self, was_set: bool = False) -> UtcReading:
        """`was_set`: the clock was set since the last reading, as was_set() has returned already. The offset is from
        after the last time that it was set."""
        was_set |= self.was_set()
        offset_ns, within_ns = read_utc()
        while self.was_set():
            was_set, (offset_ns, within_ns) = True, read_utc()
        return UtcReading(offset_ns, within_ns, was_set)


def read_utc() -> tuple[int, int]:
    """CLOCK_REALTIME less CLOCK_MONOTONIC, and how far off that may be: constant unless the clock is set."""
    before_ns, utc_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    half_ns = (after_ns - before_ns) // 2
    return utc_ns - before_ns - half_ns, half_ns + 1
