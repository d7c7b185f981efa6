"""The end of a guard that is frozen, by the kernel.

A process that is stopped (SIGSTOP, a debugger) neither reads a command nor checks its time limit, and keeps what
it holds for ever: its XDP program, its lock on the node. So the guard has a timer of the kernel's, whose signal is
SIGKILL; a thread of the guard winds it up again and again, and a thread does not run in a process that is stopped.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time

from pktswarm.traffic.errors import EngineError

TIMEOUT_S = 10
WIND_EVERY_S = 2.0
_SIGEV_SIGNAL = 0


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class _Sigevent(ctypes.Structure):
    """struct sigevent, 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * (64 - ctypes.sizeof(ctypes.c_void_p) - 8)),
    )


class KillTimer:
    """A timer of the kernel's whose signal is SIGKILL, to this process; of a child made by fork it is none."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("librt.so.1", use_errno=True)
        self._timer = ctypes.c_void_p()
        event = _Sigevent(signo=signal.SIGKILL, notify=_SIGEV_SIGNAL)
        if self._library.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)):
            raise EngineError("guard", "no kernel timer, which ends a frozen process")

    def set(self, seconds: float) -> None:
        """The end comes in `seconds` from now, in place of the time set before; at once where that is over. Raises
        EngineError when the kernel refuses."""
        whole, rest = divmod(max(1, round(seconds * 1e9)), 10**9)  # 0 would be no end at all
        spec = _Itimerspec(value=_Timespec(seconds=whole, nanoseconds=rest))
        if self._library.timer_settime(self._timer, 0, ctypes.byref(spec), None):
            raise EngineError("guard", f"the kernel's timer takes no {seconds} s")


class Watchdog:
    """Kills this process when it has not run for TIMEOUT_S; not while the whole machine stands still (a suspended
    virtual machine, for one: CLOCK_MONOTONIC stands still too)."""

    def __init__(self) -> None:
        self._timer = KillTimer()

    def start(self) -> None:
        self._timer.set(TIMEOUT_S)
        threading.Thread(target=self._keep_winding, name="watchdog", daemon=True).start()

    def _keep_winding(self) -> None:
        while True:
            time.sleep(WIND_EVERY_S)
            self._timer.set(TIMEOUT_S)
