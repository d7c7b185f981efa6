"""What a rank needs of its way to the master."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pktswarm.traffic.protocol.rank_events import NodeEvent
from pktswarm.traffic.protocol.rank_orders import RankOrder


class MasterGone(Exception):
    """Rank 0 cannot be reached any more."""


class Pieces:
    """Pieces of files that have arrived and are not yet requested. `take` returns the next piece or None; `wait` waits
    until one may have come, for at most so many seconds."""

    def __init__(self, take: Callable[[], bytes | None], wait: Callable[[float], None]) -> None:
        self._take, self._wait = take, wait
        self._data = bytearray()

    def receive(self, size: int, timeout_s: float) -> bytes:
        """Raises TimeoutError. A piece may end one file and begin the next."""
        deadline = time.monotonic() + timeout_s
        while len(self._data) < size:
            piece = self._take()
            if piece is not None:
                self._data += piece
            elif (left_s := deadline - time.monotonic()) > 0:
                self._wait(left_s)
            else:
                raise TimeoutError(f"{len(self._data)} of {size} bytes received in {timeout_s:.0f} s")
        data = bytes(self._data[:size])
        del self._data[:size]
        return data


class Entered(Protocol):
    """A barrier that was entered."""

    def left_ns(self, longest_s: float) -> int | None: ...


class Link(Protocol):
    def introduce(self, message: NodeEvent) -> None:
        """The first message."""

    def send(self, message: NodeEvent) -> None:
        """Hand over a message; it leaves while later calls poll. Raises MasterGone."""

    def receive(self) -> RankOrder | None:
        """The next message from the master, or None."""

    def wait(self, others: Iterable[int], longest_s: float) -> None:
        """Until the master, or what is behind one of those descriptors, may have said something."""

    def receive_bulk(self, size: int, timeout_s: float) -> bytes:
        """A file that the master announced. Raises TimeoutError."""

    def send_file(self, path: str) -> Iterator[None]:
        """A file in pieces, a few under way at once: a capture can be larger than the memory of a board. Goes on each
        time that the iterator is asked, as far as it goes without waiting."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything handed over has left; False when it did not in time."""

    def barrier(self, members: list[int], leave_ns: int) -> Entered:
        """A barrier of the group's ranks `members`, entered."""

    def answer_pings(self, count: int, longest_s: float) -> int:
        """Answer clock readings of the master as fast as can be (a burst of some ms), each by its number.

        Gives back how many of `count` did not come in `longest_s`.
        """

    def finalize(self) -> None:
        """The end of MPI, together with all others; without MPI_Finalize where one of them does not come."""
