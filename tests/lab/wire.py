"""A wire between two throwaway namespaces, `tx0` in the one and `rx0` in the other; with a device in its middle too."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
CLONE_NEWNET = 0x40000000
SO_RCVBUFFORCE, SOL_PACKET, PACKET_AUXDATA, PACKET_OUTGOING, TP_STATUS_VLAN_VALID = 33, 263, 8, 4, 0x10
EMULATED = bool(os.environ.get("PKTSWARM_VM"))
"""Inside lab.vm, where processors are emulated: a process takes seconds to start."""


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def ethtool(namespace: str, *words: str) -> str:
    command = ["ip", "netns", "exec", namespace, "ethtool", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def shown(namespace: str, interface: str) -> dict[str, Any]:
    """What `ip` tells of an interface, its counters included."""
    return dict(json.loads(ip("-n", namespace, "-j", "-s", "link", "show", interface))[0])


def with_vlan_tag(frame: bytes, ancillary: list[tuple[int, int, bytes]]) -> bytes:
    """The kernel takes the outer tag out of a frame, and tells it apart (struct tpacket_auxdata)."""
    told = {(level, kind): value for level, kind, value in ancillary}
    status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", told[SOL_PACKET, PACKET_AUXDATA])
    return frame[:12] + struct.pack(">HH", tpid, tci) + frame[12:] if status & TP_STATUS_VLAN_VALID else frame


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread, and the processes it starts, are in `namespace`."""
    libc = ctypes.CDLL(None, use_errno=True)
    home, there = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        assert libc.setns(there, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        yield
    finally:
        assert libc.setns(home, CLONE_NEWNET) == 0
        os.close(home)
        os.close(there)


class Wire:
    """`queues`: of both ends; None: as the kernel makes them, which is one in use."""

    def __init__(self, queues: int | None = None) -> None:
        tail = uuid.uuid4().hex[:8]
        self.sender, self.receiver = f"pk-a-{tail}", f"pk-b-{tail}"
        self.given = ["numtxqueues", str(queues), "numrxqueues", str(queues)] if queues else []

    @property
    def namespaces(self) -> tuple[str, ...]:
        return self.sender, self.receiver

    def up(self) -> None:
        self._up()
        self.join((self.sender, "tx0", A), (self.receiver, "rx0", B))

    def _up(self) -> None:
        for name in self.namespaces:
            ip("netns", "add", name)
            # Without IPv6 the kernel sends nothing of its own on the wire.
            for which in ("all", "default"):
                ip("netns", "exec", name, "sysctl", "-qw", f"net.ipv6.conf.{which}.disable_ipv6=1")

    def join(self, *ends: tuple[str, str, str]) -> None:
        """A veth pair: namespace, interface and address of each end."""
        one, two = ([interface, "address", mac, *self.given] for _, interface, mac in ends)
        peer = ["type", "veth", "peer", "name", *two, "netns", ends[1][0]]
        ip("-n", ends[0][0], "link", "add", *one, *peer)
        for namespace, interface, _ in ends:
            ip("-n", namespace, "link", "set", interface, "up")

    def down(self) -> None:
        for name in self.namespaces:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def address(self) -> None:
        """192.0.2.1 at the sender, 192.0.2.2 at the receiver."""
        for namespace, interface, address in ((self.sender, "tx0", "192.0.2.1"), (self.receiver, "rx0", "192.0.2.2")):
            ip("-n", namespace, "address", "add", f"{address}/24", "dev", interface)

    def take_live_frames(self, yes: bool) -> None:
        """A veth end takes them with GRO, or with an XDP program."""
        ethtool(self.receiver, "-K", "rx0", "gro", "on" if yes else "off")

    def receive_in_threads(self) -> None:
        """The kernel's own threads take what comes in, not whatever process has the processor. On a busy machine they
        get less of it than the sender, which so fills the ring there, too."""
        others = receiving_threads()
        ip("netns", "exec", self.receiver, "sh", "-c", "echo 1 > /sys/class/net/rx0/threaded")
        threads = receiving_threads() - others
        assert threads
        for thread in threads:
            os.setpriority(os.PRIO_PROCESS, thread, 10)

    def counter(self, side: str, what: str = "packets") -> int:
        """Of the sender's end what it sent ("tx"), of the receiver's what it took ("rx")."""
        namespace, interface = (self.sender, "tx0") if side == "tx" else (self.receiver, "rx0")
        return int(shown(namespace, interface)["stats64"][side][what])

    def settled(self, packets: int) -> bool:
        """Whether the receiving end takes so many and no more: what is in its ring takes a while to be counted."""
        deadline = time.monotonic() + 20
        while self.counter("rx") < packets and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.counter("rx") == packets


def receiving_threads() -> set[int]:
    """The kernel's threads for what comes in at any interface rx0, of this test or another."""
    found = set()
    for name in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # it has ended
            if name.read_text().startswith("napi/rx0"):
                found.add(int(name.parent.name))
    return found


class Line(Wire):
    """tx0 – in0 [device] out0 – rx0: whatever crosses is carried by a device of the test's own."""

    def __init__(self, queues: int | None = None) -> None:
        super().__init__(queues)
        self.device = self.sender.replace("pk-a-", "pk-d-")

    @property
    def namespaces(self) -> tuple[str, ...]:
        return self.sender, self.device, self.receiver

    def up(self) -> None:
        self._up()
        self.join((self.sender, "tx0", A), (self.device, "in0", "02:00:00:00:00:d1"))
        self.join((self.receiver, "rx0", B), (self.device, "out0", "02:00:00:00:00:d2"))
        ethtool(self.device, "-K", "in0", "gro", "on", "rxvlan", "off")
        ethtool(self.device, "-K", "out0", "tso", "off", "gso", "off")

    def lost_on_the_way(self) -> dict[str, int]:
        """Frames that an interface lost although the device had not been told to: none, or the test says nothing."""
        # What the sender's own ring refuses, the sender knows of and counts as not sent.
        return {"tx0": self._dropped(self.sender, "tx0") - self._refused(), "out0": self._dropped(self.device, "out0")}

    @staticmethod
    def _dropped(namespace: str, interface: str) -> int:
        return int(shown(namespace, interface)["stats64"]["tx"]["dropped"])

    def _refused(self) -> int:
        """Of the drops, those of XDP frames."""
        told = [line.split() for line in ethtool(self.sender, "-S", "tx0").splitlines()]
        return sum(int(words[-1]) for words in told if words[0].startswith("tx_") and "xdp_xmit_errors" in words[0])
