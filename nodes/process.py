"""An engine as a child process that cannot outlive its guard, nor its own time limit.

The chain is: setpriv (dies with the guard) → unshare (a PID namespace: with its first process every worker that an
engine forked dies too) → timeout (a hard stop of its own, even when the guard is frozen) → the engine.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pktswarm.nodes.hidden_files import hiding
from pktswarm.traffic.errors import EngineError

GRACE_S = 2.0
TOOL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
IPROUTE2_LIMIT_S = 10.0


class Started(Protocol):
    """A child process: what is used of a subprocess.Popen."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self) -> int | None: ...


class EngineProcess:
    """Runs `command` with its output in `output_file`. `limit_s`: killed after so long, whatever happens. `hidden`:
    files that are empty for it."""

    def __init__(
        self, engine: str, command: list[str], output_file: Path, limit_s: float, hidden: Sequence[Path] = ()
    ) -> None:
        self.engine, self.command, self.output_file, self.limit_s = engine, command, output_file, limit_s
        self.hidden = hidden
        self._process: Started | None = None

    def start(self) -> None:
        chain = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child=KILL"]
        chain += ["timeout", "--foreground", "--signal=KILL", f"{self.limit_s:.3f}"]
        with self.output_file.open("wb") as output:
            self._process = subprocess.Popen(
                chain + self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.output_file.parent,
                # A group of its own, so that one signal reaches the engine and every worker it forked.
                start_new_session=True,
                preexec_fn=hiding(self.hidden),  # a guard has one thread
                env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
            )

    @property
    def started(self) -> bool:
        return self._process is not None

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Exit status; None while it runs or before it started."""
        return None if self._process is None else self._process.poll()

    def output(self) -> str:
        return self.output_file.read_text(errors="replace") if self.output_file.exists() else ""

    def stop(self, first: signal.Signals = signal.SIGINT) -> None:
        """INT, TERM, KILL, each with a grace; then reap."""
        if self._process is None:
            return
        for step in (first, signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, step)
            self._wait(GRACE_S)
        self._process.wait()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)

    def check(self) -> str:
        """The output of an engine that ended well. Raises EngineError with its words otherwise."""
        text = self.output()
        if self.status != 0:
            raise EngineError(self.engine, self.end, text[-4000:])
        return text

    @property
    def end(self) -> str:
        """How it ended, for messages. 137: timeout(1) was killed with it."""
        return f"killed at its limit of {self.limit_s:.0f} s" if self.status in (137, -9) else f"exit {self.status}"


def iproute2(engine: str, *command: str) -> str:
    """Runs a command of iproute2; returns its output. Raises EngineError, which names `engine`, where it fails."""
    environment = {"PATH": TOOL_PATH, "LC_ALL": "C"}
    limit_s = IPROUTE2_LIMIT_S
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(engine, f"{' '.join(command)}: {error}") from None
    if done.returncode:
        raise EngineError(engine, f"{' '.join(command)}: exit {done.returncode}", done.stderr)
    return done.stdout


def missing_tool(tool: str, package: str) -> str:
    """Why `tool` cannot run here; empty when it can."""
    if shutil.which(tool, path=TOOL_PATH):
        return ""
    return f"{tool} is not installed (apt install {package})"


def tool_version(tool: str) -> str:
    """Returns the version that the tool prints, such as "4.4.3"; empty if it is not installed or prints none."""
    path = shutil.which(tool, path=TOOL_PATH)
    if path is None:
        return ""
    try:
        printed = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=GRACE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+(\.\d+)+", printed.stdout or printed.stderr)
    return found[0] if found else ""
