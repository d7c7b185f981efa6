"""An engine in a child made by fork: its output, its end, and what of the guard it does not keep."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pktswarm.nodes.forked import ForkedProcess
from pktswarm.traffic.errors import EngineError

LONG_S = 60.0


def sleep() -> None:
    os.write(1, b"ready")
    time.sleep(LONG_S)


def started(output: Path, work: Callable[[], None] = sleep, limit_s: float = LONG_S) -> ForkedProcess:
    process = ForkedProcess("xdp", work, output, limit_s)
    process.start()
    return process


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def written(path: Path) -> str:
    """Also of a file that its process has yet to make."""
    return path.read_text() if path.exists() else ""


def runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def ended(process: ForkedProcess) -> int | None:
    wait(lambda: not process.running())
    return process.status


def test_its_output_and_status(tmp_path: Path) -> None:
    def speak() -> None:
        os.write(1, b"one ")
        os.write(2, str(Path.cwd()).encode())

    process = started(tmp_path / "out", speak)
    assert ended(process) == 0
    assert process.check() == f"one {tmp_path}"


def test_an_error_is_in_its_output_and_goes_no_further(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("no frames")

    process = started(tmp_path / "out", fail)
    assert ended(process) == 1
    with pytest.raises(EngineError, match="xdp: exit 1") as error:
        process.check()
    assert "ValueError: no frames" in process.output() and "no frames" in error.value.output


def test_a_limit_that_is_over_is_an_end_at_once(tmp_path: Path) -> None:
    assert ended(started(tmp_path / "out", limit_s=-1.0)) == -signal.SIGKILL


@pytest.mark.parametrize("frozen", [False, True])
def test_it_ends_at_its_limit_also_when_it_is_frozen(tmp_path: Path, frozen: bool) -> None:
    process = started(tmp_path / "out", limit_s=0.5)
    wait(lambda: "ready" in process.output())
    if frozen:
        os.killpg(process._process.pid, signal.SIGSTOP)  # type: ignore[union-attr]  # it has been started
    assert ended(process) == -signal.SIGKILL
    with pytest.raises(EngineError, match="killed at its limit of 0 s"):
        process.check()


def test_a_stop_ends_it_at_once_and_runs_no_handler_of_the_guards(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, lambda number, _: None)  # in the child it would keep it alive
    try:
        process = started(tmp_path / "out")
        wait(lambda: "ready" in process.output())
        process.stop()
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.status == -signal.SIGINT
    process.stop()  # once more is nothing


def test_a_closed_socket_of_the_guard_is_noticed_while_it_runs(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    process = started(tmp_path / "out")
    wait(lambda: "ready" in process.output())
    theirs.close()
    ours.settimeout(10)
    assert ours.recv(1) == b"" and process.running()
    process.stop()
    ours.close()


def test_it_dies_with_its_guard(tmp_path: Path) -> None:
    guard = os.fork()
    if guard == 0:
        process = started(tmp_path / "out")
        (tmp_path / "pid").write_text(f"{process._process.pid}\n")  # type: ignore[union-attr]  # it has been started
        time.sleep(LONG_S)
        os._exit(0)
    wait(lambda: written(tmp_path / "pid").endswith("\n"))
    pid = int((tmp_path / "pid").read_text())
    wait(lambda: written(tmp_path / "out") == "ready")
    os.kill(guard, signal.SIGKILL)
    os.waitpid(guard, 0)
    wait(lambda: not runs(pid))


def test_it_is_bound_to_its_processor(tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))

    def show() -> None:
        os.write(1, str(os.sched_getaffinity(0)).encode())

    process = ForkedProcess("tc", show, tmp_path / "out", LONG_S, cpu)
    process.start()
    assert ended(process) == 0 and process.output() == str({cpu})
