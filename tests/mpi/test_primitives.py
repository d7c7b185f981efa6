"""The two MPI modules against each other, over TCP on loopback, at several sizes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.run.launch import MPI_SETTINGS

pytestmark = pytest.mark.waits

MPIEXEC = Path(sys.executable).with_name("mpiexec")
PROGRAM = Path(__file__).parent / "programs" / "primitives.py"
TAKEN_IN = PROGRAM.with_name("taken_in.py")


def run(size: int, folder: Path, *arguments: str) -> tuple[int, Any, str]:
    """Exit status, what rank 0 saw, what went to stderr."""
    done = launched(PROGRAM, size, folder, *arguments)
    return done.returncode, json.loads((folder / "seen.json").read_text()), done.stderr


def launched(program: Path, size: int, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # A host of its own for each rank, as in a run: mpiexec's proxy of a host does not outlive a death there.
    hosts = ",".join(f"127.0.0.{number}:1" for number in range(1, size + 1))
    options = ["-disable-auto-cleanup"] * bool(arguments)
    options += ["-launcher", "fork", "-localhost", "127.0.0.1", "-hosts", hosts, "-n", str(size)]
    return subprocess.run(
        [MPIEXEC, *options, sys.executable, program, folder, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, **MPI_SETTINGS, "FI_TCP_IFACE": "lo"},
        check=False,
    )


@pytest.mark.parametrize("size", [2, 3, 6])
def test_messages_files_clocks_and_barriers(size: int, tmp_path: Path) -> None:
    status, seen, errors = run(size, tmp_path)
    assert status == 0, errors
    assert set(seen["barriers"].values()) == {True}
    assert seen["left"] == {str(rank): True for rank in range(1, size)}
    assert sorted(seen["hello"]) == list(range(1, size))
    assert seen["files"] == size - 1
    # On one machine all read one clock: when the node read it lies between asking and the answer.
    assert len(seen["clocks"]) == (size - 1) * 5
    assert all(asked <= read <= answered for asked, read, answered in seen["clocks"])


@pytest.mark.parametrize("size", [3, 4, 5, 6])
def test_a_death_in_the_middle_of_a_barrier_keeps_its_own_group_there_but_not_for_ever(
    size: int, tmp_path: Path
) -> None:
    _, seen, _ = run(size, tmp_path, "dies")
    dead = size - 1
    assert seen["barriers"] == {role: dead % 2 != at for at, role in enumerate(("transmit", "receive"))}
    assert set(seen["left"]) == {str(rank) for rank in range(1, dead)}
    assert all(seen["left"][str(rank)] for rank in range(1, dead) if rank % 2 != dead % 2)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_no_rank_has_finalized_before_all_are_ready_for_it(size: int, tmp_path: Path) -> None:
    """mpiexec sends the others a signal then, and often ends by SIGPIPE itself: its status shows nothing."""
    run(size, tmp_path, "late")
    assert (tmp_path / "ready").exists()
    assert not (tmp_path / "early").exists()


def test_a_message_that_came_with_another_call_of_mpi_is_not_slept_over(tmp_path: Path) -> None:
    done = launched(TAKEN_IN, 2, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["False", "False"]
