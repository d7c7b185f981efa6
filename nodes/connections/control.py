"""The control connection of a leg: it carries no blocks, but when each end is ready, starts and has sent everything.

Each message is a JSON object on a line of its own.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from pktswarm.nodes.connections.loop import READ, WRITE, Loop

GREETING = struct.Struct(">4sI")
"""The first bytes of every TCP connection: MAGIC, and its number within the leg, or CONTROL."""
MAGIC, CONTROL = b"PKSW", 0xFFFFFFFF
MOST_LINE_BYTES = 1 << 20


class Signal(Enum):
    """A message without content."""

    GO = "go"
    """Start now: the connecting end started."""
    STOP = "stop"
    """Send no more: the connecting end was interrupted."""
    DONE = "done"
    """The listening end has sent everything."""


@dataclass(frozen=True)
class UdpPorts:
    """The UDP ports of the connecting end, by the number of the connection."""

    ports: list[int]


@dataclass(frozen=True)
class Ready:
    """All connections of the listening end are set up; its UDP ports by the number of the connection."""

    ports: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Failed:
    """The listening end cannot set up a connection."""

    problem: str


Message = Signal | UdpPorts | Ready | Failed


def encode(message: Message) -> bytes:
    match message:
        case Signal():
            fields: dict[str, object] = {message.value: True}
        case UdpPorts():
            fields = {"udp_ports": message.ports}
        case Ready():
            fields = {"ready": True, "udp_ports": message.ports}
        case Failed():
            fields = {"failed": message.problem}
    return json.dumps(fields).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Raises ValueError for anything that encode() does not make."""
    match json.loads(line):
        case {"ready": True, "udp_ports": list(ports), **other} if not other:
            return Ready([_port(port) for port in ports])
        case {"udp_ports": list(ports), **other} if not other:
            return UdpPorts([_port(port) for port in ports])
        case {"failed": str(problem), **other} if not other:
            return Failed(problem)
        case dict(fields) if len(fields) == 1 and list(fields.values()) == [True]:
            return Signal(next(iter(fields)))
    raise ValueError


def _port(value: object) -> int:
    if isinstance(value, int) and 0 < value < 1 << 16:
        return value
    raise ValueError


def greeting(number: int) -> bytes:
    return GREETING.pack(MAGIC, number)


class Control:
    """One end of the control connection. `take` receives each message, `lost` the reason why the connection ended."""

    def __init__(
        self, loop: Loop, sock: socket.socket, take: Callable[[Message], None], lost: Callable[[str], None]
    ) -> None:
        self.loop, self.socket, self.take, self.lost = loop, sock, take, lost
        self._out = self._in = b""
        self.open = True
        loop.watch(sock.fileno(), READ, self._event)

    def send(self, message: Message) -> None:
        if self.open:
            self._out += encode(message)
            self._event(WRITE)

    def close(self) -> None:
        if self.open:
            self.open = False
            self.loop.forget(self.socket.fileno())
            self.socket.close()

    def _event(self, events: int) -> None:
        try:
            if events & WRITE and self._out:
                self._out = self._out[self.socket.send(self._out) :]
            if events & ~WRITE:
                self._read()
        except BlockingIOError:
            pass
        except OSError as error:
            self._end(os.strerror(error.errno) if error.errno else str(error))
        if self.open:
            self.loop.watch(self.socket.fileno(), READ | (WRITE if self._out else 0), self._event)

    def _read(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            self._end("the other end closed the control connection")
        self._in += data
        if len(self._in) > MOST_LINE_BYTES:
            self._end(f"a control message exceeds {MOST_LINE_BYTES} bytes")
        while self.open and b"\n" in self._in:
            line, self._in = self._in.split(b"\n", 1)
            try:
                message = decode(line)
            except ValueError:
                self._end(f"unknown control message {line[:100]!r}")
            else:
                self.take(message)

    def _end(self, why: str) -> None:
        if self.open:
            self.close()
            self.lost(why)
