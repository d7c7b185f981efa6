"""Sources of requests to the UPF: single requests, heartbeats, a procedure for many sessions."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.upf.operations import Operation
from pktswarm.master.upf.pfcp_decode import Answer, Header
from pktswarm.master.upf.pfcp_transport import Exchange, Request
from pktswarm.master.upf.statistics import Statistics

CHUNK = 256
"""Messages rendered at once; no response is read in that time, 0.5 ms."""


class Single:
    """One request outside of any session, and its response. A Source and a Handler."""

    windowed = False

    def __init__(self, exchange: Exchange, encode: Callable[[int], bytes]) -> None:
        self.exchange, self.encode = exchange, encode
        self.answer: Answer | None = None
        self.problem = ""
        self.sent = False

    @property
    def done(self) -> bool:
        return self.answer is not None or bool(self.problem)

    def next_ns(self) -> int | None:
        return None if self.sent else 0

    def take(self, room: int, now_ns: int) -> Sequence[Request]:
        self.sent = True
        sequence = int(self.exchange.sequences(1)[0])
        return [Request(sequence, self.encode(sequence), self)]

    def answered(self, request: Request, header: Header, answer: Answer, now_ns: int) -> None:
        self.answer = answer

    def failed(self, request: Request, words: str, now_ns: int) -> None:
        self.problem = words

    def repeated(self, request: Request) -> None: ...

    def late(self, request: Request, header: Header, answer: Answer) -> None: ...


class Heartbeats(Single):
    """Heartbeat requests of the SMF, one every `every_s`."""

    def __init__(self, exchange: Exchange, encode: Callable[[int], bytes], every_s: float) -> None:
        super().__init__(exchange, encode)
        self.every_ns = round(every_s * 1e9)
        self.due_ns = time.monotonic_ns() + self.every_ns
        self.statistics = Statistics()
        self.stamp: Callable[[int | None], None] = lambda stamp: None

    def next_ns(self) -> int | None:
        return self.due_ns

    def take(self, room: int, now_ns: int) -> Sequence[Request]:
        self.due_ns = now_ns + self.every_ns
        if self.statistics.outstanding:
            return []
        self.statistics.requested += 1
        return super().take(room, now_ns)

    def answered(self, request: Request, header: Header, answer: Answer, now_ns: int) -> None:
        self.statistics.accepted += 1
        self.statistics.response.add(now_ns - request.first_ns)
        self.stamp(answer.recovery_stamp)

    def failed(self, request: Request, words: str, now_ns: int) -> None:
        self.statistics.failures[words] += 1

    def repeated(self, request: Request) -> None:
        self.statistics.repeated += 1


class Bulk:
    """An operation for many sessions, as fast as the window allows."""

    windowed = True

    def __init__(self, operation: Operation, rows: NDArray[np.int64]) -> None:
        self.operation, self.rows = operation, rows
        self._next = 0
        self._ready: list[Request] = []

    def next_ns(self) -> int | None:
        return 0 if self._ready or self._next < len(self.rows) else None

    def take(self, room: int, now_ns: int) -> Sequence[Request]:
        if not self._ready:
            part = self.rows[self._next : self._next + CHUNK]
            self._next += len(part)
            self._ready = self.operation.requests(part)
            self._ready.reverse()
        count = min(room, len(self._ready))
        self.operation.sending(count)
        return [self._ready.pop() for _ in range(count)]

    @property
    def unsent(self) -> int:
        return len(self._ready) + len(self.rows) - self._next


class Queue:
    """An operation for sessions that are added one by one."""

    windowed = True

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.rows: deque[int] = deque()

    def next_ns(self) -> int | None:
        return 0 if self.rows else None

    def take(self, room: int, now_ns: int) -> Sequence[Request]:
        rows = np.array([self.rows.popleft() for _ in range(min(room, len(self.rows)))], dtype=np.int64)
        return send(self.operation, rows)


def send(operation: Operation, rows: NDArray[np.int64]) -> list[Request]:
    """Makes requests that are all sent at once."""
    if not len(rows):
        return []
    made = operation.requests(rows)
    operation.sending(len(made))
    return made
