"""Network namespaces, legs and a driver for the sender, for the tests that run inside the virtual machine."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pktswarm.nodes.senders.pktgen import PktgenSender
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import SendCount, SendTask
from wire import inside, ip

__all__ = ["RX_MAC", "TX_MAC", "Wire", "headers", "inside", "ip", "leg", "namespaces"]

TX_MAC, RX_MAC = "02:00:00:00:01:01", "02:00:00:00:01:02"


@dataclass
class Wire:
    """Two namespaces and the interface that each has in the other's sight."""

    tx: str
    rx: str
    tx_interface: str
    rx_interface: str

    def received(self) -> int:
        """Frames that the receiving interface has taken, by its own counter."""
        shown: list[dict[str, Any]] = json.loads(ip("-n", self.rx, "-s", "-j", "link", "show", self.rx_interface))
        return int(shown[0]["stats64"]["rx"]["packets"])

    def settled(self) -> int:
        """The receiver's counter, once it stands still."""
        before, now = -1, self.received()
        while before != now:
            time.sleep(0.1)
            before, now = now, self.received()
        return now

    def arrived(self, before: int, wanted: int) -> int:
        """Frames since the counter stood at `before`; waits for `wanted` of them, as a busy host needs its time."""
        deadline = time.monotonic() + 30
        while self.received() - before < wanted and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.settled() - before

    def devices(self) -> list[str]:
        """pktgen's devices in the sender's namespace."""
        with inside(self.tx):
            folder = Path("/proc/net/pktgen")
            return sorted(path.name for path in folder.iterdir() if "@" in path.name) if folder.exists() else []

    def send(self, spool: Path, *legs: Leg, within_s: float = 60.0) -> list[SendCount]:
        """The sender from prepare to restore, as the guard drives it."""
        with inside(self.tx):
            sender = self.sender(spool, *legs, limit_s=within_s)
            try:
                sender.prepare()
                sender.start(time.monotonic_ns() + 50_000_000)
                deadline = time.monotonic() + within_s
                while not sender.done():
                    assert time.monotonic() < deadline, sender.log.read_text()
                    time.sleep(0.02)
                sender.stop()
                return sender.counts()
            finally:
                sender.stop()
                sender.restore()

    def sender(self, spool: Path, *legs: Leg, limit_s: float = 60.0) -> PktgenSender:
        return PktgenSender(SendTask(self.tx_interface, list(legs), limit_s), spool)


def namespaces(*names: str) -> None:
    for name in names:
        ip("netns", "add", name)
        # Neighbour discovery would be counted with the traffic.
        subprocess.run(
            ["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"], check=True, timeout=30
        )


def leg(identity: int = 0, **changes: Any) -> Leg:
    """A leg of 64-byte UDP frames, changed as asked."""
    values: dict[str, Any] = {
        "id": identity,
        "stream": "test",
        "source": "tx",
        "target": "rx",
        "kind": "stream",
        "engine": "pktgen",
        "frame": {"headers": headers()},
        "count_packets": 1000,
    }
    return Leg(**{**values, **changes})


def headers(*tags: dict[str, Any], ip_header: dict[str, Any] | None = None, **udp: Any) -> list[dict[str, Any]]:
    address = ip_header or {"ipv4": {"src": "10.9.0.1", "dst": "10.9.0.2"}}
    return [{"ethernet": {"src": TX_MAC, "dst": RX_MAC}}, *tags, address, {"udp": {"src": 5000, "dst": 6000, **udp}}]
