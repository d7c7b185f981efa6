"""The entry point `pktswarm`: has a command done by a process that is loaded already, where a cluster keeps one.

Loading the program takes longer than anything else of a run in a cluster that is up. This module loads little; it
passes standard streams, working directory and environment to the loaded process (master.cli.preloaded), passes on
signals, and ends with the command's exit status. Whatever stands in the way of that, the command is done here.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import NoReturn

from pktswarm.master.cli import default_names
from pktswarm.traffic.errors import EXIT_INCOMPLETE, MessageError
from pktswarm.traffic.protocol.invocations import (
    Ended,
    Go,
    InvocationEvent,
    Invoke,
    Ready,
    decode_invocation_event,
)
from pktswarm.traffic.protocol.messages import Lines, peer

COMMANDS = frozenset({"run", "search", "rfc2544", "y1564", "calibrate", "table", "sessions", "doctor"})
"""Those that use a cluster."""
ANSWER_S = 2.0
END_S = 10.0
"""Time for a process to end after its status came."""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
ALWAYS = {signal.SIGINT, signal.SIGTERM}
"""The command handles these also where its process was started with them ignored, as a shell starts one behind `&`."""


def main() -> None:
    """Run the `pktswarm` command."""
    words = sys.argv[1:]
    status = handed_over(words) if words and words[0] in COMMANDS else None
    if status is None:
        from pktswarm.master.cli import app

        app.main()
    elif status < 0:
        _end_by_signal(-status)
    else:
        sys.exit(status)


def socket_name(hosts: str) -> str:
    """The abstract Unix socket of the process that this user and this installation keep loaded for an inventory."""
    # pathlib loads for 3 ms
    names = [os.path.realpath(each) for each in (hosts, sys.prefix, __file__)]
    return "-".join(
        ["\0pktswarm-preloaded", str(os.geteuid()), *(f"{zlib.crc32(name.encode()):08x}" for name in names)]
    )


def handed_over(words: list[str]) -> int | None:
    """Have a command done. Returns its exit status, a negative one for a signal; None: there is nobody to do it."""
    if None in (sys.stdin, sys.stdout, sys.stderr):  # a closed one's number would be the socket's
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(socket_name(_hosts(words)))
            if peer(connection).uid != os.geteuid():
                return None
            lines = Lines(connection, decode_invocation_event)
            _send_streams(connection)
            lines.send(Invoke(sys.argv[0], words, dict(os.environ)))
            answer = lines.next(ANSWER_S)
        except (OSError, MessageError):
            return None
        return _attended(lines, answer.pid) if isinstance(answer, Ready) else None


def _hosts(words: list[str]) -> str:
    """The inventory, as far as it can be seen without the command's own options."""
    for word, following in zip(reversed(words), reversed([*words[1:], ""]), strict=True):
        if word == "--hosts":
            return following
        if word.startswith("--hosts="):
            return word.removeprefix("--hosts=")
    return default_names.HOSTS


def _send_streams(connection: socket.socket) -> None:
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        socket.send_fds(connection, [b"d"], [0, 1, 2, folder])
    finally:
        os.close(folder)


def _attended(lines: Lines[InvocationEvent], pid: int) -> int | None:
    """Let the process begin, and wait for its end."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return None  # it ends when this connection does
    try:
        with _passing_on(process):
            lines.send(Go())
            ended = lines.next(None)
            select.select([process], [], [], END_S)
    except ConnectionError:
        ended = None
    finally:
        os.close(process)
    if isinstance(ended, Ended):
        return ended.status
    print(f"pktswarm: process {pid}, which worked for this command, ended without a status", file=sys.stderr)
    return EXIT_INCOMPLETE


@contextlib.contextmanager
def _passing_on(process: int) -> Iterator[None]:
    """Pass signals of this process on; those that it ignores stay ignored (nohup), but for ALWAYS."""

    def send(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, number)

    def stop(*_: object) -> None:
        """Ctrl-Z: this process goes on behind its own SIGSTOP, when the shell has continued it."""
        send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        send(signal.SIGCONT)

    handlers: dict[signal.Signals, Callable[..., None]] = {number: lambda got, _: send(got) for number in PASSED_ON}
    handlers[signal.SIGTSTP] = stop
    ignored = {number for number in handlers if signal.getsignal(number) == signal.SIG_IGN} - ALWAYS
    caught = {number: handler for number, handler in handlers.items() if number not in ignored}
    before = {number: signal.signal(number, handler) for number, handler in caught.items()}
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def _end_by_signal(number: int) -> NoReturn:
    """As the command ended. Only a signal that ends no process leaves an exit status to give."""
    with contextlib.suppress(OSError, ValueError):  # SIGKILL takes no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    sys.exit(128 + number)
