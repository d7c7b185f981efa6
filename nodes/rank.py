"""The loop of a node's rank: obeys the master, over MPI as a rule, and has its guard do what needs root.

The rank decides nothing: traffic.protocol has the orders of the master (rank_orders), the rank's events (rank_events),
and what passes between the rank and its guard (guard_orders, guard_events).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from pktswarm.nodes import probe
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.interface_sampler import Meter
from pktswarm.nodes.link import Entered, Link, MasterGone
from pktswarm.nodes.utc import Utc
from pktswarm.traffic.errors import MessageError
from pktswarm.traffic.garbage import give_back
from pktswarm.traffic.protocol import guard_events, guard_orders, rank_events, rank_orders
from pktswarm.traffic.protocol.anchor import Launcher
from pktswarm.traffic.protocol.barrier import AT_ONCE_S
from pktswarm.traffic.protocol.guard_events import GuardEvent
from pktswarm.traffic.protocol.guard_orders import GuardOrder
from pktswarm.traffic.protocol.messages import STILL_AFTER_NS, STILL_BEFORE_NS, WORD_TIMEOUT_S, Lines
from pktswarm.traffic.protocol.node_report import NodeReport
from pktswarm.traffic.protocol.polling import LONGEST_WAIT_NS
from pktswarm.traffic.protocol.rank_events import NodeEvent
from pktswarm.traffic.protocol.task import Role

NEWS_S = 0.1
"""At most, between two looks for news."""
PINGS_S, PINGS_AT_ONCE_S = 2.0, 0.1
"""How long the master's readings of the clock are waited for awake; and before a look at what else it said."""
LEAVE_STATUS = 3
BULK_TIMEOUT_S = 120.0


