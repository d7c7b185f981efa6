"""The part of the socket engine that a sender and a receiver share: the address, the process, its result."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

from pktswarm.nodes.connections.address import Address
from pktswarm.nodes.connections.work import Work
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.process import EngineProcess
from pktswarm.nodes.start_fifo import Gate
from pktswarm.traffic.connections.counts import EndCount
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import Role

NAME = "socket"


class ConnectionProcess:
    """Runs the legs of one rank in a process of their own, for the rank's engine."""

    def __init__(self, role: Role, interface: str, legs: list[Leg], limit_s: float, spool: Path) -> None:
        self.role, self.interface, self.legs, self.limit_s = role, interface, legs, limit_s
        self._work = spool / f"socket-{role}.json"
        self._result = spool / f"socket-{role}-result.json"
        self._gate = Gate(NAME, spool / f"socket-{role}.release")
        shape = legs[0].connection
        self.address = Address(interface, shape.source_ipv4 if role == "transmit" else shape.target_ipv4)
        command = [sys.executable, "-P", "-m", "pktswarm.nodes.connections.program", str(self._work)]
        self.process = EngineProcess(NAME, command, spool / f"socket-{role}.out", limit_s)

    def prepare(self) -> None:
        if not Interface(self.interface).exists():
            raise BadInput(self.interface, "there is no such interface")
        _check_congestion(self.interface, self.legs)
        self.address.add(self.limit_s)
        self._gate.open()
        Work(self.role, self.interface, self.legs, str(self._result), str(self._gate.file)).write(self._work)
        self.process.start()

    def release(self, at_ns: int) -> None:
        self._gate.release(at_ns)

    def ready(self) -> bool:
        """Returns whether all connections are set up. Raises EngineError with the first failure."""
        text = self.process.output()
        if failed := [line for line in text.splitlines() if line.startswith("failed: ")]:
            raise EngineError(NAME, failed[0].removeprefix("failed: "))
        return "ready\n" in text

    def done(self) -> bool:
        return self.process.started and not self.process.running()

    def stop(self) -> None:
        self.process.stop()
        self._gate.remove()

    def restore(self) -> None:
        self.stop()
        self.address.remove()

    def counts(self) -> dict[int, EndCount]:
        """Returns the counts by leg id. Raises EngineError when the process did not end in order."""
        self.process.check()
        if not self._result.exists():
            raise EngineError(NAME, "the process ended without writing its counts", self.process.output())
        return {int(leg): EndCount.from_json(count) for leg, count in json.loads(self._result.read_text()).items()}


def _check_congestion(interface: str, legs: list[Leg]) -> None:
    """Raises BadInput for a congestion control that a socket refuses. Asking makes the kernel load its module."""
    for name in {leg.connection.congestion for leg in legs if leg.connection.congestion}:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            except OSError:
                raise BadInput(
                    interface, "not in the kernel", key="congestion", value=name, allowed=_congestions()
                ) from None


def _congestions() -> str:
    return ", ".join(Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split())
