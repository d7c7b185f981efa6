"""The barrier of single messages, among members in memory; over MPI: tests/mpi."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from pktswarm.traffic.protocol.barrier import Barrier
from pktswarm.traffic.protocol.polling import LONGEST_WAIT_NS


@dataclass
class Wire:
    """Messages under way, by who sent them and for whom. `refused`: how often each way refuses one."""

    messages: Counter[tuple[int, int]] = field(default_factory=Counter)
    refused: Counter[tuple[int, int]] = field(default_factory=Counter)


@dataclass
class Request:
    wire: Wire
    way: tuple[int, int]
    broken: bool = False

    def Test(self) -> bool:
        if self.broken:
            raise RuntimeError("MPI_ERR_OTHER")
        here = self.wire.messages[self.way] > 0
        self.wire.messages[self.way] -= here
        return here


@dataclass
class Member:
    """As much of a communicator as a barrier needs."""

    wire: Wire
    rank: int
    size: int
    broken: bool = False

    def Get_rank(self) -> int:
        return self.rank

    def Irecv(self, buffer: Any, source: int, tag: int) -> Request:
        return Request(self.wire, (source, self.rank), self.broken)

    def Isend(self, data: bytes, target: int, tag: int) -> None:
        way = (self.rank, target)
        if self.wire.refused[way] > 0:
            self.wire.refused[way] -= 1
            raise RuntimeError("MPI_ERR_OTHER: again")
        self.wire.messages[way] += 1


def left(barriers: list[Barrier]) -> list[bool]:
    """Who is through, when all had time enough."""
    found = [False] * len(barriers)
    for _ in range(50):
        found = [done or one.left_ns(0) is not None for done, one in zip(found, barriers, strict=True)]
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 13, 129])
def test_all_leave_when_the_last_has_entered_and_nobody_before(size: int) -> None:
    wire = Wire()
    for _ in range(2):  # one after the other, on the same ways
        barriers = [Barrier(Member(wire, rank, size), range(size)) for rank in range(size - 1)]
        assert not any(left(barriers))
        assert all(left([*barriers, Barrier(Member(wire, size - 1, size), range(size))]))
        assert not +wire.messages, "each was taken"


def test_some_members_of_a_group_leave_without_the_others() -> None:
    wire = Wire()
    for some in ([0, 2, 5], [0, 1, 2, 3, 4, 5], [0, 5], [0, 2, 5]):
        barriers = [Barrier(Member(wire, rank, 6), some) for rank in some[:-1]]
        assert not any(left(barriers))
        assert all(left([*barriers, Barrier(Member(wire, some[-1], 6), some)]))
        assert not +wire.messages, "each was taken"


def test_what_is_refused_is_sent_again() -> None:
    wire = Wire(refused=Counter({(0, 1): 3, (2, 0): 7, (1, 0): 1}))
    assert all(left([Barrier(Member(wire, rank, 3), range(3)) for rank in range(3)]))


def test_who_never_hears_the_dead_stays_till_it_is_freed() -> None:
    wire = Wire(refused=Counter({(1, 2): 10**6, (0, 2): 10**6}))
    assert not any(left([Barrier(Member(wire, rank, 3), range(3)) for rank in range(2)]))


def test_an_error_is_told_and_no_end_of_the_barrier(capsys: pytest.CaptureFixture[str]) -> None:
    barrier = Barrier(Member(Wire(), 0, 2, broken=True), range(2))
    assert barrier.left_ns(5.0) is None and barrier.left_ns(5.0) is None
    assert capsys.readouterr().err == "a barrier failed: MPI_ERR_OTHER\n"


def test_members_that_are_through_leave_at_one_instant_and_a_late_one_at_once() -> None:
    wire = Wire()
    leave_ns = time.monotonic_ns() + 20_000_000
    barriers = [Barrier(Member(wire, rank, 3), range(3), leave_ns) for rank in range(3)]
    left_ns = [barrier.left_ns(1.0) for barrier in barriers]
    # In one thread the first waits for the instant, and the others come behind it.
    assert left_ns == sorted(one for one in left_ns if one is not None and one >= leave_ns)
    assert left_ns[1] is not None and left_ns[0] is not None and left_ns[1] - left_ns[0] < LONGEST_WAIT_NS


def test_no_instant_is_waited_for_that_is_further_than_clocks_are_trusted() -> None:
    begun_ns = time.monotonic_ns()
    left_ns = Barrier(Member(Wire(), 0, 1), range(1), begun_ns + 3600 * 10**9).left_ns(1.0)
    assert left_ns is not None and LONGEST_WAIT_NS <= left_ns - begun_ns < 3600 * 10**9
