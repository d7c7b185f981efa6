"""Processes of Python that start at once: forked from one that has loaded pktswarm's modules (fork_server.py).

run() and popen() take the words that subprocess takes. The interpreter with these modules takes half a second of a
processor to start, and the tests start it a thousand times. What runs is the same code, in a process of its own.
"""

from __future__ import annotations

import atexit
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import fork_server

PKTSWARM = Path(sys.executable).with_name("pktswarm")
"""The command line."""
Words = Sequence[object]


class _Server:
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="pktswarm-tests-")
        self.socket = f"{self.folder.name}/socket"
        command = [sys.executable, "-P", fork_server.__file__, self.socket]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # a process with threads enters no lab
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
        atexit.register(self.close)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()

    def start(self, request: fork_server.Request, descriptors: list[int]) -> tuple[int, socket.socket]:
        """The number of the process, and where its status comes."""
        return fork_server.ask(self.socket, request, descriptors, lambda: self.process.poll() is None)


@cache
def _server() -> _Server:
    return _Server()


def script() -> str:
    """A shell script that is `pktswarm`, while this process lives."""
    words = [sys.executable, "-I", "-S", fork_server.__file__, _server().socket, "command"]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def _request(words: list[str], folder: object, environment: dict[str, str] | None) -> fork_server.Request:
    netns = ""
    if words[:3] == ["ip", "netns", "exec"]:
        netns, words = words[3], words[4:]
    elif words[0] == "nsenter":
        netns, words = words[1].removeprefix("--net="), words[2:]
    command = words[0] == str(PKTSWARM)
    words = [word for word in words[1:3] if word != "-P"] + words[3:]
    assert command or words[0] == "-c", words
    return {
        "command": command,
        "words": words,
        "netns": netns,
        "folder": str(folder or Path.cwd()),
        "environment": {**os.environ} if environment is None else environment,
    }


class Forked(subprocess.Popen[str]):
    """A process that is the server's child; for all else a subprocess."""

    def _execute_child(self, *given: Any) -> None:
        """The arguments are those of the method that this one replaces, of Python 3.11 to 3.14."""
        words, folder, environment = [str(word) for word in given[0]], given[5], given[6]
        to_child, own_in, own_out, from_child, own_error, error = given[10:16]
        ends = [to_child if to_child >= 0 else 0, from_child if from_child >= 0 else 1, error if error >= 0 else 2]
        try:
            self.pid, self._end = _server().start(_request(words, folder, environment), ends)
        finally:
            self._close_pipe_fds(to_child, own_in, own_out, from_child, own_error, error)  # type: ignore[attr-defined]  # private
        self._child_created = True
        self._status = b""

    def _read_status(self, flags: int) -> bool:
        """Whether it has ended."""
        try:
            self._status += self._end.recv(fork_server.NUMBER_BYTES - len(self._status), flags)
        except BlockingIOError:
            return False
        if len(self._status) < fork_server.NUMBER_BYTES:
            raise AssertionError("the fork server ended before its child")
        self._end.close()
        return True

    def _try_wait(self, flags: int) -> tuple[int, int]:
        ended = self._read_status(socket.MSG_DONTWAIT if flags & os.WNOHANG else socket.MSG_WAITALL)
        return (self.pid, int.from_bytes(self._status, sys.byteorder)) if ended else (0, 0)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]  # private
            try:
                if self.returncode is None and self._read_status(socket.MSG_DONTWAIT):
                    self.returncode = os.waitstatus_to_exitcode(int.from_bytes(self._status, sys.byteorder))
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]  # private
        return self.returncode


def popen(words: Words, **options: Any) -> subprocess.Popen[str]:
    """As subprocess.Popen, with text."""
    return Forked([str(word) for word in words], text=True, **options)


def run(
    words: Words, given: str | None = None, timeout: float | None = None, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run with text; its output is kept unless `options` say otherwise."""
    pipe = subprocess.PIPE
    options = {"stdin": pipe if given is not None else None, "stdout": pipe, "stderr": pipe, **options}
    with popen(words, **options) as process:
        try:
            out, error = process.communicate(given, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, error)
    if check:
        done.check_returncode()
    return done
