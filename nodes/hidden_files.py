"""Files that an engine reads for nothing, as empty ones: /dev/null stands over them in a mount namespace of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

_NEW_MOUNTS, _BIND, _RECURSIVE, _PRIVATE = 0x20000, 1 << 12, 1 << 14, 1 << 18


def hiding(paths: Sequence[Path]) -> Callable[[], None] | None:
    """Returns what a child process does before it starts the engine; None: nothing.

    Where the kernel refuses, as below a root that is no mount point, the engine reads the files."""
    there = [bytes(path) for path in paths if path.is_file()]
    if not there:
        return None
    libc = ctypes.CDLL(None)

    def hide() -> None:
        # Private first: nothing of it may be mounted on the node.
        if libc.unshare(_NEW_MOUNTS) or libc.mount(b"none", b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None):
            return
        for path in there:
            libc.mount(b"/dev/null", path, None, ctypes.c_ulong(_BIND), None)

    return hide
