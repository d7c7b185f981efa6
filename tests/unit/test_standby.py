"""Rank 0 of a cluster that stays up: one run after another, each on a connection of its own."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from conducting import ROLES, WORD_INTERVAL_S, CommandLine, Nodes
from pktswarm.master.run import members
from pktswarm.master.run.standby import Standby
from pktswarm.traffic.protocol import rank0_orders
from pktswarm.traffic.protocol.messages import Lines
from pktswarm.traffic.protocol.rank0_events import (
    Lost,
    Occupied,
    StandbyEvent,
    Standing,
    decode_rank0_event,
    decode_standby_event,
)
from pktswarm.traffic.protocol.rank0_orders import decode_rank0_order
from pktswarm.traffic.protocol.rank_events import GuardGone

WAIT_S = 20.0


@pytest.fixture(autouse=True)
def short_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "WORD_INTERVAL_S", WORD_INTERVAL_S)


class Up(threading.Thread):
    """Rank 0 in a thread, and the daemon's end of its connection."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__(daemon=True)
        self.name_of_runs = "pktswarm-test-" + secrets.token_hex(8)
        ours, theirs = socket.socketpair()
        self.daemon_end = Lines(theirs, decode_standby_event)
        control = Lines(ours, decode_rank0_order)
        self.rank0 = ours
        self.standby = Standby(nodes, control, nodes.roles, self.name_of_runs, os.geteuid(), 1.0)
        self.whole: bool | None = None
        self.start()

    def run(self) -> None:
        self.whole = self.standby.serve()
        self.rank0.close()

    def wait_for(self, kind: type[StandbyEvent]) -> StandbyEvent:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            self.daemon_end.receive(0.05)
            for event, _ in self.daemon_end.messages():
                if isinstance(event, kind):
                    return event
        raise AssertionError(f"no {kind.__name__}")

    def command(self, ranks: list[int], first: rank0_orders.Rank0Order | None = None, **how: Any) -> CommandLine:
        """A command line, which begins a run with these ranks."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"\0{self.name_of_runs}")
        control = Lines(connection, decode_rank0_event)
        control.send(first or rank0_orders.Begin(ranks, 1.0))
        line = CommandLine(control, ranks, **how)
        line.start()
        return line

    def end(self) -> None:
        self.daemon_end.socket.shutdown(socket.SHUT_RDWR)
        self.join(WAIT_S)


@pytest.fixture
def nodes() -> Nodes:
    return Nodes(ROLES)


@pytest.fixture
def up(nodes: Nodes) -> Iterator[Up]:
    made = Up(nodes)
    yield made
    made.end()
    assert made.whole is not None


def ops_of(nodes: Nodes, rank: int) -> list[str]:
    return [op for found, op in nodes.ops if found == rank]


def test_runs_of_several_command_lines_follow_each_other(up: Up, nodes: Nodes) -> None:
    up.wait_for(Standing)
    for _ in range(3):
        line = up.command([1, 2, 3])
        up.wait_for(Occupied)
        up.wait_for(Standing)
        line.join(WAIT_S)
        assert line.phases()[0] == "hello" and line.phases()[-1] == "over"
    assert ops_of(nodes, 1).count("again") == 3 and "leave" not in ops_of(nodes, 1)
    up.end()
    assert up.whole and ops_of(nodes, 1)[-1] == "leave"


def test_a_run_of_some_ranks_leaves_the_others_alone(up: Up, nodes: Nodes) -> None:
    up.wait_for(Standing)
    line = up.command([2, 3])
    up.wait_for(Occupied)
    up.wait_for(Standing)
    line.join(WAIT_S)
    assert {(event["group"], event["whole"]) for event in line.of("barrier")} == {("transmit", True), ("receive", True)}
    assert {event["rank"] for event in line.of("counts")} == {2, 3}
    assert "task" not in ops_of(nodes, 1) and "again" not in ops_of(nodes, 1) and "task" in ops_of(nodes, 2)


@pytest.mark.parametrize("how", [{"stop_at": "send"}, {"close_at": "send"}, {"close_at": "look"}])
def test_a_run_that_is_stopped_or_abandoned_gives_the_ranks_back(up: Up, nodes: Nodes, how: dict[str, Any]) -> None:
    up.wait_for(Standing)
    nodes.endless = True  # they send until they are stopped: a run that ends by itself can be in a barrier by then
    line = up.command([1, 2, 3], **how)
    up.wait_for(Occupied)
    up.wait_for(Standing)
    line.join(WAIT_S)
    nodes.endless = False
    assert all("finish" in ops_of(nodes, rank) and "leave" not in ops_of(nodes, rank) for rank in ROLES)
    line = up.command([1, 2, 3])
    up.wait_for(Standing)
    line.join(WAIT_S)
    assert line.phases()[-1] == "over" and line.of("stopped") == []


@pytest.mark.parametrize("first", [rank0_orders.Looked(), rank0_orders.Begin([7], 1.0)])
def test_a_connection_that_begins_with_anything_else_is_closed(up: Up, first: rank0_orders.Rank0Order) -> None:
    up.wait_for(Standing)
    stranger = up.command([], first)
    stranger.join(WAIT_S)
    assert not stranger.is_alive() and stranger.events == []
    line = up.command([1, 2, 3])
    up.wait_for(Occupied)
    up.wait_for(Standing)
    line.join(WAIT_S)
    assert line.phases()[-1] == "over"


def test_a_rank_lost_between_runs_is_named_and_ends_the_others(up: Up, nodes: Nodes) -> None:
    up.wait_for(Standing)
    nodes.say(2, GuardGone())
    lost = up.wait_for(Lost)
    assert isinstance(lost, Lost) and (lost.rank, lost.problem) == (2, "its guard is gone")
    up.join(WAIT_S)
    assert up.whole is False and ops_of(nodes, 1) == ["finish", "leave"]


def test_a_rank_without_part_in_a_run_may_die_in_it(up: Up, nodes: Nodes) -> None:
    class Dies(CommandLine):
        def _phase(self, name: str) -> None:
            if name == "prepare receivers":
                nodes.say(1, GuardGone())
            super()._phase(name)

    up.wait_for(Standing)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"\0{up.name_of_runs}")
    control = Lines(connection, decode_rank0_event)
    control.send(rank0_orders.Begin([2, 3], 1.0))
    line = Dies(control, [2, 3])
    line.start()
    lost = up.wait_for(Lost)
    line.join(WAIT_S)
    assert isinstance(lost, Lost) and lost.rank == 1
    assert line.phases()[-1] == "over" and line.of("lost") == [] and line.of("stopped") == []
    up.join(WAIT_S)
    assert up.whole is False and ops_of(nodes, 2)[-1] == "leave"


def test_the_end_of_the_daemon_stops_the_run_in_order(up: Up, nodes: Nodes) -> None:
    up.wait_for(Standing)
    nodes.endless = True
    line = up.command([1, 2, 3])
    up.wait_for(Occupied)
    deadline = time.monotonic() + WAIT_S
    while "send" not in line.phases() and time.monotonic() < deadline:
        time.sleep(0.005)
    up.end()
    line.join(WAIT_S)
    assert line.of("stopped") == [{"event": "stopped", "problem": "the cluster is taken down"}]
    assert line.phases()[-1] == "over" and ops_of(nodes, 3)[-1] == "leave"


def test_ranks_that_do_not_come_up_end() -> None:
    monkey = pytest.MonkeyPatch()
    monkey.setitem(members.DEADLINES_S, "hello", 0.3)
    nodes = Nodes(ROLES)
    nodes.inbox = type(nodes.inbox)(found for found in nodes.inbox if found[0] != 3)
    try:
        up = Up(nodes)
        lost = up.wait_for(Lost)
        up.join(WAIT_S)
    finally:
        monkey.undo()
    assert isinstance(lost, Lost) and lost.rank == 3 and up.whole is False
