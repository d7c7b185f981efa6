"""The way of a rank without MPI to the master: standard input and output of the SSH connection that started it.

It takes part in no barrier: rank 0 releases it when those with MPI have left theirs.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable, Iterator
from typing import NoReturn

from pktswarm.nodes.link import MasterGone, Pieces
from pktswarm.traffic.protocol.codec import encode, parse
from pktswarm.traffic.protocol.messages import BULK_BYTES
from pktswarm.traffic.protocol.pipe_channel import KIND_BULK, KIND_CLOCK, KIND_MESSAGE, PipeChannel
from pktswarm.traffic.protocol.rank_events import NodeEvent
from pktswarm.traffic.protocol.rank_orders import RankOrder, decode_rank_order

BYTES_UNDER_WAY = 8 * BULK_BYTES
INTRODUCTION_TIMEOUT_S = 20.0


class PipeLink:
    def __init__(self) -> None:
        # What prints something prints it where errors go.
        self._channel = PipeChannel(os.dup(0), os.dup(1))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        self._pieces = Pieces(lambda: self._channel.take(KIND_BULK), self._rest)

    def introduce(self, message: NodeEvent) -> None:
        self.send(message)
        self.flush(INTRODUCTION_TIMEOUT_S)

    def send(self, message: NodeEvent) -> None:
        self._channel.post(KIND_MESSAGE, encode(message))
        self._look()

    def receive(self) -> RankOrder | None:
        data = self._channel.take(KIND_MESSAGE)
        if data is None:
            self._look()
            return None
        return decode_rank_order(parse(data))

    def _look(self) -> None:
        if self._channel.closed:
            raise MasterGone("the SSH connection ended")

    def _rest(self, longest_s: float) -> None:
        self._look()
        self._channel.wait(longest_s)

    def wait(self, others: Iterable[int], longest_s: float) -> None:
        if not self._channel.push():
            self._channel.wait(min(longest_s, 0.001))
            return
        select.select([self._channel.incoming, *others], [], [], longest_s)

    def receive_bulk(self, size: int, timeout_s: float) -> bytes:
        return self._pieces.receive(size, timeout_s)

    def send_file(self, path: str) -> Iterator[None]:
        with open(path, "rb") as file:  # noqa: PTH123
            while piece := file.read(BULK_BYTES):
                self._channel.post(KIND_BULK, piece)
                while self._channel.unsent_bytes > BYTES_UNDER_WAY:
                    yield
                    self._channel.push()
                    self._look()

    def flush(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._channel.push() and not self._channel.closed and time.monotonic() < deadline:
            self._channel.wait(max(0.0, deadline - time.monotonic()))
        return not self._channel.unsent_bytes

    def barrier(self, members: list[int], leave_ns: int) -> NoReturn:
        raise NotImplementedError("a rank without MPI is released, and enters no barrier")

    def answer_pings(self, count: int, longest_s: float) -> int:
        deadline = time.monotonic() + longest_s
        while count and (left_s := deadline - time.monotonic()) > 0:
            number = self._channel.take(KIND_CLOCK)
            if number is not None:
                self._channel.post(KIND_CLOCK, b"%s %d %d" % (number, time.monotonic_ns(), time.time_ns()))
                count -= 1
            else:
                self._rest(left_s)
        return count

    def finalize(self) -> None:
        self.flush(INTRODUCTION_TIMEOUT_S)
