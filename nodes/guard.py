"""The guard: the small root process of a rank that starts engines, stops them, and leaves the node as it was.

It lives in a session of its own and takes fixed commands over a socket from its rank. Whatever happens to the rank,
to mpiexec or to the master, sending ends here: when that socket closes, when the master's word fails for
WORD_TIMEOUT_S, or at the task's time limit, the guard stops every engine, restores the node and goes.

traffic.protocol.guard_orders and guard_events have its orders and events.
"""

from __future__ import annotations

import argparse
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from typing import TypeVar

from pktswarm.nodes.guard_loop import Guard
from pktswarm.nodes.watchdog import Watchdog
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.protocol import guard_events as events
from pktswarm.traffic.protocol.guard_events import GuardEvent, decode_guard_event
from pktswarm.traffic.protocol.guard_orders import decode_guard_order
from pktswarm.traffic.protocol.messages import Lines, peer

SUDO_TIMEOUT_S = 10.0


def run(connection: socket.socket, owner_gid: int) -> None:
    """The guard's main: never returns to the caller's stack."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # A SIGTERM from now on waits until there is someone who removes the folder again.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    Watchdog().start()
    pipe = Lines(connection, decode_guard_order)
    wanted, runs = True, 0
    while wanted:
        guard = Guard(pipe, owner_gid)
        signal.signal(signal.SIGTERM, lambda *_, guard=guard: guard.terminate())
        wanted = guard.serve(is_further=runs > 0)
        runs += 1


def spawn(user: str) -> Lines[GuardEvent]:
    """Start the guard of this process and give back the rank's end of its socket.

    Started as root it is forked, before anything else of the rank exists; otherwise sudo's single rule starts it.
    """
    if os.geteuid() != 0:
        return _spawn_by_sudo()
    ours, theirs = socket.socketpair()
    gid = pwd.getpwnam(user).pw_gid
    if os.fork() == 0:
        _become_guard(ours, theirs, gid)
    theirs.close()
    return Lines(ours, decode_guard_event)


E = TypeVar("E", bound=GuardEvent)


def answer(pipe: Lines[GuardEvent], kind: type[E], timeout_s: float) -> E:
    """The guard's answer to a rank that has no other work yet."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not pipe.closed:
        pipe.receive(max(0.0, deadline - time.monotonic()))
        for event, _ in pipe.messages():
            if isinstance(event, kind):
                return event
            raise EngineError("guard", event.problem if isinstance(event, events.Failed) else str(event))
    raise EngineError("guard", f"no answer within {timeout_s:.0f} s")


def _become_guard(ours: socket.socket, theirs: socket.socket, gid: int) -> None:
    status = 1
    try:
        ours.close()
        os.setsid()
        # Standard output belongs to the launcher: a guard that held it would keep mpiexec waiting for its end.
        quiet = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        run(theirs, gid)
        status = 0
    except SystemExit:
        status = 0
    finally:
        os._exit(status)


def _spawn_by_sudo() -> Lines[GuardEvent]:
    """The guard calls back: what sudo does to standard input depends on its settings (use_pty)."""
    name = "pktswarm-" + os.urandom(16).hex()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen(1)
        listener.settimeout(SUDO_TIMEOUT_S)
        command = ["sudo", "-n", sys.executable, "-P", "-m", "pktswarm.nodes.guard", "--socket", name]
        quiet = subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                command, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise EngineError("guard", f"sudo, which starts it, is not here: {error.strerror}") from None
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                process.kill()
                words = process.communicate()[1].decode(errors="replace").strip()
                raise EngineError("guard", "sudo did not start it: see docs/guide.md, Privilege", words) from None
            if peer(connection).uid == 0:
                return Lines(connection, decode_guard_event)
            connection.close()  # a stranger guessed the name: only root is our guard


def main() -> None:
    """Started by sudo for a rank that runs as a user; the files it makes are for that user's group."""
    parser = argparse.ArgumentParser(
        prog="pktswarm.nodes.guard", description="The guard of a rank; started through sudo."
    )
    parser.add_argument("--socket", required=True, help="abstract Unix socket of the rank")
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("\0" + parser.parse_args().socket)
    run(connection, peer(connection).gid)


if __name__ == "__main__":
    main()
