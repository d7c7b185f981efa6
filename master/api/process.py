"""A worker process (master.api.worker), as the program sees it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator

from pktswarm.master.api import errors
from pktswarm.master.api.orders import (
    Done,
    Failed,
    RateAnswer,
    RateOrder,
    Shown,
    WorkerEvent,
    WorkerOrder,
    decode_worker_event,
)
from pktswarm.traffic.errors import Busy, PktswarmError
from pktswarm.traffic.protocol.messages import Lines

END_S = 60.0
"""Time that a worker has to stop a run, and to take its lab down, before it is killed."""
LOOK_S = 0.1
MESSAGE_BYTES = 4000


def _ignore(document: str) -> None:
    pass


class Process:
    """Obeys one order at a time; safe to use from several threads."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        command = [sys.executable, "-P", "-m", "pktswarm.master.api.worker", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C on the terminal is for the program, which stops this one in order
        )
        theirs.close()
        self._lines: Lines[WorkerEvent] = Lines(ours, decode_worker_event)
        self._turn = threading.Lock()
        self._asking = threading.Lock()
        self._answers: queue.SimpleQueue[Failed | None] = queue.SimpleQueue()
        self._stopped = False
        """The running order is to stop: a second signal would end it at once."""

    def call(self, order: WorkerOrder, show: Callable[[str], None] = _ignore, waits: bool = True) -> Done:
        """Gives an order and waits for its end. `show`: called with each live document. `waits`: for the end of an
        order that another thread gave; else Busy is raised. Raises what the order raised; KeyboardInterrupt stops it
        first."""
        if not self._turn.acquire(blocking=waits):
            raise Busy("another thread uses this cluster (wait=True waits for it)")
        self._stopped = False
        try:
            with contextlib.suppress(OSError):  # its end shows in what is read
                self._lines.send(order)
            return self._answer(show)
        except KeyboardInterrupt:
            self.stop()
            with contextlib.suppress(PktswarmError):
                self._answer(show)
            raise
        finally:
            self._turn.release()

    def change(self, order: RateOrder) -> None:
        """Gives an order to the run that goes on in another thread. Raises what prevented it."""
        with self._asking:
            if not self._turn.locked():
                raise PktswarmError(f"{order.stream}: it cannot be changed: no run goes on")
            with contextlib.suppress(OSError):
                self._lines.send(order)
            answer = self._rate_answer()
        if answer is not None:
            raise errors.to_error(answer)

    def _rate_answer(self) -> Failed | None:
        """The thread of the run reads it; or this one, where that run has ended meanwhile."""
        while True:
            try:
                return self._answers.get(timeout=LOOK_S)
            except queue.Empty:
                if self._turn.acquire(blocking=False):
                    try:
                        self._read_rate_answer()
                    finally:
                        self._turn.release()

    def _read_rate_answer(self) -> None:
        if self._answers.empty():
            answer = next(event for event in self._events() if isinstance(event, RateAnswer))
            self._answers.put(answer.error)

    def _answer(self, show: Callable[[str], None]) -> Done:
        for event in self._events():
            match event:
                case Shown(document):
                    show(document)
                case RateAnswer(error):
                    self._answers.put(error)
                case Failed():
                    raise errors.to_error(event)
                case Done():
                    return event
        raise AssertionError("the events have no end")

    def _events(self) -> Iterator[WorkerEvent]:
        """Yields what has come, also with an event that somebody took before, and waits for more. Raises Error at the
        end of the worker."""
        while True:
            yield from (event for event, _ in self._lines.messages())
            if self._lines.closed:
                raise PktswarmError(f"the worker process ended: {self._words() or 'no message'}")
            self._lines.receive(None)

    def stop(self) -> None:
        """Stops the running order as Ctrl-C does; nothing where there is none."""
        if not self._stopped and self._process.poll() is None:
            self._stopped = True
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Stops the running order, and ends the process."""
        with contextlib.suppress(OSError):
            self._lines.socket.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._lines.socket.close()
        self._output.close()

    def _words(self) -> str:
        """The end of what the process printed."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - MESSAGE_BYTES))
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
