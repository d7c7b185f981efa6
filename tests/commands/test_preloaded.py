"""Commands that a loaded process does: they behave as if they had been done by the process that the user started."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pktswarm.master.cli import cluster, default_names, entry
from pktswarm.traffic.protocol.cluster_events import Shown

LIMIT_S = 20.0
SERVER = """
import json, os, signal, sys, time
from pktswarm.master.cli import preloaded

def command():
    what = sys.argv[2] if len(sys.argv) > 2 else ""
    if what == "show":
        os.umask(mask := os.umask(0))
        print(json.dumps({
            "argv": sys.argv, "cwd": os.getcwd(), "umask": mask, "colour": os.environ.get("COLOUR", ""),
            "stale": os.environ.get("STALE", ""), "input": sys.stdin.read(), "tty": sys.stdout.isatty(),
        }))
        print("to the error stream", file=sys.stderr)
        sys.exit(7)
    if what == "wait":
        say = lambda number, _: os.write(1, signal.Signals(number).name.encode() + b"\\n")
        signal.signal(signal.SIGINT, say)  # as the program does
        signal.signal(signal.SIGTERM, say)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, say)
        print(os.getpid(), flush=True)
        time.sleep(60)
    else:
        real()

real, preloaded.app.main = preloaded.app.main, command
preloaded.main()
"""
NOT_SERVED = "pktswarm: {}: there is no such file\n"
"""What the program itself says to the commands below."""
CLIENT = [sys.executable, "-c", "from pktswarm.master.cli.entry import main; main()"]


class Server:
    """A loaded process for an inventory of a test, as long as `cluster` lives."""

    def __init__(self, hosts: Path) -> None:
        self.hosts = hosts
        self.cluster = subprocess.Popen(["sleep", "60"])
        pipe, environment = subprocess.PIPE, {**os.environ, "STALE": "of the server"}
        command = [sys.executable, "-P", "-c", SERVER, str(hosts)]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        assert self.process.stdin and self.process.stdout
        print(self.cluster.pid, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "ready\n"

    def command(self, *words: object) -> list[str]:
        return [*CLIENT, "run", *map(str, words), "--hosts", str(self.hosts)]

    def begin(self, before: Callable[[], object] | None = None) -> tuple[subprocess.Popen[str], int]:
        """A command that waits, and the process that does it."""
        client = subprocess.Popen(self.command("wait"), stdout=subprocess.PIPE, text=True, preexec_fn=before)
        return client, int(line_of(client))


def line_of(client: subprocess.Popen[str]) -> str:
    assert client.stdout and select.select([client.stdout], [], [], LIMIT_S)[0]
    return client.stdout.readline().strip()


def state_of(pid: int) -> str:
    """Empty: there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "hosts.yml")
    try:
        yield made
    finally:
        made.cluster.kill()
        made.cluster.wait()
        assert made.process.wait(LIMIT_S) == 0  # it ends with its cluster


def test_streams_folder_variables_and_status_are_those_of_the_command(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    done = subprocess.run(
        server.command("show", "é"),
        input="a line",
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "COLOUR": "blue"},
        umask=0o027,
        check=False,
    )
    assert (done.returncode, done.stderr) == (7, "to the error stream\n")
    assert json.loads(done.stdout) == {
        "argv": ["-c", "run", "show", "é", "--hosts", str(server.hosts)],
        "cwd": str(folder),
        "umask": 0o027,
        "colour": "blue",
        "stale": "",
        "input": "a line",
        "tty": False,
    }


def test_the_program_itself_answers_as_without_a_loaded_process(server: Server, tmp_path: Path) -> None:
    words = ["run", "configs/first.yaml", "--label", "1", "--hosts"]
    with_it, without = (
        subprocess.run([*CLIENT, *words, str(hosts)], capture_output=True, text=True, check=False)
        for hosts in (server.hosts, tmp_path / "none.yml")
    )
    assert with_it.returncode == without.returncode == 2
    assert with_it.stderr == without.stderr
    assert "not a label" in with_it.stderr


