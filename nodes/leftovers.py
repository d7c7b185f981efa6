"""What guards have on this node: of those that live, a run under way; of those that died, leftovers.

A guard holds a lock on its spool folder as long as it lives, and its engines work inside that folder. Needs root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Any

PREFIX = "pktswarm-"
PROC = Path("/proc")


def lock(spool: Path) -> int:
    """A guard's, on its own folder. It goes with the process; engines do not inherit it."""
    handle = os.open(spool, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def report(spools: Path, own: Path, interface: str) -> dict[str, Any]:
    """What stands in `spools` but for `own`, the processes at work there, and the XDP program on `interface`.

    Hosts of a lab share a file system: "elsewhere" are folders whose engines run in other network namespaces.
    """
    folders = [path for path in sorted(spools.glob(f"{PREFIX}*")) if path != own and path.is_dir()]
    living = {str(path) for path in folders if _is_locked(path)}
    dead = [str(path) for path in folders if str(path) not in living]
    processes = [(pid, folder, words) for pid, folder, words in _engines(spools) if folder not in living]
    return {
        "folders": dead,
        "bytes": sum(_size(Path(path)) for path in dead),
        "processes": [{"pid": pid, "command": words} for pid, folder, words in processes if folder != str(own)],
        "xdp_program": _xdp_program(interface),
    }


def _is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # it has gone meanwhile, as its guard wished
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _engines(spools: Path) -> list[tuple[int, str, str]]:
    """Process, the spool folder it works in (which may be gone), and its command; in this network namespace."""
    found, here = [], (PROC / "self/ns/net").stat().st_ino
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError):
            if not entry.name.isdigit() or (entry / "ns/net").stat().st_ino != here:
                continue
            folder = os.readlink(entry / "cwd").removesuffix(" (deleted)")  # noqa: PTH115 - it may be gone
            if folder.startswith(f"{spools}/{PREFIX}"):
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found.append((int(entry.name), folder, words[:200]))
    return found


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


def _xdp_program(interface: str) -> int:
    """The kernel's number of the program on the interface; 0 where there is none."""
    from nodes import libbpf

    try:
        index = int(Path(f"/sys/class/net/{interface}/ifindex").read_text())
    except OSError:
        return 0
    return 0 if libbpf.missing() else libbpf.attached_program(index)
