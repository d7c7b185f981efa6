"""The process of the engine interactive: it plays one side of a trace on an interface, through a packet socket.

Started as `python -m pktswarm.nodes.interactive.process JSON`, with the fields of `Orders`. It prints ARMED when its
socket receives; the side that begins then reads its start time (CLOCK_MONOTONIC, ns) from the FIFO `gate`, and ends by
itself when nothing is left to do. SIGINT ends it at any time. Its last line is a PlayResult.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path

from pktswarm.nodes.interactive.ends import ARMED, RESULT, Orders, PlayResult
from pktswarm.traffic.capture.trace import read_trace
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.interactive.machine import Machine, Sending
from pktswarm.traffic.interactive.script import script_of

ETH_P_ALL, SOL_PACKET, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 3, 263, 6, 23, 33
RING_BYTES, LARGEST_BYTES = 64 << 20, 1 << 16
POLL_S = 0.05
FRAMES_AT_ONCE = 64
FULL_QUEUE_S, FULL_QUEUE_WAIT_S = 1.0, 0.001


class Player:
    """Connects a Machine to a socket and a clock."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        packets = read_trace(Path(orders.trace)).packets
        self.machine = Machine(script_of(packets, orders.beginner_mac), bool(orders.gate))
        self.peer_mac = bytes.fromhex(orders.peer_mac.replace(":", ""))
        self.socket = _packet_socket(orders.interface)
        self.stopped = False
        self.dropped = 0
        self.started_ns: int | None = None
        self.first_sent_ns: int | None = None
        self.last_sent_ns: int | None = None
        self.received_utc_ns: list[int] = []
        """Arrival times of the first and of the last frame of the trace."""

    def play(self) -> None:
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGTERM, self._stop)
        print(ARMED, flush=True)
        if not self.orders.gate:
            self._until_over()
        elif (at_ns := self._gate()) is not None:
            self.started_ns = at_ns
            self.machine.start(at_ns)
            self._until_over()

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def _gate(self) -> int | None:
        gate = os.open(self.orders.gate, os.O_RDONLY | os.O_NONBLOCK)
        line = b""
        while not self.stopped and not line.endswith(b"\n"):
            if select.select([gate], [], [], POLL_S)[0]:
                with contextlib.suppress(BlockingIOError):
                    line += os.read(gate, 64)
        os.close(gate)
        return int(line) if line.endswith(b"\n") else None

    def _until_over(self) -> None:
        limit_ns = (self.started_ns or time.monotonic_ns()) + int(self.orders.limit_s * 1e9)
        while not self.stopped and (now_ns := time.monotonic_ns()) < limit_ns:
            self._send(self.machine.due(now_ns))
            if self.orders.gate and self.machine.over(now_ns):
                return
            next_ns = self.machine.next_ns
            wait_s = POLL_S if next_ns is None else min(POLL_S, max(0, next_ns - time.monotonic_ns()) / 1e9)
            if select.select([self.socket], [], [], wait_s)[0]:
                self._receive()

    def _receive(self) -> None:
        for _ in range(FRAMES_AT_ONCE):
            try:
                frame = self.socket.recv(LARGEST_BYTES)
            except BlockingIOError:
                return
            if frame[6:12] != self.peer_mac:
                continue
            unmatched = self.machine.unmatched
            self._send(self.machine.arrived(frame, time.monotonic_ns()))
            if unmatched == self.machine.unmatched:
                self.received_utc_ns = [*self.received_utc_ns[:1], time.time_ns()]

    def _send(self, sendings: list[Sending]) -> None:
        for sending in sendings:
            self._send_frame(sending.item.frame)
            self.last_sent_ns = time.monotonic_ns()
            self.first_sent_ns = self.first_sent_ns or self.last_sent_ns

    def _send_frame(self, frame: bytes) -> None:
        deadline = time.monotonic() + FULL_QUEUE_S
        while True:
            try:
                self.socket.send(frame)
            except OSError as error:
                if error.errno not in (errno.ENOBUFS, errno.EAGAIN) or time.monotonic() > deadline:
                    raise EngineError("interactive", f"{self.orders.interface}: {error.strerror}") from None
                time.sleep(FULL_QUEUE_WAIT_S)
            else:
                return

    def result(self) -> PlayResult:
        _, dropped = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        spans = self.first_sent_ns is not None and self.last_sent_ns is not None
        return PlayResult(
            flows=self.machine.reports(),
            unmatched=self.machine.unmatched,
            dropped=dropped,
            started_ns=self.started_ns,
            first_sent_ns=self.first_sent_ns,
            seconds=((self.last_sent_ns or 0) - (self.first_sent_ns or 0)) / 1e9 if spans else None,
            first_received_utc_ns=self.received_utc_ns[0] if self.received_utc_ns else None,
            last_received_utc_ns=self.received_utc_ns[-1] if self.received_utc_ns else None,
            note="" if self.started_ns or not self.orders.gate else "stopped before its first packet",
        )


def _packet_socket(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RING_BYTES)
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    made.bind((interface, ETH_P_ALL))
    made.setblocking(False)
    return made


def main() -> None:
    player = Player(Orders(**json.loads(sys.argv[1])))
    player.play()
    # timeout(1) sends SIGINT a second time: it would end the interpreter's exit with status 130.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    print(RESULT + player.result().to_json(), flush=True)


if __name__ == "__main__":
    main()
