"""One master at a time on a node, and what guards that are gone have left there."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pktswarm.nodes import node_lock, stale_spools
from pktswarm.traffic.protocol.guard_events import Leftovers, StaleProcess

CHILD = """
import sys, time
from pathlib import Path
from pktswarm.nodes import node_lock
print(node_lock.take(sys.argv[1], sys.argv[2], 0.0, Path(sys.argv[3])), flush=True)
time.sleep(60)
"""


@contextmanager
def guard(run: str, by: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that takes the hold, and what it was told."""
    command = [sys.executable, "-c", CHILD, run, by, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_the_second_run_is_told_who_holds_it_and_since_when(tmp_path: Path) -> None:
    assert node_lock.holder(tmp_path / "none") is None
    folder = tmp_path / "run"
    with guard("one", "ann@desk", folder) as (_, told):
        assert told == "None"
        with guard("two", "bob@bench", folder) as (_, refused):
            assert "run='one', by='ann@desk', since='20" in refused
        assert (holder := node_lock.holder(folder)) and holder.by == "ann@desk"


def test_both_ranks_of_a_run_hold_it_and_the_last_lets_go(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with guard("one", "ann@desk", folder) as (first, _), guard("one", "ann@desk", folder) as (second, told):
        assert told == "None"
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert (holder := node_lock.holder(folder)) and holder.run == "one"
        second.send_signal(signal.SIGKILL)
        second.wait()
        assert node_lock.holder(folder) is None


def test_who_comes_just_after_a_kill_waits_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with guard("one", "ann@desk", folder) as (first, _):
        later = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -KILL {first.pid}"])
        command = [sys.executable, "-c", CHILD.replace("0.0,", "20.0,").replace("time.sleep(60)", "")]
        done = subprocess.run([*command, "two", "bob@bench", str(folder)], capture_output=True, text=True, check=True)
        later.wait()
        assert done.stdout.strip() == "None"


def test_only_its_owner_reads_the_hold(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with guard("one", "ann@desk", folder):
        assert [path.stat().st_mode & 0o777 for path in (folder, folder / "hold", folder / "gate")] == [
            0o700,
            0o600,
            0o600,
        ]


# --- leftovers ----------------------------------------------------------------------------------------------------


def test_a_folder_without_its_guard_is_left_over_and_a_living_ones_is_not(tmp_path: Path) -> None:
    dead, living, own = (tmp_path / f"pktswarm-{name}" for name in ("dead", "living", "own"))
    for path in (dead, living, own, tmp_path / "other"):
        path.mkdir()
    (dead / "capture.pcap").write_bytes(bytes(1000))
    handle = stale_spools.lock(living)
    try:
        found = stale_spools.report(tmp_path, own, "nothing0", None)
    finally:
        os.close(handle)
    assert found == Leftovers(None, [str(dead)], 1000, [], 0, [])


@pytest.mark.parametrize("gone", [False, True])
def test_an_engine_whose_guard_is_gone_is_found_even_where_its_folder_went(tmp_path: Path, gone: bool) -> None:
    spool = tmp_path / "pktswarm-x"
    spool.mkdir()
    engine = subprocess.Popen(["sleep", "60"], cwd=spool)
    try:
        while not Path(f"/proc/{engine.pid}/cmdline").read_bytes():  # the kernel is still about to start it
            assert engine.poll() is None
        handle = stale_spools.lock(spool)
        assert stale_spools.report(tmp_path, tmp_path / "own", "nothing0", None).processes == []
        os.close(handle)
        if gone:
            spool.rmdir()
        found = stale_spools.report(tmp_path, tmp_path / "own", "nothing0", None).processes
        assert found == [StaleProcess(engine.pid, "sleep 60")]
    finally:
        engine.kill()
        engine.wait()


def test_looking_at_a_folder_does_not_take_it(tmp_path: Path) -> None:
    spool = tmp_path / "pktswarm-x"
    spool.mkdir()
    stale_spools.report(tmp_path, tmp_path / "own", "nothing0", None)
    handle = os.open(spool, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
