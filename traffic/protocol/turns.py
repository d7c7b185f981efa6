"""Short turns on a processor, for a time in which many processes of one machine wait awake for each other.

MPI_Init and the splitting of communicators poll, and yield between two polls. Where more processes poll than there are
processors, each step of one waits until all others have had their turn, of milliseconds by default.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterator

TURN_NS = 100_000
"""The shortest that Linux allows."""
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The number of the system call, which glibc has no function for before 2.41; there is no MPI on 32 bits."""
_ATTRIBUTES = struct.Struct("=IIQiIQQQII")
"""struct sched_attr of linux/sched/types.h."""


@contextlib.contextmanager
def short() -> Iterator[None]:
    """This thread has them within. Without effect before Linux 6.12, and for one that is real-time or idle."""
    _set_turn(TURN_NS)
    try:
        yield
    finally:
        _set_turn(0)  # the kernel's own


def _set_turn(turn_ns: int) -> None:
    number, policy = _SCHED_SETATTR.get(platform.machine()), os.sched_getscheduler(0)
    if number is None or policy not in (os.SCHED_OTHER, os.SCHED_BATCH):
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, 0, nice, 0, turn_ns, 0, 0, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, ctypes.create_string_buffer(attributes), 0)
