"""The process that holds a node's connections: `python -m pktswarm.nodes.connections.program WORK`.

WORK is a JSON file: {"role", "interface", "legs", "result", "release"}. It says "ready" when it listens (or all is
connected), "failed: …" for what went wrong before that. A transmitter begins at the instant that comes through the
pipe `release`, and ends when all is sent; a receiver ends at SIGINT. Both then write `result`: for each leg what its
end counted (traffic.connections.counts.EndCount).
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
from typing import Any

from pktswarm.nodes.connections.endpoint import ConnectingSide, ListeningSide, Side
from pktswarm.nodes.connections.loop import READ, Loop
from pktswarm.traffic.protocol.task import leg_from_json

LOOK_NS = 20_000_000
"""Between two looks at the kernel's figures of every connection."""
LOOKING_PART = 10
"""Of its time it spends this part at most on looking, however many connections there are."""
LAST_WORDS_NS = 1_000_000_000
"""An interrupted transmitter waits so long for what it sent to be acknowledged."""


class Program:
    def __init__(self, work: dict[str, Any]) -> None:
        self.loop = Loop()
        self.transmits = work["role"] == "transmit"
        self.result = Path(work["result"])
        self.stop_at_ns: int | None = None
        self.start_ns: int | None = None
        self.said = False
        self._listen_to_signals()
        kind: type[Side] = ConnectingSide if self.transmits else ListeningSide
        self.sides = [kind(self.loop, leg_from_json(leg), work["interface"]) for leg in work["legs"]]
        if self.transmits:
            release = os.open(work["release"], os.O_RDONLY | os.O_NONBLOCK)
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
        if not self.said and (failures or not self.transmits or all(side.ready for side in self.sides)):
            self.said = True
            print(f"failed: {failures[0]}" if failures else "ready", flush=True)
        self._begin()

    def _begin(self) -> None:
        """A leg that was not ready at the start instant begins when it is; its blocks are late."""
        if self.start_ns is None or self.stop_at_ns is not None:
            return
        for side in self.sides:
            if side.ready and not side.begun and time.monotonic_ns() >= self.start_ns:
                side.begin(self.start_ns)

    def _released(self, release: int) -> None:
        """A line of a pipe comes whole."""
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
        self.stop_at_ns = time.monotonic_ns() + LAST_WORDS_NS
        if self.transmits:
            for side in self.sides:
                side.interrupt()

    def _write(self) -> None:
        """Whole or not at all."""
        document = {str(side.leg.id): side.count().to_json() for side in self.sides}
        draft = self.result.with_name(self.result.name + ".part")
        draft.write_text(json.dumps(document))
        draft.replace(self.result)


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    Program(json.loads(Path(sys.argv[1]).read_text())).run()
    # The same signal comes from the guard and from timeout: a second one must not meet an interpreter that is ending.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
