"""The process that works for a Python program: `python -m pktswarm.master.api.worker DESCRIPTOR`.

It enters the network of a lab, which only a process without threads can; signals stop its runs in order, as Ctrl-C does
on the command line; and it keeps the modules loaded between calls. It obeys one order after another over the socket
DESCRIPTOR. When the program is gone, it stops what it does and ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from pktswarm.master.api import errors
from pktswarm.master.api.orders import (
    ClusterUp,
    Command,
    Done,
    EnterLab,
    LabUp,
    RateAnswer,
    RateOrder,
    RunScenario,
    Shown,
    WorkerEvent,
    WorkerOrder,
    decode_worker_order,
)
from pktswarm.master.api.rates import RateChanges
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_BAD_INPUT, BadInput, PktswarmError
from pktswarm.traffic.protocol.messages import Lines

LAB_END_S = 30.0
TICK_S = 0.02
"""Interval of the looks for orders while a run goes on."""
UNREAD = 0x5411  # TIOCOUTQ of asm-generic/ioctls.h
_SIGIO = signal.SIGIO


class Worker:
    def __init__(self, connection: socket.socket) -> None:
        self.lines: Lines[WorkerOrder] = Lines(connection, decode_worker_order)
        self.lab: Path | None = None
        """The inventory of the lab that this process brought up, and takes down."""
        self._later: deque[WorkerOrder] = deque()
        """Orders that came while a run went on, and are not for it."""
        self.cluster = ""
        """The inventory of the cluster that this process started, and ends."""

    def serve(self) -> None:
        """Obeys until the program is gone."""
        try:
            while not self.lines.closed:
                while self._later:
                    self._report(self._answer(self._later.popleft()))
                self.lines.receive(None)
                self._later += [order for order, _ in self.lines.messages()]
            # What came before the program closed its end is not begun any more.
        finally:
            signal.signal(_SIGIO, signal.SIG_IGN)
            if self.cluster:
                _command(["cluster", "down", "--hosts", self.cluster, "--now"])
            self._lab_down()

    def _answer(self, order: WorkerOrder) -> WorkerEvent:
        if isinstance(order, RateOrder):  # the run ended before it came
            return RateAnswer(errors.to_event(PktswarmError(f"{order.stream}: it cannot be changed: no run goes on")))
        try:
            with self._stoppable():
                return self._obey(order)
        except PktswarmError as error:
            return errors.to_event(error)
        except Exception as error:  # of this process, and no reason to end it
            return errors.to_event(PktswarmError(f"{type(error).__name__}: {error}"))

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[None]:
        """SIGINT interrupts, outside of runs too; the end of the program is SIGINT."""
        before = signal.signal(signal.SIGINT, _interrupt)
        try:
            if self._program_is_gone():
                raise PktswarmError("the program ended")
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def look(self, *_: object) -> None:
        """The handler of SIGIO: something came, or the program ended."""
        if self._program_is_gone() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            os.kill(os.getpid(), signal.SIGINT)

    def _program_is_gone(self) -> bool:
        try:
            return not self.lines.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _report(self, event: WorkerEvent) -> None:
        with contextlib.suppress(OSError):
            self.lines.send(event)

    def _obey(self, order: EnterLab | ClusterUp | RunScenario | Command | LabUp) -> Done:
        match order:
            case EnterLab(hosts):
                from pktswarm.master.cli.options import enter_lab

                enter_lab(Path(hosts))
                return Done(0, "")
            case ClusterUp(hosts, patience):
                return self._cluster_up(hosts, patience)
            case RunScenario():
                return self._run(order)
            case Command(words, folder):
                os.chdir(folder)
                return _command(words)
            case LabUp(options):
                return self._lab_up(options)

    # --- runs ---------------------------------------------------------------------------------------------------

    def _run(self, order: RunScenario) -> Done:
        from rich.console import Console

        from pktswarm.master.cli.report import after_run
        from pktswarm.master.cluster import dut
        from pktswarm.master.live.watch import Watch
        from pktswarm.master.plan.allowlist import Allow
        from pktswarm.master.results.ledger import Ledger
        from pktswarm.master.results.ledger import Shown as Happened
        from pktswarm.master.run.kept_ranks import KeptRanks
        from pktswarm.master.run.run import Run

        os.chdir(order.folder)
        allow, labels = Allow(order.any_address, order.control_interface), dut.labels("run", order.labels)
        with KeptRanks(several=False, waits=order.waits) as kept, Path(os.devnull).open("w") as nowhere:
            scenario, hosts, results = Path(order.scenario), Path(order.hosts), Path(order.results)
            run = Run(
                scenario,
                hosts,
                results,
                order.patience,
                allow=allow,
                kept=kept,
                labels=labels,
                steered=order.shows,
            )
            run.tick_s = TICK_S if order.shows else run.tick_s
            with Watch(Console(file=nowhere), run) as watch:
                rates = RateChanges(run, self._report)

                def show(ledger: Ledger, event: Happened) -> None:
                    before = watch.document
                    watch(ledger, event)
                    if order.shows and watch.document is not before:
                        self._show(json.dumps(watch.document))
                    self._take_rates(rates)
                    rates.look(event)

                try:
                    finished = run.execute(show)
                finally:
                    rates.end()
        after_run(finished, None, order.report)
        return Done(finished.outcome.status, str(finished.folder.resolve()))

    def _take_rates(self, rates: RateChanges) -> None:
        """Those too that came in one piece with the order for this run."""
        while not self.lines.closed and select.select([self.lines.socket], [], [], 0)[0]:
            self.lines.receive(0)
            self._later += [order for order, _ in self.lines.messages()]
        for order in [order for order in self._later if isinstance(order, RateOrder)]:
            self._later.remove(order)
            rates.begin(order)

    def _show(self, document: str) -> None:
        """A program that does not read misses documents, and delays no run."""
        unread = int.from_bytes(fcntl.ioctl(self.lines.socket, UNREAD, bytes(4)), sys.byteorder)
        if not unread and select.select([], [self.lines.socket], [], 0)[1]:
            self._report(Shown(document))

    # --- clusters and labs ----------------------------------------------------------------------------------------

    def _lab_up(self, options: str) -> Done:
        from pktswarm import lab

        given = json.loads(options)
        folder = Path(given.pop("hosts_dir"))
        state = lab.up(hosts_dir=folder, **given)
        self.lab = state.inventory
        return Done(0, str(state.inventory))

    def _cluster_up(self, hosts: str, patience: float) -> Done:
        if _command(["cluster", "status", "--hosts", hosts]).status == EXIT_AS_EXPECTED:
            return Done(0, "")
        self.cluster = hosts
        return _command(["cluster", "up", "--hosts", hosts, "--patience", str(patience), "--no-preload"])

    def _lab_down(self) -> None:
        from pktswarm import lab

        if self.lab is not None and self.lab.exists():
            # A program that was killed has another worker, which stops its run in order.
            lab.wait_for_runs(self.lab, LAB_END_S)
            lab.down(self.lab.stem.removeprefix("lab-"), self.lab.parent)


def _command(words: list[str]) -> Done:
    """Runs a command in this process; its standard output is the result."""
    from pktswarm.master.cli.app import invoke

    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            invoke(words)
            status: object = 0
        except SystemExit as end:
            status = end.code
    if status == EXIT_BAD_INPUT:  # an option that typer refuses; all other bad input is an exception
        text = " ".join(" ".join(line.strip("╭╮╰╯│─ ") for line in errors.getvalue().splitlines()).split())
        raise BadInput(words[0], text.partition(" Error ")[2] or text)
    return Done(status if isinstance(status, int) else 0, output.getvalue())


def _interrupt(*_: object) -> NoReturn:
    raise PktswarmError("interrupted")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    connection = socket.socket(fileno=descriptor)
    worker = Worker(connection)
    signal.signal(_SIGIO, worker.look)
    signal.siginterrupt(_SIGIO, False)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    worker.serve()


if __name__ == "__main__":
    main()
