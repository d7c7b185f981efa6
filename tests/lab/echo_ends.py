"""The echo on rx0 of a wire, in a process of its own as in a node's guard; and the other end, tx0."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

import forked
from pktswarm.nodes import libbpf
from pktswarm.traffic.leg import Leg
from wire import PACKET_AUXDATA, PACKET_OUTGOING, SO_RCVBUFFORCE, SOL_PACKET, A, B, Wire, ethtool, inside, with_vlan_tag
from xdp_frames import CHECKED, PLAIN, checksum

ROOT = Path(__file__).parents[2]
UP, BACK = 3, 4
"""The stream that comes, and the one that goes back."""
TIME_NS = 0x112233445566
BROADCAST = b"\xff" * 6
PASS_ALL = struct.pack("=BBhiBBhi", 0xB7, 0, 0, 2, 0x95, 0, 0, 0)
"""r0 = XDP_PASS; exit."""

END = """
import json, sys
from pktswarm.nodes import libbpf
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.receivers.echo import Echo
from pktswarm.traffic.errors import PktswarmError
from pktswarm.traffic.protocol.task import leg_from_json
given = json.loads(sys.argv[1])
interface = Interface("rx0")
try:
    echo = Echo(interface, [leg_from_json(leg) for leg in given["legs"]], given["alone"], given["counted"])
except PktswarmError as error:
    print(type(error).__name__, error)
    sys.exit(9)
link = libbpf.attach_program(echo.program_fd, interface.index, "native")
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if order == "counts":
        answer = [vars(one) for one in echo.counts({})]
    elif order == "flow":
        flow = echo.flows()[0]
        answer = {name: getattr(flow, name) for name, _ in flow._fields_ if name != "users"}
    else:
        found = [libbpf.run_once(echo.program_fd, bytes.fromhex(frame)) for frame in order]
        answer = [[verdict, frame.hex()] for verdict, frame in found]
    print(json.dumps(answer), flush=True)
"""


class End:
    """The program alone: no counter stands in front of it."""

    def __init__(self, wire: Wire, percent: int, alone: bool = True, counted: bool = False, leg: Leg | None = None):
        leg = leg or Leg(BACK, "echo", "b", "a", "stream", "xdp", echo_of=UP)
        legs = [{**leg.to_json(), "echo_percent": percent}]
        given = json.dumps({"legs": legs, "alone": alone, "counted": counted})
        command = ["ip", "netns", "exec", wire.receiver, sys.executable, "-c", END, given]
        self.process = forked.popen(command, stdin=PIPE, stdout=PIPE, cwd=ROOT)
        assert self.process.stdout is not None
        self.first_words = self.process.stdout.readline().strip()

    def __enter__(self) -> End:
        assert self.first_words == "ready", self.first_words
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def _ask(self, order: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def run(self, *frames: bytes) -> list[tuple[int, bytes]]:
        """The verdict on each, and what it has become."""
        return [(verdict, bytes.fromhex(frame)) for verdict, frame in self._ask([frame.hex() for frame in frames])]

    def flow(self) -> dict[str, int]:
        return dict(self._ask("flow"))

    def counts(self) -> dict[str, Any]:
        """Of the one leg, checked by the engine."""
        return dict(self._ask("counts")[0])


class Near:
    """tx0, which takes frames from a program: sends raw, and hears what comes."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._link = wire, -1
        with inside(wire.sender):
            self._program = libbpf.load_program("pass", PASS_ALL)
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
        self._socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self._socket.bind(("tx0", 3))
        self.take_live_frames(True)

    def take_live_frames(self, yes: bool) -> None:
        """A veth end takes them with an XDP program, or with GRO."""
        if yes and self._link < 0:
            with inside(self._wire.sender):
                self._link = libbpf.attach_program(self._program, socket.if_nametoindex("tx0"), "native")
        elif not yes and self._link >= 0:
            os.close(self._link)
            self._link = -1
            ethtool(self._wire.sender, "-K", "tx0", "gro", "off")

    def close(self) -> None:
        self._socket.close()
        for descriptor in (self._link, self._program):
            if descriptor >= 0:
                os.close(descriptor)

    def send(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._socket.send(frame)

    def heard(self, expected: int, limit_s: float = 5.0) -> list[bytes]:
        """What came, until so many have, and a moment more for what is too much; announcements of the MAC left out."""
        frames: list[bytes] = []
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self._socket.settimeout(0.1 if len(frames) >= expected else 1.0)
            try:
                data, ancillary, _, address = self._socket.recvmsg(4096, 256)
            except TimeoutError:
                if len(frames) >= expected:
                    break
                continue
            if address[2] != PACKET_OUTGOING and data[:6] != BROADCAST:
                frames.append(with_vlan_tag(data, ancillary))
        return frames


@contextlib.contextmanager
def near_end(wire: Wire) -> Iterator[Near]:
    near = Near(wire)
    try:
        yield near
    finally:
        near.close()


SHAPES = (
    *("udp4", "udp6", "tcp4", "tcp6", "vlan", "vlan6", "qinq", "ip options", "tcp options", "no checksum"),
    *("plain", "large"),
)


def frame(shape: str, turned: bool = False, stream: int = UP, sequence: int = 5, more: bytes = b"") -> bytes:
    """Of a stamped stream from tx0 to rx0, or as it goes back: made by scapy, checksums included."""
    one, two = (
        {"mac": A, 4: "10.0.0.1", 6: "fd00::1", "port": 1000},
        {"mac": B, 4: "10.0.0.2", 6: "fd00::2", "port": 9},
    )
    here, there = (two, one) if turned else (one, two)
    version = 6 if "6" in shape or shape == "qinq" else 4
    network = (IPv6 if version == 6 else IP)(src=here[version], dst=there[version])
    if shape == "ip options":
        network.options = [IPOption_NOP()] * 4
    ports = {"sport": here["port"], "dport": there["port"]}
    transport: Packet = TCP(**ports, flags="A", seq=7) if shape.startswith("tcp") else UDP(**ports)
    if shape == "tcp options":
        transport.options = [("NOP", None)] * 8
    if shape == "no checksum":
        transport.chksum = 0
    tags: dict[str, list[Packet]] = {
        "vlan": [Dot1Q(vlan=10, prio=3)],
        "vlan6": [Dot1Q(vlan=10)],
        "qinq": [Dot1AD(vlan=20), Dot1Q(vlan=10)],
    }
    made: Packet = Ether(src=here["mac"], dst=there["mac"])
    for layer in [*tags.get(shape, []), network, transport]:
        made /= layer
    body = b"\xa5" * (1300 if shape == "large" else 21) + more
    return bytes(made / Raw(stamp(stream, sequence, body, PLAIN if shape == "plain" else CHECKED)))


def stamp(stream: int, sequence: int, body: bytes, magic: int = CHECKED) -> bytes:
    made = struct.pack(">HH", magic, stream) + sequence.to_bytes(6, "big") + TIME_NS.to_bytes(8, "big")
    check = 0xFFFF - int.from_bytes(made, "big") % 0xFFFF
    made = made[:10] + check.to_bytes(2, "big") + made[12:]
    return made + (struct.pack(">I", checksum(body)) if magic == CHECKED else b"") + body
