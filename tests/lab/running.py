"""A run of the command line that a test watches."""

from __future__ import annotations

import subprocess

import pytest


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    """Until the run says that it is in a phase."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"the run ended before {words!r}: {process.stdout.read() if process.stdout else ''}")
