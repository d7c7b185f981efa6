"""Rank 0's part of a run, phases 3 to 9 of the design: it says when, and passes on what the nodes report.

It decides nothing about traffic: the command line planned that, hands the tasks over and writes the results. The MPI
world of its members is given to it, so that the phases are tested without MPI.
"""

from __future__ import annotations

import time

from pktswarm.master.run.clock_readings import ClockReadings
from pktswarm.master.run.group_barrier import GroupBarrier
from pktswarm.master.run.members import DEADLINES_S, Members, Stopped
from pktswarm.traffic.errors import MessageError
from pktswarm.traffic.protocol import rank0_events, rank_orders
from pktswarm.traffic.protocol.messages import STILL_AFTER_NS, STILL_BEFORE_NS
from pktswarm.traffic.protocol.task import Role

LEAST_ORDER_NS, MOST_ORDER_NS = 4_000_000, 200_000_000
"""Time for the orders to start to reach all ranks, before the time in which no rank polls for messages."""
STOPPING_S = 10.0
"""Time behind the limit of the sending: an engine that hangs gets three signals before it is killed."""
SENDING_POLL_S = 0.005
"""Interval of the polls for messages while frames are sent."""


class Conductor:
    """Conducts one run of `members`. `stays`: the ranks outlast the command line, and a run that is stopped."""

    def __init__(self, members: Members, stays: bool = False) -> None:
        self.members, self._stays = members, stays
        self._clocks = ClockReadings(self.members)
        self._barriers = GroupBarrier(self.members)
        self._started: set[int] = set()
        self._stopped = self._torn = False
        """Torn: messages of this run can still be under way behind its end."""

    def conduct(self) -> bool:
        """Conducts the whole run. Returns whether its ranks are kept for a further one; else all leave."""
        members = self.members
        try:
            self._begin()
            self._traffic()
        except (Stopped, MessageError) as stop:
            members.report(rank0_events.Stopped(str(stop)))
            members.stopping = self._stopped = True
            self._torn = isinstance(stop, MessageError) or self._barriers.entered
            self._halt()
        members.stopping = True
        self._gather()
        return self._finish()

    def _keeps(self) -> bool:
        members = self.members
        ordered = self._stays or (members.given.kept and not self._stopped and not members.control.closed)
        return ordered and not self._torn and members.all_alive

    def _begin(self) -> None:
        members = self.members
        self._phase("hello")
        if members.wait("hello", members.active(), DEADLINES_S["hello"]):
            raise Stopped("not every node came up")
        if not members.world.all_are_there():
            text = "this MPICH tries for ever to reach a rank that died: a death may stop the whole run"
            members.report(rank0_events.Note(text))
        members.enforce_silence = True
        self._phase("look")
        # A UPF's sessions are established meanwhile: there can be a million, with deadlines of their own.
        members.until(lambda: members.given.looked, DEADLINES_S["look"], "the command line's answer")
        # Behind that: the older the readings, the worse the latencies that are counted with them.
        self._phase("clocks")
        self._clocks.read("before")
        self._phase("plan")
        members.until(lambda: members.given.go, DEADLINES_S["tasks"], "the command line's tasks")

    def _traffic(self) -> None:
        self._phase("prepare receivers")
        self._scatter("receive", "ready")
        first = self.members.given.receivers_first
        if not first:  # they prepare meanwhile; nothing is sent before the start barrier, behind the receivers'
            self._scatter("transmit", "start")
        self._barriers.pass_through("receive", "ready", DEADLINES_S["prepare"])
        self._phase("prepare transmitters")
        if first:
            self._scatter("transmit", "start")
        self._clocks.read("start")
        self._barriers.pass_through("transmit", "start", DEADLINES_S["prepare"])
        self._start()
        limit_s = self.members.given.run_limit_s + STOPPING_S
        self._barriers.pass_through("transmit", "done", limit_s, self._rest_while_sending)
        self._phase("drain")
        self.members.sleep(self.members.given.drain_s)
        self._barriers.pass_through("receive", "stop", DEADLINES_S["barrier"])

    def _scatter(self, role: Role, arrive: str) -> None:
        for rank in self.members.group(role):
            order, raw = self.members.given.tasks[rank]
            self.members.send(rank, rank_orders.Task(order.task, order.files, arrive, order.sample_every_s))
            if raw:
                self.members.world.send_bulk(rank, raw)

    def _start(self) -> None:
        members = self.members
        # Twice the time that the answers of the barrier just took: the nodes can be many, or share processors.
        order_ns = min(max(LEAST_ORDER_NS, 2 * self._barriers.answered_ns), MOST_ORDER_NS)
        at_ns = time.monotonic_ns() + order_ns + STILL_BEFORE_NS
        for rank in members.group("receive"):
            members.send(rank, rank_orders.Sample(members.on_node(rank, at_ns)))
        for rank in members.group("transmit"):
            members.send(rank, rank_orders.Start(members.on_node(rank, at_ns)))
        self._started.update(members.group("transmit"))
        self._clocks.begin_checks()
        members.report(rank0_events.Start(at_ns, time.time_ns() + at_ns - time.monotonic_ns()))
        self._phase("send")
        members.sleep((at_ns - STILL_BEFORE_NS - time.monotonic_ns()) / 1e9)
        time.sleep(max(0, at_ns + STILL_AFTER_NS - time.monotonic_ns()) / 1e9)

    def _rest_while_sending(self) -> None:
        self._clocks.check_next()
        # A board can be master and node at once: the sending matters more than an early report of its end.
        time.sleep(SENDING_POLL_S)

    def _halt(self) -> None:
        """Ends the sending of a run that is stopped; frames in flight are still counted."""
        members = self.members
        running = [rank for rank in members.group("transmit") if rank in self._started]
        sending = [rank for rank in running if (rank, "failed") not in members.seen]
        for rank in sending:
            members.send(rank, rank_orders.Halt())
        if sending and not members.control.closed:
            members.wait("halted", sending, DEADLINES_S["barrier"])
            members.sleep(members.given.drain_s)

    def _gather(self) -> None:
        """Stops all engines, gathers all counts and captures. Transmitters too are read after the drain: the counter of
        their interface can have only what the other end has taken."""
        members = self.members
        self._phase("gather")
        stopped = [rank for rank in sorted(members.living) if members.has_task(rank)]
        for rank in stopped:
            members.send(rank, rank_orders.Stop())
        if self._started:
            self._clocks.read("after")  # while the guards count
        members.wait("counts", stopped, DEADLINES_S["counts"])
        # Without a command line they would only delay the restoring of the nodes.
        while members.captures and not members.control.closed:
            self._fetch(*members.captures.popleft())

    def _fetch(self, rank: int, name: str, size: int) -> None:
        """Passes a capture on to the command line, piece by piece."""
        members = self.members
        members.report(rank0_events.Capture(rank, name, size))
        # Ordered one by one: on a slow link, or one that nodes share, other messages would wait behind a capture.
        members.send(rank, rank_orders.Fetch(name))
        left, longest_s = size, DEADLINES_S["counts"] * members.patience
        deadline = time.monotonic() + longest_s
        while left > 0 and rank in members.living and not members.control.closed:
            members.pump()
            piece = members.world.receive_piece(rank)
            if piece is not None:
                left -= len(piece)
                members.note_message(rank)
                deadline = time.monotonic() + longest_s
                members.report(rank0_events.Piece(rank, name), piece)
            elif time.monotonic() > deadline:
                members.lose(rank, f"its capture {name} is incomplete")
            else:
                members.rest()
        self._torn = self._torn or left > 0

    def _finish(self) -> bool:
        members = self.members
        self._phase("restore")
        for rank in members.active():
            members.send(rank, rank_orders.Finish(members.all_alive, self._keeps()))
        members.wait("restored", members.active(), DEADLINES_S["restore"])
        keeps = self._keeps()
        # Before the ranks leave: those that end without MPI's finalize can take mpiexec along, and that rank 0.
        self._phase("over")
        if not keeps:
            members.let_go()
        return keeps

    def _phase(self, name: str) -> None:
        self.members.report(rank0_events.Phase(name, time.monotonic_ns()))
