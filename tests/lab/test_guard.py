"""The guard by itself: what it obeys, and that it stops and restores whatever happens to its rank."""

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import guard, guard_loop, stale_spools
from pktswarm.nodes.guard_engines import Engines
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.protocol.guard_events import Failed, Fresh, GuardEvent, Restored
from pktswarm.traffic.protocol.guard_orders import Again, GuardOrder, Restore, decode_guard_order
from pktswarm.traffic.protocol.messages import Lines

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the guard is root's")


@pytest.fixture(autouse=True)
def spools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place of the test's own: others' guards are in the usual one."""
    monkeypatch.setattr(stale_spools, "SPOOLS", tmp_path)


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


class Spawned:
    """A guard of this process, whose rank is the test."""

    def __init__(self) -> None:
        self.pipe = guard.spawn("nobody")
        self.find_spool()

    def find_spool(self) -> None:
        deadline = time.monotonic() + 20
        while not (new := list(stale_spools.SPOOLS.glob("pktswarm-*"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        (self.spool,) = new

    def ask(self, order: GuardOrder, raw: bytes | None = None) -> GuardEvent:
        self.pipe.send(order, raw)
        return self.hear()

    def hear(self, seconds: float = 5.0) -> GuardEvent:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.pipe.receive(0.1)
            for message, _ in self.pipe.messages():
                return message
        raise TimeoutError

    def gone(self) -> bool:
        return within(5.0, lambda: not self.spool.exists())


def test_it_restores_and_goes_when_asked() -> None:
    this = Spawned()
    assert this.ask(Restore()) == Restored([])
    assert this.gone()
    os.wait()


def test_a_guard_that_is_kept_restores_and_serves_a_further_run_in_a_fresh_folder() -> None:
    this = Spawned()
    for _ in range(3):
        spool = this.spool
        assert this.ask(Restore(kept=True)) == Restored([])
        assert not spool.exists(), "between two runs nothing of it is on the node"
        assert this.ask(Again()) == Fresh()
        this.find_spool()
    assert this.ask(Restore()) == Restored([])
    assert this.gone()
    os.wait()


def test_a_guard_that_is_kept_ends_without_word_of_the_master() -> None:
    this = Spawned()
    assert this.ask(Restore(kept=True)) == Restored([])
    assert os.wait()[1] == 0, "within WORD_TIMEOUT_S"


def test_it_goes_when_its_pipe_closes() -> None:
    this = Spawned()
    this.pipe.socket.close()
    assert this.gone()
    os.wait()


@pytest.mark.parametrize(("away_s", "state"), [(3.0, "running"), (0.1, "over")], ids=["stalled", "awake"])
def test_only_a_guard_that_could_hear_ends_because_it_heard_nothing(
    away_s: float, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_loop, "AWAY_NS", 2_500_000_000)  # so that this machine's own stalls are none
    ours, ranks = socket.socketpair()
    one, now_ns = guard_loop.Guard(Lines(ours, decode_guard_order), os.getgid()), time.monotonic_ns()
    one.state, one.last_word_ns, one.looked_ns = "running", now_ns - 3_000_000_000, now_ns - int(away_s * 1e9)
    one._watch()
    assert one.state == state
    if state == "running":  # and nobody speaks

        def over() -> bool:
            one._watch()
            return one.state == "over"

        assert within(5.0, over)
        assert time.monotonic_ns() - now_ns > 0.9e9
    assert not one.spool.exists()
    ours.close()
    ranks.close()


def terminated(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("name", ["chown", "chmod"])
def test_sigterm_at_its_very_beginning_leaves_no_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard is forked, and comes to what is put here in its own process."""
    monkeypatch.setattr(os if name == "chown" else Path, name, terminated)
    pipe = guard.spawn("nobody")
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    assert list(stale_spools.SPOOLS.iterdir()) == []
    pipe.socket.close()


