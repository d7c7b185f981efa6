"""One end of one connection: sends its blocks when they are due, and reads the blocks of the other end."""

from __future__ import annotations

import os
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from pktswarm.nodes.connections.loop import BROKEN, READ, WRITE, Loop
from pktswarm.traffic.connections import tcp_info
from pktswarm.traffic.connections.blocks import (
    LATE_NS,
    UDP_HEADER,
    UDP_MAGIC,
    Arrivals,
    Blocks,
    DatagramReader,
    StreamReader,
    part_sizes,
    tcp_head,
)
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.leg import Leg

FILLER = memoryview(bytes(range(256)) * 256)
TURN_BYTES = 256 * 1024
"""Bytes that one end may send or read before the others have their turn."""
_READING = bytearray(TURN_BYTES)
"""Read buffer of all ends: each is done with its content before the next one reads."""
TURN_DATAGRAMS = 64
CATCH_UP_NS = 5_000_000
"""Delay that a paced UDP sender may make up for at once after a late wake-up."""
USER_TIMEOUT_MS = 10_000
"""Time that sent data may stay without an acknowledgement (the kernel's default is 15 minutes)."""
UDP_BUFFER_BYTES = 8 * 2**20
# asm-generic/socket.h; the time stamp option is the one with 64-bit seconds on every platform.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_MAX_PACING_RATE, _SO_MEMINFO, _SO_TIMESTAMPNS_NEW = 32, 33, 47, 55, 64
_MEMINFO_DROPS = 8
_TIMESPEC = struct.Struct("=qq")
_LONG = struct.Struct("@L")


