"""The ranks of a run as rank 0 sees them: orders to them, their events, and which of them are alive.

Every wait has a deadline and names the ranks it waits for. A rank that died or is silent is lost, and left out of all
that follows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from pktswarm.traffic.protocol import rank0_events, rank0_orders, rank_events, rank_orders
from pktswarm.traffic.protocol.clock_identity import clock_identity
from pktswarm.traffic.protocol.messages import WORD_INTERVAL_S, Lines
from pktswarm.traffic.protocol.rank0_events import Rank0Event
from pktswarm.traffic.protocol.rank0_orders import Rank0Order
from pktswarm.traffic.protocol.rank_events import NodeEvent
from pktswarm.traffic.protocol.rank_orders import RankOrder
from pktswarm.traffic.protocol.task import Role

SILENCE_S = 5.0
"""A rank is lost after so long without a message."""
FLUSH_S = 1.0
"""Timeout for the messages sent before something that is timed."""
NEWS_S = 0.05
"""Longest interval between two polls for messages."""
DEADLINES_S = {"hello": 20.0, "look": 3600.0, "tasks": 60.0, "prepare": 30.0, "barrier": 10.0}
DEADLINES_S |= {"counts": 120.0, "restore": 15.0}


class World(Protocol):
    without_mpi: frozenset[int]
    """Ranks that take part in no barrier of MPI's."""

    def all_are_there(self) -> bool: ...
    def send(self, rank: int, message: RankOrder) -> bool: ...
    def send_bulk(self, rank: int, data: bytes) -> bool: ...
    def receive(self) -> tuple[int, NodeEvent] | None: ...
    def receive_piece(self, rank: int) -> bytes | None: ...
    def wait(self, others: list[int], longest_s: float) -> None: ...
    def barrier(self, role: str, members: list[int]) -> Barrier: ...
    def read_clock(self, rank: int, timeout_s: float) -> tuple[int, int, int, int] | None: ...
    def flush(self, timeout_s: float) -> bool: ...
    def can_finalize(self) -> bool: ...
    def finalize(self) -> None: ...


class Barrier(Protocol):
    def left_ns(self, longest_s: float) -> int | None: ...


class Stopped(Exception):
    """The run ends early. Its message is empty when the user stopped it."""


@dataclass
class Given:
    """The orders of the command line so far."""

    tasks: dict[int, tuple[rank0_orders.HandTask, bytes]] = field(default_factory=dict)
    looked: bool = False
    go: bool = False
    run_limit_s: float = 60.0
    drain_s: float = 0.3
    kept: bool = False
    receivers_first: bool = False
    begin: rank0_orders.Begin | None = None
    """A further run is to begin."""


