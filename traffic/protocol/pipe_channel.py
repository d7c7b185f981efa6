"""Messages of a rank without MPI: frames over a pair of pipes, the standard input and output of an SSH connection.

A frame is a byte with its kind, four bytes with the length of its data (big-endian), and the data.
"""

from __future__ import annotations

import os
import select
import struct
from collections import deque

from pktswarm.traffic.errors import MessageError

KIND_MESSAGE, KIND_BULK, KIND_CLOCK = 1, 2, 3
HEADER = struct.Struct(">BI")
READ_BYTES = 1 << 18


class PipeChannel:
    """`incoming`, `outgoing`: descriptors of pipes. Nothing blocks: what a pipe does not take yet is kept."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming, self._outgoing = incoming, outgoing
        self.closed = False
        """The other end is gone. What came before can still be taken."""
        self._unread, self._unsent = bytearray(), bytearray()
        self._frames: dict[int, deque[bytes]] = {kind: deque() for kind in (KIND_MESSAGE, KIND_BULK, KIND_CLOCK)}
        for descriptor in (incoming, outgoing):
            os.set_blocking(descriptor, False)

    def post(self, kind: int, data: bytes) -> None:
        self._unsent += HEADER.pack(kind, len(data)) + data
        self.push()

    def push(self) -> bool:
        """Sends what the pipe takes. Returns whether nothing is left."""
        try:
            while self._unsent and not self.closed:
                del self._unsent[: os.write(self._outgoing, self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        return not self._unsent

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def take(self, kind: int) -> bytes | None:
        """The next frame of this kind; None: none has come as a whole. Raises MessageError, once, where something else
        writes into the pipe, such as a login script; it is closed then."""
        self._read()
        frames = self._frames[kind]
        return frames.popleft() if frames else None

    def wait(self, longest_s: float) -> None:
        """Until something may have come, or left."""
        wants_out = [self._outgoing] if self._unsent else []
        select.select([self.incoming], wants_out, [], longest_s)
        self.push()

    def _read(self) -> None:
        try:
            while not self.closed and (data := os.read(self.incoming, READ_BYTES)):
                self._unread += data
                self._split()
            self.closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def _split(self) -> None:
        while len(self._unread) >= HEADER.size:
            kind, size = HEADER.unpack_from(self._unread)
            if kind not in self._frames:
                self.closed, words = True, bytes(self._unread[:80])
                self._unread.clear()
                raise MessageError(f"something else than pktswarm writes to the SSH connection: {words!r}")
            end = HEADER.size + size
            if len(self._unread) < end:
                return
            self._frames[kind].append(bytes(self._unread[HEADER.size : end]))
            del self._unread[:end]
