"""The two MPI modules against each other, over TCP on loopback, at several sizes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from master.launch import MPI_SETTINGS

MPIEXEC = Path(sys.executable).with_name("mpiexec")
PROGRAM = Path(__file__).parent / "programs" / "primitives.py"


@pytest.mark.parametrize("size", [2, 3, 6])
def test_messages_files_clocks_and_barriers(size: int, tmp_path: Path) -> None:
    command = [MPIEXEC, "-launcher", "fork", "-localhost", "127.0.0.1", "-n", str(size)]
    done = subprocess.run(
        [*command, sys.executable, PROGRAM, tmp_path],
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, **MPI_SETTINGS, "FI_TCP_IFACE": "lo"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert sorted(seen["hello"]) == list(range(1, size))
    assert seen["files"] == size - 1
    # On one machine all read one clock: when the node read it lies between asking and the answer.
    assert len(seen["clocks"]) == (size - 1) * 5
    assert all(asked <= read <= answered for asked, read, answered in seen["clocks"])
