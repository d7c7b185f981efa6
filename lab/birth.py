"""Starts a lab's keeper so that nothing remains of an `up` that did not finish, however it ended.

The keeper holds the reading end of a pipe. When the pipe closes before the byte STAY, the keeper ends the lab. This
needs no code in this process, so it covers SIGKILL too.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pktswarm.lab import messages
from pktswarm.lab.messages import Built, Failed, Message, Started
from pktswarm.lab.plan import Plan
from pktswarm.lab.record_file import Keeper
from pktswarm.traffic.errors import PktswarmError

UP_TIMEOUT_S = 240.0
END_TIMEOUT_S = 15.0
REAP_TIMEOUT_S = 1.0
STAY = b"s"


class Birth:
    """A lab that is coming up. An exception in the block ends the lab before it is raised further."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.keeper_pid = 0
        self.notes: list[str] = []
        """What the lab lacks; set by await_keeper()."""
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _close
        self._buffer = b""
        self._keeper_stay, self._stay = os.pipe()
        self._reports, self._keeper_reports = os.pipe()

    def __enter__(self) -> Birth:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._end()
        self._close()

    def await_keeper(self) -> Keeper:
        """Returns the record of the lab once all of it is up. Raises PktswarmError with the cause otherwise."""
        deadline = time.monotonic() + UP_TIMEOUT_S
        while (report := self._next_report(deadline)) is not None:
            match report:
                case Failed():
                    raise PktswarmError(f"lab {self.plan.name} did not come up: {report.error}")
                case Built():
                    self.notes = report.notes
                    return self._record(report.pids)
        raise PktswarmError(f"lab {self.plan.name} did not come up: {self._last_words()}")

    def stay(self) -> None:
        os.write(self._stay, STAY)

    def _start(self) -> None:
        command = [sys.executable, "-P", "-m", "pktswarm.lab.keeper", self.plan.name]
        command += [str(self._keeper_stay), str(self._keeper_reports), json.dumps(self.plan.arguments())]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=(self._keeper_stay, self._keeper_reports),
            start_new_session=True,
        )
        for end in (self._keeper_stay, self._keeper_reports):
            os.close(end)
        self._keeper_stay = self._keeper_reports = -1

    def _next_report(self, deadline: float) -> Message | None:
        """Returns the keeper's next message, and stores the keeper's process number; None when it closed the pipe."""
        while b"\n" not in self._buffer:
            if not select.select([self._reports], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise PktswarmError(f"lab {self.plan.name}: no message from its keeper within {UP_TIMEOUT_S:.0f} s")
            data = os.read(self._reports, 1 << 16)
            if not data:
                return None
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        message = messages.decode(line)
        if isinstance(message, Started):
            self.keeper_pid = message.keeper_pid
        return message

    def _record(self, pids: dict[str, int]) -> Keeper:
        started = started_ticks(self.keeper_pid)
        if started is None:
            raise PktswarmError(f"lab {self.plan.name}: its keeper died: {self._last_words()}")
        master = next(node.name for node in self.plan.nodes if node.group == "master")
        return Keeper(self.plan.name, self.keeper_pid, started, pids[master], pids)

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-3000:] or "its keeper ended without a message"

    def _end(self) -> None:
        """Closes the pipe and waits until the keeper, and with it every process of the lab, has ended."""
        self._close_end("_stay")
        self._close_end("_keeper_stay")
        self._close_end("_keeper_reports")
        deadline = time.monotonic() + END_TIMEOUT_S
        while not self.keeper_pid and self._next_report(deadline) is not None:
            pass
        if self.keeper_pid:
            kill_and_wait(self.keeper_pid, END_TIMEOUT_S)

    def _close(self) -> None:
        for name in ("_stay", "_keeper_stay", "_keeper_reports", "_reports"):
            self._close_end(name)
        self._errors.close()
        if self._process is not None:
            # The process forks the keeper and ends.
            self._process.wait(END_TIMEOUT_S)

    def _close_end(self, name: str) -> None:
        end: int = getattr(self, name)
        setattr(self, name, -1)
        if end >= 0:
            os.close(end)


def started_ticks(pid: int) -> int | None:
    """Returns the start time of a process in clock ticks since boot; None if it has ended, reaped or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses can contain anything; the state (field 3) and the start time (field 22) follow it.
    values = text.rpartition(")")[2].split()
    return None if values[0] in "ZX" else int(values[19])


def kill_and_wait(pid: int, timeout_s: float, started: int | None = None) -> None:
    """Sends SIGKILL to process `pid` (if it was started at `started`), and waits for its end.

    The first process of a PID namespace ends only after all others in it.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if started is not None and started_ticks(pid) != started:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        if not select.select([handle], [], [], timeout_s)[0]:
            raise PktswarmError(f"process {pid} does not end within {timeout_s:.0f} s of SIGKILL")
        # It has ended; it is in /proc until its parent, the machine's init, reaps it.
        deadline = time.monotonic() + REAP_TIMEOUT_S
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
    finally:
        os.close(handle)
