"""The work of a guard: orders of its rank, the state of its engines, and the reasons to end without an order."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pktswarm.nodes import changes, memory, neighbours, node_lock, ptp, stale_spools
from pktswarm.nodes.announce import INTERVAL_S as ANNOUNCE_EVERY_S
from pktswarm.nodes.announce import announce
from pktswarm.nodes.engines import on_request, unfit
from pktswarm.nodes.guard_engines import Engines
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.packet_port import PacketPort
from pktswarm.nodes.responder_sockets import Answers
from pktswarm.traffic.counting import samples
from pktswarm.traffic.errors import BadInput, EngineError, PktswarmError
from pktswarm.traffic.garbage import give_back
from pktswarm.traffic.protocol import guard_events as events
from pktswarm.traffic.protocol import guard_orders as orders
from pktswarm.traffic.protocol.guard_orders import GuardOrder
from pktswarm.traffic.protocol.messages import STILL_AFTER_NS, WORD_TIMEOUT_S, Lines, peer
from pktswarm.traffic.protocol.ptp_reading import PtpReading
from pktswarm.traffic.protocol.task import ReceiveTask, Role, SendTask, receive_task_from_json, send_task_from_json

POLL_S, STILL_S, ARMING_POLL_S = 0.02, 0.1, 0.005
"""Timeouts of a wait for orders: with engines at work, without, and while the others of the run wait for this node."""
BUSY_STATES = ("preparing", "arming", "armed", "running")
COUNTS_S = 120.0
"""Time behind the task's limit in which the master can order the counts of senders that have ended."""
FROZEN_S = 4.0
"""A rank that is stopped for so long after its guard ended by itself is killed."""
AWAY_NS, HEARING_NS = 500_000_000, 1_000_000_000
"""After more than AWAY_NS without a processor the guard waits HEARING_NS for an order: its rank may have had none
either."""
START_AHEAD_NS = 25_000_000
"""Engines are started this long before the start instant, for which they wait themselves."""


