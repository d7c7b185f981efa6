"""The version, as a command and as a module."""

from __future__ import annotations

import subprocess
import sys

import pktswarm


def test_the_version_is_printed_by_command_and_module() -> None:
    for words in (["-m", "pktswarm"], ["-m", "pktswarm"]):
        done = subprocess.run([sys.executable, *words, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"pktswarm {pktswarm.__version__}\n"
