"""The one connection of a leg that carries no blocks: who is ready, when to begin, who is done.

A JSON object a line.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

from pktswarm.nodes.connections.loop import READ, WRITE, Loop

GREETING = struct.Struct(">4sI")
"""The first bytes of every TCP connection: whose it is, and which of the leg's; CONTROL for this one."""
MAGIC, CONTROL = b"PKSW", 0xFFFFFFFF
MOST_LINE_BYTES = 1 << 20


def greeting(number: int) -> bytes:
    return GREETING.pack(MAGIC, number)


class Control:
    """`take` is given each message, `lost` the reason when the other end is gone."""

    def __init__(
        self, loop: Loop, sock: socket.socket, take: Callable[[dict[str, Any]], None], lost: Callable[[str], None]
    ) -> None:
        self.loop, self.socket, self.take, self.lost = loop, sock, take, lost
        self._out = self._in = b""
        self.open = True
        loop.watch(sock.fileno(), READ, self._event)

    def send(self, message: dict[str, Any]) -> None:
        if self.open:
            self._out += json.dumps(message).encode() + b"\n"
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
            self._end("the other end closed")
        self._in += data
        if len(self._in) > MOST_LINE_BYTES:
            self._end("a line without an end")
        while self.open and b"\n" in self._in:
            line, self._in = self._in.split(b"\n", 1)
            message = _object(line)
            if message is None:
                self._end("a message that is none")
            else:
                self.take(message)

    def _end(self, why: str) -> None:
        if self.open:
            self.close()
            self.lost(why)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
