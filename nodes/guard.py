"""The guard: the small root process of a rank that starts engines, stops them, and leaves the node as it was.

It lives in a session of its own and takes fixed commands over a socket from its rank. Whatever happens to the rank,
to mpiexec or to the master, sending ends here: when that socket closes, when the master's word fails for
WORD_TIMEOUT_S, or at the task's time limit, the guard stops every engine, restores the node and goes.

traffic.protocol.guard_orders and guard_events have its orders and events.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pktswarm.nodes import changes, node_lock, stale_spools
from pktswarm.nodes.announce import INTERVAL_S as ANNOUNCE_EVERY_S
from pktswarm.nodes.announce import announce
from pktswarm.nodes.engine import Engine, Receiver, Sender
from pktswarm.nodes.engines import receiver_class, sender_class, unfit
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.packet_port import PacketPort
from pktswarm.nodes.responder_sockets import Answers
from pktswarm.nodes.watchdog import Watchdog
from pktswarm.traffic.counting import samples
from pktswarm.traffic.errors import BadInput, EngineError, PktswarmError
from pktswarm.traffic.protocol import guard_events as events
from pktswarm.traffic.protocol import guard_orders as orders
from pktswarm.traffic.protocol import task as tasks
from pktswarm.traffic.protocol.guard_events import GuardEvent, decode_guard_event
from pktswarm.traffic.protocol.guard_orders import GuardOrder, decode_guard_order
from pktswarm.traffic.protocol.messages import STILL_AFTER_NS, WORD_TIMEOUT_S, Lines, peer

POLL_S, STILL_S = 0.02, 0.1
"""How long a command is awaited before the guard looks after its engines, and where it only keeps time."""
BUSY_STATES = ("preparing", "arming", "armed", "running")
SUDO_TIMEOUT_S = 10.0
COUNTS_S = 120.0
"""Behind the task's time limit, until the master has asked for the counts of what no longer sends."""
FROZEN_S = 4.0
"""A rank that is stopped for so long after its guard ended by itself is killed."""
AWAY_NS, HEARING_NS = 500_000_000, 1_000_000_000
"""A guard that had no processor for so long did not hear; whom it is to hear may have had none either, and gets this
time to speak before the guard ends."""
START_AHEAD_NS = 25_000_000
"""Engines are called this long before the start instant; they wait for it themselves."""