def test_sigterm_does_not_break_off_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engines, "stop", terminated)
    this = Spawned()
    this.pipe.socket.close()
    assert this.gone()
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"op": "shell", "command": "id"}, "unknown operation 'shell'"),
        ({"op": "start", "at": 1}, "op start: at: unknown field"),
        ({"op": "start"}, "op start: at_ns: missing"),
        ({"op": "start", "at_ns": "1"}, "op start: at_ns = '1': wrong type"),
        ({"op": "file", "name": "../../etc/passwd"}, "not a plain file name"),
        ({"op": "file", "name": ".hidden"}, "not a plain file name"),
        ({"op": "prepare", "role": "transmit", "task": "{}"}, "transmit task: interface: missing"),
    ],
)
def test_it_refuses_what_is_not_a_fixed_command(message: dict[str, Any], words: str) -> None:
    this = Spawned()
    this.pipe.socket.sendall(json.dumps({**message, "raw_bytes": 1}).encode() + b"\nx")
    answer = this.hear()
    assert isinstance(answer, Failed) and words in answer.problem
    this.pipe.socket.close()
    assert this.gone()
    os.wait()


def test_its_files_are_for_the_ranks_group_only() -> None:
    this = Spawned()
    assert within(5.0, lambda: this.spool.stat().st_mode & 0o777 == 0o750)
    assert this.spool.stat().st_gid == pwd.getpwnam("nobody").pw_gid
    this.pipe.socket.close()
    assert this.gone()
    os.wait()


RANK = """
import os, sys
from pktswarm.nodes import guard
from pktswarm.traffic.protocol.guard_orders import Restore
pipe = guard.spawn("nobody")
pipe.send(Restore())
while pipe.receive(5):
    for event, _ in pipe.messages():
        print(event.NAME, os.geteuid(), flush=True)
"""


def test_a_rank_that_is_a_user_reaches_its_guard_by_one_sudo_rule(tmp_path: Path) -> None:
    """In a mount namespace of its own, with a sudoers file of its own."""
    nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    readable = [*nobody, sys.executable, "-P", "-c", "import pktswarm.nodes.guard"]
    if subprocess.run(readable, capture_output=True, check=False).returncode:
        pytest.skip("this Python or its packages cannot be read by other users")
    if not Path("/usr/bin/sudo").exists():
        pytest.skip("sudo is not installed")
    rules = tmp_path / "sudoers"
    rules.write_text(f"nobody ALL=(root) NOPASSWD: {sys.executable} -P -m pktswarm.nodes.guard --socket *\n")
    rules.chmod(0o440)
    script = f'mount --bind {rules} /etc/sudoers && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", *nobody, sys.executable, "-P", "-c", RANK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    uid = pwd.getpwnam("nobody").pw_uid
    assert done.stdout.split() == ["restored", str(uid)], done.stderr


def test_a_frozen_guards_engines_end_by_their_own_limit(tmp_path: Path) -> None:
    from pktswarm.nodes.process import EngineProcess

    engine = EngineProcess("sleep", ["sleep", "60"], tmp_path / "out", limit_s=0.5)
    engine.start()
    assert within(5.0, lambda: not engine.running())
    assert engine.status == 137


def test_what_an_engine_need_not_read_is_empty_for_it_alone(tmp_path: Path) -> None:
    from pktswarm.nodes.process import EngineProcess

    names, other = tmp_path / "names.conf", tmp_path / "other.conf"
    names.write_text("many names")
    other.write_text("needed")
    command = ["cat", str(names), str(other)]
    engine = EngineProcess("cat", command, tmp_path / "out", 30.0, hidden=[names, tmp_path / "missing.conf"])
    engine.start()
    assert within(5.0, lambda: not engine.running())
    assert engine.check() == "needed"
    assert names.read_text() == "many names"
    assert str(names) not in Path("/proc/self/mountinfo").read_text()


def test_an_engine_and_its_workers_die_with_their_guard(tmp_path: Path) -> None:
    names = [f"sleep {seconds}.{os.getpid()}" for seconds in (61, 62)]  # others may run this test too

    def running() -> int:
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
        return sum(name in shown for name in names)

    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        from pktswarm.nodes.process import EngineProcess

        EngineProcess("sh", ["sh", "-c", " & ".join(names)], tmp_path / "out", 30.0).start()
        theirs.send(b"!")
        time.sleep(60)
        os._exit(0)
    try:
        assert ours.recv(1)
        assert within(20.0, lambda: running() == 2)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert within(5.0, lambda: running() == 0)
    ours.close()


def test_a_host_without_sudo_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="guard: sudo, which starts it, is not here: No such file or directory"):
        guard._spawn_by_sudo()
