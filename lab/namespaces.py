"""Makes and enters Linux namespaces, and mounts file systems in them. (os.unshare and os.setns need Python 3.12.)

All of this is for single-threaded processes: the kernel refuses a mount namespace to a thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

MOUNT, UTS, IPC, PID, NET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
NODE = MOUNT | UTS | IPC | NET
"""The namespaces of a host (the PID namespace belongs to the whole lab)."""
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15

_libc = ctypes.CDLL(None, use_errno=True)


def _check(status: int, what: str) -> None:
    if status != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(kinds: int) -> None:
    """Makes new namespaces for this process; with MOUNT its mounts become private too."""
    _check(_libc.unshare(kinds), "unshare")
    if kinds & MOUNT:
        _make_mounts_private()


def _make_mounts_private() -> None:
    """Makes mounts private: none may reach the host. In a chroot "/" is no mount point, so it cannot be private.

    Entering the mount namespace that one is in already resets root and folder to the namespace's real root.
    """
    root, folder = (os.open(path, os.O_PATH | os.O_DIRECTORY) for path in ("/", "."))
    try:
        _setns(os.getpid(), MOUNT)
        mount("none", "/", "", MS_REC | MS_PRIVATE)
        os.fchdir(root)
        os.chroot(".")
        os.fchdir(folder)
    finally:
        os.close(root)
        os.close(folder)


def _setns(pid: int, kinds: int) -> None:
    handle = os.pidfd_open(pid)
    try:
        _check(_libc.setns(handle, kinds), f"setns to process {pid}")
    finally:
        os.close(handle)


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    status = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _check(status, f"mount {source} on {target}")


def bind(source: Path, target: Path) -> None:
    mount(str(source), str(target), "", MS_BIND)


def mount_tmpfs(target: str, mode: str = "0755") -> None:
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode}")


def mount_proc() -> None:
    """Mounts a /proc of the PID namespace of this process."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def mount_sys() -> None:
    """Mounts a /sys of the network namespace of this process."""
    mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def enter(pid: int, kinds: int = NODE) -> None:
    """Enters the namespaces and the root of process `pid`; keeps the working directory if it exists there.

    With PID it is the children of this process that go into that namespace.
    """
    folder = Path.cwd()
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY)
    try:
        _setns(pid, kinds)
        if kinds & MOUNT:
            os.fchdir(root)
            os.chroot(".")
            _change_folder(folder)
    finally:
        os.close(root)


def _change_folder(folder: Path) -> None:
    try:
        os.chdir(folder)
    except FileNotFoundError:
        os.chdir("/")


@contextlib.contextmanager
def network_of(pid: int) -> Iterator[None]:
    """Opens sockets and /proc/sys/net of the network namespace of process `pid` in the block."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(pid, NET)
        yield
    finally:
        _check(_libc.setns(home, NET), "setns back")
        os.close(home)


def die_with_parent() -> None:
    _check(_libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL)), "prctl")


def set_process_name(name: str) -> None:
    """Sets the name that `ps` and `pstree` show (the first 15 characters)."""
    _check(_libc.prctl(PR_SET_NAME, name.encode()), "prctl")
