"""What SlowDevice in device.py runs in its namespace: from in0 to out0, with the faults that standard input lists."""

from __future__ import annotations

import heapq
import json
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from wire import PACKET_AUXDATA, PACKET_OUTGOING, SO_RCVBUFFORCE, SOL_PACKET, with_vlan_tag

NO_STREAM, MAGIC = 0xFFFFFFFF, (b"PS", b"PC", b"PU")
PACKET_STATISTICS, ALL_PROTOCOLS = 6, 3
QUIET_S = 0.3
"""It ends when nothing has come for so long and nothing is held."""


@dataclass(order=True)
class Frame:
    due_ns: int
    arrival: int
    stream: int = field(compare=False)
    number: int = field(compare=False)
    stamp_ns: int = field(compare=False)
    data: bytearray = field(compare=False)
    copies: int = field(compare=False, default=1)
    hold: int = field(compare=False, default=0)
    """How many more frames of its stream go first."""


def whole_time_ns(low: bytearray) -> int:
    """The last time of this clock that has these 48 low bits."""
    now_ns = time.monotonic_ns()
    return now_ns - (now_ns - int.from_bytes(low, "big")) % 2**48


class Device:
    def __init__(self, orders: dict[str, Any]) -> None:
        self.places: list[int] = orders["places"]
        self.delay_ns: int = orders["delay_ns"]
        self.faults = {(stream, number): each for stream, number, each in orders["faults"]}
        self.arrivals = self.unstamped = 0
        self.due: list[Frame] = []
        self.held: list[Frame] = []
        self.passed: list[tuple[int, int, int, int, int]] = []
        self.ear, self.mouth = packet_socket("in0"), packet_socket("out0", listening=False)

    def run(self) -> None:
        print("ready", flush=True)
        stopping, last = False, time.monotonic()
        while not (stopping and not self.due and time.monotonic() - last > QUIET_S):
            wait = 0.05 if not self.due else max(0.0, self.due[0].due_ns - time.monotonic_ns()) / 1e9
            waited_for = [self.ear] if stopping else [self.ear, sys.stdin]
            readable, _, _ = select.select(waited_for, [], [], min(wait, 0.05))
            if sys.stdin in readable:
                stopping = True
            if self.ear in readable:
                self.take()
                last = time.monotonic()
            self.give()
        assert not self.held, f"{len(self.held)} frames are held until others come, and none comes"
        _, lost = struct.unpack("II", self.ear.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        assert not lost, f"the device's socket lost {lost} frames"
        print(json.dumps(self.passed))

    def take(self) -> None:
        for _ in range(32):
            try:
                data, beside, _, address = self.ear.recvmsg(9000, 256)
            except BlockingIOError:
                return
            if address[2] != PACKET_OUTGOING:
                self.arrive(self.identified(bytearray(with_vlan_tag(data, beside))))

    def identified(self, data: bytearray) -> Frame:
        self.arrivals += 1
        due_ns = time.monotonic_ns() + self.delay_ns
        for at in self.places:
            if data[at : at + 2] in MAGIC and len(data) >= at + 18:
                (stream,) = struct.unpack_from(">H", data, at + 2)
                number = int.from_bytes(data[at + 4 : at + 10], "big")
                return Frame(due_ns, self.arrivals, stream, number, whole_time_ns(data[at + 12 : at + 18]), data)
        self.unstamped += 1
        return Frame(due_ns, self.arrivals, NO_STREAM, self.unstamped - 1, 0, data)

    def arrive(self, frame: Frame) -> None:
        for name, *arguments in self.faults.get((frame.stream, frame.number), ()):
            if name == "drop":
                frame.copies = 0
            elif name == "copy":
                frame.copies += arguments[0]
            elif name == "hold":
                frame.hold = arguments[0]
            elif name == "delay":
                frame.due_ns += arguments[0]
            elif name == "write":
                frame.data[arguments[0] : arguments[0] + len(arguments[1]) // 2] = bytes.fromhex(arguments[1])
            elif name == "cut":
                del frame.data[-arguments[0] :]
            elif name == "untag":
                del frame.data[12:16]
            else:
                raise ValueError(name)
        if frame.hold:
            self.held.append(frame)
        else:
            heapq.heappush(self.due, frame)

    def give(self) -> None:
        while self.due and self.due[0].due_ns <= time.monotonic_ns():
            frame = heapq.heappop(self.due)
            self.send(frame)
            self.release(frame)

    def release(self, gone: Frame) -> None:
        """A later frame of its stream has gone by; those that waited for it alone go too, and none waits for these."""
        for frame in [one for one in self.held if one.stream == gone.stream and one.arrival < gone.arrival]:
            frame.hold -= 1
            if not frame.hold:
                self.held.remove(frame)
                self.send(frame)

    def send(self, frame: Frame) -> None:
        for _ in range(frame.copies):
            before_ns = time.monotonic_ns()
            self.mouth.send(frame.data)
            self.passed.append((frame.stream, frame.number, frame.stamp_ns, before_ns, time.monotonic_ns()))


def packet_socket(interface: str, listening: bool = True) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    if listening:
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        made.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        made.setblocking(False)
    made.bind((interface, ALL_PROTOCOLS if listening else 0))
    return made


if __name__ == "__main__":
    Device(json.loads(sys.stdin.readline())).run()
