"""For every test: a root directory that is a mount point, which `ip netns exec` and `unshare --mount` insist on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab import namespaces


def root_is_a_mount_point() -> bool:
    """Not inside a plain chroot, such as a debootstrap that somebody tries this in."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == "/" for line in mounts)


def pytest_configure(config: pytest.Config) -> None:
    """In a mount namespace of the tests' own: "/" bound onto /mnt, and that made the root."""
    if os.geteuid() != 0 or root_is_a_mount_point():
        return
    here = Path.cwd()
    namespaces.unshare(namespaces.MOUNT)
    namespaces.mount("/", "/mnt", "", flags=namespaces.MS_BIND | namespaces.MS_REC)
    os.chroot("/mnt")
    os.chdir(here)
