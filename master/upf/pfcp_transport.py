"""PFCP requests and responses over UDP: a window, retransmission after T1, timeout after N1 (TS 29.244, 6.4).

One thread, one loop, which waits in poll(). A Source provides requests when the window has room; a request's Handler
takes its response.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.scenario.upf import Upf
from pktswarm.master.upf import pfcp_decode
from pktswarm.master.upf.document import Datagrams
from pktswarm.master.upf.pfcp_decode import Answer, Header, Malformed
from pktswarm.traffic.errors import BadInput

PFCP_PORT = 8805
"""Port of the SMF, for its own requests too (6.3)."""
BUFFER_BYTES = 4 * 2**20
MOST_AT_ONCE = 256
"""Maximum datagrams read in a row."""
MOST_LATE = 65536
SEQUENCES = 2**24
SEQUENCE_NS = 20_000
"""Unit of the time that is the first sequence number.

A UPF caches its responses by address, port and sequence number; an SMF that began at 1 would get those of the SMF
before it.
"""


class Handler(Protocol):
    """Takes the outcome of a request: one of `answered` and `failed` is called once; `late` can follow `failed`."""

    def answered(self, request: Request, header: Header, answer: Answer, now_ns: int) -> None: ...

    def failed(self, request: Request, words: str, now_ns: int) -> None: ...

    def late(self, request: Request, header: Header, answer: Answer) -> None: ...

    def repeated(self, request: Request) -> None: ...


class Request:
    """One request to the UPF. `row`: its session, for the handler."""

    __slots__ = ("data", "due_ns", "first_ns", "handler", "row", "sequence", "tries")

    def __init__(self, sequence: int, data: bytes | memoryview, handler: Handler, row: int = 0) -> None:
        self.sequence, self.data, self.handler, self.row = sequence, data, handler, row
        self.first_ns = self.due_ns = self.tries = 0


class Source(Protocol):
    windowed: bool
    """False: requests are sent regardless of the window (heartbeats)."""

    def next_ns(self) -> int | None:
        """Returns when the next request is due (monotonic; the past: now); None: none is due."""

    def take(self, room: int, now_ns: int) -> Sequence[Request]:
        """Returns at most `room` requests that are due."""


@dataclass
class Counts:
    """Counts of datagrams."""

    sent: int = 0
    repeated: int = 0
    received: int = 0
    late: int = 0
    """Responses after the timeout of their request."""
    stray: int = 0
    """Responses without a request, and second responses."""
    unreadable: int = 0
    refused_by_host: int = 0
    """ICMP port unreachable messages received."""

    def to_json(self) -> Datagrams:
        return {
            "sent": self.sent,
            "repeated": self.repeated,
            "received": self.received,
            "late": self.late,
            "stray": self.stray,
            "unreadable": self.unreadable,
            "refused_by_host": self.refused_by_host,
        }


class Exchange:
    """Message exchange with one UPF. `serve` returns the response to a request of the UPF, for its sender."""

    def __init__(self, where: Path, upf: Upf, serve: Callable[[Header, memoryview, int], bytes | None]) -> None:
        self.window, self.n1, self.t1_ns, self.serve = upf.window, upf.n1, round(upf.t1_s * 1e9), serve
        self.counts = Counts()
        self.sources: list[Source] = []
        self.outstanding: dict[int, Request] = {}
        self.received_ns = 0
        """Time of the last datagram from the UPF."""
        self.silent: Callable[[], None] = lambda: None
        """Called on the timeout of a request since whose first transmission no datagram is received."""
        self.trouble = ""
        self.peer = (upf.n4, upf.n4_port)
        self._waiting: deque[Request] = deque()
        self._given_up: dict[int, Request] = {}
        self._sequence = time.time_ns() // SEQUENCE_NS % SEQUENCES
        self._buffer = bytearray(65536)
        self._view = memoryview(self._buffer)
        self.address, self._socket, self._other = _open(where, upf)
        self._poll = select.poll()
        for endpoint in (self._socket, self._other):
            self._poll.register(endpoint, select.POLLIN)

    def close(self) -> None:
        self._socket.close()
        self._other.close()

    def sequences(self, count: int) -> NDArray[np.int64]:
        """Returns the next `count` sequence numbers."""
        found = (self._sequence + 1 + np.arange(count)) % SEQUENCES
        self._sequence = int(found[-1]) if count else self._sequence
        return found

    def step(self, until_ns: int) -> None:
        """Receives, expires and sends; if there is nothing to do, waits for a datagram, at most until `until_ns`."""
        busy = self._receive(self._socket) + self._receive(self._other)
        now_ns = time.monotonic_ns()
        self._expire(now_ns)
        busy += self._feed(now_ns)
        if not busy:
            self._poll.poll(self._idle_ms(now_ns, until_ns))

    def run(self, done: Callable[[], bool], seconds: float | None = None) -> None:
        """Runs until `done`, at most for `seconds`."""
        end_ns = time.monotonic_ns() + round(seconds * 1e9) if seconds is not None else 2**63
        while not done() and time.monotonic_ns() < end_ns:
            self.step(end_ns)

    def abandon(self, words: str) -> None:
        """Fails all outstanding requests and removes all sources."""
        self.sources.clear()
        now_ns = time.monotonic_ns()
        while self.outstanding:
            _, request = self.outstanding.popitem()
            self._given_up[request.sequence] = request
            request.handler.failed(request, words, now_ns)

    def _feed(self, now_ns: int) -> int:
        fed = 0
        for source in tuple(self.sources):
            room = self.window - len(self.outstanding) if source.windowed else 1
            next_ns = source.next_ns() if room > 0 else None
            if next_ns is not None and next_ns <= now_ns:
                for request in source.take(room, now_ns):
                    self._first(request)
                    fed += 1
        return fed

    def _first(self, request: Request) -> None:
        if self._given_up:
            self._given_up.pop(request.sequence, None)
        self.outstanding[request.sequence] = request
        request.first_ns = time.monotonic_ns()
        self._send(request, request.first_ns)

    def _send(self, request: Request, now_ns: int) -> None:
        request.tries += 1
        request.due_ns = now_ns + self.t1_ns
        self._waiting.append(request)
        self.counts.sent += 1
        for _ in range(2):
            try:
                self._socket.send(request.data)
                return
            except ConnectionRefusedError:
                # The error is of an earlier datagram; this one is not sent yet.
                self.counts.refused_by_host += 1
                self.trouble = "ICMP port unreachable"
            except OSError as problem:
                # Retransmitted after T1 like any lost datagram; the message of a timeout has the error.
                self.trouble = problem.strerror or str(problem)
                return

    def _expire(self, now_ns: int) -> None:
        waiting = self._waiting
        while waiting:
            request = waiting[0]
            if self.outstanding.get(request.sequence) is not request:
                waiting.popleft()
                continue
            if request.due_ns > now_ns:
                return
            waiting.popleft()
            if request.tries < self.n1:
                self.counts.repeated += 1
                request.handler.repeated(request)
                self._send(request, now_ns)
            else:
                self._give_up(request, now_ns)

    def _give_up(self, request: Request, now_ns: int) -> None:
        del self.outstanding[request.sequence]
        self._given_up[request.sequence] = request
        if len(self._given_up) > MOST_LATE:
            del self._given_up[next(iter(self._given_up))]
        request.handler.failed(request, self.no_answer(request), now_ns)
        if self.received_ns < request.first_ns:
            self.silent()

    def no_answer(self, request: Request) -> str:
        times = "once" if request.tries == 1 else f"{request.tries} times"
        return f"no answer (sent {times})" + (f": {self.trouble}" if self.trouble else "")

    def _idle_ms(self, now_ns: int, until_ns: int) -> int:
        wanted = [until_ns]
        if self._waiting:
            wanted.append(self._waiting[0].due_ns)
        full = len(self.outstanding) >= self.window
        for source in self.sources:
            next_ns = None if full and source.windowed else source.next_ns()
            if next_ns is not None:
                wanted.append(next_ns)
        return max(0, min(1000, -((now_ns - min(wanted)) // 1_000_000)))

    def _receive(self, endpoint: socket.socket) -> int:
        connected = endpoint is self._socket
        for taken in range(MOST_AT_ONCE):
            try:
                if connected:
                    length, sender = endpoint.recv_into(self._buffer, 0, socket.MSG_DONTWAIT), self.peer
                else:
                    length, sender = endpoint.recvfrom_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return taken
            except ConnectionRefusedError:
                self.counts.refused_by_host += 1
                self.trouble = "ICMP port unreachable"
                continue
            if connected or sender[0] == self.peer[0]:
                self._take(length, sender)
            else:
                self.counts.stray += 1
        return MOST_AT_ONCE

    def _take(self, length: int, sender: tuple[str, int]) -> None:
        now_ns = time.monotonic_ns()
        self.received_ns, self.trouble = now_ns, ""
        self.counts.received += 1
        try:
            header = pfcp_decode.header(self._buffer, length)
            request = self.outstanding.get(header.sequence)
            if request is not None and request.data[1] + 1 == header.kind:
                del self.outstanding[header.sequence]
                self._answered(request, header, length, now_ns)
            elif request is not None and header.kind == pfcp_decode.VERSION_NOT_SUPPORTED:
                del self.outstanding[header.sequence]
                request.handler.failed(request, "the UPF does not support version 1 of PFCP", now_ns)
            elif header.kind in pfcp_decode.REQUESTS:
                reply = self.serve(header, self._view, length)
                if reply is not None:
                    self._other.sendto(reply, sender)
            else:
                self._unexpected(header, length)
        except Malformed:
            self.counts.unreadable += 1

    def _answered(self, request: Request, header: Header, length: int, now_ns: int) -> None:
        try:
            answer = pfcp_decode.answer(self._buffer, length, header.body)
        except Malformed as problem:
            self.counts.unreadable += 1
            request.handler.failed(request, f"malformed response: {problem}", now_ns)
        else:
            request.handler.answered(request, header, answer, now_ns)

    def _unexpected(self, header: Header, length: int) -> None:
        request = self._given_up.get(header.sequence)
        if request is None or request.data[1] + 1 != header.kind:
            self.counts.stray += 1
            return
        del self._given_up[header.sequence]
        self.counts.late += 1
        request.handler.late(request, header, pfcp_decode.answer(self._buffer, length, header.body))


def _open(where: Path, upf: Upf) -> tuple[str, socket.socket, socket.socket]:
    """Returns the SMF's address, a socket connected to the UPF's N4 port, and one for datagrams from its other ports.

    A UPF can send its own requests from any port (6.3).
    """
    family = socket.AF_INET6 if ":" in upf.n4 else socket.AF_INET
    pair = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(2)]
    try:
        address = upf.bind or _own_address(where, upf, family)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # The pair shares its port (SO_REUSEADDR), which another SMF of this program could share too: probe without.
            _bind(where, probe, address, given=upf.bind is not None)
        for endpoint in pair:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                endpoint.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            _bind(where, endpoint, address, given=upf.bind is not None)
        pair[0].connect((upf.n4, upf.n4_port))
    except OSError as problem:
        for endpoint in pair:
            endpoint.close()
        raise BadInput(where, f"cannot be reached: {problem.strerror}", key="upf.n4", value=upf.n4) from None
    except BadInput:
        for endpoint in pair:
            endpoint.close()
        raise
    return address, pair[0], pair[1]


def _own_address(where: Path, upf: Upf, family: int) -> str:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((upf.n4, upf.n4_port))
        return str(probe.getsockname()[0])


def _bind(where: Path, endpoint: socket.socket, address: str, given: bool) -> None:
    try:
        endpoint.bind((address, PFCP_PORT))
    except OSError as problem:
        words = f"cannot bind UDP port {PFCP_PORT} of {address}: {problem.strerror}"
        raise BadInput(where, words, key="upf.bind" if given else "upf.n4", value=address if given else None) from None
