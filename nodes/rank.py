"""The loop of a node's rank: obeys the master over MPI, and has its guard do what needs root.

The rank decides nothing. The master says task, enter (a barrier), start, stop, finish; the rank tells hello, arrived,
left, started, sample, counts, restored, failed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from pktswarm.nodes.interface import Interface
from pktswarm.nodes.interface_sampler import Meter
from pktswarm.nodes.mpi import Link, MasterGone
from pktswarm.nodes.utc import Utc
from pktswarm.traffic.protocol.anchor import Anchor
from pktswarm.traffic.protocol.barrier import AT_ONCE_S, Barrier
from pktswarm.traffic.protocol.messages import STILL_AFTER_NS, STILL_BEFORE_NS, WORD_TIMEOUT_S, Lines, Message

NEWS_S = 0.1
"""At most, between two looks for news."""
PINGS_S, PINGS_AT_ONCE_S = 2.0, 0.1
"""How long the master's readings of the clock are waited for awake; and before a look at what else it said."""
LEAVE_STATUS = 3
LONGEST_ENTRY_NS = 50_000_000
"""No clock is trusted further than this."""
BULK_TIMEOUT_S = 120.0


class Rank:
    """One role of one host. `report` is what the node can do (nodes.probe); `pipe` leads to the guard; `launcher`: what
    mpiexec started."""

    def __init__(
        self, role: str, host: str, interface: Interface, report: Message, pipe: Lines, launcher: Anchor
    ) -> None:
        self.launcher = launcher
        self.role, self.host, self.interface, self.report, self.pipe = role, host, interface, report, pipe
        self.link = Link(role)
        self.meter = Meter(interface.name)
        self.utc = Utc()
        self.last_word = 0.0
        self.before: dict[str, int] = {}
        self.changed: dict[str, int] = {}
        """By the interface's counters, when they were last read."""
        self.interface_gone = False
        self.sample_every_s = 0.0
        self.next_sample = 0.0
        self.leaving = self.restored = False
        self.whole = True
        self.waiting_for = ""
        self.entered: tuple[str, Barrier] | None = None
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
        self.link.introduce({"event": "hello", "host": self.host, "role": self.role, "report": self.report})

    def _master_lost(self) -> bool:
        return bool(self.last_word) and time.monotonic() - self.last_word > 2 * WORD_TIMEOUT_S

    def _tell(self, event: str, **values: Any) -> None:
        self.link.send({"event": event, **values})

    # --- the master's words -------------------------------------------------------------------------------------

    def _master(self) -> bool:
        message = self.link.receive()
        if message is None:
            return False
        if not self.last_word:  # from now on the master's silence is what ends this rank
            self.launcher.release()
        self.last_word = time.monotonic()
        getattr(self, f"_on_{message['op']}")(message)
        return True

    def _on_word(self, message: Message) -> None:
        self._to_guard({"op": "word"})
        self._tell("alive")

    def _on_ping(self, message: Message) -> None:
        self.pings, self.pings_until = int(message["count"]), time.monotonic() + PINGS_S

    def _answer(self) -> bool:
        """Nothing else meanwhile, but not for so long that the guard misses the master's word."""
        if self.pings and time.monotonic() < self.pings_until:
            self.pings = self.link.answer_pings(self.pings, PINGS_AT_ONCE_S)
            return True
        return False

    def _on_task(self, message: Message) -> None:
        # The pieces that come know no borders between files.
        data = memoryview(self.link.receive_bulk(sum(file["bytes"] for file in message["files"]), BULK_TIMEOUT_S))
        for file in message["files"]:
            self._to_guard({"op": "file", "name": file["name"]}, bytes(data[: file["bytes"]]))
            data = data[file["bytes"] :]
        self._to_guard({"op": "word"})
        self._to_guard({"op": "prepare", "role": self.role, "task": message["task"]})
        self.waiting_for = message["arrive"]
        self.sample_interval_s = float(message.get("sample_every_s", 0.0))

    def _on_enter(self, message: Message) -> None:
        wait_ns = int(message["at_ns"]) - time.monotonic_ns()
        time.sleep(min(max(0, wait_ns), LONGEST_ENTRY_NS) / 1e9)
        self.entered = message["name"], self.link.barrier()
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

    def _on_release(self, message: Message) -> None:
        """In place of a barrier that a death made impossible, before it or in the middle of it."""
        self.whole = False
        if message["name"] != self.left:  # the death may have come when this one was through
            self._left(message["name"], time.monotonic_ns())

    def _left(self, name: str, at_ns: int) -> None:
        self.entered, self.left = None, name
        self._tell("left", name=name, at_ns=at_ns)
        if name == "ready":
            # From here on a receiver only waits for the transmitters' end.
            self._tell("arrived", name="stop")

    def _on_start(self, message: Message) -> None:
        self._to_guard({"op": "start", "at_ns": message["at_ns"]})
        self.waiting_for = "done"
        self._on_sample(message)

    def _on_sample(self, message: Message) -> None:
        """Receivers begin their samples when the transmitters start."""
        self.start_ns = int(message["at_ns"])
        self.sample_every_s = self.sample_interval_s

    def _on_halt(self, message: Message) -> None:
        self._to_guard({"op": "halt"})

    def _on_stop(self, message: Message) -> None:
        self.sample_every_s = 0.0
        self._to_guard({"op": "stop"})

    def _on_fetch(self, message: Message) -> None:
        self.sending = self.link.send_file(self.captures[message["name"]])

    def _on_finish(self, message: Message) -> None:
        self.whole = self.whole and bool(message["whole"])
        self._to_guard({"op": "restore"})

    def _on_leave(self, message: Message) -> None:
        self.leaving = True

    # --- the guard's words --------------------------------------------------------------------------------------

    def _to_guard(self, message: Message, raw: bytes | None = None) -> None:
        # That the guard is gone is read, not written: its last words may still be in the socket.
        with contextlib.suppress(OSError):
            self.pipe.send(message, raw)

    def _guard(self) -> bool:
        if self.pipe.closed:
            return False
        heard = self.pipe.receive(0)
        for message, _ in self.pipe.messages():
            getattr(self, f"_guard_{message['event']}")(message)
        if self.pipe.closed and not self.restored:
            self._tell("guard_gone")
        return heard

    def _guard_ready(self, message: Message) -> None:
        try:
            self.before = {**self.meter.read(), "mtu": 0}
        except OSError as error:
            problem = f"{self.interface.name}: its counters cannot be read: {error.strerror}"
            self._tell("failed", problem=problem, bad_input=False)
        else:
            self._tell("arrived", name=self.waiting_for)

    def _guard_started(self, message: Message) -> None:
        self._tell("started", at_ns=message["at_ns"])

    def _guard_halted(self, message: Message) -> None:
        self._tell("halted")

    def _guard_done(self, message: Message) -> None:
        self._tell("arrived", name="done", at_ns=message["at_ns"])

    def _guard_failed(self, message: Message) -> None:
        self._tell("failed", problem=message["problem"], bad_input=message["bad_input"])

    def _guard_counts(self, message: Message) -> None:
        change = self._change()
        captures = [(name, os.path.join(message["spool"], name)) for name in message["captures"]]  # noqa: PTH118
        sizes = [{"name": name, "bytes": os.path.getsize(path)} for name, path in captures]  # noqa: PTH202
        played = message.get("played")
        told = {"counts": message["counts"], "problems": message["problems"], "played": played}
        self._tell("counts", **told, interface=None if self.interface_gone else change, captures=sizes)
        self.captures = dict(captures)

    def _guard_restored(self, message: Message) -> None:
        self.restored = True
        self._tell("restored", troubles=message.get("troubles", []))

    # --- samples ------------------------------------------------------------------------------------------------

    def _change(self) -> dict[str, int]:
        """Since the engines were ready; of an interface that is gone, as far as it was read."""
        try:
            after = self.meter.read()
            self.changed = {key: after[key] - self.before.get(key, 0) for key in after}
        except OSError:
            if not self.interface_gone:
                self.interface_gone = True
                self._tell("interface gone", at_ns=time.monotonic_ns())
        return self.changed

    def _sample(self) -> None:
        now = time.monotonic()
        if self.sample_every_s and now >= self.next_sample:
            self.next_sample = now + self.sample_every_s
            self._to_guard({"op": "sample"})

    def _guard_sample(self, message: Message) -> None:
        if self.start_ns:
            told = {key: message[key] for key in ("at_ns", "sent", "received")}
            self._tell("sample", **told, interface=self._change(), utc=self.utc.read())

    def _look_at_utc(self) -> None:
        """At once when it was set: by the next sample it may have been set back."""
        if self.utc.was_set() and self.start_ns:
            self._tell("utc set", at_ns=time.monotonic_ns(), reading=self.utc.read(was_set=True))