class Members:
    """`roles`: rank → role. `control` leads to the command line. `patience` multiplies the deadlines. `taking`: the
    ranks that take part in the run, all if left out; the others only receive Word."""

    def __init__(
        self,
        world: World,
        control: Lines[Rank0Order],
        roles: dict[int, Role],
        patience: float,
        taking: Iterable[int] | None = None,
    ) -> None:
        self.world, self.control, self.roles, self.patience = world, control, roles, patience
        self.taking = frozenset(roles if taking is None else taking)
        self.given = Given()
        self.living = set(roles)
        self.losses: dict[int, str] = {}
        """Lost rank → why."""
        self.seen: set[tuple[int, str]] = set()
        """Rank and step: the events so far."""
        self.captures: deque[tuple[int, str, int]] = deque()
        """Rank, name and bytes of captures that are still to be fetched."""
        self.offsets_ns: dict[int, int] = {}
        """Rank → its clock less the master's."""
        self.on_our_clock: set[int] = set()
        """Ranks whose CLOCK_MONOTONIC is the master's own."""
        self.stopping = self.enforce_silence = False
        self.on_loss: Callable[[int], None] = lambda rank: None
        self.look_elsewhere: Callable[[], None] = lambda: None
        """Called between two polls; may raise Stopped."""
        self.others: list[int] = []
        """Descriptors that end a rest, besides that of the command line."""
        self._last_message_s = {rank: time.monotonic() for rank in roles}
        self._next_word = 0.0

    def group(self, role: str) -> list[int]:
        return [rank for rank in self.active() if self.roles[rank] == role]

    def active(self) -> list[int]:
        """The living ranks that take part."""
        return sorted(self.living & self.taking)

    def wanted(self, role: str) -> list[int]:
        """The ranks of a role that take part, dead or alive."""
        return [rank for rank in sorted(self.taking) if self.roles[rank] == role]

    def places(self, role: str, group: Iterable[int]) -> list[int]:
        """The master's and the ranks' places in the communicator of their role."""
        without = self.world.without_mpi
        everyone = [rank for rank in sorted(self.roles) if self.roles[rank] == role and rank not in without]
        return [0, *(1 + everyone.index(rank) for rank in group if rank not in without)]

    def has_task(self, rank: int) -> bool:
        arrival = "ready" if self.roles[rank] == "receive" else "start"
        return rank in self.given.tasks and (rank, arrival) in self.seen and (rank, "failed") not in self.seen

    def on_node(self, rank: int, at_ns: int) -> int:
        """An instant of the master's clock on the clock of a node."""
        return at_ns + self.offsets_ns.get(rank, 0)

    @property
    def all_alive(self) -> bool:
        """Whether every rank and the launcher are alive."""
        return self.living == set(self.roles) and self.world.can_finalize()

    def let_go(self) -> None:
        for rank in sorted(self.living):
            self.send(rank, rank_orders.Leave(self.all_alive))
        self.world.flush(2.0)

    # --- messages -----------------------------------------------------------------------------------------------

    def send(self, rank: int, order: RankOrder) -> None:
        if rank in self.living and not self.world.send(rank, order):
            self.lose(rank, "cannot be reached any more")

    def report(self, event: Rank0Event, raw: bytes | None = None) -> None:
        try:
            self.control.send(event, raw)
        except OSError:
            self.control.closed = True

    def flush(self) -> None:
        """Waits for messages to leave, and goes on sending Word."""
        deadline = time.monotonic() + FLUSH_S
        while not self.world.flush(WORD_INTERVAL_S) and time.monotonic() < deadline:
            self._send_words()

    def _send_words(self) -> None:
        now = time.monotonic()
        if now >= self._next_word:
            self._next_word = now + WORD_INTERVAL_S
            self.report(rank_events.Alive())
            for rank in sorted(self.living):
                self.send(rank, rank_orders.Word())

    def _take(self, rank: int, event: NodeEvent) -> None:
        self.note_message(rank)
        if isinstance(event, rank_events.Alive):
            return
        event = replace(event, rank=rank)
        if isinstance(event, rank_events.Left):
            event = replace(event, offset_ns=self.offsets_ns.get(rank, 0))
        if rank in self.taking:
            self.report(event)
        self.seen.add((rank, _step(event)))
        match event:
            case rank_events.Hello(report=report) if report.clock and report.clock == clock_identity():
                self.on_our_clock.add(rank)
            case rank_events.GuardGone() if rank in self.living:
                # Its rank can obey nothing any more. The loss of a node as a whole is reported by either of its ends.
                self.lose(rank, "its guard is gone")
            case rank_events.Failed(problem) if not self.stopping and rank in self.taking:
                raise Stopped(problem)
            case rank_events.Counts(captures=captures):
                self.captures += [(rank, capture.name, capture.bytes) for capture in captures]

    def _obey(self, order: Rank0Order, raw: bytes) -> None:
        match order:
            case rank0_orders.HandTask(rank):
                self.given.tasks[rank] = (order, raw)
            case rank0_orders.FindNeighbours(rank, questions):
                self.send(rank, rank_orders.FindNeighbours(questions))
            case rank0_orders.Go(run_limit_s, drain_s, kept, first):
                given = replace(self.given, run_limit_s=run_limit_s, drain_s=drain_s, kept=kept)
                self.given = replace(given, receivers_first=first, go=True)
            case rank0_orders.SetRate(rank, leg, rate_pps):
                self.send(rank, rank_orders.SetRate(leg, rate_pps))
            case rank0_orders.Begin():
                self.given.begin = order
            case rank0_orders.Looked():
                self.given.looked = True
            case rank0_orders.Stop(problem) if not self.stopping:
                self.stopping = True
                raise Stopped(problem)

    # --- loss ---------------------------------------------------------------------------------------------------

    def note_message(self, rank: int) -> None:
        self._last_message_s[rank] = time.monotonic()

    def lose(self, rank: int, why: str) -> None:
        self.living.discard(rank)
        self.losses[rank] = why
        heard_ns = round(self._last_message_s[rank] * 1e9)
        if rank in self.taking:
            self.report(rank0_events.Lost(rank, why, round(self._silent_s(rank), 3), heard_ns))
        self.on_loss(rank)

    def _silent_s(self, rank: int) -> float:
        return time.monotonic() - self._last_message_s[rank]

    def _look_for_silence(self) -> None:
        if self.enforce_silence:
            for rank in [r for r in self.living if self._silent_s(r) > SILENCE_S * self.patience]:
                self.lose(rank, f"no message for {self._silent_s(rank):.0f} s")

    # --- waiting ------------------------------------------------------------------------------------------------

    def wait(
        self, step: str, ranks: Iterable[int], deadline_s: float, rest: Callable[[], None] | None = None
    ) -> list[int]:
        """Waits until every living rank of `ranks` has taken `step`. Returns those that were lost before it.

        `rest`: in place of rest(), between two polls.
        """
        waited = list(ranks)
        # A node whose engine failed restores itself all the same.
        answers = {step} if step == "restored" else {step, "failed"}

        def open_ranks() -> list[int]:
            return [r for r in waited if r in self.living and not {(r, answer) for answer in answers} & self.seen]

        deadline = time.monotonic() + deadline_s * self.patience
        while open_ranks() and time.monotonic() < deadline:
            self.pump()
            if open_ranks():
                (rest or self.rest)()
        for rank in open_ranks():
            self.lose(rank, f"did not reach {step!r} within {deadline_s:.0f} s")
        return [rank for rank in waited if rank not in self.living and (rank, step) not in self.seen]

    def until(self, condition: Callable[[], bool], deadline_s: float, awaited: str) -> None:
        deadline = time.monotonic() + deadline_s * self.patience
        while not condition():
            self.pump()
            if time.monotonic() > deadline:
                raise Stopped(f"{awaited} did not come within {deadline_s:.0f} s")
            if not condition():
                self.rest()

    def sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            self.pump()
            self.rest(left_s)

    def rest(self, longest_s: float = NEWS_S) -> None:
        self.world.wait([self.control.socket.fileno(), *self.others], min(longest_s, NEWS_S))

    def pump(self) -> None:
        """Sends Word, takes all messages, and looks for silent ranks."""
        self._send_words()
        while (received := self.world.receive()) is not None:
            self._take(*received)
        if self.control.receive(0):
            for order, raw in self.control.messages():
                self._obey(order, raw)
        if self.control.closed and not self.stopping:
            self.stopping = True
            raise Stopped("the command line is gone")
        if not self.stopping:
            self.look_elsewhere()
        self._look_for_silence()


def _step(event: NodeEvent) -> str:
    match event:
        case rank_events.Arrived(name):
            return name
        case rank_events.Left(name):
            return f"left {name}"
    return event.NAME