def ignore_two() -> None:
    """As `nohup` and `&` do."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_signals_are_passed_on_and_those_ignored_stay_so(server: Server) -> None:
    client, worker = server.begin(ignore_two)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        client.send_signal(number)
        if number != signal.SIGHUP:
            assert line_of(client) == number.name
    os.kill(worker, signal.SIGKILL)
    assert client.wait(LIMIT_S) == -signal.SIGKILL


def test_a_command_that_is_killed_takes_its_process_along(server: Server) -> None:
    client, worker = server.begin()
    client.kill()
    client.wait()
    until(lambda: not state_of(worker))


def test_ctrl_z_stops_and_continues_both(server: Server) -> None:
    client, worker = server.begin()
    client.send_signal(signal.SIGTSTP)
    until(lambda: state_of(client.pid) == state_of(worker) == "T")
    client.send_signal(signal.SIGCONT)
    until(lambda: state_of(client.pid) == state_of(worker) == "S")
    client.terminate()
    assert line_of(client) == "SIGTERM"
    client.kill()
    client.wait()


def test_ctrl_c_on_a_terminal_reaches_it_and_it_sees_the_terminal(server: Server) -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.execv(CLIENT[0], server.command("wait"))  # noqa: S606
    seen = b""
    with contextlib.suppress(OSError):
        while b"SIGINT" not in seen and select.select([terminal], [], [], LIMIT_S)[0]:
            seen += os.read(terminal, 4096)
            if b"\n" in seen and b"^C" not in seen:
                os.write(terminal, b"\x03")
    assert b"SIGINT" in seen
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)


def limit_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))


def one_processor() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.mark.parametrize(
    ("variables", "before"),
    [
        ({"PYTHONWARNINGS": "ignore::ImportWarning"}, lambda: None),
        ({"LC_ALL": "C.UTF-8", "LANG": "de_DE.UTF-8"}, lambda: None),
        ({}, lambda: os.nice(1)),
        ({}, limit_files),
        ({}, one_processor),
        ({}, lambda: os.close(0)),
    ],
    ids=["python", "locale", "nice", "limit", "processors", "no input"],
)
def test_a_command_in_other_circumstances_is_done_by_its_own_process(
    server: Server, variables: dict[str, str], before: Callable[[], None]
) -> None:
    if before is one_processor and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("this process has one processor: there is no other choice")
    command, environment = server.command("show"), {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, preexec_fn=before, check=False)
    assert done.returncode == 2, done
    assert done.stderr == NOT_SERVED.format(server.hosts)


def test_changed_code_ends_the_loaded_process(tmp_path: Path) -> None:
    module = tmp_path / "extra_module.py"
    module.write_text("VALUE = 1\n")
    program = f"import sys; sys.path.append({str(tmp_path)!r}); import extra_module\n" + SERVER
    cluster = subprocess.Popen(["sleep", "60"])
    command, pipe = [sys.executable, "-P", "-c", program, str(tmp_path / "hosts.yml")], subprocess.PIPE
    server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    try:
        assert server.stdin
        print(cluster.pid, file=server.stdin, flush=True)
        assert line_of(server) == "ready"
        client = [*CLIENT, "run", "show", "--hosts", str(tmp_path / "hosts.yml")]
        assert subprocess.run(client, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 7
        module.write_text("VALUE = 20\n")
        done = subprocess.run(client, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.stderr == NOT_SERVED.format(tmp_path / "hosts.yml")
        assert server.wait(LIMIT_S) == 0
    finally:
        server.kill()
        server.wait()
        cluster.kill()
        cluster.wait()


@pytest.mark.parametrize("words", [["--hosts", "a", "x"], ["--hosts=a"], ["--hosts", "b", "--hosts", "a"]])
def test_the_inventory_is_found_among_the_words(words: list[str]) -> None:
    assert entry._hosts(["run", *words]) == "a"
    assert entry._hosts(["run", "x"]) == default_names.HOSTS


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_nothing_is_read_of_another_user(server: Server) -> None:
    program = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX);"
        "s.connect(sys.argv[1].replace('@', chr(0))); print(s.recv(1000).decode())"
    )
    name = entry.socket_name(str(server.hosts)).replace("\0", "@")
    done = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"event": "declined", "reason": "not the same user"}


def test_a_program_that_cannot_be_preloaded_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    shown = Shown("hosts.yml", "up", "", os.getpid(), "", [], "", 0, 0, 0.0, 0.0, "")
    with cluster._preloading(tmp_path / "hosts.yml") as follow:
        follow(shown)
    assert capsys.readouterr().err == "the program could not be preloaded: commands load it themselves\n"
