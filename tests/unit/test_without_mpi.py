"""Ranks without MPI: their pipes, and their place among the ranks with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conducting import Nodes
from pktswarm.master.cluster import inventory
from pktswarm.master.cluster.ranks import all_ranks
from pktswarm.master.run.all_ranks import AllRanks
from pktswarm.master.run.launch import Launch
from pktswarm.traffic.errors import BadInput, MessageError
from pktswarm.traffic.protocol.codec import encode
from pktswarm.traffic.protocol.pipe_channel import (
    KIND_BULK,
    KIND_CLOCK,
    KIND_MESSAGE,
    READ_BYTES,
    PipeChannel,
)
from pktswarm.traffic.protocol.rank_events import Arrived, Hello
from pktswarm.traffic.protocol.rank_orders import Halt, Stop
from pktswarm.traffic.protocol.task import Role
from run_events import node_report

LARGE = bytes(range(256)) * (5 * READ_BYTES // 256)
"""More than a pipe holds."""


@pytest.fixture
def ends() -> Iterator[tuple[PipeChannel, PipeChannel]]:
    down, up = os.pipe(), os.pipe()
    try:
        yield PipeChannel(up[0], down[1]), PipeChannel(down[0], up[1])
    finally:
        for descriptor in {*down, *up}:
            try:
                os.close(descriptor)
            except OSError:  # the test closed it
                continue


def until(take: Callable[[], bytes | None], *channels: PipeChannel) -> bytes:
    for _ in range(10_000):
        if (data := take()) is not None:
            return data
        for channel in channels:
            channel.wait(0.01)
    raise TimeoutError


def test_each_kind_keeps_its_order(ends: tuple[PipeChannel, PipeChannel]) -> None:
    ours, theirs = ends
    for kind, data in ((KIND_MESSAGE, b"1"), (KIND_BULK, b""), (KIND_MESSAGE, b"2"), (KIND_CLOCK, b"3")):
        ours.post(kind, data)
    assert [theirs.take(KIND_MESSAGE) for _ in range(3)] == [b"1", b"2", None]
    assert (theirs.take(KIND_CLOCK), theirs.take(KIND_BULK), theirs.take(KIND_BULK)) == (b"3", b"", None)


def test_what_a_pipe_does_not_take_yet_follows(ends: tuple[PipeChannel, PipeChannel]) -> None:
    ours, theirs = ends
    ours.post(KIND_BULK, LARGE)
    ours.post(KIND_MESSAGE, b"behind it")
    assert not ours.push() and ours.unsent_bytes > 0 and theirs.take(KIND_BULK) is None
    assert until(lambda: theirs.take(KIND_BULK), ours) == LARGE
    assert until(lambda: theirs.take(KIND_MESSAGE), ours) == b"behind it" and ours.push()


def test_the_end_of_the_other_end_is_noticed_and_what_came_before_it_is_kept() -> None:
    down, up = os.pipe(), os.pipe()
    ours, theirs = PipeChannel(up[0], down[1]), PipeChannel(down[0], up[1])
    theirs.post(KIND_MESSAGE, b"last words")
    for descriptor in (down[0], up[1]):
        os.close(descriptor)
    assert (ours.take(KIND_MESSAGE), ours.take(KIND_MESSAGE), ours.closed) == (b"last words", None, True)
    ours.post(KIND_MESSAGE, b"nobody reads this")  # and no signal, and no error
    for descriptor in (down[1], up[0]):
        os.close(descriptor)


def test_words_of_something_else_are_an_error(ends: tuple[PipeChannel, PipeChannel]) -> None:
    ours, theirs = ends
    os.write(ours._outgoing, b"Last login: Thu Nov 26 from 10.0.0.1\n")
    with pytest.raises(
        MessageError, match="something else than pktswarm writes to the SSH connection: b'Last login: Thu"
    ):
        theirs.take(KIND_MESSAGE)
    assert theirs.closed and theirs.take(KIND_MESSAGE) is None


class WithMpi(Nodes):
    """The ranks with MPI, numbered as there."""

    def __init__(self, roles: dict[int, Role]) -> None:
        super().__init__(roles)
        self.inbox.clear()


def test_ranks_are_numbered_as_in_the_run(ends: tuple[PipeChannel, PipeChannel]) -> None:
    """Of four ranks the second has no MPI: the third is MPI's second."""
    ours, theirs = ends
    mpi = WithMpi({1: "transmit", 2: "receive", 3: "receive"})
    ranks = AllRanks(mpi, {2: ours}, 4)
    assert ranks.without_mpi == {2}
    for number in range(1, 5):
        assert ranks.send(number, Halt())
    assert mpi.ops == [(1, "halt"), (2, "halt"), (3, "halt")] and theirs.take(KIND_MESSAGE) == encode(Halt())
    mpi.inbox.clear()
    mpi.say(2, Arrived("start"))
    theirs.post(KIND_MESSAGE, encode(Hello("tx2", "transmit", node_report())))
    taken = [ranks.receive() for _ in range(3)]
    assert [one and (one[0], one[1].NAME) for one in taken] == [(2, "hello"), (3, "arrived"), None]
    theirs.post(KIND_BULK, b"piece")
    assert ranks.receive_piece(2) == b"piece" and ranks.send_bulk(2, b"file") and theirs.take(KIND_BULK) == b"file"


def test_a_clock_is_read_by_number(ends: tuple[PipeChannel, PipeChannel]) -> None:
    ours, theirs = ends
    ranks = AllRanks(WithMpi({}), {1: ours}, 1)
    assert ranks.read_clock(1, 0.0) is None  # given up: its answer is that of no other
    theirs.post(KIND_CLOCK, until(lambda: theirs.take(KIND_CLOCK)) + b" 5 6")
    theirs.post(KIND_CLOCK, b"2 7 8")
    reading = ranks.read_clock(1, 5.0)
    assert reading is not None and reading[1:3] == (7, 8) and reading[0] <= reading[3]


def test_a_rank_behind_a_closed_pipe_cannot_be_reached() -> None:
    down, up = os.pipe(), os.pipe()
    ranks = AllRanks(WithMpi({}), {1: PipeChannel(up[0], down[1])}, 1)
    for descriptor in (down[0], up[1]):
        os.close(descriptor)
    assert ranks.receive() is None and not ranks.send(1, Stop()) and ranks.flush(1.0)
    for descriptor in (down[1], up[0]):
        os.close(descriptor)


HOSTS = """all:
  children:
    master: {{hosts: {{m0: {{}}}}}}
    transmit: {{hosts: {{tx1: {{traffic_interface: eth1, pktswarm_mpi: {mpi}}}, tx2: {{traffic_interface: eth1}}}}}}
    receive: {{hosts: {{rx1: {{traffic_interface: eth1}}}}}}
"""


def test_mpiexec_starts_the_others(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text(HOSTS.format(mpi="none"))
    read = inventory.load(file)
    launch = Launch(read, all_ranks(read))
    try:
        command = launch.command()
        assert command[command.index("-hosts") + 1] == "m0:1,tx2:1,rx1:1" and "tx1" not in command
        assert command[command.index("--without-mpi") + 1] == "[1]"
    finally:
        launch.stop()


@pytest.mark.parametrize("mpi", ["openmpi", "true", "[none]"])
def test_another_mpi_is_refused(tmp_path: Path, mpi: Any) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text(HOSTS.format(mpi=mpi))
    with pytest.raises(BadInput, match=r"hosts\.tx1\.pktswarm_mpi = .*: cannot be used \(allowed: wheel, none\)"):
        inventory.load(file)
