"""The phases of a run, with a world of nodes in memory in place of MPI."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import pytest

import conducting
from conducting import ROLES, WORD_INTERVAL_S, Barrier, CommandLine, Nodes
from pktswarm.master.run import clock_readings, conductor, group_barrier, members
from pktswarm.master.run.standby import serve_command
from pktswarm.traffic.protocol.messages import STILL_BEFORE_NS, Lines
from pktswarm.traffic.protocol.rank0_events import decode_rank0_event
from pktswarm.traffic.protocol.rank0_orders import decode_rank0_order
from pktswarm.traffic.protocol.rank_events import (
    Counts,
    Failed,
    GuardGone,
    NodeEvent,
    Restored,
)
from pktswarm.traffic.protocol.rank_orders import (
    Enter,
    File,
    Finish,
    RankOrder,
    Start,
    Word,
)
from run_events import node_report


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    # All but the tasks come at once or never; those come from a thread, which a busy machine may keep waiting.
    set_deadlines(monkeypatch, **{**dict.fromkeys(members.DEADLINES_S, 0.8), "look": 20.0, "tasks": 20.0})
    monkeypatch.setattr(members, "SILENCE_S", 0.5)
    monkeypatch.setattr(members, "WORD_INTERVAL_S", WORD_INTERVAL_S)


def set_deadlines(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    for name, value in seconds.items():
        monkeypatch.setitem(members.DEADLINES_S, name, value)


def conduct(nodes: Nodes, **how: Any) -> tuple[bool, CommandLine]:
    """Returns whether all ranks lived to the end, and the command line with its events."""
    ours, theirs = socket.socketpair()
    line = CommandLine(Lines(theirs, decode_rank0_event), nodes.roles, **how)
    line.start()
    whole = serve_command(nodes, Lines(ours, decode_rank0_order), nodes.roles, 1.0)
    ours.close()
    line.join(20.0)
    return whole, line


def test_a_whole_run_goes_through_all_phases_and_four_barriers() -> None:
    nodes = Nodes(ROLES)
    whole, line = conduct(nodes)
    assert whole
    assert line.phases() == [
        "hello", "look", "clocks", "plan", "prepare receivers", "prepare transmitters", "send", "drain", "gather",
        "restore", "over",
    ]  # fmt: skip
    assert nodes.barriers == ["receive", "transmit", "transmit", "receive"]
    assert nodes.bulk == {1: b"abc", 2: b"abc", 3: b"abc"}
    assert line.of("stopped") == []


@pytest.mark.parametrize("without", [{2}, {1, 3}, {1, 2, 3}])
def test_ranks_without_mpi_are_released_when_the_others_have_left(without: set[int]) -> None:
    nodes = Nodes(ROLES)
    nodes.without_mpi = frozenset(without)
    whole, line = conduct(nodes)
    assert whole and line.of("stopped") == [] and nodes.barriers == ["receive", "transmit", "transmit", "receive"]
    for name, role in (("ready", "receive"), ("start", "transmit"), ("done", "transmit"), ("stop", "receive")):
        how = {rank: op.split()[0] for rank, op in nodes.ops if op in (f"enter {name}", f"release {name}")}
        group = {rank for rank in ROLES if ROLES[rank] == role}
        assert how == {rank: "release" if rank in without else "enter" for rank in group}


def test_a_death_in_a_barrier_releases_those_without_mpi_once() -> None:
    nodes = Nodes(ROLES, deaf={1: "enter"}, refuses=True)
    nodes.without_mpi = frozenset({2})
    whole, _ = conduct(nodes)
    assert not whole and nodes.ops.count((2, "release start")) == 1


def test_an_mpich_that_cannot_give_up_on_the_dead_is_told() -> None:
    assert conduct(Nodes(ROLES))[1].of("note") == []
    nodes = Nodes(ROLES)
    nodes.stubborn = True
    assert "tries for ever" in conduct(nodes)[1].of("note")[0]["text"]


def test_receivers_are_ready_before_any_transmitter_is_told_to_start() -> None:
    nodes = Nodes(ROLES)
    conduct(nodes)
    order = [op for _, op in nodes.ops]
    assert order.index("enter ready") < order.index("enter start") < order.index("start") < order.index("enter done")
    assert order.index("enter done") < order.index("enter stop") < order.index("stop") < order.index("finish")


@pytest.mark.parametrize("receivers_first", [False, True])
def test_transmitters_prepare_beside_the_receivers_unless_they_connect_to_them(receivers_first: bool) -> None:
    nodes = Nodes(ROLES)
    conduct(nodes, receivers_first=receivers_first)
    assert (nodes.ops.index((3, "enter ready")) < nodes.ops.index((1, "task"))) == receivers_first


def test_the_start_instant_is_told_in_each_nodes_own_clock() -> None:
    nodes = Nodes(ROLES)
    whole, line = conduct(nodes)
    # The node read 5100 when the master's clock stood between 1000 and 1200.
    assert {(clock["rank"], clock["offset_ns"]) for clock in line.of("clock")} == {(1, 4000), (2, 4000), (3, 4000)}
    assert {clock["bound_ns"] for clock in line.of("clock")} == {100}


def test_the_start_is_further_ahead_where_nodes_answer_late() -> None:
    class Late(Nodes):
        """The ranks leave the barrier of the start so much later than they could."""

        offset_ns = 4000  # as read_clock() has it

        def __init__(self, answers_after_s: float) -> None:
            super().__init__(ROLES)
            self.answers_after_s, self.lead_ns, self.entered_ns = answers_after_s, 0, (0, 0)

        def send(self, rank: int, order: RankOrder) -> bool:
            if isinstance(order, Start) and not self.lead_ns:
                self.lead_ns = order.at_ns - self.offset_ns - time.monotonic_ns()
            if isinstance(order, Enter) and order.name == "start":
                self.entered_ns = order.at_ns - self.offset_ns, order.leave_ns - self.offset_ns
            return super().send(rank, order)

        def barrier(self, role: str, members: list[int]) -> Barrier:
            if self.entered == "start":
                time.sleep(self.answers_after_s)
            return super().barrier(role, members)

    soon, late, never = Late(0.0), Late(0.05), Late(0.4)
    for nodes in (soon, late, never):
        conduct(nodes)
    still_ns = STILL_BEFORE_NS
    assert still_ns < soon.lead_ns < late.lead_ns < never.lead_ns <= still_ns + conductor.MOST_ORDER_NS
    assert late.lead_ns >= still_ns + 2 * 40_000_000
    # A master and two transmitters: two rounds.
    entered_ns, leave_ns = soon.entered_ns
    assert leave_ns - entered_ns == 2 * group_barrier.ROUND_NS


def test_while_a_slow_nodes_clock_is_read_the_others_have_the_masters_word(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Nodes):
        def send(self, rank: int, order: RankOrder) -> bool:
            log.append((order.NAME, rank))
            return super().send(rank, order)

        def read_clock(self, rank: int, timeout_s: float) -> tuple[int, int, int, int] | None:
            log.append(("read", rank))
            time.sleep(1.5 * WORD_INTERVAL_S)
            return super().read_clock(rank, timeout_s)

    log: list[tuple[str, int]] = []
    monkeypatch.setattr(clock_readings, "CLOCK_READINGS", 3)
    conduct(Slow(ROLES))
    reads = [at for at, (what, _) in enumerate(log) if what == "read"]
    assert len(reads) >= 3 * len(ROLES)
    for first, second in pairwise(reads):
        assert {rank for what, rank in log[first:second] if what == "word"} == set(ROLES)


def test_a_node_without_a_processor_for_a_while_is_read_behind_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stalled(Nodes):
        def read_clock(self, rank: int, timeout_s: float) -> tuple[int, int, int, int] | None:
            asked.append(rank)
            stalled = rank == 2 and asked.count(2) <= clock_readings.MOST_MISSES
            return None if stalled else super().read_clock(rank, timeout_s)

    asked: list[int] = []
    monkeypatch.setattr(clock_readings, "MORE_ROUNDS_S", 0.0)
    _, line = conduct(Stalled(ROLES))
    assert line.of("lost") == [] and len(line.of("clock")) == 3 * len(ROLES)


def test_a_node_that_does_not_answer_is_asked_once_more_and_given_up() -> None:
    class Frozen(Nodes):
        def read_clock(self, rank: int, timeout_s: float) -> tuple[int, int, int, int] | None:
            asked.append(rank)
            return None if rank == 2 else super().read_clock(rank, timeout_s)

    asked: list[int] = []
    _, line = conduct(Frozen(ROLES))
    assert [(lost["rank"], lost["problem"]) for lost in line.of("lost")] == [(2, "its clock could not be read")]
    assert asked.count(2) == 2 * clock_readings.MOST_MISSES
    assert asked.count(1) >= clock_readings.CLOCK_READINGS


@pytest.mark.parametrize("more_rounds_s", [10.0, 0.0], ids=["time for it", "no time for it"])
def test_only_a_busy_nodes_clock_is_read_again_and_behind_all_others(
    more_rounds_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Busy(Nodes):
        def read_clock(self, rank: int, timeout_s: float) -> tuple[int, int, int, int] | None:
            reads.append(rank)
            return (1000, 5100, 9100, 9_001_000) if rank == 2 else super().read_clock(rank, timeout_s)

    reads: list[int] = []
    for name, value in (("CLOCK_READINGS", 1), ("CLOCK_ROUNDS", 3), ("MORE_ROUNDS_S", more_rounds_s)):
        monkeypatch.setattr(clock_readings, name, value)
    _, line = conduct(Busy(ROLES))
    assert len(line.of("clock")) == 3 * len(ROLES), "before, at the start, after"
    once = [1, 2, 3, 2, 2] if more_rounds_s else [1, 2, 3]
    assert reads == 3 * once


def test_a_busy_nodes_clock_that_is_the_masters_own_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnOneMachine(Nodes):
        def read_clock(self, rank: int, timeout_s: float) -> tuple[int, int, int, int] | None:
            reads.append(rank)
            return 1000, 5_000_000, 9_000_000, 9_001_000

    reads: list[int] = []
    monkeypatch.setattr(members, "clock_identity", lambda: "ours")
    monkeypatch.setattr(conducting, "node_report", lambda: node_report(clock="ours"))
    _, line = conduct(OnOneMachine(ROLES))
    assert {(clock["offset_ns"], clock["bound_ns"]) for clock in line.of("clock")} == {(0, 0)}
    assert reads == 3 * [rank for rank in sorted(ROLES) for _ in range(clock_readings.OWN_CLOCK_READINGS)]


def test_a_rank_that_never_says_hello_stops_the_run_before_anything_is_planned() -> None:
    nodes = Nodes(ROLES)
    nodes.inbox.popleft()
    whole, line = conduct(nodes)
    assert [lost["rank"] for lost in line.of("lost")] == [1]
    assert line.of("stopped")[0]["problem"] == "not every node came up"
    assert "plan" not in line.phases()


@pytest.mark.parametrize("refuses", [False, True], ids=["silent", "refusing"])
@pytest.mark.parametrize("op", ["task", "ping", "enter", "start"])
def test_a_rank_that_dies_is_named_and_the_others_finish_without_a_collective(op: str, refuses: bool) -> None:
    nodes = Nodes(ROLES, deaf={2: op}, refuses=refuses)
    whole, line = conduct(nodes)
    assert not whole
    assert [lost["rank"] for lost in line.of("lost")] == [2]
    assert line.of("stopped") == []
    for rank in (1, 3):
        assert [(r, o) for r, o in nodes.ops if r == rank and o != "ping"][-3:] == [
            (rank, "stop"),
            (rank, "finish"),
            (rank, "leave"),
        ]
    assert (1, "start") in nodes.ops
    # Its group's barriers become releases, be it in the middle of one; the receivers' still are barriers.
    entered = op in ("enter", "start")
    assert nodes.barriers == (["receive", "transmit", "receive"] if entered else ["receive", "receive"])
    assert [one["whole"] for one in line.of("barrier")] == [True, op == "start", False, True]


def test_a_death_behind_the_masters_own_end_of_a_barrier_frees_who_is_still_in_it() -> None:
    class Half(Nodes):
        """The master and rank 1 leave; 2 waits for 3, which died when it had entered."""

        def barrier(self, role: str, members: list[int]) -> Barrier:
            if self.entered != "start":
                return super().barrier(role, members)
            self.dead.add(3)
            for message in self.left("start"):
                self.say(1, message)
            return Barrier(0)

    nodes = Half({1: "transmit", 2: "transmit", 3: "transmit", 4: "receive"})
    whole, line = conduct(nodes)
    assert [lost["rank"] for lost in line.of("lost")] == [3]
    assert [rank for rank, op in nodes.ops if op == "release start"] == [2]
    assert (1, "start") in nodes.ops and (2, "start") in nodes.ops


def test_a_barrier_that_nobody_leaves_though_all_live_ends_the_run() -> None:
    class Stuck(Nodes):
        def barrier(self, role: str, members: list[int]) -> Barrier:
            return Barrier(None)

    nodes = Stuck(ROLES)
    whole, line = conduct(nodes)
    assert "barrier 'ready' of the receive group was not left" in line.of("stopped")[0]["problem"]
    assert whole and (3, "finish") in nodes.ops


def test_a_run_whose_last_transmitter_died_is_stopped() -> None:
    nodes = Nodes(ROLES, deaf={1: "task", 2: "task"})
    whole, line = conduct(nodes)
    assert line.of("stopped")[0]["problem"] == "no node of the transmit group is left"
    assert (3, "leave") in nodes.ops


def test_a_node_that_fails_stops_the_run_with_its_words() -> None:
    nodes = Nodes(ROLES)
    nodes.failing["task"] = {3: Failed("no such filter", bad_input=True)}
    whole, line = conduct(nodes)
    assert whole
    assert line.of("stopped")[0]["problem"] == "no such filter"
    assert (3, "stop") not in nodes.ops  # it has nothing to count
    assert (3, "finish") in nodes.ops


def test_a_node_that_failed_is_waited_for_until_it_is_restored() -> None:
    """And what it could not restore is told: of all nodes it has most to say there."""

    class SlowToRestore(Nodes):
        def answers(self, rank: int, order: RankOrder) -> Iterator[NodeEvent]:
            if (rank, order.NAME) != (3, "finish"):
                return super().answers(rank, order)
            threading.Timer(0.3, lambda: self.say(3, Restored(["gro"]))).start()
            return iter([])

    nodes = SlowToRestore(ROLES)
    nodes.failing["task"] = {3: Failed("no such filter", bad_input=True)}
    whole, line = conduct(nodes)
    assert {one["rank"]: one["troubles"] for one in line.of("restored")} == {1: [], 2: [], 3: ["gro"]}
    assert whole


def test_captures_come_behind_all_counts_and_nobody_waits_for_a_word_meanwhile() -> None:
    class Slow(Nodes):
        """Rank 3 captured 6 bytes, which come in two pieces and take longer than guards wait for a word."""

        words: ClassVar[list[int]] = []

        def send(self, rank: int, order: RankOrder) -> bool:
            self.words.extend([rank] if isinstance(order, Word) and self.asked else [])
            return super().send(rank, order)

        asked = 0

        def receive_piece(self, rank: int) -> bytes | None:
            self.asked += 1
            return b"abc" if self.asked in (100, 200) else None

        def answers(self, rank: int, order: RankOrder) -> Iterator[NodeEvent]:
            for answer in super().answers(rank, order):
                if isinstance(answer, Counts) and rank == 3:
                    yield replace(answer, captures=[File("c", 6)])
                else:
                    yield answer

    nodes = Slow(ROLES)
    whole, line = conduct(nodes)
    told = [event["event"] for event in line.events if event["event"] in ("counts", "capture", "piece")]
    assert told == ["counts"] * 3 + ["capture", "piece", "piece"]
    assert set(nodes.words) == set(ROLES) and whole


def test_captures_are_not_fetched_for_a_command_line_that_is_gone() -> None:
    """The nodes would be kept from being as they were for as long as it takes."""

    class Endless(Nodes):
        asked = 0

        def receive_piece(self, rank: int) -> bytes | None:
            self.asked += 1
            return b"abc"

        def answers(self, rank: int, order: RankOrder) -> Iterator[NodeEvent]:
            for answer in super().answers(rank, order):
                yield replace(answer, captures=[File("c", 2**60)]) if isinstance(answer, Counts) else answer

    nodes = Endless(ROLES)
    conduct(nodes, close_at="gather")
    assert [op for _, op in nodes.ops].count("finish") == len(ROLES)


def test_a_node_whose_guard_is_gone_is_lost_and_not_waited_for() -> None:
    class WithoutGuard(Nodes):
        def answers(self, rank: int, order: RankOrder) -> Iterator[NodeEvent]:
            if rank == 3 and order.NAME in ("sample", "stop", "finish"):
                return iter([GuardGone()] if order.NAME == "sample" else [])
            return super().answers(rank, order)

    nodes = WithoutGuard({**ROLES, 4: "receive"})
    whole, line = conduct(nodes)
    assert [(one["rank"], one["problem"]) for one in line.of("lost")] == [(3, "its guard is gone")]
    assert line.of("stopped") == [] and not whole
    assert (3, "stop") not in nodes.ops and (1, "stop") in nodes.ops


@pytest.mark.parametrize("phase", ["look", "plan"])
def test_a_look_at_the_nodes_may_take_long_and_the_tasks_may_not(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    """Sessions are set up in the first; the clocks are read behind it."""
    set_deadlines(monkeypatch, tasks=0.25, look=20.0)
    whole, line = conduct(Nodes(ROLES), busy_s=0.5, busy_at=phase)
    words = [] if phase == "look" else ["the command line's tasks did not come within 0 s"]
    assert [one["problem"] for one in line.of("stopped")] == words
    assert len(line.of("counts")) == (len(ROLES) if phase == "look" else 0)
    assert line.phases()[:4] == ["hello", "look", "clocks", "plan"]


@pytest.mark.parametrize(
    "phase", ["look", "plan", "clocks", "prepare receivers", "prepare transmitters", "send", "drain"]
)
def test_stop_in_any_phase_restores_every_node(phase: str) -> None:
    nodes = Nodes(ROLES)
    whole, line = conduct(nodes, stop_at=phase)
    assert whole
    assert line.phases()[-2:] == ["restore", "over"]
    assert len(line.of("restored")) == len(ROLES)


def test_clocks_are_looked_at_in_turn_while_frames_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_readings, "CHECK_EVERY_S", 0.03)
    monkeypatch.setattr(conductor, "STOPPING_S", 0.5)  # how long the endless sending lasts
    nodes = Nodes(ROLES)
    nodes.endless = True
    _, line = conduct(nodes)
    told = line.of("drift")
    assert [one["rank"] for one in told[:4]] == [1, 2, 3, 1]
    assert {(one["at_ns"], one["offset_ns"], one["bound_ns"]) for one in told} == {(1100, 4000, 100)}


def test_a_stop_ends_the_sending_before_the_receiving() -> None:
    nodes = Nodes(ROLES)
    nodes.endless = True
    conduct(nodes, stop_at="send")
    ends = [(rank, op) for rank, op in nodes.ops if op in ("halt", "stop")]
    assert ends == [(1, "halt"), (2, "halt"), (1, "stop"), (2, "stop"), (3, "stop")]


def test_the_command_line_going_away_stops_the_run() -> None:
    nodes = Nodes(ROLES)
    conduct(nodes, close_at="send")
    assert [op for _, op in nodes.ops].count("finish") == len(ROLES)


# --- further runs with the same ranks ----------------------------------------------------------------------------


def test_kept_ranks_make_further_runs_and_leave_with_the_command_line() -> None:
    nodes = Nodes(ROLES)
    whole, line = conduct(nodes, runs=3)
    assert whole
    assert [line.phases().count(name) for name in ("hello", "send", "over")] == [3, 3, 3]
    assert len(line.of("hello")) == 3 * len(ROLES) and line.of("stopped") == line.of("lost") == []
    ends = [op for _, op in nodes.ops if op in ("again", "leave")]
    assert ends == ["again"] * 2 * len(ROLES) + ["leave"] * len(ROLES)


def test_a_run_that_is_stopped_keeps_no_ranks() -> None:
    nodes = Nodes(ROLES)
    nodes.endless = True
    conduct(nodes, runs=2, stop_at="send")
    assert [op for _, op in nodes.ops].count("leave") == len(ROLES) and "again" not in [op for _, op in nodes.ops]


def test_a_run_that_lost_a_rank_keeps_none() -> None:
    nodes = Nodes(ROLES, deaf={2: "stop"})
    conduct(nodes, runs=2)
    assert {(rank, op) for rank, op in nodes.ops if op in ("again", "leave")} == {(1, "leave"), (3, "leave")}


def test_a_rank_that_is_lost_between_two_runs_ends_the_others() -> None:
    class DiesBetweenRuns(Nodes):
        def answers(self, rank: int, order: RankOrder) -> Iterator[NodeEvent]:
            if isinstance(order, Finish) and rank == 2:
                threading.Timer(0.2, lambda: self.say(2, GuardGone())).start()
            yield from super().answers(rank, order)

    nodes = DiesBetweenRuns(ROLES)
    _, line = conduct(nodes, runs=-1)
    assert line.phases()[-1] == "over" and [one["rank"] for one in line.of("lost")] == [2]
    assert {(rank, op) for rank, op in nodes.ops if op in ("again", "leave")} == {(1, "leave"), (3, "leave")}