class End(ABC):
    """`number`: the number of the connection within the leg. Nothing is sent before begin()."""

    def __init__(self, loop: Loop, sock: socket.socket, leg: Leg, number: int, sends: bool) -> None:
        self.loop, self.socket, self.connection, self.number = loop, sock, leg.connection, number
        self.blocks = Blocks.of(self.connection, number) if sends else Blocks(blocks=0)
        self.file = sock.fileno()
        self.sending_over = self.eof = self.finished = self._wants_to_write = False
        self.failure = ""
        self.start_ns = 0
        self.next = 0
        self.sent_bytes = self.late_blocks = self.sent_blocks = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        sock.setblocking(False)
        if sends:
            self._pace()
            _buffer(sock, _SO_SNDBUFFORCE, self.connection.send_buffer_bytes)
        loop.watch(self.file, READ, self._event)

    @property
    @abstractmethod
    def arrivals(self) -> Arrivals: ...

    @abstractmethod
    def _push(self) -> None:
        """Sends the blocks that are due, as far as the kernel accepts them."""

    @abstractmethod
    def _read(self) -> None: ...

    def _pace(self) -> None:
        return None

    def begin(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.step(self._push)

    def interrupt(self) -> None:
        """Ends the sending."""
        if not self.sending_over and not self.failure:
            self.step(self._end_sending)

    def fail(self, why: str) -> None:
        """Closes the connection for good with its first failure; its counts remain."""
        self.failure = self.failure or why
        self.sending_over = self.finished = True
        self.loop.forget(self.file)
        self.socket.close()

    def close(self) -> None:
        self.finished = True
        self.loop.forget(self.file)
        self.socket.close()

    def sweep(self) -> None:
        """Reads everything that has arrived."""
        if not self.finished:
            self.step(self._read)

    def _end_sending(self) -> None:
        self.sending_over = True
        self._want()

    def _event(self, events: int) -> None:
        if events & (READ | BROKEN):
            self.step(self._read)
        if events & WRITE and not self.finished:
            self.step(self._push)

    def step(self, call: Callable[[], None]) -> None:
        """Calls; an error is the failure of this end alone."""
        try:
            call()
        except OSError as error:
            self.fail(os.strerror(error.errno) if error.errno else str(error))
        except EngineError as error:
            self.fail(error.problem)

    def _want(self, write: bool = False) -> None:
        self._wants_to_write = write
        events = (0 if self.eof else READ) | (WRITE if write else 0)
        self.loop.watch(self.file, events, self._event)

    def _next_block(self, now_ns: int) -> bool:
        """Returns whether a block starts now; otherwise schedules it, or ends the sending."""
        if self.blocks.over(self.next, now_ns - self.start_ns):
            self._end_sending()
            return False
        due_ns = self.start_ns + self.blocks.due_ns(self.next)
        if due_ns > now_ns:
            self._want()
            self.loop.at(due_ns, self._due)
            return False
        if self.blocks.paced_by_time and now_ns - due_ns > LATE_NS:
            self.late_blocks += 1
        return True

    def _due(self) -> None:
        if not self.sending_over:
            self.step(self._push)

    def _account(self, size: int, now_ns: int) -> None:
        self.sent_bytes += size
        self.first_ns = now_ns if self.first_ns is None else self.first_ns
        self.last_ns = now_ns


class TcpEnd(End):
    def __init__(self, loop: Loop, sock: socket.socket, leg: Leg, number: int, sends: bool) -> None:
        self.reader = StreamReader()
        self.rtts_ns: list[int] = []
        self.info: tcp_info.TcpInfo | None = None
        self._head = b""
        self._left = 0
        super().__init__(loop, sock, leg, number, sends)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(self.connection.nodelay))
        if self.connection.congestion:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self.connection.congestion.encode())
        name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        self.congestion = name.split(b"\0")[0].decode()

    @property
    def arrivals(self) -> Arrivals:
        return self.reader.arrivals

    def _pace(self) -> None:
        """Sets the rate at which TCP paces, with or without the queueing discipline fq (since Linux 4.13)."""
        if self.connection.pace_bps:
            wanted = _LONG.pack(max(1, round(self.connection.pace_bps / 8)))
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, wanted)
            if self.socket.getsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, _LONG.size) != wanted:
                raise EngineError("socket", "the kernel did not accept SO_MAX_PACING_RATE")

    def _push(self) -> None:
        left = TURN_BYTES
        while left > 0 and not self.sending_over:
            now_ns = time.monotonic_ns()
            if not self._left and not self._begin_block(now_ns):
                return
            try:
                size = self._write()
            except BlockingIOError:
                break
            self._account(size, now_ns)
            self._left -= size
            left -= size
            if not self._left:
                self.sent_blocks += 1
        if not self.sending_over:
            self._want(write=True)

    def _begin_block(self, now_ns: int) -> bool:
        if not self._next_block(now_ns):
            return False
        self._left = self.blocks.size(self.next)
        self._head = tcp_head(self._left, self.next, now_ns)
        self.next += 1
        return True

    def _write(self) -> int:
        filler = self._left - len(self._head)
        pieces = [self._head] if self._head else []
        size = self.socket.sendmsg([*pieces, FILLER[: min(filler, len(FILLER))]])
        self._head = self._head[size:]
        return size

    def _end_sending(self) -> None:
        super()._end_sending()
        self.socket.shutdown(socket.SHUT_WR)

    def _read(self) -> None:
        left = TURN_BYTES
        while left > 0 and not self.eof:
            try:
                size = self.socket.recv_into(_READING)
            except BlockingIOError:
                return
            if size == 0:
                self.eof = True
                self._want(self._wants_to_write)
                if self.reader.inside_a_block:
                    self.fail("the TCP stream ended inside a block")
                return
            self.reader.feed(memoryview(_READING)[:size], time.monotonic_ns())
            left -= size

    def look(self) -> None:
        """Reads the kernel's statistics. Finished: all is sent and acknowledged, and the other end has closed."""
        if self.finished:
            return
        self.info = tcp_info.parse(self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, tcp_info.ASKED_BYTES))
        if self.info.rtt_ns is not None and self.first_ns is not None and not self.sending_over:
            self.rtts_ns.append(self.info.rtt_ns)
        if self.sending_over and self.eof and self.info.all_acknowledged:
            self.close()


