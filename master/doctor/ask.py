"""Requests the reports of all hosts of an inventory at once, over SSH like ranks; the master's without SSH."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pktswarm.master.cluster import ssh
from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.doctor.report import HostReport

CONNECT_TIMEOUT_S = 3
ANSWER_TIMEOUT_S = 20.0
CLOCK_READINGS = 8


@dataclass(frozen=True)
class Answer:
    """The report of a host, or the reason why there is none in `trouble`.

    `offset_ns`: its CLOCK_REALTIME less the master's, within `bound_ns`; None of the master itself.
    """

    host: Host
    trouble: str = ""
    document: HostReport | None = None
    offset_ns: int | None = None
    bound_ns: int | None = None


class Round:
    """One request to each host; cancel() ends those under way."""

    def __init__(self, inventory: Inventory, patience: float = 1.0, mend: bool = False) -> None:
        self.inventory, self.patience, self.mend = inventory, patience, mend
        self._running: set[subprocess.Popen[str]] = set()

    def answers(self, received: Callable[[Answer], None]) -> list[Answer]:
        """Returns the master's answer, then the hosts' in the order of the inventory.

        `received` is called with each on its arrival.
        """

        def exchange(ask: Callable[[], Answer]) -> Answer:
            answer = ask()
            received(answer)
            return answer

        requests = [self._ask_master, *(lambda host=host: self._ask_host(host) for host in self.inventory.hosts)]
        with ThreadPoolExecutor(len(requests)) as pool:
            try:
                return list(pool.map(exchange, requests))
            except BaseException:
                self.cancel()
                raise

    def cancel(self) -> None:
        for process in list(self._running):
            process.kill()

    def _ask_master(self) -> Answer:
        return self._exchange(self.inventory.master, [sys.executable, *self._program()], sys.executable, readings=0)

    def _ask_host(self, host: Host) -> Answer:
        python = host.python or sys.executable
        remote = [python, *self._program(), "--interface", host.traffic_interface, "--user", host.user]
        remote += ["--master", self.inventory.master.address, "--clock", str(CLOCK_READINGS)]
        remote += ["--transmits"] if "transmit" in host.roles else []
        remote += ["--mend"] if self.mend else []
        command = ssh.command(self.inventory, host, remote, CONNECT_TIMEOUT_S)
        return self._exchange(host, command, python, CLOCK_READINGS)

    def _program(self) -> list[str]:
        # On every host mpiexec starts its proxy from its own path (master/run/launch.py).
        proxy = Path(self.inventory.master.python or sys.executable).with_name("hydra_pmi_proxy")
        return ["-P", "-m", "pktswarm.nodes.doctor", "--proxy", str(proxy)]

    def _exchange(self, host: Host, command: list[str], python: str, readings: int) -> Answer:
        with self._started(command) as process:
            clock, start = self._clock(process, readings)
            # Not communicate(): it would lose output that is buffered with the last reading.
            assert process.stdout is not None and process.stderr is not None
            out, err = start + process.stdout.read(), process.stderr.read()
            process.wait()
        if process.returncode < 0:
            return Answer(host, f"no response within {ANSWER_TIMEOUT_S * self.patience:.0f} s")
        try:
            document = json.loads(out) if process.returncode == 0 else None
        except ValueError:
            return Answer(host, f"its output is not a report: {out.strip()[:200]!r}")
        if not isinstance(document, dict):
            return Answer(host, ssh.trouble(process.returncode, err, python))
        return Answer(host, "", cast(HostReport, document), *clock)

    @contextlib.contextmanager
    def _started(self, command: list[str]) -> Iterator[subprocess.Popen[str]]:
        """Starts a process that is killed after the timeout, which ends every read from it."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        timer = threading.Timer(ANSWER_TIMEOUT_S * self.patience, process.kill)
        timer.start()
        self._running.add(process)
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()
            process.communicate()
            self._running.discard(process)

    @staticmethod
    def _clock(process: subprocess.Popen[str], readings: int) -> tuple[tuple[int | None, int | None], str]:
        """Returns (offset, bound) in ns of the reading with the least round trip, and output that is no reading."""
        assert process.stdin is not None and process.stdout is not None
        best: tuple[int, int] | None = None
        line = ""
        with contextlib.suppress(OSError):
            for _ in range(readings):
                sent = time.time_ns()
                process.stdin.write("?\n")
                process.stdin.flush()
                line = process.stdout.readline()
                if not line.strip().isdecimal():
                    break
                there, line = int(line), ""
                bound = (time.time_ns() - sent) // 2
                if best is None or bound < best[1]:
                    best = there - (sent + bound), bound
        return best or (None, None), line
