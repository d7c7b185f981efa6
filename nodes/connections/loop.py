"""One thread for many sockets: epoll, and a timer that the kernel keeps to the nanosecond clock (timerfd)."""

from __future__ import annotations

import ctypes
import heapq
import os
import select
import struct
import time
from collections.abc import Callable
from itertools import count

CLOCK_MONOTONIC, TFD_TIMER_ABSTIME = 1, 1
READ, WRITE, BROKEN = select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR | select.EPOLLHUP
Handler = Callable[[int], None]


class Loop:
    """Calls handlers with the events of their file, and the calls given to at() when they are due."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._events: dict[int, int] = {}
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = int(self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._armed_ns = 0
        self.watch(self._timer, READ, self._take_timer)

    def watch(self, file: int, events: int, handler: Handler) -> None:
        """Adds a file, or changes the events of interest."""
        if file not in self._handlers:
            self._epoll.register(file, events)
        elif self._events[file] != events:
            self._epoll.modify(file, events)
        self._handlers[file], self._events[file] = handler, events

    def forget(self, file: int) -> None:
        """Removes a file; to be called before it is closed."""
        if self._handlers.pop(file, None) is not None:
            self._epoll.unregister(file)
            del self._events[file]

    def at(self, due_ns: int, call: Callable[[], None]) -> None:
        """Schedules a call; `due_ns` is on CLOCK_MONOTONIC."""
        heapq.heappush(self._due, (due_ns, next(self._order), call))

    def turn(self, wait_s: float) -> None:
        """Handles the events that are pending and the calls that are due; waits at most `wait_s` for an event."""
        self._arm()
        for file, events in self._epoll.poll(wait_s):
            handler = self._handlers.get(file)
            if handler is not None:
                handler(events)
        while self._due and self._due[0][0] <= time.monotonic_ns():
            heapq.heappop(self._due)[2]()

    def _arm(self) -> None:
        due_ns = self._due[0][0] if self._due else 0
        if due_ns == self._armed_ns:
            return
        self._armed_ns = due_ns
        seconds, rest = divmod(due_ns, 1_000_000_000)
        # struct itimerspec: interval, then value, in the platform's long.
        setting = struct.pack("llll", 0, 0, seconds, rest)
        if self._libc.timerfd_settime(self._timer, TFD_TIMER_ABSTIME, setting, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _take_timer(self, events: int) -> None:
        self._armed_ns = 0
        try:
            os.read(self._timer, 8)
        except BlockingIOError:
            pass
