"""Rank 0's part of a run, phases 3 to 9 of the design: it says when, and passes on what the nodes tell.

It decides nothing about traffic: the command line planned that, hands the tasks over and writes the results. The MPI
world is given to it, so that the phases are tested without MPI.

Every wait has a deadline and names whom it waits for. A rank that died or fell silent is left out of what follows:
barriers, which a death makes impossible, become releases point to point.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, Protocol

from pktswarm.master.cluster.clock_offsets import Reading, offset_at
from pktswarm.traffic.errors import MessageError
from pktswarm.traffic.protocol import rank0_events, rank0_orders, rank_events, rank_orders
from pktswarm.traffic.protocol.barrier import AT_ONCE_S
from pktswarm.traffic.protocol.messages import STILL_AFTER_NS, STILL_BEFORE_NS, WORD_INTERVAL_S, Lines
from pktswarm.traffic.protocol.rank0_events import Rank0Event
from pktswarm.traffic.protocol.rank0_orders import Rank0Order
from pktswarm.traffic.protocol.rank_events import NodeEvent
from pktswarm.traffic.protocol.rank_orders import RankOrder
from pktswarm.traffic.protocol.task import Role

SILENCE_S = 5.0
"""A rank not heard for so long is lost."""
CLOCK_READINGS, CLOCK_ROUNDS = 12, 8
MOST_MISSES = 3
"""Of the readings of a round: who does not answer so many is frozen, or has no time for it now; all others wait."""
CLOSE_READING_NS = 40_000
"""A bound that is good enough; a busy host gets more rounds of readings before a worse one is taken."""
MORE_ROUNDS_S = 1.0
"""So long, with the first."""
READING_S, LONGEST_READING_S = 0.5, 1.0
"""How long the answer to one reading is awaited; a node may be at work on what it was sent. With all patience no longer
than half of what the guards of the others wait for a word, which they get between two readings."""
CHECK_EVERY_S, CHECK_READINGS = 20.0, 4
"""While frames are sent: so often each clock is looked at, and with so few readings, for its node has other work."""
START_LEAD_NS = 60_000_000
ENTER_LEAD_NS = 5_000_000
STOPPING_S = 10.0
"""Behind the limit of the sending: an engine that hangs is asked three times before it is killed."""
FLUSH_S = 1.0
"""How long what was sent may take to leave, before something that is timed."""
NEWS_S, SENDING_POLL_S = 0.05, 0.005
"""Between two looks for news: at most, and always while frames are sent."""
DEADLINES_S = {"hello": 20.0, "look": 3600.0, "tasks": 60.0, "prepare": 30.0, "barrier": 10.0}
DEADLINES_S |= {"counts": 120.0, "restore": 15.0}


When = Literal["before", "start", "after"]


class World(Protocol):
    def all_are_there(self) -> bool: ...
    def send(self, rank: int, message: RankOrder) -> bool: ...
    def send_bulk(self, rank: int, data: bytes) -> bool: ...
    def receive(self) -> tuple[int, NodeEvent] | None: ...
    def receive_piece(self, rank: int) -> bytes | None: ...
    def wait(self, control: int, longest_s: float) -> None: ...
    def barrier(self, role: str) -> Barrier: ...
    def read_clock(self, rank: int, timeout_s: float) -> tuple[int, int, int, int] | None: ...
    def flush(self, timeout_s: float) -> bool: ...
    def can_finalize(self) -> bool: ...


class Barrier(Protocol):
    def left_ns(self, longest_s: float) -> int | None: ...


class Stopped(Exception):
    """The run is to end now; what can be gathered is. `problem` is empty when the user asked for it."""

    def __init__(self, problem: str = "") -> None:
        super().__init__(problem)


class Conductor:
    """`roles`: rank → role. `control` leads to the command line. `patience` multiplies the deadlines: slow hosts."""

    def __init__(self, world: World, control: Lines[Rank0Order], roles: dict[int, Role], patience: float = 1.0) -> None:
        self.world, self.control, self.roles, self.patience = world, control, roles, patience
        self.living = set(roles)
        self.heard = {rank: time.monotonic() for rank in roles}
        self.seen: set[tuple[int, str]] = set()
        self.tasks: dict[int, tuple[rank0_orders.HandTask, bytes]] = {}
        self.started: set[int] = set()
        self.readings: dict[int, list[Reading]] = {}
        self.offsets_ns: dict[int, int] = {}
        self.next_word = self.next_check = 0.0
        self.last_checked = 0
        self.run_limit_s = 60.0
        self.drain_s = 0.3
        self.looked = self.go = False
        self.stopping = False
        self.enforce_silence = False
        self.captures: deque[tuple[int, str, int]] = deque()
        """Rank, name and bytes of those that are still to be fetched."""
        self.entered: tuple[str, list[int]] | None = None
        """The barrier that is being left, and whose it is."""

    # --- the phases ---------------------------------------------------------------------------------------------

    def conduct(self) -> bool:
        """The whole run; True when every rank and the launcher lived to the end and nothing failed."""
        try:
            self._begin()
            self._traffic()
        except (Stopped, MessageError) as stop:
            self._report(rank0_events.Stopped(str(stop)))
            self.stopping = True
            self._halt()
        self.stopping = True
        self._gather()
        self._finish()
        return self.whole

    @property
    def whole(self) -> bool:
        return self.living == set(self.roles) and self.world.can_finalize()

    def _begin(self) -> None:
        self._phase("hello")
        if self._wait("hello", self.roles, DEADLINES_S["hello"]):
            raise Stopped("not every node came up")
        if not self.world.all_are_there():
            text = "this MPICH tries for ever to reach a rank that died: a death may stop the whole run"
            self._report(rank0_events.Note(text))
        self.enforce_silence = True
        self._phase("look")
        # A UPF's sessions are set up meanwhile. They may be a million, and have deadlines of their own.
        self._until(lambda: self.looked, DEADLINES_S["look"], "the command line's word")
        # Behind that: what is counted with these readings is worse the older they are.
        self._phase("clocks")
        self._read_clocks("before")
        self._phase("plan")
        self._until(lambda: self.go, DEADLINES_S["tasks"], "the command line's tasks")

    def _traffic(self) -> None:
        self._phase("prepare receivers")
        self._scatter("receive", "ready")
        self._barrier("receive", "ready", DEADLINES_S["prepare"])
        self._phase("prepare transmitters")
        self._scatter("transmit", "start")
        self._read_clocks("start")
        self._barrier("transmit", "start", DEADLINES_S["prepare"])
        self._start()
        self._barrier("transmit", "done", self.run_limit_s + STOPPING_S)
        self._phase("drain")
        self._sleep(self.drain_s)
        self._barrier("receive", "stop", DEADLINES_S["barrier"])

    def _scatter(self, role: str, arrive: str) -> None:
        for rank in self._group(role):
            order, raw = self.tasks[rank]
            self._send(rank, rank_orders.Task(order.task, order.files, arrive, order.sample_every_s))
            if raw:
                self.world.send_bulk(rank, raw)

    def _start(self) -> None:
        at_ns = time.monotonic_ns() + START_LEAD_NS
        for rank in self._group("receive"):
            self._send(rank, rank_orders.Sample(at_ns + self.offsets_ns.get(rank, 0)))
        for rank in self._group("transmit"):
            self._send(rank, rank_orders.Start(at_ns + self.offsets_ns.get(rank, 0)))
        self.started.update(self._group("transmit"))
        self.next_check = time.monotonic() + CHECK_EVERY_S
        self._report(rank0_events.Start(at_ns, time.time_ns() + at_ns - time.monotonic_ns()))
        self._phase("send")
        self._sleep((at_ns - STILL_BEFORE_NS - time.monotonic_ns()) / 1e9)
        time.sleep(max(0, at_ns + STILL_AFTER_NS - time.monotonic_ns()) / 1e9)

    def _halt(self) -> None:
        """In the middle of a run: the sending ends first, so that what is on its way is still counted."""
        sending = [
            rank for rank in self._group("transmit") if rank in self.started and (rank, "failed") not in self.seen
        ]
        for rank in sending:
            self._send(rank, rank_orders.Halt())
        if sending and not self.control.closed:
            self._wait("halted", sending, DEADLINES_S["barrier"])
            self._sleep(self.drain_s)

    def _gather(self) -> None:
        """Stop all engines, read all counts. Transmitters too are read after the drain: their interface's counter
        may tell only what the other end has taken."""
        self._phase("gather")
        asked = [rank for rank in sorted(self.living) if rank in self.tasks and self._has_task(rank)]
        for rank in asked:
            self._send(rank, rank_orders.Stop())
        self._wait("counts", asked, DEADLINES_S["counts"])
        if self.started:
            self._read_clocks("after")
        while self.captures:
            self._fetch(*self.captures.popleft())

    def _finish(self) -> None:
        self._phase("restore")
        for rank in sorted(self.living):
            self._send(rank, rank_orders.Finish(self.whole))
        self._wait("restored", sorted(self.living), DEADLINES_S["restore"])
        # Told first: ranks that end without MPI's finalize may take mpiexec along, and it takes this one.
        self._phase("over")
        for rank in sorted(self.living):
            self._send(rank, rank_orders.Leave())
        self.world.flush(2.0)

    def _has_task(self, rank: int) -> bool:
        arrival = "ready" if self.roles[rank] == "receive" else "start"
        return (rank, arrival) in self.seen and (rank, "failed") not in self.seen

    # --- barriers and clocks ------------------------------------------------------------------------------------

    def _barrier(self, role: str, name: str, deadline_s: float) -> None:
        """Each of the group tells that it arrived; then they leave together."""
        self._wait(name, self._group(role), deadline_s)
        group = self._group(role)
        if not group:
            raise Stopped(f"no node of the {role} group is left")
        whole = group == [rank for rank in self.roles if self.roles[rank] == role]
        # All enter at one instant: who came early would only take the processor from who comes late.
        at_ns = time.monotonic_ns() + ENTER_LEAD_NS
        for rank in group:
            entry = rank_orders.Enter(name, at_ns + self.offsets_ns.get(rank, 0))
            self._send(rank, entry if whole else rank_orders.Release(name))
        self.entered = (name, group) if whole else None
        if not self.living.issuperset(group):
            # Found dead just now. Not released before all were told: "enter" would have come behind "release".
            self._release()
        left_ns = self._leave(role, name, at_ns) if whole else None
        self._wait(f"left {name}", group, DEADLINES_S["barrier"])
        self.entered = None
        at_ns = time.monotonic_ns() if left_ns is None else left_ns
        self._report(rank0_events.BarrierLeft(role, name, left_ns is not None, at_ns))

    def _leave(self, role: str, name: str, at_ns: int) -> int | None:
        """When it was left; None: somebody died in the middle of it, and the others were released."""
        self._flush()
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        barrier = self.world.barrier(role)
        limit_s = DEADLINES_S["barrier"] * self.patience
        deadline = time.monotonic() + limit_s
        while (left_ns := barrier.left_ns(AT_ONCE_S)) is None:
            self._pump()
            if self.entered is None:
                return None
            if time.monotonic() > deadline:
                raise Stopped(f"the barrier {name!r} of the {role} group was not left in {limit_s:.0f} s")
            self._rest()  # one that failed comes back at once
        return left_ns

    def _release(self) -> None:
        """Those who are still in a barrier that one of them died in."""
        if self.entered is None:
            return
        (name, group), self.entered = self.entered, None
        for rank in [rank for rank in group if rank in self.living and (rank, f"left {name}") not in self.seen]:
            self._send(rank, rank_orders.Release(name))

    def _flush(self) -> None:
        """Wait for what was sent to leave, and let nobody wait for a word meanwhile."""
        deadline = time.monotonic() + FLUSH_S
        while not self.world.flush(WORD_INTERVAL_S) and time.monotonic() < deadline:
            self._words()

    def _read_clocks(self, when: When) -> None:
        """Each node's CLOCK_MONOTONIC against ours; of several readings the least round trip wins.

        Who was too busy to answer fast is asked again when all others have answered, as long as there is time for it:
        so a large cluster is read once, and its busy nodes as often as a small one's. Who did not answer at all is
        asked once more in any case.
        """
        best: dict[int, tuple[int, int, int, int]] = {}
        left, no_round_after = sorted(self.living), time.monotonic() + MORE_ROUNDS_S
        for turn in range(CLOCK_ROUNDS):
            for rank in left:
                found = [*self._readings_of(rank, CLOCK_READINGS), *([best[rank]] if rank in best else [])]
                if found:
                    best[rank] = min(found, key=_round_trip_ns)
            late = time.monotonic() > no_round_after
            silent = [rank for rank in left if rank in self.living and rank not in best and turn == 0]
            busy = [rank for rank in left if rank in best and _round_trip_ns(best[rank]) > 2 * CLOSE_READING_NS]
            left = silent if late else sorted(silent + busy)
            if not left:
                break
        for rank in sorted(self.living):
            if rank in best:
                self._keep_reading(rank, when, best[rank])
            else:
                self._lose(rank, "its clock could not be read")

    def _readings_of(self, rank: int, count: int) -> list[tuple[int, int, int, int]]:
        """Those that were answered in time. A rank may turn out to be dead at any of them."""
        self._send(rank, rank_orders.Ping(count))
        self._flush()
        readings: list[tuple[int, int, int, int]] = []
        misses = 0
        while rank in self.living and len(readings) + misses < count and misses < MOST_MISSES:
            reading = self._reading(rank)
            if reading is None:
                misses += 1
            else:
                readings.append(reading)
        return readings

    def _keep_reading(self, rank: int, when: When, taken: tuple[int, int, int, int]) -> None:
        _, node_ns, realtime_ns, _ = taken
        reading = _as_reading(taken)
        self._take_reading(rank, reading)
        figures = (reading.at_ns, reading.offset_ns, reading.bound_ns, realtime_ns - node_ns)
        self._report(rank0_events.Clock(rank, when, *figures))

    def _take_reading(self, rank: int, reading: Reading) -> None:
        """A fresh reading is not always the closer one."""
        self.readings.setdefault(rank, []).append(reading)
        best = offset_at(self.readings[rank], reading.at_ns)
        assert best is not None
        self.offsets_ns[rank] = best.offset_ns

    def _check_a_clock(self) -> None:
        """One node's after another, for the live view to tell one that drifts. The counts have their own readings."""
        if time.monotonic() < self.next_check or not self.living:
            return
        self.next_check = time.monotonic() + CHECK_EVERY_S / len(self.living)
        rank = min(self.living, key=lambda one: (one <= self.last_checked, one))
        self.last_checked = rank
        if readings := self._readings_of(rank, CHECK_READINGS):
            best = _as_reading(min(readings, key=_round_trip_ns))
            self._report(rank0_events.Drift(rank, best.at_ns, best.offset_ns, best.bound_ns))

    def _reading(self, rank: int) -> tuple[int, int, int, int] | None:
        # A slow host takes seconds for all its readings. The others wait no longer for a word, and what they say has to
        # be taken: of messages that nobody receives libfabric keeps some dozens, and lets all behind them wait.
        self._pump()
        return self.world.read_clock(rank, min(READING_S * self.patience, LONGEST_READING_S))

    # --- waiting ------------------------------------------------------------------------------------------------

    def _group(self, role: str) -> list[int]:
        return [rank for rank in sorted(self.living) if self.roles[rank] == role]

    def _wait(self, name: str, ranks: Iterable[int], deadline_s: float) -> list[int]:
        """Until every living rank has told `name`. Who has not by the deadline is lost: those are given back."""
        waited = list(ranks)
        # A node whose engine failed restores itself all the same.
        answers = {name} if name == "restored" else {name, "failed"}

        def open_ranks() -> list[int]:
            return [r for r in waited if r in self.living and not {(r, one) for one in answers} & self.seen]

        deadline = time.monotonic() + deadline_s * self.patience
        while open_ranks() and time.monotonic() < deadline:
            self._pump()
            if name == "done":
                self._check_a_clock()
                # A board may be master and node at once: what is sent matters more than how soon its end is seen.
                time.sleep(SENDING_POLL_S)
            else:
                self._rest()
        for rank in open_ranks():
            self._lose(rank, f"did not tell {name!r} within {deadline_s:.0f} s")
        return [rank for rank in waited if rank not in self.living and (rank, name) not in self.seen]

    def _until(self, condition: Callable[[], bool], deadline_s: float, what: str) -> None:
        deadline = time.monotonic() + deadline_s * self.patience
        while not condition():
            self._pump()
            if time.monotonic() > deadline:
                raise Stopped(f"{what} did not come within {deadline_s:.0f} s")
            self._rest()

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            self._pump()
            self._rest(left_s)

    def _rest(self, longest_s: float = NEWS_S) -> None:
        self.world.wait(self.control.socket.fileno(), min(longest_s, NEWS_S))

    def _pump(self) -> None:
        """Everything that goes on while waiting."""
        self._words()
        while (heard := self.world.receive()) is not None:
            self._take(*heard)
        if self.control.receive(0):
            for order, raw in self.control.messages():
                self._obey(order, raw)
        if self.control.closed and not self.stopping:
            self.stopping = True
            raise Stopped("the command line is gone")
        self._look_for_silence()

    def _words(self) -> None:
        now = time.monotonic()
        if now >= self.next_word:
            self.next_word = now + WORD_INTERVAL_S
            self._report(rank_events.Alive())
            for rank in sorted(self.living):
                self._send(rank, rank_orders.Word())

    def _send(self, rank: int, order: RankOrder) -> None:
        if rank in self.living and not self.world.send(rank, order):
            self._lose(rank, "cannot be reached any more")

    def _look_for_silence(self) -> None:
        if self.enforce_silence:
            for rank in [r for r in self.living if self._silent_s(r) > SILENCE_S * self.patience]:
                self._lose(rank, f"not heard for {self._silent_s(rank):.0f} s")

    def _lose(self, rank: int, why: str) -> None:
        self.living.discard(rank)
        heard_ns = round(self.heard[rank] * 1e9)
        self._report(rank0_events.Lost(rank, why, round(self._silent_s(rank), 3), heard_ns))
        if self.entered and rank in self.entered[1]:
            self._release()

    def _silent_s(self, rank: int) -> float:
        return time.monotonic() - self.heard[rank]

    # --- who says what ------------------------------------------------------------------------------------------

    def _take(self, rank: int, event: NodeEvent) -> None:
        self.heard[rank] = time.monotonic()
        if isinstance(event, rank_events.Alive):
            return
        event = replace(event, rank=rank)
        if isinstance(event, rank_events.Left):
            event = replace(event, offset_ns=self.offsets_ns.get(rank, 0))
        self._report(event)
        self.seen.add((rank, _step(event)))
        match event:
            case rank_events.GuardGone() if rank in self.living:
                # Its rank can obey nothing any more. The loss of a node as a whole is reported by either of its ends.
                self._lose(rank, "its guard is gone")
            case rank_events.Failed(problem) if not self.stopping:
                raise Stopped(problem)
            case rank_events.Counts(captures=captures):
                self.captures += [(rank, capture.name, capture.bytes) for capture in captures]

    def _fetch(self, rank: int, name: str, size: int) -> None:
        """A capture, piece by piece from the node to the command line."""
        self._report(rank0_events.Capture(rank, name, size))
        # Not before: on a slow link nothing else would come from there meanwhile, and from nobody else by a shared one.
        self._send(rank, rank_orders.Fetch(name))
        left, longest_s = size, DEADLINES_S["counts"] * self.patience
        deadline = time.monotonic() + longest_s
        # To nobody it would only keep the nodes from being restored.
        while left > 0 and rank in self.living and not self.control.closed:
            self._pump()
            piece = self.world.receive_piece(rank)
            if piece is not None:
                left -= len(piece)
                self.heard[rank] = time.monotonic()
                deadline = time.monotonic() + longest_s
                self._report(rank0_events.Piece(rank, name), piece)
            elif time.monotonic() > deadline:
                self._lose(rank, f"its capture {name} did not come whole")
            else:
                self._rest()

    def _obey(self, order: Rank0Order, raw: bytes) -> None:
        match order:
            case rank0_orders.HandTask(rank):
                self.tasks[rank] = (order, raw)
            case rank0_orders.Go(run_limit_s, drain_s):
                self.run_limit_s, self.drain_s = run_limit_s, drain_s
                self.go = True
            case rank0_orders.Looked():
                self.looked = True
            case rank0_orders.Stop(problem) if not self.stopping:
                self.stopping = True
                raise Stopped(problem)

    def _phase(self, name: str) -> None:
        self._report(rank0_events.Phase(name, time.monotonic_ns()))

    def _report(self, event: Rank0Event, raw: bytes | None = None) -> None:
        try:
            self.control.send(event, raw)
        except OSError:
            self.control.closed = True


def _step(event: NodeEvent) -> str:
    """The name under which a step of a rank is waited for."""
    match event:
        case rank_events.Arrived(name):
            return name
        case rank_events.Left(name):
            return f"left {name}"
    return event.NAME


def _round_trip_ns(taken: tuple[int, int, int, int]) -> int:
    return taken[3] - taken[0]


def _as_reading(taken: tuple[int, int, int, int]) -> Reading:
    sent_ns, node_ns, _, received_ns = taken
    middle_ns = (sent_ns + received_ns) // 2
    return Reading(middle_ns, node_ns - middle_ns, _round_trip_ns(taken) // 2)
