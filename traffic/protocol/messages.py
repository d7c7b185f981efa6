"""How the parts of a run talk: one JSON object a message. Used over MPI, over the guard's pipe and to the master.

A message is a dict with a key "op" (asks for something) or "event" (tells something).
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

Message = dict[str, Any]

WORD_INTERVAL_S = 0.25
"""How often the master gives its word that it lives."""
WORD_TIMEOUT_S = 2.0
"""A guard that had no word for so long ends all sending."""
BULK_BYTES = 1 << 20
"""Files travel over MPI in pieces of this size."""


STILL_BEFORE_NS, STILL_AFTER_NS = 30_000_000, 1_000_000
"""Around the start instant no rank looks for news: the processor is that of the engines, which may have to share it."""


def encode(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def decode(data: bytes) -> Message:
    message = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError("a message must be a JSON object")
    return message


class Peer(NamedTuple):
    pid: int
    uid: int
    gid: int


def peer(connection: socket.socket) -> Peer:
    """Who is at the other end of a Unix socket, by the kernel's word."""
    return Peer(*struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))


class Lines:
    """Messages as lines over a stream socket, each optionally followed by raw bytes ("raw_bytes" tells how many)."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = bytearray()
        self.closed = False

    def send(self, message: Message, raw: bytes | None = None) -> None:
        if raw is not None:
            message = {**message, "raw_bytes": len(raw)}
        self.socket.sendall(encode(message) + b"\n" + (raw or b""))

    def receive(self, timeout_s: float | None) -> bool:
        """Take in what has come; False when nothing came in time. Sets `closed` at the end of the stream."""
        self.socket.settimeout(timeout_s)
        try:
            data = self.socket.recv(1 << 20)
        except (TimeoutError, BlockingIOError, InterruptedError):
            return False
        except ConnectionError:
            data = b""
        finally:
            self.socket.settimeout(None)
        self.closed = not data
        self._buffer += data
        return bool(data)

    def messages(self) -> Iterator[tuple[Message, bytes]]:
        """Whole messages taken in so far, with their raw bytes."""
        while (end := self._buffer.find(b"\n")) >= 0:
            message = decode(bytes(self._buffer[:end]))
            size = int(message.get("raw_bytes", 0))
            if len(self._buffer) < end + 1 + size:
                return
            raw = bytes(self._buffer[end + 1 : end + 1 + size])
            del self._buffer[: end + 1 + size]
            yield message, raw
