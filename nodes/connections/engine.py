"""What the socket engine does alike for a sender and a receiver: the address, the process, its result."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

from pktswarm.nodes.connections.address import Address
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.process import EngineProcess
from pktswarm.nodes.start_fifo import Gate
from pktswarm.traffic.connections.counts import EndCount
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import Role

NAME = "socket"


class ConnectionProcess:
    """The legs of one rank in a process of their own. `ready`, `done` and `counts` are for its engine."""

    def __init__(self, role: Role, interface: str, legs: list[Leg], limit_s: float, spool: Path) -> None:
        self.role, self.interface, self.legs, self.limit_s = role, interface, legs, limit_s
        self._work = spool / f"socket-{role}.json"
        self._result = spool / f"socket-{role}-result.json"
        self._gate = Gate(NAME, spool / f"socket-{role}.release")
        key = "source_ipv4" if role == "transmit" else "target_ipv4"
        self.address = Address(interface, legs[0].connection[key])
        command = [sys.executable, "-P", "-m", "pktswarm.nodes.connections.program", str(self._work)]
        self.process = EngineProcess(NAME, command, spool / f"socket-{role}.out", limit_s)

    def prepare(self) -> None:
        if not Interface(self.interface).exists():
            raise BadInput(self.interface, "there is no such interface")
        _check_congestion(self.interface, self.legs)
        self.address.add(self.limit_s)
        self._gate.open()
        work = {
            "role": self.role,
            "interface": self.interface,
            "legs": [leg.to_json() for leg in self.legs],
            "result": str(self._result),
            "release": str(self._gate.file),
        }
        self._work.write_text(json.dumps(work))
        self.process.start()

    def release(self, at_ns: int) -> None:
        self._gate.release(at_ns)

    def ready(self) -> bool:
        """EngineError for what went wrong on the way there."""
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
        """By leg. EngineError when the process did not end in order."""
        self.process.check()
        if not self._result.exists():
            raise EngineError(NAME, "it ended without its counts", self.process.output())
        return {int(leg): EndCount.from_json(one) for leg, one in json.loads(self._result.read_text()).items()}


def _check_congestion(interface: str, legs: list[Leg]) -> None:
    """By trying: the kernel may load the module for it."""
    for name in {leg.connection["congestion"] for leg in legs if leg.connection["congestion"]}:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            except OSError:
                raise BadInput(
                    interface, "the kernel does not have it", key="congestion", value=name, allowed=_congestions()
                ) from None


def _congestions() -> str:
    return ", ".join(Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split())
