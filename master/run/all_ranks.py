"""Rank 0's way to all ranks of a run: those with MPI, and those without it, each behind the pipes of an SSH connection.

Ranks are numbered as in the run. In MPI's communicators, ranks without it are left out.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping

from pktswarm.master.run.members import Barrier, World
from pktswarm.traffic.protocol.codec import encode, parse
from pktswarm.traffic.protocol.pipe_channel import KIND_BULK, KIND_CLOCK, KIND_MESSAGE, PipeChannel
from pktswarm.traffic.protocol.rank_events import NodeEvent, decode_node_event
from pktswarm.traffic.protocol.rank_orders import RankOrder

UNSENT_S = 0.001
"""Longest sleep while a pipe takes no more."""


class AllRanks:
    """`mpi`: the ranks with MPI, by their number there. `pipes`: number → the rank without it. `count`: of all."""

    def __init__(self, mpi: World, pipes: Mapping[int, PipeChannel], count: int) -> None:
        self._mpi, self._pipes = mpi, pipes
        self.without_mpi = frozenset(pipes)
        self._numbers = [0, *(number for number in range(1, count + 1) if number not in pipes)]
        self._in_mpi = {number: rank for rank, number in enumerate(self._numbers)}
        self._readings = 0

    def all_are_there(self) -> bool:
        return self._mpi.all_are_there()

    def send(self, rank: int, message: RankOrder) -> bool:
        if pipe := self._pipes.get(rank):
            pipe.post(KIND_MESSAGE, encode(message))
            return not pipe.closed
        return self._mpi.send(self._in_mpi[rank], message)

    def send_bulk(self, rank: int, data: bytes) -> bool:
        if pipe := self._pipes.get(rank):
            pipe.post(KIND_BULK, data)
            return not pipe.closed
        return self._mpi.send_bulk(self._in_mpi[rank], data)

    def receive(self) -> tuple[int, NodeEvent] | None:
        for number, pipe in self._pipes.items():
            if (data := pipe.take(KIND_MESSAGE)) is not None:
                return number, decode_node_event(parse(data))
        taken = self._mpi.receive()
        return None if taken is None else (self._numbers[taken[0]], taken[1])

    def receive_piece(self, rank: int) -> bytes | None:
        if pipe := self._pipes.get(rank):
            return pipe.take(KIND_BULK)
        return self._mpi.receive_piece(self._in_mpi[rank])

    def wait(self, others: list[int], longest_s: float) -> None:
        unsent = [pipe for pipe in self._pipes.values() if not pipe.push() and not pipe.closed]
        longest_s = min(longest_s, UNSENT_S) if unsent else longest_s
        watched = [*others, *(pipe.incoming for pipe in self._pipes.values() if not pipe.closed)]
        if len(self._numbers) > 1:
            self._mpi.wait(watched, longest_s)
        else:
            select.select(watched, [], [], longest_s)

    def barrier(self, role: str, members: list[int]) -> Barrier:
        return self._mpi.barrier(role, members)

    def read_clock(self, rank: int, timeout_s: float) -> tuple[int, int, int, int] | None:
        if pipe := self._pipes.get(rank):
            return self._read_clock_behind(pipe, timeout_s)
        return self._mpi.read_clock(self._in_mpi[rank], timeout_s)

    def _read_clock_behind(self, pipe: PipeChannel, timeout_s: float) -> tuple[int, int, int, int] | None:
        self._readings += 1
        sent_ns = time.monotonic_ns()
        pipe.post(KIND_CLOCK, b"%d" % self._readings)
        deadline_ns = sent_ns + int(timeout_s * 1e9)
        while (left_ns := deadline_ns - time.monotonic_ns()) > 0 and not pipe.closed:
            answer = pipe.take(KIND_CLOCK)
            if answer is None:
                pipe.wait(left_ns / 1e9)
                continue
            received_ns = time.monotonic_ns()
            number, monotonic_ns, realtime_ns = (int(part) for part in answer.split())
            if number == self._readings:
                return sent_ns, monotonic_ns, realtime_ns, received_ns
        return None

    def flush(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        done = self._mpi.flush(timeout_s)
        for pipe in self._pipes.values():
            while not pipe.push() and not pipe.closed and (left_s := deadline - time.monotonic()) > 0:
                pipe.wait(left_s)
        return done and not any(pipe.unsent_bytes for pipe in self._pipes.values() if not pipe.closed)

    def can_finalize(self) -> bool:
        return self._mpi.can_finalize()

    def finalize(self) -> None:
        self._mpi.finalize()