class Guard:
    """One rank's engines. `owner_gid`: the group that may read what the engines wrote."""

    def __init__(self, pipe: Lines[GuardOrder], owner_gid: int) -> None:
        self.pipe, self.owner_gid = pipe, owner_gid
        self.ending = self.abandoned = False
        self.spool = Path(tempfile.mkdtemp(prefix=stale_spools.PREFIX, dir=stale_spools.SPOOLS))
        stale_spools.lock(self.spool)
        with contextlib.suppress(OSError):  # a full disk is the doctor's to tell, who has a guard too
            changes.begin(self.spool)
        os.chown(self.spool, 0, owner_gid)
        self.spool.chmod(0o750)
        self.engines: list[Engine] = []
        self.state = "idle"
        self.start_at_ns = 0
        self.limit_ns = self.task_limit_ns = 0
        self.last_word_ns = self.looked_ns = time.monotonic_ns()
        self.troubles: list[str] = []
        self.problems: list[str] = []
        """Of the run, which its counts outlive."""
        self.announced: tuple[str, str] | None = None
        self.answers: Answers | None = None
        self.port: PacketPort | None = None
        """Of a probe, which has no task."""
        self.next_announcement = 0.0

    def serve(self) -> None:
        """Work until the rank has gone or asked for the end; always stops and restores."""
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            self._work()
        finally:
            self._stop_engines()
            self._restore()
            self._end_a_frozen_rank()

    def _end_a_frozen_rank(self) -> None:
        """Nobody else would: its master has given it up. Not one that runs; it leaves by itself."""
        rank, deadline = peer(self.pipe.socket).pid, time.monotonic() + FROZEN_S
        while self.abandoned and is_frozen(rank):
            if time.monotonic() > deadline:
                os.kill(rank, signal.SIGKILL)
                return
            time.sleep(POLL_S)

    def _work(self) -> None:
        try:
            while self.state != "over" and not self.pipe.closed:
                self._take_commands()
                self._watch()
                self._advance()
        finally:
            self.ending = True

    def terminate(self) -> None:
        """SIGTERM: an end in order, which a second one does not break off half-way."""
        if not self.ending:
            sys.exit(0)

    def _take_commands(self) -> None:
        busy = self.state in BUSY_STATES or self.answers is not None
        wait_s, to_start_ns = POLL_S if busy else STILL_S, self.start_at_ns - time.monotonic_ns()
        if self.state == "armed":
            wait_s = max(0.0, min(POLL_S, (to_start_ns - START_AHEAD_NS) / 1e9))
        elif self.state == "running" and to_start_ns > 0:
            wait_s = (to_start_ns + STILL_AFTER_NS) / 1e9
        # To the last one: words that came while a command kept us busy count as heard.
        while self.pipe.receive(wait_s):
            wait_s = 0.0
            self._obey_all()

    def _obey_all(self) -> None:
        """An order that fails, or is none, does not keep those behind it from being obeyed."""
        while True:
            try:
                for order, raw in self.pipe.messages():
                    self._obey(order, raw)
                return
            except (PktswarmError, OSError, ValueError, KeyError, TypeError) as error:
                self._fail(error)

    def _obey(self, order: GuardOrder, raw: bytes) -> None:
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
            case orders.Probe(interface):
                self.pipe.send(events.Probed(unfit(Interface(interface))))
            case orders.OpenPort():
                self._open_port(order)
            case orders.Exchange():
                self._exchange(order)
            case orders.Prepare(role, task):
                self._prepare(role, task)
            case orders.Start(at_ns):
                self.start_at_ns, self.state = at_ns, "armed"
            case orders.Sample():
                self._sample()
            case orders.Halt():
                self._stop_engines()
                self.state = "done"
                self.pipe.send(events.Halted())
            case orders.Stop():
                self._stop()
            case orders.Restore():
                self._stop_engines()
                self._restore()
                self.pipe.send(events.Restored(self.troubles))
                self.state = "over"

    def _hold(self, run: str, by: str) -> None:
        """What guards that were killed left changed is put back first: else it would be taken for the node's own."""
        other = node_lock.take(run, by)
        self.pipe.send(events.Held(other, [] if other else self._mend()))

    def _mend(self) -> list[str]:
        return stale_spools.mend(stale_spools.SPOOLS, self.spool)

    def _open_port(self, order: orders.OpenPort) -> None:
        self.port = PacketPort(order.interface, order.mac, order.addresses, order.arp_targets)
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

    def _prepare(self, role: tasks.Role, text: str) -> None:
        if role == "transmit":
            send = tasks.send_task_from_json(json.loads(text))
            self._limit(send.limit_s)
            self._play(send)
            self.engines = [*self._senders(send)]
        else:
            receive = tasks.receive_task_from_json(json.loads(text))
            self._limit(receive.limit_s)
            self._play(receive)
            self.engines = [*self._receivers(receive)]
        for engine in self.engines:
            engine.prepare()
        if role == "transmit":
            self.state = "preparing"
        else:
            self.announced = (receive.interface, receive.mac)
            self._start_engines(time.monotonic_ns())
            self.state = "arming"

    def _senders(self, task: tasks.SendTask) -> list[Sender]:
        senders = []
        for name in dict.fromkeys(leg.engine for leg in task.legs):
            legs = [leg for leg in task.legs if leg.engine == name]
            senders.append(sender_class(name)(replace(task, legs=legs), self.spool))
        return senders

    def _receivers(self, task: tasks.ReceiveTask) -> list[Receiver]:
        names = task.engine.split("+")
        return [receiver_class(name)(tasks.share_of(name, names, task), self.spool) for name in names]

    def _limit(self, limit_s: float) -> None:
        self.limit_ns = self.task_limit_ns = time.monotonic_ns() + int(limit_s * 1e9)

    def _play(self, task: tasks.SendTask | tasks.ReceiveTask) -> None:
        """Until the node is restored, beside whatever the engines do."""
        if task.proxy_addresses:
            self.answers = Answers(task.interface, task.mac, task.proxy_addresses, task.arp_targets)

    def _start_engines(self, at_ns: int) -> None:
        for engine in self.engines:
            engine.start(at_ns)

    def _advance(self) -> None:
        """What happens by itself: the start at its instant, receivers becoming ready, senders ending."""
        self._announce()
        if self.answers is not None and self.state not in ("failed", "over"):
            self._guarded(self.answers.serve)
        if self.state == "preparing":
            self._guarded(self._look_whether_ready)
        elif self.state == "armed" and time.monotonic_ns() >= self.start_at_ns - START_AHEAD_NS:
            self._guarded(lambda: self._start_engines(self.start_at_ns))
            if self.state == "armed":
                self.state = "running"
                self.pipe.send(events.Started(self.start_at_ns))
        elif self.state == "arming":
            self._guarded(self._arm)
        elif self.state == "running":
            self._guarded(self._look_for_the_end)

    def _announce(self) -> None:
        if self.announced and self.state in ("arming", "receiving") and time.monotonic() >= self.next_announcement:
            self.next_announcement = time.monotonic() + ANNOUNCE_EVERY_S
            self._guarded(lambda: announce(*(self.announced or ("", ""))))

    def _arm(self) -> None:
        receivers = [engine for engine in self.engines if isinstance(engine, Receiver)]
        if ended := [receiver for receiver in receivers if receiver.done()]:
            self._stop_engines()
            ended[0].counts()
            raise EngineError(ended[0].name, "ended before it was stopped")
        if all(receiver.ready() for receiver in receivers):
            self.state = "receiving"
            self.pipe.send(events.Ready())

    def _look_whether_ready(self) -> None:
        if all(engine.ready() for engine in self.engines if isinstance(engine, Sender)):
            self.state = "prepared"
            self.pipe.send(events.Ready())

    def _look_for_the_end(self) -> None:
        if all(engine.done() for engine in self.engines):
            self._end_of_sending()

    def _end_of_sending(self) -> None:
        # Done may mean that a duration is over: nothing may go out after the barrier that says so.
        self._stop_engines()
        self.state = "done"
        self.pipe.send(events.Done(time.monotonic_ns()))

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (PktswarmError, OSError, ValueError) as error:
            self._fail(error)

    def _watch(self) -> None:
        """The reasons to end that nobody has to ask for."""
        now = time.monotonic_ns()
        self.looked_ns, away_ns = now, now - self.looked_ns
        if away_ns > AWAY_NS:
            self.last_word_ns = max(self.last_word_ns, now - int(WORD_TIMEOUT_S * 1e9) + HEARING_NS)
        if self.state in ("idle", "over", "failed"):
            self.last_word_ns = now if self.state == "idle" else self.last_word_ns
            return
        if now - self.last_word_ns > WORD_TIMEOUT_S * 1e9:
            self._end_by_itself(f"no word from the master for {WORD_TIMEOUT_S:.0f} s")
        elif self.limit_ns and now > self.limit_ns and self.state != "stopped":  # then captures are fetched
            self._at_its_limit()

    def _at_its_limit(self) -> None:
        """Sending ends. What was sent until then counts, and the master has COUNTS_S to ask for it: another node may
        be what it waits for."""
        if self.state in ("running", "done") and self.limit_ns == self.task_limit_ns:
            self.limit_ns += int(COUNTS_S * 1e9)
            if self.state == "running":
                self.problems.append("guard: the task's time limit was over before it had sent everything")
                self._end_of_sending()
            return
        self._end_by_itself("the task's time limit is over")

    def _end_by_itself(self, why: str) -> None:
        self.abandoned = True
        self._stop_engines()
        self._restore()
        self._fail(EngineError("guard", why))
        self.state = "over"

    def _sample(self) -> None:
        """Of the first engine that counts a leg."""
        at_ns = time.monotonic_ns()
        legs: dict[int, dict[str, int | None]] = {}
        for engine in reversed(self.engines):
            with contextlib.suppress(EngineError, OSError):  # a sample may fail; the counts at the end may not
                legs |= engine.sample()
        self.pipe.send(events.Sample(at_ns, *samples.pack(legs)))

    def _stop(self) -> None:
        self._stop_engines()
        self._sample()  # the last one tells what the counts do
        self.state = "stopped"
        counts, problems = self._all_counts()
        captures = [path.name for engine in self.engines for path in engine.captures()]
        for name in captures:
            os.chown(self.spool / name, 0, self.owner_gid)
            (self.spool / name).chmod(0o640)
        self.last_word_ns = time.monotonic_ns()  # counting a large capture took its time
        played = None if self.answers is None else self.answers.told()
        self.pipe.send(events.Counts(counts, problems, captures, str(self.spool), played))

    def _all_counts(self) -> tuple[list[tasks.SendCount | tasks.ReceiveCount], list[str]]:
        """An engine that failed costs its own counts, not the others'. But for the one that counts what arrives there
        is no other: a capture beside it may have taken a part only. Raises what that one raises."""
        counts: list[tasks.SendCount | tasks.ReceiveCount] = []
        problems = list(self.problems)
        for engine in self.engines:
            try:
                counts += self._counts(engine)
            except (PktswarmError, OSError, ValueError) as error:
                if len(self.engines) == 1 or (isinstance(engine, Receiver) and engine is self.engines[0]):
                    raise
                problems.append(str(error) or repr(error))
        return counts, problems

    @staticmethod
    def _counts(engine: Engine) -> list[tasks.SendCount | tasks.ReceiveCount]:
        assert isinstance(engine, (Sender, Receiver))
        return [*engine.counts(), *engine.other_way()]

    def _stop_engines(self) -> None:
        for engine in self.engines:
            with self._told():
                engine.stop()

    def _restore(self) -> None:
        if self.port is not None:
            self.port.close()
        elif self.answers is not None:
            self.answers.close()
        for engine in self.engines:
            with self._told():
                engine.restore()
        shutil.rmtree(self.spool, ignore_errors=True)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Teardown goes on past an error, and tells it."""
        try:
            yield
        except Exception as error:
            self.troubles.append(str(error) or repr(error))

    def _fail(self, error: Exception) -> None:
        """Tell the rank, in a form that keeps bad input apart from a failure."""
        self.state = "failed"
        self._stop_engines()
        bad_input = isinstance(error, BadInput)
        with contextlib.suppress(OSError):
            self.pipe.send(events.Failed(str(error) or repr(error), bad_input))


def run(connection: socket.socket, owner_gid: int) -> None:
    """The guard's main: never returns to the caller's stack."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # A SIGTERM from now on waits until there is someone who removes the folder again.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    Watchdog().start()
    guard = Guard(Lines(connection, decode_guard_order), owner_gid)
    signal.signal(signal.SIGTERM, lambda *_: guard.terminate())
    guard.serve()