class Guard:
    """One rank's engines. `owner_gid`: the group that may read what the engines wrote."""

    def __init__(self, pipe: Lines[GuardOrder], owner_gid: int) -> None:
        self.pipe, self.owner_gid = pipe, owner_gid
        self.ending = self.abandoned = self.wanted_again = False
        self.spool = Path(tempfile.mkdtemp(prefix=stale_spools.PREFIX, dir=stale_spools.SPOOLS))
        self._lock = stale_spools.lock(self.spool)
        with contextlib.suppress(OSError):  # the doctor, which has a guard too, reports a full disk
            changes.begin(self.spool)
        os.chown(self.spool, 0, owner_gid)
        self.spool.chmod(0o750)
        self.engines = Engines(self.spool)
        self.state = "idle"
        self.start_at_ns = 0
        self.limit_ns = self.task_limit_ns = 0
        self.last_word_ns = self.looked_ns = time.monotonic_ns()
        self.ptp_readings: list[PtpReading] = []
        self.problems: list[str] = []
        """Problems that leave the counts valid; reported with them."""
        self.announced: tuple[str, str] | None = None
        self.answers: Answers | None = None
        self.port: PacketPort | None = None
        """Used by nodes.packets, which has no task."""
        self.next_announcement = 0.0

    def serve(self, is_further: bool = False) -> bool:
        """Works until the rank is gone or orders the end; stops the engines and restores the node in any case. Returns
        whether the rank wants a guard for a further run, which is another object in this process. `is_further`: this
        one is, and says that it is there."""
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            if is_further:
                with contextlib.suppress(OSError):  # the rank is gone: the end of the pipe is noticed next
                    self.pipe.send(events.Fresh())
            self._work()
        finally:
            self.engines.stop()
            self._restore()
            os.close(self._lock)
            self._end_a_frozen_rank()
        return self.wanted_again

    def _end_a_frozen_rank(self) -> None:
        """A rank that its master has given up ends by itself, unless it is stopped."""
        rank, deadline = peer(self.pipe.socket).pid, time.monotonic() + FROZEN_S
        while self.abandoned and _is_frozen(rank):
            if time.monotonic() > deadline:
                os.kill(rank, signal.SIGKILL)
                return
            time.sleep(POLL_S)

    def _work(self) -> None:
        try:
            self._obey_all()
            while self.state != "over" and not self.pipe.closed:
                self._take_orders()
                self._watch()
                self._advance()
        finally:
            self.ending = True

    def terminate(self) -> None:
        """Ends in order at SIGTERM. A second one does not interrupt that."""
        if not self.ending:
            sys.exit(0)

    def _take_orders(self) -> None:
        busy = self.state in BUSY_STATES or self.answers is not None
        wait_s, to_start_ns = POLL_S if busy else STILL_S, self.start_at_ns - time.monotonic_ns()
        if self.state in ("preparing", "arming"):
            wait_s = ARMING_POLL_S
        elif self.state == "armed":
            wait_s = max(0.0, min(POLL_S, (to_start_ns - START_AHEAD_NS) / 1e9))
        elif self.state == "running" and to_start_ns > 0:
            wait_s = (to_start_ns + STILL_AFTER_NS) / 1e9
        # All of them: a Word that arrived while the guard was busy counts.
        while self.pipe.receive(wait_s):
            wait_s = 0.0
            self._obey_all()

    def _obey_all(self) -> None:
        """Obeys all orders received, also those behind one that fails or cannot be decoded."""
        while True:
            try:
                for order, raw in self.pipe.messages():
                    self._obey(order, raw)
                    if self.wanted_again:
                        return  # the orders behind it are of the next run
                return
            except (PktswarmError, OSError, ValueError, KeyError, TypeError) as error:
                self._fail(error)

    def _obey(self, order: GuardOrder, raw: bytes) -> None:  # noqa: C901 - one case for each kind of message
        match order:
            case orders.Word():
                self.last_word_ns = time.monotonic_ns()
            case orders.File(name):
                self._file(name, raw)
            case orders.Hold(run, by):
                self._hold(run, by)
            case orders.Mend():
                self.pipe.send(events.Mended([] if node_lock.holder() else self._mend()))
            case orders.Leftovers(interface):
                self.pipe.send(stale_spools.report(stale_spools.SPOOLS, self.spool, interface, node_lock.holder()))
            case orders.Memory():
                self.pipe.send(events.Memory(memory.pss_bytes()))
            case orders.Ptp():
                self.pipe.send(events.Ptp(ptp.read()))
            case orders.Probe(interface):
                self._probe(Interface(interface))
            case orders.OpenPort():
                self._open_port(order)
            case orders.FindNeighbours(interface, mac, questions):
                self.pipe.send(events.NeighboursFound(neighbours.find(interface, mac, questions)))
            case orders.Exchange():
                self._exchange(order)
            case orders.Prepare(role, task):
                self._prepare(role, task)
            case orders.Start(at_ns):
                self.start_at_ns, self.state = at_ns, "armed"
            case orders.Sample():
                self._sample()
            case orders.SetRate(leg, rate_pps):
                self._set_rate(leg, rate_pps)
            case orders.Halt():
                self.engines.stop()
                self.state = "done"
                self.pipe.send(events.Halted())
            case orders.Stop():
                self._stop()
            case orders.Restore(kept):
                self.engines.stop()
                self._restore()
                self.pipe.send(events.Restored(self.engines.troubles))
                self.state = "kept" if kept else "over"
                if kept:
                    give_back()
            case orders.Again() if self.state == "kept":
                self.wanted_again, self.state = True, "over"

    def _hold(self, run: str, by: str) -> None:
        """Restores what killed guards left changed, which would else be taken for the node's own settings."""
        other = node_lock.take(run, by)
        self.pipe.send(events.Held(other, [] if other else self._mend()))

    def _probe(self, interface: Interface) -> None:
        found = unfit(interface)
        self.pipe.send(events.Probed(found, on_request(interface, found)))

    def _mend(self) -> list[str]:
        return stale_spools.mend(stale_spools.SPOOLS, self.spool)

    def _open_port(self, order: orders.OpenPort) -> None:
        self.port = PacketPort(order.interface, order.mac, order.addresses, order.neighbours)
        self.answers = self.port.answers
        self.pipe.send(events.PortOpened())

    def _exchange(self, order: orders.Exchange) -> None:
        if self.port is None:
            raise ValueError("exchange: no port is open")
        frames = [bytes.fromhex(frame) for frame in order.frames]
        came = self.port.exchange(frames, order.seconds, order.wanted)
        self.pipe.send(events.Exchanged([frame.hex() for frame in came]))

    def _file(self, name: str, data: bytes) -> None:
        if Path(name).name != name or name.startswith("."):
            raise BadInput("guard", "not a plain file name", key="name", value=name)
        (self.spool / name).write_bytes(data)

    def _prepare(self, role: Role, text: str) -> None:
        if role == "transmit":
            self._begin(send_task_from_json(json.loads(text)))
            self.state = "preparing"
        else:
            task = receive_task_from_json(json.loads(text))
            self._begin(task)
            self.announced = (task.interface, task.mac)
            self.engines.start(time.monotonic_ns())
            self.state = "arming"

    def _begin(self, task: SendTask | ReceiveTask) -> None:
        """The proxy addresses are answered for until the node is restored."""
        self.limit_ns = self.task_limit_ns = time.monotonic_ns() + int(task.limit_s * 1e9)
        if _by_ptp(task):
            self.ptp_readings.append(ptp.read())
        if task.proxy_addresses:
            self.answers = Answers(task.interface, task.mac, task.proxy_addresses, task.neighbours)
        self.engines.prepare(task)

    def _advance(self) -> None:
        """Takes the steps that need no order: the start, receivers ready, senders done."""
        self._announce()
        if self.answers is not None and self.state not in ("failed", "kept", "over"):
            self._guarded(self.answers.serve)
        if self.state in ("preparing", "arming"):
            self._guarded(self._look_whether_ready)
        elif self.state == "armed" and time.monotonic_ns() >= self.start_at_ns - START_AHEAD_NS:
            self._guarded(lambda: self.engines.start(self.start_at_ns))
            if self.state == "armed":
                self.state = "running"
                self.pipe.send(events.Started(self.start_at_ns))
        elif self.state == "running":
            self._guarded(self._look_for_the_end)

    def _announce(self) -> None:
        """A switch that lost the link forgets the address, so not before the link is back."""
        if self.announced is None or time.monotonic() < self.next_announcement:
            return
        interface, mac = self.announced
        if self.state in ("arming", "receiving") and Interface(interface).carrier:
            self.next_announcement = time.monotonic() + ANNOUNCE_EVERY_S
            self._guarded(lambda: announce(interface, mac))

    def _look_whether_ready(self) -> None:
        if self.engines.ready():
            self.state = "receiving" if self.state == "arming" else "prepared"
            self.pipe.send(events.Ready())

    def _look_for_the_end(self) -> None:
        if self.engines.done():
            self._end_of_sending()

    def _end_of_sending(self) -> None:
        # A duration can be over while the engine still runs: nothing may be sent after the barrier "done".
        self.engines.stop()
        self.state = "done"
        self.pipe.send(events.Done(time.monotonic_ns()))

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (PktswarmError, OSError, ValueError) as error:
            self._fail(error)

    def _watch(self) -> None:
        """Ends without an order: the master is silent, or the task's time limit is over."""
        now = time.monotonic_ns()
        self.looked_ns, away_ns = now, now - self.looked_ns
        if away_ns > AWAY_NS:
            self.last_word_ns = max(self.last_word_ns, now - int(WORD_TIMEOUT_S * 1e9) + HEARING_NS)
        if self.state in ("idle", "over", "failed"):
            self.last_word_ns = now if self.state == "idle" else self.last_word_ns
            return
        silent = now - self.last_word_ns > WORD_TIMEOUT_S * 1e9
        if self.state == "kept":
            self.state, self.abandoned = "over" if silent else "kept", silent
        elif silent:
            self._end_by_itself(f"no message from the master for {WORD_TIMEOUT_S:.0f} s")
        elif self.limit_ns and now > self.limit_ns and self.state != "stopped":  # then captures are fetched
            self._at_its_limit()

    def _at_its_limit(self) -> None:
        """Ends the sending. The counts stay for COUNTS_S: the master may wait for another node first."""
        if self.state in ("running", "done") and self.limit_ns == self.task_limit_ns:
            self.limit_ns += int(COUNTS_S * 1e9)
            if self.state == "running":
                self.problems.append("guard: the task's time limit was over before it had sent everything")
                self._end_of_sending()
            return
        self._end_by_itself("the task's time limit is over")

    def _end_by_itself(self, why: str) -> None:
        self.abandoned = True
        self.engines.stop()
        self._restore()
        self._fail(EngineError("guard", why))
        self.state = "over"

    def _sample(self) -> None:
        at_ns = time.monotonic_ns()
        self.pipe.send(events.Sample(at_ns, *samples.pack(self.engines.sample())))

    def _set_rate(self, leg: int, rate_pps: float | None) -> None:
        """Without an effect, and an answer, once the sending has ended."""
        if self.state in ("armed", "running"):
            self.engines.set_rate(leg, rate_pps)
            self.pipe.send(events.RateSet(leg, rate_pps, time.monotonic_ns()))

    def _stop(self) -> None:
        self.engines.stop()
        if self.ptp_readings:
            self.ptp_readings.append(ptp.read())
        self._sample()  # the last sample has the figures of the counts
        self.state = "stopped"
        counts, problems = self.engines.counts()
        captures = [path.name for path in self.engines.captures()]
        for name in captures:
            os.chown(self.spool / name, 0, self.owner_gid)
            (self.spool / name).chmod(0o640)
        self.last_word_ns = time.monotonic_ns()  # counting a large capture took its time
        played = None if self.answers is None else self.answers.counts()
        self.pipe.send(
            events.Counts(counts, self.problems + problems, captures, str(self.spool), played, self.ptp_readings)
        )

    def _restore(self) -> None:
        if self.port is not None:
            self.port.close()
        elif self.answers is not None:
            self.answers.close()
        self.engines.restore()
        shutil.rmtree(self.spool, ignore_errors=True)

    def _fail(self, error: Exception) -> None:
        """Reports the error, and whether the input caused it."""
        self.state = "failed"
        self.engines.stop()
        bad_input = isinstance(error, BadInput)
        with contextlib.suppress(OSError):
            self.pipe.send(events.Failed(str(error) or repr(error), bad_input))


def _is_frozen(pid: int) -> bool:
    """The process is stopped, as by SIGSTOP."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


def _by_ptp(task: SendTask | ReceiveTask) -> bool:
    return task.tai if isinstance(task, ReceiveTask) else task.clock == "ptp"
