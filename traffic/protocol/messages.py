"""Messages as lines over a Unix socket, and the intervals that master, ranks and guards agree on."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Generic, NamedTuple

from pktswarm.traffic.errors import MessageError
from pktswarm.traffic.protocol.codec import Decoder, M, Message, encode, parse

WORD_INTERVAL_S = 0.25
"""Between two orders Word, by which the master reports that it is alive."""
WORD_TIMEOUT_S = 2.0
"""A guard that received no Word for so long ends all sending."""
BULK_BYTES = 1 << 20
"""Files travel over MPI in pieces of this size."""
STILL_BEFORE_NS, STILL_AFTER_NS = 30_000_000, 1_000_000
"""Around the start instant no rank polls for messages: the engines may share its processor."""


class Peer(NamedTuple):
    pid: int
    uid: int
    gid: int


def peer(connection: socket.socket) -> Peer:
    """The process at the other end of a Unix socket, as the kernel reports it."""
    return Peer(*struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))


class Lines(Generic[M]):
    """Messages as lines over a stream socket. Raw bytes can follow each; the key "raw_bytes" has their number."""

    def __init__(self, connection: socket.socket, decode: Decoder[M]) -> None:
        self.socket, self._decode = connection, decode
        self._buffer = bytearray()
        self.closed = False

    def send(self, message: Message, raw: bytes | None = None) -> None:
        line = encode(message) if raw is None else encode(message, raw_bytes=len(raw))
        self.socket.sendall(line + b"\n" + (raw or b""))

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

    def next(self, timeout_s: float | None) -> M | None:
        """The next message, for which nothing may come for `timeout_s`; None: none came, or the stream has ended."""
        while True:
            for message, _ in self.messages():
                return message
            if not self.receive(timeout_s):
                return None

    def messages(self) -> Iterator[tuple[M, bytes]]:
        """Whole messages received so far, with their raw bytes. After a MessageError the next call continues."""
        while (end := self._buffer.find(b"\n")) >= 0:
            try:
                values = parse(bytes(self._buffer[:end]))
                size = values.pop("raw_bytes", 0)
                if not isinstance(size, int):
                    raise MessageError(f"raw_bytes: {size!r} is not a number")
            except MessageError:
                del self._buffer[: end + 1]
                raise
            if len(self._buffer) < end + 1 + size:
                return
            raw = bytes(self._buffer[end + 1 : end + 1 + size])
            del self._buffer[: end + 1 + size]
            yield self._decode(values), raw
