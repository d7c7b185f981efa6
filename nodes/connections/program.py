"""The process that holds a node's connections: `python -m pktswarm.nodes.connections.program WORK`.

WORK is a JSON file (nodes.connections.work). The process prints "ready" when it listens or all connections are set up,
"failed: …" for a failure before that. A transmitter starts at the time that comes through the FIFO `release`, and ends
when everything is sent; a receiver ends at SIGINT. Both then write `result`: for each leg the count of its end
(traffic.connections.counts.EndCount).
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

from pktswarm.nodes.connections.endpoint import ConnectingSide, ListeningSide, Side
from pktswarm.nodes.connections.loop import READ, Loop
from pktswarm.nodes.connections.work import Work

LOOK_NS = 20_000_000
"""Interval between two readings of every connection's kernel statistics."""
LOOKING_PART = 10
"""The readings take at most 1/LOOKING_PART of the time, however many connections there are."""
ACKNOWLEDGE_NS = 1_000_000_000
"""Time that an interrupted transmitter waits for acknowledgements."""


class Program:
    def __init__(self, work: Work) -> None:
        self.loop = Loop()
        self.transmits = work.role == "transmit"
        self.result = Path(work.result)
        self.stop_at_ns: int | None = None
        self.start_ns: int | None = None
        self.reported = False
        self._listen_to_signals()
        kind: type[Side] = ConnectingSide if self.transmits else ListeningSide
        self.sides = [kind(self.loop, leg, work.interface) for leg in work.legs]
        if self.transmits:
            release = os.open(work.release, os.O_RDONLY | os.O_NONBLOCK)
            self.loop.watch(release, READ, lambda events: self._released(release))

    def run(self) -> None:
        next_look_ns = 0
        while not self._over():
            self.loop.turn(LOOK_NS / 1e9)
            now_ns = time.monotonic_ns()
            if now_ns >= next_look_ns:
                self._look()
                next_look_ns = now_ns + max(LOOK_NS, LOOKING_PART * (time.monotonic_ns() - now_ns))
        for side in self.sides:
            for end in side.ends.values():
                end.sweep()
            side.look()
        self._write()

    def _over(self) -> bool:
        if self.stop_at_ns is not None and (not self.transmits or time.monotonic_ns() >= self.stop_at_ns):
            return True
        return self.transmits and all(side.over() for side in self.sides)

    def _look(self) -> None:
        for side in self.sides:
            side.look()
        failures = [f"{side.leg.stream}: {why}" for side in self.sides for why in side.failures]
        if not self.reported and (failures or not self.transmits or all(side.ready for side in self.sides)):
            self.reported = True
            print(f"failed: {failures[0]}" if failures else "ready", flush=True)
        self._begin()

    def _begin(self) -> None:
        """Starts the legs that are ready. A leg that is ready only after the start time has late blocks."""
        if self.start_ns is None or self.stop_at_ns is not None:
            return
        for side in self.sides:
            if side.ready and not side.begun and time.monotonic_ns() >= self.start_ns:
                side.begin(self.start_ns)

    def _released(self, release: int) -> None:
        """Reads the start time: a short line arrives in one piece."""
        line = os.read(release, 64)
        self.loop.forget(release)
        if line:
            self.start_ns = int(line)
            self.loop.at(self.start_ns, self._begin)

    def _listen_to_signals(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self._signals = ours, theirs
        self.loop.watch(ours.fileno(), READ, self._signalled)

    def _signalled(self, events: int) -> None:
        self._signals[0].recv(64)
        if self.stop_at_ns is not None:
            return
        self.stop_at_ns = time.monotonic_ns() + ACKNOWLEDGE_NS
        if self.transmits:
            for side in self.sides:
                side.interrupt()

    def _write(self) -> None:
        """Writes the counts in one step."""
        document = {str(side.leg.id): side.count().to_json() for side in self.sides}
        draft = self.result.with_name(self.result.name + ".part")
        draft.write_text(json.dumps(document))
        draft.replace(self.result)


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    Program(Work.read(Path(sys.argv[1]))).run()
    # The guard and timeout(1) send the same signal: the second one must not interrupt the interpreter's exit.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