def spawn(user: str) -> Lines[GuardEvent]:
    """Start the guard of this process and give back the rank's end of its socket.

    Started as root it is forked, before anything else of the rank exists; otherwise sudo's single rule starts it.
    """
    if os.geteuid() != 0:
        return _spawn_by_sudo()
    ours, theirs = socket.socketpair()
    gid = pwd.getpwnam(user).pw_gid
    if os.fork() == 0:
        _become_guard(ours, theirs, gid)
    theirs.close()
    return Lines(ours, decode_guard_event)


E = TypeVar("E", bound=GuardEvent)


def answer(pipe: Lines[GuardEvent], kind: type[E], timeout_s: float) -> E:
    """The guard's answer to a rank that has no other work yet."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not pipe.closed:
        pipe.receive(max(0.0, deadline - time.monotonic()))
        for event, _ in pipe.messages():
            if isinstance(event, kind):
                return event
            raise EngineError("guard", event.problem if isinstance(event, events.Failed) else str(event))
    raise EngineError("guard", f"no answer within {timeout_s:.0f} s")


def is_frozen(pid: int) -> bool:
    """Stopped, as by SIGSTOP."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


def _become_guard(ours: socket.socket, theirs: socket.socket, gid: int) -> None:
    status = 1
    try:
        ours.close()
        os.setsid()
        # Standard output belongs to the launcher: a guard that held it would keep mpiexec waiting for its end.
        quiet = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        run(theirs, gid)
        status = 0
    except SystemExit:
        status = 0
    finally:
        os._exit(status)


