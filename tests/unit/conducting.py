"""Rank 0 at work with nodes in memory in place of MPI, and a command line that it serves."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pktswarm.traffic.protocol import rank0_orders
from pktswarm.traffic.protocol.codec import to_fields
from pktswarm.traffic.protocol.messages import Lines
from pktswarm.traffic.protocol.rank0_events import Phase, Rank0Event
from pktswarm.traffic.protocol.rank_events import (
    Alive,
    Arrived,
    Counts,
    Failed,
    Halted,
    Hello,
    Left,
    NodeEvent,
    Restored,
)
from pktswarm.traffic.protocol.rank_orders import (
    Again,
    Enter,
    File,
    Finish,
    Halt,
    RankOrder,
    Release,
    Start,
    Stop,
    Task,
    Word,
)
from pktswarm.traffic.protocol.task import Role
from run_events import node_report

ROLES: dict[int, Role] = {1: "transmit", 2: "transmit", 3: "receive"}
WORD_INTERVAL_S = 0.02


@dataclass
class Barrier:
    left: int | None

    def left_ns(self, longest_s: float) -> int | None:
        return self.left


class Nodes:
    """Nodes that do at once what they are told. `deaf`: rank → the op from which on it is dead."""

    def __init__(self, roles: dict[int, Role], deaf: dict[int, str] | None = None, refuses: bool = False) -> None:
        self.roles, self.deaf, self.refuses = roles, deaf or {}, refuses
        self.inbox: deque[tuple[int, NodeEvent]] = deque()
        self.ops: list[tuple[int, str]] = []
        self.stubborn = self.endless = False
        self.bulk: dict[int, bytes] = {}
        self.barriers: list[str] = []
        self.entered = ""
        self.dead: set[int] = set()
        self.without_mpi: frozenset[int] = frozenset()
        self.failing: dict[str, dict[int, Failed]] = {}
        for rank in roles:
            self.say(rank, Hello(f"host{rank}", roles[rank], node_report()))

    def say(self, rank: int, event: NodeEvent) -> None:
        self.inbox.append((rank, event))

    def all_are_there(self) -> bool:
        return not self.stubborn

    def finalize(self) -> None:
        pass

    def send(self, rank: int, order: RankOrder) -> bool:
        op = order.NAME
        if self.deaf.get(rank) == op:
            self.dead.add(rank)
        if rank in self.dead:
            return not self.refuses
        if op != "word":
            self.ops.append((rank, f"{op} {order.name}" if isinstance(order, (Enter, Release)) else op))
        for answer in self.answers(rank, order):
            self.say(rank, answer)
        return True

    def answers(self, rank: int, order: RankOrder) -> Iterator[NodeEvent]:  # noqa: C901 - one case for each order
        if rank in self.failing.get(order.NAME, {}):
            yield self.failing[order.NAME][rank]
            return
        match order:
            case Word():
                yield Alive()
            case Task():
                yield Arrived(order.arrive)
            case Enter():
                self.entered = order.name
            case Release():
                yield from self.left(order.name)
            case Start() if not self.endless:
                yield Arrived("done")
            case Halt():
                yield Halted()
            case Stop():
                yield Counts([], [], None, {}, [])
            case Finish():
                yield Restored([])
            case Again():
                yield Hello(f"host{rank}", self.roles[rank], node_report())

    @staticmethod
    def left(name: str) -> Iterator[NodeEvent]:
        yield Left(name, 0)
        if name == "ready":
            yield Arrived("stop")

    def send_bulk(self, rank: int, data: bytes) -> bool:
        self.bulk[rank] = data
        return True

    def receive(self) -> tuple[int, NodeEvent] | None:
        return self.inbox.popleft() if self.inbox else None

    def receive_piece(self, rank: int) -> bytes | None:
        return None

    def wait(self, others: list[int], longest_s: float) -> None:
        time.sleep(min(longest_s, 0.0005))

    def barrier(self, role: str, members: list[int]) -> Barrier:
        self.barriers.append(role)
        everyone = [rank for rank in self.roles if self.roles[rank] == role and rank not in self.without_mpi]
        group = [everyone[place - 1] for place in members if place]
        if not self.dead.isdisjoint(group):
            return Barrier(None)
        for rank in group:
            for message in self.left(self.entered):
                self.say(rank, message)
        return Barrier(0)

    def read_clock(self, rank: int, timeout_s: float) -> tuple[int, int, int, int] | None:
        return None if rank in self.dead else (1000, 5100, 9100, 1200)

    def can_finalize(self) -> bool:
        return True

    def flush(self, timeout_s: float) -> bool:
        return True


class CommandLine(threading.Thread):
    """Looks at the nodes, hands out a task each when the plan phase comes, and keeps every event. `stop_at`: phase to
    say stop in; `busy_s`: so long it takes for what the phase `busy_at` asks of it; `runs`: so many with the
    same ranks, then it goes; -1: one, then it waits for rank 0's end; 0: the ranks are not kept."""

    def __init__(
        self,
        control: Lines[Rank0Event],
        ranks: Iterable[int],
        stop_at: str = "",
        close_at: str = "",
        busy_s: float = 0.0,
        busy_at: str = "",
        runs: int = 0,
        receivers_first: bool = False,
    ) -> None:
        super().__init__(daemon=True)
        self.control, self.ranks, self.stop_at, self.close_at = control, ranks, stop_at, close_at
        self.busy_s, self.busy_at, self.kept, self.runs_left = busy_s, busy_at, runs != 0, runs
        self.receivers_first = receivers_first
        self.events: list[dict[str, Any]] = []

    def run(self) -> None:
        while not self.control.closed:
            self.control.receive(0.05)
            for event, _ in self.control.messages():
                self.events.append(to_fields(event))
                if isinstance(event, Phase):
                    self._phase(event.name)

    def _phase(self, name: str) -> None:
        if name == self.close_at:
            self.control.socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            time.sleep(self.busy_s if name == self.busy_at else 0)
            if name == "look":
                self.control.send(rank0_orders.Looked())
            if name == "plan":
                for rank in self.ranks:
                    self.control.send(rank0_orders.HandTask(rank, "{}", [File("a", 3)], 0.1), b"abc")
                self.control.send(rank0_orders.Go(1.0, 0.01, self.kept, self.receivers_first))
            if name == "over" and self.kept:
                self.runs_left -= 1
                if self.runs_left > 0:
                    self.control.send(rank0_orders.Begin(list(self.ranks), 1.0))
                elif self.runs_left == 0:
                    self.control.socket.shutdown(socket.SHUT_WR)
            if name == self.stop_at:
                self.control.send(rank0_orders.Stop())

    def phases(self) -> list[str]:
        return [event["name"] for event in self.events if event["event"] == "phase"]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]
