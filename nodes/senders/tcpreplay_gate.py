"""Gives tcpreplay a start at a given time and an exact pace, by the pipe from which it reads its trace.

A program of its own: tcpreplay_gate.py JSON tcpreplay … /dev/stdin, with the fields of `Feed` as JSON. It prints
"armed" when tcpreplay has opened its interface (about 50 ms) and waits for the rest of its first packets, then reads
one line from the FIFO `gate`: the release time (CLOCK_MONOTONIC, ns).

The process that becomes tcpreplay is bound to one processor (see keep_to_one_processor), the rest is not.

At the recorded pace each packet is written to the pipe at its due time after the release, so errors do not
accumulate: tcpreplay's timing is relative to the packet before, and drifts (by a second in five on a busy machine).
At any other pace the whole trace except its last byte is in the pipe before the release, and tcpreplay paces.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from typing import NamedTuple

ARMED = "pktswarm: armed"
RELEASED = "pktswarm: released at "
BEHIND = "pktswarm: behind by at most "
SPIN_NS = 300_000
POLL_S = 0.001
PIPE_BYTES = 1 << 20
HEADER_BYTES = 24
BATCH_BYTES = 1 << 16


class Feed(NamedTuple):
    trace: str
    """A nanosecond pcap, little endian, in order of time."""
    gate: str
    recorded_pace: bool
    speed: float = 1.0
    period_ns: int = 0
    """At the recorded pace: from the start of one pass to the start of the next."""
    limit: int | None = None
    """At the recorded pace: packets in all; None: until `duration_ns`."""
    duration_ns: int | None = None
    turn: int = 0
    """Index of its processor, modulo their number."""


Due = tuple[int, bytes]
"""Nanoseconds after the release, and a packet as it stands in the file."""


def packets(trace: bytes) -> list[Due]:
    found: list[Due] = []
    at, first_ns = HEADER_BYTES, 0
    while at < len(trace):
        seconds, rest_ns, captured, _ = struct.unpack_from("<IIII", trace, at)
        time_ns = seconds * 1_000_000_000 + rest_ns
        first_ns = first_ns or time_ns
        found.append((time_ns - first_ns, trace[at : at + 16 + captured]))
        at += 16 + captured
    return found


def schedule(one_pass: list[Due], feed: Feed) -> Iterator[Due]:
    """Every packet of every pass with its time; ends at the limit or the duration."""
    endless = (
        (number * feed.period_ns + round(due_ns / feed.speed), record)
        for number in itertools.count()
        for due_ns, record in one_pass
    )
    counted = itertools.islice(endless, feed.limit)
    end_ns = feed.duration_ns
    return counted if end_ns is None else itertools.takewhile(lambda due: due[0] < end_ns, counted)


def wait_until_read(pipe: int) -> None:
    while any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))):
        time.sleep(POLL_S)


def write_all(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


def wait_until(instant_ns: int, spin_ns: int = 0) -> None:
    """Sleeps; spins for the last `spin_ns`, because a sleeper is woken some 60 µs late."""
    time.sleep(max(0, instant_ns - spin_ns - time.monotonic_ns()) / 1e9)
    while time.monotonic_ns() < instant_ns:
        pass


def keep_to_one_processor(turn: int) -> None:
    """This process, to its end: a veth queues a frame on the processor that sent it, so the frames of a process that
    moves overtake each other. The last processors first: the first one has a board's interrupts."""
    allowed = sorted(os.sched_getaffinity(0), reverse=True)
    os.sched_setaffinity(0, {allowed[turn % len(allowed)]})


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def arm(pipe: int, first: bytes, ahead: bytes, gate: str) -> int:
    """Armed once tcpreplay has read `first`; it gets `ahead` too before the gate opens. The instant of the release."""
    write_all(pipe, first)
    wait_until_read(pipe)
    say(ARMED)
    write_all(pipe, ahead)
    wait_until_read(pipe)
    with open(gate) as lines:  # noqa: PTH123 (pathlib would double the start-up time)
        release_ns = int(lines.readline())
    wait_until(release_ns, SPIN_NS)
    say(f"{RELEASED}{time.monotonic_ns()}")
    return release_ns


def feed_at_recorded_pace(trace: bytes, pipe: int, feed: Feed) -> None:
    due = schedule(packets(trace), feed)
    _, first = next(due)
    release_ns = arm(pipe, trace[:HEADER_BYTES], first[:-1], feed.gate)
    batch, behind_ns = [first[-1:]], 0
    for due_ns, record in due:
        if release_ns + due_ns > time.monotonic_ns() or len(batch) * len(record) > BATCH_BYTES:
            write_all(pipe, b"".join(batch))
            batch.clear()
            wait_until(release_ns + due_ns)
        behind_ns = max(behind_ns, time.monotonic_ns() - release_ns - due_ns)
        batch.append(record)
    write_all(pipe, b"".join(batch))
    say(f"{BEHIND}{behind_ns} ns")


def feed_at_once(trace: bytes, pipe: int, feed: Feed, replayer: int) -> None:
    release_ns = arm(pipe, trace[:HEADER_BYTES], trace[HEADER_BYTES:-1], feed.gate)
    write_all(pipe, trace[-1:])
    os.close(pipe)
    if feed.duration_ns is not None:
        wait_until(release_ns + feed.duration_ns)
        os.kill(replayer, signal.SIGINT)


def main() -> None:
    feed = Feed(**json.loads(sys.argv[1]))
    with open(feed.trace, "rb") as file:  # noqa: PTH123
        trace = file.read()
    read_end, write_end = os.pipe()
    replayer = os.getpid()
    if os.fork():
        keep_to_one_processor(feed.turn)
        os.dup2(read_end, 0)
        # Neither end may stay open here: tcpreplay would never see the end of its trace.
        os.close(read_end)
        os.close(write_end)
        command = sys.argv[2:]
        os.execvp(command[0], command)  # noqa: S606
    os.close(read_end)
    try:
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        pass  # a smaller pipe does too, it only needs more wake-ups
    # An interrupt, and the end of tcpreplay, end this process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if feed.recorded_pace:
        feed_at_recorded_pace(trace, write_end, feed)
    else:
        feed_at_once(trace, write_end, feed, replayer)


if __name__ == "__main__":
    main()