def _spawn_by_sudo() -> Lines[GuardEvent]:
    """The guard calls back: what sudo does to standard input depends on its settings (use_pty)."""
    name = "pktswarm-" + secrets.token_hex(16)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen(1)
        listener.settimeout(SUDO_TIMEOUT_S)
        command = ["sudo", "-n", sys.executable, "-P", "-m", "pktswarm.nodes.guard", "--socket", name]
        quiet = subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                command, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise EngineError("guard", f"sudo, which starts it, is not here: {error.strerror}") from None
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                process.kill()
                words = process.communicate()[1].decode(errors="replace").strip()
                raise EngineError("guard", "sudo did not start it: see docs/guide.md, Privilege", words) from None
            if peer(connection).uid == 0:
                return Lines(connection, decode_guard_event)
            connection.close()  # a stranger guessed the name: only root is our guard


def main() -> None:
    """Started by sudo for a rank that runs as a user; the files it makes are for that user's group."""
    parser = argparse.ArgumentParser(
        prog="pktswarm.nodes.guard", description="The guard of a rank; started through sudo."
    )
    parser.add_argument("--socket", required=True, help="abstract Unix socket of the rank")
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("\0" + parser.parse_args().socket)
    run(connection, peer(connection).gid)


if __name__ == "__main__":
    main()
