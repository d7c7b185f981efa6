"""tests/forked.py: its processes are what subprocess would start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from pktswarm.traffic import VERSION
from wire import Wire, inside

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")


def test_the_command_line_has_its_output_and_status(tmp_path: Path) -> None:
    done = forked.run([forked.PKTSWARM, "--version"])
    assert (done.returncode, done.stdout, done.stderr) == (0, f"pktswarm {VERSION}\n", "")
    refused = forked.run([forked.PKTSWARM, "check", "none.yaml"], cwd=tmp_path)
    assert refused.returncode == 2 and refused.stderr.startswith("pktswarm: none.yaml: ")


def test_code_gets_arguments_input_folder_and_environment(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.argv, sys.stdin.read(), os.getcwd(), os.environ['WORD']); sys.exit(7)"
    done = forked.run([sys.executable, "-c", code, "a"], "given", cwd=tmp_path, env={"WORD": "there"})
    assert (done.returncode, done.stdout) == (7, f"['-c', 'a'] given {tmp_path} there\n")
    long = forked.run([sys.executable, "-c", "import sys; print(len(sys.argv[1]))", "a" * 1_000_000])
    assert long.stdout == "1000000\n"
    with pytest.raises(subprocess.CalledProcessError):
        forked.run([sys.executable, "-c", "raise ValueError"], check=True)


def test_it_is_in_the_network_namespace_of_its_caller(wire: Wire) -> None:
    code = "import socket; print([name for _, name in socket.if_nameindex()])"
    with inside(wire.sender):
        assert "tx0" in forked.run([sys.executable, "-c", code]).stdout
    assert "tx0" not in forked.run([sys.executable, "-c", code]).stdout
    there = forked.run(["ip", "netns", "exec", wire.receiver, sys.executable, "-c", code])
    assert "rx0" in there.stdout, there.stderr


def test_a_signal_reaches_the_process(tmp_path: Path) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    process = forked.popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and int(process.stdout.readline()) == process.pid
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == process.poll() == -signal.SIGINT
    killed = forked.popen([sys.executable, "-c", code])
    killed.kill()
    assert killed.wait(30) == -signal.SIGKILL


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "pktswarm"
    path.write_text(forked.script())
    path.chmod(0o755)
    return path


def test_a_shell_script_is_the_command_line(script: Path, tmp_path: Path) -> None:
    done = subprocess.run([script, "check", "none.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("pktswarm: none.yaml: ") and not done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_shell_script_passes_signals_on(number: signal.Signals, script: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    process = subprocess.Popen([script, "check", "fifo.yaml"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    with (tmp_path / "fifo.yaml").open("w"):  # the command reads it
        process.send_signal(number)
        status = process.wait(30)
    assert process.stderr is not None
    if number == signal.SIGINT:
        assert (status, process.stderr.read()) == (3, "pktswarm: interrupted\n")
    else:
        assert (status, process.stderr.read()) == (-number, "")
