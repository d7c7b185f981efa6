"""The kernel module pktgen: checks for it, loads it, and unloads it after its last user.

Unloading removes pktgen from every network namespace, and the module's use count does not include their devices. So
every user holds a shared lock on one file; the file records whether a guard loaded the module, and the user that gets
the lock exclusively, at its end, unloads it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from pathlib import Path

from pktswarm.traffic.errors import EngineError

LOCK = Path("/run/pktswarm-pktgen.lock")
LOADED = Path("/sys/module/pktgen")
LOADED_BY_US = b"loaded by pktswarm\n"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing() -> str:
    """Returns why pktgen is not available; empty when it is loaded or can be. Needs no root, loads nothing."""
    if LOADED.exists() or (_modprobe("--dry-run", "--quiet") == 0):
        return ""
    return f"the kernel {os.uname().release} has no module pktgen (CONFIG_NET_PKTGEN, see kernel/README.md)"


def _modprobe(*options: str) -> int:
    try:
        command = ["modprobe", *options, "pktgen"]
        return subprocess.run(command, capture_output=True, check=False, env={"PATH": PATH}).returncode
    except FileNotFoundError:
        return 127


def _shared_lock() -> int:
    """Takes a shared lock on LOCK; repeats if its last user removed it in between."""
    while True:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)


class Module:
    """This process's use of the module."""

    def __init__(self) -> None:
        self._lock: int | None = None

    def load(self) -> None:
        if self._lock is not None:
            return
        self._lock = _shared_lock()
        if LOADED.exists():
            return
        if _modprobe() != 0 or not LOADED.exists():
            raise EngineError("pktgen", missing() or "modprobe pktgen failed")
        os.pwrite(self._lock, LOADED_BY_US, 0)

    def unload(self) -> None:
        """Ends the use; unloads the module if a guard loaded it and this was the last use."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.pread(lock, 64, 0) == LOADED_BY_US and not used_by_others():
                    _modprobe("--remove")
                os.ftruncate(lock, 0)
                LOCK.unlink(missing_ok=True)
        finally:
            os.close(lock)


def used_by_others() -> bool:
    """Returns whether the network namespace of any process has a pktgen device."""
    seen: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            namespace = str((process / "ns/net").readlink())
            if namespace in seen:
                continue
            seen.add(namespace)
            devices = {path.name for path in (process / "net/pktgen").iterdir()} - {"pgctrl"}
            if any(not name.startswith("kpktgend_") for name in devices):
                return True
    return False