class Rank:
    """One role of one host. `report` is what the node can do (nodes.probe); `link` leads to the master, `pipe` to the
    guard; `launcher`: what started this process; `master`: the master's address."""

    def __init__(
        self,
        role: Role,
        host: str,
        interface: Interface,
        report: NodeReport,
        link: Link,
        pipe: Lines[GuardEvent],
        launcher: Launcher,
        master: str,
    ) -> None:
        self.launcher, self.master = launcher, master
        self.role, self.host, self.interface, self.report, self.pipe = role, host, interface, report, pipe
        self.link = link
        self.meter = Meter(interface.name)
        self.utc = Utc()
        self.last_word = 0.0
        self.leaving = False
        self.whole = True
        self._begin()

    def _begin(self) -> None:
        """The state of one run."""
        self.before: dict[str, int] = {}
        self.changed: dict[str, int] = {}
        """By the interface's counters, when they were last read."""
        self.interface_gone = False
        self.sample_every_s = 0.0
        self.next_sample = 0.0
        self.restored = self.kept = False
        self.waiting_for = ""
        self.entered: tuple[str, Entered] | None = None
        self.left = ""
        self.start_ns = 0
        self.captures: dict[str, str] = {}
        """Name → where it stands, until the master fetches it."""
        self.sending: Iterator[None] = iter(())
        """One on its way to the master."""
        self.pings = 0
        self.pings_until = 0.0

    def run(self) -> int:
        """Until the master lets go; the exit status is 3 when the master was lost."""
        try:
            return self._serve()
        except MasterGone:
            return self._abandon()

    def _abandon(self) -> int:
        """Without the master: the guard, whose pipe closes, stops everything and restores the node."""
        self.pipe.socket.close()
        os._exit(LEAVE_STATUS)

    def _serve(self) -> int:
        self._hello()
        while not self.leaving:
            busy = self._master() | self._guard() | self._answer() | self._barrier(0.0)
            # As far as it goes now: words of the master come meanwhile, and the guard waits for them.
            next(self.sending, None)
            self._sample()
            self._look_at_utc()
            if self._master_lost():
                self._abandon()
            if not busy:
                self._pause()
        self.link.flush(5.0)
        if not self.whole or not self.launcher.lives:
            os._exit(0)  # MPI's finalize would wait for the dead
        self.launcher.finalizing()
        self.link.finalize()
        return 0

    def _pause(self) -> None:
        left_ns = self.start_ns - time.monotonic_ns()
        if -STILL_AFTER_NS < left_ns < STILL_BEFORE_NS:
            time.sleep((left_ns + STILL_AFTER_NS) / 1e9)
            return
        to_sample_s = self.next_sample - time.monotonic() if self.sample_every_s else NEWS_S
        self.link.wait([self.pipe.socket.fileno(), self.utc.descriptor], max(0.0, min(NEWS_S, to_sample_s)))

    def _hello(self) -> None:
        self.link.introduce(rank_events.Hello(self.host, self.role, self.report))

    def _master_lost(self) -> bool:
        return bool(self.last_word) and time.monotonic() - self.last_word > 2 * WORD_TIMEOUT_S

    def _report(self, event: NodeEvent) -> None:
        self.link.send(event)

    # --- orders of the master -----------------------------------------------------------------------------------

    def _master(self) -> bool:
        order = self.link.receive()
        if order is None:
            return False
        if not self.last_word:  # from now on the master's silence is what ends this rank
            self.launcher.release()
        self.last_word = time.monotonic()
        self._obey(order)
        return True

    def _obey(self, order: rank_orders.RankOrder) -> None:  # noqa: C901 - one case for each kind of message
        match order:
            case rank_orders.Word():
                self._to_guard(guard_orders.Word())
                self._report(rank_events.Alive())
            case rank_orders.Ping(count):
                self.pings, self.pings_until = count, time.monotonic() + PINGS_S
            case rank_orders.FindNeighbours(questions):
                wanted = guard_orders.FindNeighbours(self.interface.name, self.interface.mac, questions)
                self._to_guard(wanted)
            case rank_orders.Task():
                self._take_task(order)
            case rank_orders.Enter():
                self._enter(order)
            case rank_orders.Release(name):
                self._release(name)
            case rank_orders.Start(at_ns):
                self._to_guard(guard_orders.Start(at_ns))
                self.waiting_for = "done"
                self._start_samples(at_ns)
            case rank_orders.Sample(at_ns):
                self._start_samples(at_ns)
            case rank_orders.SetRate(leg, rate_pps):
                self._to_guard(guard_orders.SetRate(leg, rate_pps))
            case rank_orders.Halt():
                self._to_guard(guard_orders.Halt())
            case rank_orders.Stop():
                self.sample_every_s = 0.0
                self._to_guard(guard_orders.Stop())
            case rank_orders.Fetch(name):
                self.sending = self.link.send_file(self.captures[name])
            case rank_orders.Finish(whole, kept):
                self.whole, self.kept, self.start_ns = self.whole and whole, kept, 0
                self._to_guard(guard_orders.Restore(kept))
            case rank_orders.Again():
                self._again()
            case rank_orders.Leave(whole):
                self.whole, self.leaving = self.whole and whole, True

    def _again(self) -> None:
        """Begins a further run: a fresh state of rank and guard, and of what can change of the node between runs. The
        rank has come up when its guard answers, which may be frozen."""
        self._begin()
        self._to_guard(guard_orders.Again())
        self.report = probe.refreshed(self.report, self.interface, self.master)

    def _answer(self) -> bool:
        """Nothing else meanwhile, but not for so long that the guard misses the master's word."""
        if self.pings and time.monotonic() < self.pings_until:
            self.pings = self.link.answer_pings(self.pings, PINGS_AT_ONCE_S)
            return True
        return False

    def _take_task(self, order: rank_orders.Task) -> None:
        # The pieces that come know no borders between files.
        data = memoryview(self.link.receive_bulk(sum(file.bytes for file in order.files), BULK_TIMEOUT_S))
        for file in order.files:
            self._to_guard(guard_orders.File(file.name), bytes(data[: file.bytes]))
            data = data[file.bytes :]
        self._to_guard(guard_orders.Word())
        self._to_guard(guard_orders.Prepare(self.role, order.task))
        self.waiting_for = order.arrive
        self.sample_interval_s = order.sample_every_s

    def _enter(self, order: rank_orders.Enter) -> None:
        wait_ns = order.at_ns - time.monotonic_ns()
        time.sleep(min(max(0, wait_ns), LONGEST_WAIT_NS) / 1e9)
        self.entered = order.name, self.link.barrier(order.members, order.leave_ns)
        self._barrier(AT_ONCE_S)

    def _barrier(self, longest_s: float) -> bool:
        """Whether the one that was entered has been left now."""
        if self.entered is None:
            return False
        name, barrier = self.entered
        left_ns = barrier.left_ns(longest_s)
        if left_ns is not None:
            self._left(name, left_ns)
        return left_ns is not None

    def _release(self, name: str) -> None:
        """In place of a barrier: one that a death made impossible, before it or in it; without MPI, each."""
        self.whole = False
        if name != self.left:  # the death may have come when this one was through
            self._left(name, time.monotonic_ns())

    def _left(self, name: str, at_ns: int) -> None:
        self.entered, self.left = None, name
        self._report(rank_events.Left(name, at_ns))
        if name == "ready":
            # From here on a receiver only waits for the transmitters' end.
            self._report(rank_events.Arrived("stop"))

    def _start_samples(self, at_ns: int) -> None:
        """Receivers begin their samples when the transmitters start."""
        self.start_ns = at_ns
        self.sample_every_s = self.sample_interval_s

    # --- events of the guard ------------------------------------------------------------------------------------

    def _to_guard(self, order: GuardOrder, raw: bytes | None = None) -> None:
        # The end of the guard shows in what is read: its last events may still be in the socket.
        with contextlib.suppress(OSError):
            self.pipe.send(order, raw)

    def _guard(self) -> bool:
        if self.pipe.closed:
            return False
        received = self.pipe.receive(0)
        for event, _ in self.pipe.messages():
            self._take(event)
        if self.pipe.closed and (self.kept or not self.restored):
            self._report(rank_events.GuardGone())
        return received

    def _take(self, event: GuardEvent) -> None:  # noqa: C901 - one case for each kind of message
        match event:
            case guard_events.Ready():
                self._ready()
            case guard_events.NeighboursFound(macs):
                self._report(rank_events.NeighboursFound(macs))
            case guard_events.Started(at_ns):
                self._report(rank_events.Started(at_ns))
            case guard_events.RateSet(leg, rate_pps, at_ns):
                self._report(rank_events.RateSet(leg, rate_pps, at_ns))
            case guard_events.Halted():
                self._report(rank_events.Halted())
            case guard_events.Done(at_ns):
                self._report(rank_events.Arrived("done", at_ns))
            case guard_events.Failed(problem, bad_input):
                self._report(rank_events.Failed(problem, bad_input))
            case guard_events.Counts():
                self._pass_on_counts(event)
            case guard_events.Restored(troubles):
                self.restored = True
                self._report(rank_events.Restored(troubles))
                if self.kept:
                    give_back()
            case guard_events.Sample():
                self._pass_on_sample(event)
            case guard_events.Fresh():
                self._report(rank_events.Hello(self.host, self.role, self.report))
            case _:
                raise MessageError(f"the guard's event {event.NAME!r} answers no order of this rank")

    def _ready(self) -> None:
        try:
            self.before = {**self.meter.read(), "mtu": 0}
        except OSError as error:
            problem = f"{self.interface.name}: its counters cannot be read: {error.strerror}"
            self._report(rank_events.Failed(problem, bad_input=False))
        else:
            self._report(rank_events.Arrived(self.waiting_for))

    def _pass_on_counts(self, event: guard_events.Counts) -> None:
        change = self._change()
        self.captures = {name: os.path.join(event.spool, name) for name in event.captures}  # noqa: PTH118
        sizes = [rank_orders.File(name, os.path.getsize(path)) for name, path in self.captures.items()]  # noqa: PTH202
        interface = None if self.interface_gone else change
        self._report(rank_events.Counts(event.counts, event.problems, event.played, interface, sizes, event.ptp))

    # --- samples ------------------------------------------------------------------------------------------------

    def _change(self) -> dict[str, int]:
        """Since the engines were ready; of an interface that is gone, as far as it was read."""
        try:
            after = self.meter.read()
            self.changed = {key: after[key] - self.before.get(key, 0) for key in after}
        except OSError:
            if not self.interface_gone:
                self.interface_gone = True
                self._report(rank_events.InterfaceGone(time.monotonic_ns()))
        return self.changed

    def _sample(self) -> None:
        now = time.monotonic()
        if self.sample_every_s and now >= self.next_sample:
            self.next_sample = now + self.sample_every_s
            self._to_guard(guard_orders.Sample())

    def _pass_on_sample(self, event: guard_events.Sample) -> None:
        if self.start_ns:
            counters, utc = self._change(), self.utc.read()
            self._report(rank_events.Sample(event.at_ns, event.sent, event.received, counters, utc))

    def _look_at_utc(self) -> None:
        """At once when it was set: by the next sample it may have been set back."""
        if self.utc.was_set() and self.start_ns:
            self._report(rank_events.UtcSet(time.monotonic_ns(), self.utc.read(was_set=True)))
