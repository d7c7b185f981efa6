"""Every host of an inventory is asked at once, over SSH as the ranks are started; the master is asked here."""

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
from typing import Any

from pktswarm.master.cluster import ssh
from pktswarm.master.cluster.inventory import Host, Inventory

CONNECT_TIMEOUT_S = 3
ANSWER_TIMEOUT_S = 20.0
CLOCK_READINGS = 8


@dataclass(frozen=True)
class Answer:
    """What a host told. `trouble`: why it told nothing. `offset_ns`: its CLOCK_REALTIME less the master's, within
    `bound_ns`; None of the master itself."""

    host: Host
    trouble: str = ""
    document: dict[str, Any] | None = None
    offset_ns: int | None = None
    bound_ns: int | None = None


class Round:
    """One round of questions; cancel() ends what is still under way."""

    def __init__(self, inventory: Inventory, patience: float = 1.0, mend: bool = False) -> None:
        self.inventory, self.patience, self.mend = inventory, patience, mend
        self._running: set[subprocess.Popen[str]] = set()

    def answers(self, told: Callable[[Answer], None]) -> list[Answer]:
        """The master's, then the hosts' in the order of the inventory; `told` hears each as it comes."""

        def one(ask: Callable[[], Answer]) -> Answer:
            answer = ask()
            told(answer)
            return answer

        asked = [self._ask_master, *(lambda host=host: self._ask_host(host) for host in self.inventory.hosts)]
        with ThreadPoolExecutor(len(asked)) as pool:
            try:
                return list(pool.map(one, asked))
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
        # mpiexec starts it on every host from the folder that it is in itself (master/run/launch.py).
        proxy = Path(self.inventory.master.python or sys.executable).with_name("hydra_pmi_proxy")
        return ["-P", "-m", "pktswarm.nodes.doctor", "--proxy", str(proxy)]

    def _exchange(self, host: Host, command: list[str], python: str, readings: int) -> Answer:
        with self._started(command) as process:
            clock, words = self._clock(process, readings)
            # Not communicate(): what came with the last time would be lost to it.
            assert process.stdout is not None and process.stderr is not None
            out, err = words + process.stdout.read(), process.stderr.read()
            process.wait()
        if process.returncode < 0:
            return Answer(host, f"does not answer within {ANSWER_TIMEOUT_S * self.patience:.0f} s")
        try:
            document = json.loads(out) if process.returncode == 0 else None
        except ValueError:
            return Answer(host, f"does not say what was asked: {out.strip()[:200]!r}")
        if not isinstance(document, dict):
            return Answer(host, ssh.trouble(process.returncode, err, python))
        return Answer(host, "", document, *clock)

    @contextlib.contextmanager
    def _started(self, command: list[str]) -> Iterator[subprocess.Popen[str]]:
        """Killed when its time is over, which ends every read from it."""
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
        """(offset, bound) in nanoseconds, of several readings the least round trip wins; and what came that is none."""
        assert process.stdin is not None and process.stdout is not None
        best: tuple[int, int] | None = None
        words = ""
        with contextlib.suppress(OSError):
            for _ in range(readings):
                sent = time.time_ns()
                process.stdin.write("?\n")
                process.stdin.flush()
                words = process.stdout.readline()
                if not words.strip().isdecimal():
                    break
                there, words = int(words), ""
                bound = (time.time_ns() - sent) // 2
                if best is None or bound < best[1]:
                    best = there - (sent + bound), bound
        return best or (None, None), words
