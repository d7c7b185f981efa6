"""Memory that a process of a node takes, and that the host has left. Bytes."""

from __future__ import annotations

from pathlib import Path

KIB = 1024


def pss_bytes() -> int:
    """The proportional set size of this process (proc(5), smaps_rollup): 1/n of a page that n processes share."""
    return _field(Path("/proc/self/smaps_rollup"), "Pss")


def available_bytes() -> int:
    """What new programs can have without swapping, by the kernel's estimate (proc(5), meminfo)."""
    return _field(Path("/proc/meminfo"), "MemAvailable")


def _field(path: Path, name: str) -> int:
    (words,) = (line.split() for line in path.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(words[1]) * KIB
