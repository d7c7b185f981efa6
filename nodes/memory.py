"""Memory that a process of a node takes, and that the host has left. Bytes."""

from __future__ import annotations

from pathlib import Path

KIB = 1024


def pss_bytes() -> int | None:
    """The proportional set size of this process (proc(5), smaps_rollup): 1/n of a page that n processes share.

    None: the kernel does not report it.
    """
    return _field(Path("/proc/self/smaps_rollup"), "Pss")


def available_bytes() -> int | None:
    """What new programs can have without swapping, by the kernel's estimate (proc(5), meminfo)."""
    return _field(Path("/proc/meminfo"), "MemAvailable")


def _field(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * KIB for line in lines if line.startswith(f"{name}:")), None)