class UdpEnd(End):
    """Sends blocks as datagrams to one socket at the other end.

    It paces by itself: the kernel paces UDP only with fq on the interface.
    """

    def __init__(self, loop: Loop, sock: socket.socket, leg: Leg, number: int, sends: bool) -> None:
        self.reader = DatagramReader()
        self.datagrams = 0
        self.dropped = 0
        self._parts: list[int] = []
        self._part = 0
        self._block_ns = 0
        self._clear_ns = 0
        """Time at which the next datagram may be sent."""
        super().__init__(loop, sock, leg, number, sends)
        _buffer(sock, _SO_RCVBUFFORCE, UDP_BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS_NEW, 1)

    @property
    def arrivals(self) -> Arrivals:
        return self.reader.arrivals

    def _push(self) -> None:
        for _ in range(TURN_DATAGRAMS):
            now_ns = time.monotonic_ns()
            if self.sending_over or (self._part >= len(self._parts) and not self._begin_block(now_ns)):
                return
            if self._clear_ns > now_ns:
                self._want()
                self.loop.at(self._clear_ns, self._due)
                return
            try:
                self._send_part(now_ns)
            except BlockingIOError:
                break
        if not self.sending_over:
            self._want(write=True)

    def _begin_block(self, now_ns: int) -> bool:
        if not self._next_block(now_ns):
            return False
        self._parts = part_sizes(self.blocks.size(self.next), self.connection.datagram_bytes)
        self._part, self._block_ns = 0, now_ns
        self.next += 1
        return True

    def _send_part(self, now_ns: int) -> None:
        size, parts = self._parts[self._part], len(self._parts)
        head = UDP_HEADER.pack(UDP_MAGIC, parts, self._part, 0, self.next - 1, self.datagrams, self._block_ns)
        self.socket.sendmsg([head, FILLER[: size - UDP_HEADER.size]])
        self._account(size, now_ns)
        self.datagrams += 1
        self._part += 1
        if self.connection.pace_bps:
            self._clear_ns = max(self._clear_ns, now_ns - CATCH_UP_NS) + round(size * 8e9 / self.connection.pace_bps)
        if self._part == parts:
            self.sent_blocks += 1

    def _end_sending(self) -> None:
        # The rest of an interrupted block is not sent.
        self._parts = []
        super()._end_sending()

    def _read(self) -> None:
        # The kernel stamps datagrams in UTC.
        to_monotonic_ns = time.monotonic_ns() - time.time_ns()
        for _ in range(TURN_DATAGRAMS):
            try:
                data, notes, _, _ = self.socket.recvmsg(65535, 64)
            except BlockingIOError:
                return
            self.reader.feed(data, _arrival_ns(notes, to_monotonic_ns))

    def sweep(self) -> None:
        """Reads until the socket is empty, and its count of dropped datagrams."""
        before = -1
        while not self.finished and before != self.reader.arrivals.bytes:
            before = self.reader.arrivals.bytes
            super().sweep()
        if not self.finished:
            memory = self.socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 64)
            self.dropped = struct.unpack_from("=I", memory, 4 * _MEMINFO_DROPS)[0]


def _arrival_ns(notes: list[tuple[int, int, bytes]], to_monotonic_ns: int) -> int:
    for level, kind, data in notes:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS_NEW:
            seconds, rest = _TIMESPEC.unpack_from(data)
            return int(seconds * 1_000_000_000 + rest + to_monotonic_ns)
    raise EngineError("socket", "a datagram has no SO_TIMESTAMPNS time stamp")


def _buffer(sock: socket.socket, option: int, size: int | None) -> None:
    """Sets the size of a buffer; the kernel doubles it, for its own overhead."""
    if size:
        sock.setsockopt(socket.SOL_SOCKET, option, size)
