"""An engine of this project's own in a child made by fork, which cannot outlive its guard, nor its own time limit.

A fork shares the memory of the guard; a new Python takes 80 ms of processor time to start. The kernel ends the child
with the guard (PR_SET_PDEATHSIG), and at its limit by a timer whose signal is SIGKILL, also when both are frozen.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from pktswarm.nodes.process import EngineProcess
from pktswarm.nodes.watchdog import KillTimer
from pktswarm.traffic.protocol.anchor import die_with_parent

_SET_NAME = 15


class ForkedProcess(EngineProcess):
    """Runs `work` with its output in `output_file`. `limit_s`: killed after so long, whatever happens. `cpu`: the
    processor that it is bound to; None: any."""

    def __init__(
        self, engine: str, work: Callable[[], None], output_file: Path, limit_s: float, cpu: int | None = None
    ) -> None:
        super().__init__(engine, [], output_file, limit_s)
        self._work, self._cpu = work, cpu

    def start(self) -> None:
        parent, every = os.getpid(), signal.valid_signals()
        # No handler of the guard's may run in the child: it would end the guard's work.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, every)
        try:
            pid = os.fork()
            if pid == 0:
                self._be_the_child(parent)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._process = Child(pid)

    def _be_the_child(self, parent: int) -> NoReturn:
        status = 1
        try:
            self._redirect()  # first: what fails from here on is in the output
            die_with_parent(signal.SIGKILL)
            if os.getppid() != parent:  # it died before
                os._exit(status)
            timer = KillTimer()
            timer.set(self.limit_s)
            ctypes.CDLL(None).prctl(_SET_NAME, f"pktswarm-{self.engine}".encode(), 0, 0, 0)
            os.setpgid(0, 0)
            self._let_go()
            if self._cpu is not None:
                os.sched_setaffinity(0, [self._cpu])
            self._work()
            status = 0
        except BaseException:  # nothing may return into the guard's code
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)

    def _redirect(self) -> None:
        output = os.open(self.output_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        quiet = os.open("/dev/null", os.O_RDONLY)
        for descriptor, target in ((quiet, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, target)

    def _let_go(self) -> None:
        """Drops the handlers of the guard, and its descriptors: its rank notices its end by a closed socket."""
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
            if int(name) > 2:
                with contextlib.suppress(OSError):  # that of the list itself
                    os.close(int(name))
        os.chdir(self.output_file.parent)
        gc.freeze()  # a collection would copy all of it
        signal.set_wakeup_fd(-1)
        # The default actions: they end a call into the kernel too, and cannot come between two lines of Python and be
        # forgotten.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])


class Child:
    """A child process, as EngineProcess uses a subprocess.Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Returns its status, negative for a signal; None: it runs."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reap(0)

    def _reap(self, options: int) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, options)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status
