"""The identity of a process's CLOCK_MONOTONIC: two processes with the same one read the same clock."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TIME_NAMESPACE = Path("/proc/self/ns/time")


def clock_identity() -> str:
    """Kernel boot and time namespace; empty where the boot is unknown. A kernel without time namespaces (before 5.6,
    or built without) has one clock.

    Virtual machines that were resumed from one snapshot can have the same identity and different clocks: a reading
    that excludes an offset of 0 decides.
    """
    try:
        boot = BOOT_ID.read_text().strip()
    except OSError:
        return ""
    try:
        return f"{boot} {TIME_NAMESPACE.readlink()}"
    except OSError:
        return boot
