"""An armed start for tcpreplay, which has none: it reads its trace from a pipe that lacks the last byte.

Started as a program of its own: tcpreplay_gate.py TRACE GATE DURATION_NS tcpreplay … /dev/stdin
It says "armed" when tcpreplay has opened its interface (about 50 ms) and read the trace but for that byte, then reads
from the FIFO `GATE` one line: the CLOCK_MONOTONIC instant (ns) of the release. tcpreplay sends within 0.1 ms of the
byte. With DURATION_NS > 0 it is interrupted that long after the release.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
import time

ARMED = "pktswarm: armed"
RELEASED = "pktswarm: released at "
SPIN_NS = 300_000
POLL_S = 0.001


def unread_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def write_all(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


def wait_until(instant_ns: int) -> None:
    """Sleeps, then spins for the last moment: a sleeper is woken up to 100 µs late."""
    time.sleep(max(0, instant_ns - SPIN_NS - time.monotonic_ns()) / 1e9)
    while time.monotonic_ns() < instant_ns:
        pass


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def feed(trace: bytes, pipe: int, gate: str, duration_ns: int, replayer: int) -> None:
    write_all(pipe, trace[:-1])
    while unread_bytes(pipe):
        time.sleep(POLL_S)
    say(ARMED)
    with open(gate) as lines:  # noqa: PTH123
        release_ns = int(lines.readline())
    wait_until(release_ns)
    released_ns = time.monotonic_ns()
    write_all(pipe, trace[-1:])
    os.close(pipe)
    say(f"{RELEASED}{released_ns}")
    if duration_ns:
        wait_until(release_ns + duration_ns)
        os.kill(replayer, signal.SIGINT)


def main() -> None:
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123 (pathlib would double the start-up time)
        trace = file.read()
    read_end, write_end = os.pipe()
    replayer = os.getpid()
    if os.fork():
        os.dup2(read_end, 0)
        # Neither end may stay open here: tcpreplay would never see the end of its trace.
        os.close(read_end)
        os.close(write_end)
        command = sys.argv[4:]
        os.execvp(command[0], command)  # noqa: S606
    os.close(read_end)
    # Die at once when interrupted or when tcpreplay is gone, with no traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    feed(trace, write_end, sys.argv[2], int(sys.argv[3]), replayer)


if __name__ == "__main__":
    main()
