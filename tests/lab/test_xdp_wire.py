"""The xdp receiver on a wire between two throwaway namespaces: frames sent raw from Python, with known faults."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from nodes import libbpf
from nodes.senders.xdp import XdpSender
from traffic.expect import layout
from traffic.task import Leg, ReceiveTask, SendTask

sys.path.insert(0, str(Path(__file__).parent))
from xdp_frames import CHECKED, ROOT, A, B, a_leg, compile_program, stamped

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
    pytest.mark.skipif(not shutil.which("clang"), reason="clang is not installed"),
]

RECEIVER = """
import json, sys, time
from pathlib import Path
from nodes.receivers.xdp import XdpReceiver
from traffic.task import receive_task_from_json
from traffic.errors import PktswarmError
XdpReceiver.object_file = Path(sys.argv[2])
engine = XdpReceiver(receive_task_from_json(json.loads(sys.argv[1])), Path(sys.argv[2]).parent)
try:
    engine.prepare()
    engine.start(time.monotonic_ns())
    print(engine.attached, flush=True)
    for line in sys.stdin:
        if line == "stop\\n":
            break
        print(json.dumps(engine.sample()), flush=True)
    engine.stop()
    counts = engine.counts()
    tallies = {leg: one.to_json() for leg, one in engine.tallies().items()}
    print(json.dumps([tallies, engine.strangers(), [vars(one) for one in counts]]))
except PktswarmError as error:
    print(type(error).__name__, error)
    sys.exit(9)
finally:
    engine.stop()
    engine.restore()
"""
SENDER = """
import os, socket, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
channel = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
channel.bind(("tx0", 0))
for number, line in enumerate([bytes.fromhex(line) for line in sys.stdin]):
    channel.send(line)
    if number % 64 == 0:  # the ring between the two ends has 256 places
        time.sleep(0.0005)
"""
STAMPING_SENDER = """
import socket, struct, sys, time
channel = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
channel.bind(("tx0", 0))
at = int(sys.argv[1]) + 10
for line in [bytearray.fromhex(line) for line in sys.stdin]:
    time.sleep(0.001)
    line[at : at + 8] = struct.pack(">Q", time.monotonic_ns())
    channel.send(line)
"""


KNOCK = """
import socket
channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
channel.settimeout(10)
channel.connect(("192.0.2.2", 9))
channel.send(b"is anybody there?")
try:
    channel.recv(1)
    raise SystemExit("an answer from a closed port")
except ConnectionRefusedError:  # the other end's stack says so
    pass
"""


LIVE_SENDER = """
import json, sys, time
from pathlib import Path
from nodes.senders.xdp import XdpSender
from traffic.task import send_task_from_json
engine = XdpSender(send_task_from_json(json.loads(sys.argv[1])), Path(sys.argv[2]))
try:
    engine.prepare()
    engine.start(time.monotonic_ns() + 300_000_000)
    deadline = time.monotonic() + 30
    while not engine.done() and time.monotonic() < deadline:
        time.sleep(0.01)
    engine.stop()
    print(json.dumps([vars(one) for one in engine.counts()]))
finally:
    engine.stop()
    engine.restore()
"""


class Wire:
    """Namespaces a and b, tx0 in the one and rx0 in the other."""

    def __init__(self) -> None:
        tail = uuid.uuid4().hex[:8]
        self.sender, self.receiver = f"xr-a-{tail}", f"xr-b-{tail}"

    def up(self, queues: int) -> None:
        for name in (self.sender, self.receiver):
            _ip("netns", "add", name)
        given = ["numtxqueues", str(queues), "numrxqueues", str(queues)]
        peer = ["peer", "name", "rx0", "address", B, *given, "netns", self.receiver]
        _ip("-n", self.sender, "link", "add", "tx0", "address", A, *given, "type", "veth", *peer)
        for name, interface, address in ((self.sender, "tx0", "192.0.2.1"), (self.receiver, "rx0", "192.0.2.2")):
            # Without IPv6 the kernel sends nothing of its own on the wire.
            _ip("netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", interface)
            _ip("-n", name, "link", "set", interface, "up")

    def down(self) -> None:
        for name in (self.sender, self.receiver):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def send(self, frames: list[bytes], script: str = SENDER, argument: int = 0) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", self.sender, sys.executable, "-c", script, str(argument)]
        process = subprocess.Popen(command, stdin=PIPE, stderr=PIPE, text=True)
        assert process.stdin is not None
        process.stdin.write("".join(frame.hex() + "\n" for frame in frames))
        process.stdin.close()
        return process


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def finish(sender: subprocess.Popen[str]) -> None:
    try:
        assert sender.wait(60) == 0, sender.stderr and sender.stderr.read()
    finally:
        sender.kill()
        sender.wait()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("bpf") / "count.bpf.o")


@pytest.fixture(params=[2])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """With two receive queues the program takes a lock, with one it takes none."""
    one = Wire()
    try:
        one.up(request.param)
        yield one
    finally:
        one.down()


class Node:
    """A receiver's whole life in a process of its own inside the namespace, as in a node's guard."""

    def __init__(self, wire: Wire, program: Path, legs: list[Leg], interface: str = "rx0", mode: str = "count") -> None:
        task = json.dumps(asdict(ReceiveTask(interface, B, legs, 60, mode=mode, offsets_ns={"a": 0})))  # type: ignore[arg-type]
        command = ["ip", "netns", "exec", wire.receiver, sys.executable, "-c", RECEIVER, task, str(program)]
        self.process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        self.attached = self.process.stdout.readline().strip()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def sample(self) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("sample\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def stop(self) -> tuple[dict[str, Any], dict[str, int], list[dict[str, Any]]]:
        out, err = self.process.communicate("stop\n", timeout=60)
        assert self.process.returncode == 0, out + err
        tallies, strangers, counts = json.loads(out)
        return tallies, strangers, counts


@pytest.mark.parametrize("wire", [1, 2], indirect=True)
def test_faults_on_a_wire_are_exact(wire: Wire, program: Path) -> None:
    """Two legs: one with 137 lost, 29 doubled, 41 swapped and 23 damaged, its neighbour whole."""
    draw, legs = random.Random(6), [a_leg(), a_leg("vlan", 7)]
    numbers = list(range(8000))
    lost = set(draw.sample(numbers[:-1], 137))
    numbers = [n for n in numbers if n not in lost]
    for at in draw.sample(range(0, 7000, 4), 41):
        numbers[at], numbers[at + 1] = numbers[at + 1], numbers[at]
    doubled, damaged = set(draw.sample(range(7000), 29)), set(draw.sample(range(7000), 23))
    frames: list[bytes] = []
    for at, n in enumerate(numbers):
        frame = bytearray(stamped(legs[0], n, magic=CHECKED))
        frame[100] ^= 4 * (at in damaged and at not in doubled)
        frames += [bytes(frame)] * (1 + (at in doubled))
        frames.append(stamped(legs[1], at))
    with Node(wire, program, legs) as node:
        assert node.attached == "native"
        finish(wire.send(frames))
        tallies, strangers, counts = node.stop()
    assert tx_dropped(wire) == 0
    one, two = tallies["0"], tallies["7"]
    assert (8000 - one["distinct"], one["duplicated"], one["reordered"]) == (137, 29, 41)
    assert one["altered"] == len(damaged - doubled) and one["altered_by"] == {"payload": len(damaged - doubled)}
    assert (two["packets"], two["distinct"], two["duplicated"], two["reordered"]) == (7863, 7863, 0, 0)
    assert two["altered"] == 0
    assert [count["received_packets"] for count in counts] == [7863 + 29, 7863]
    assert [count["received_bytes"] for count in counts] == [(7863 + 29) * 160, 7863 * 160]
    assert abs(counts[0]["last_ns"] - time.time_ns()) < 60e9 and counts[0]["first_ns"] < counts[0]["last_ns"]
    assert strangers["unknown_stream"] == strangers["fragment"] == strangers["malformed"] == 0


@pytest.mark.skipif(bool(XdpSender.missing()), reason=XdpSender.missing() or "-")
@pytest.mark.parametrize("wire", [1, 2], indirect=True)
@pytest.mark.parametrize("rate_pps", [100_000.0, None])
def test_the_xdp_senders_stamps_are_counted(wire: Wire, program: Path, tmp_path: Path, rate_pps: float | None) -> None:
    """Paced, and at top speed: every frame is there once, in order, as it was sent."""
    legs = [a_leg(number=3, size_bytes=64), a_leg("vlan", 4)]
    legs = [replace(leg, rate_pps=rate_pps, count_packets=100_000) for leg in legs]
    sent = [replace(leg, options={}) for leg in legs]
    with Node(wire, program, legs) as node:
        task = json.dumps(asdict(SendTask("tx0", sent, 60)))
        command = ["ip", "netns", "exec", wire.sender, sys.executable, "-c", LIVE_SENDER, task, str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        tallies, _, _ = node.stop()
    for leg, count in zip(legs, json.loads(done.stdout), strict=True):
        one = tallies[str(leg.id)]
        assert count["sent_packets"] == one["packets"] == one["distinct"] == 100_000
        assert (one["duplicated"], one["reordered"], one["altered"], one["astray"]) == (0, 0, 0, 0)
        assert one["latency"]["frames"] == 100_000 and 0 < one["latency"]["p50_ns"] < 10_000_000


def tx_dropped(wire: Wire) -> int:
    shown = json.loads(_ip("-n", wire.sender, "-j", "-s", "link", "show", "tx0"))
    return int(shown[0]["stats64"]["tx"]["dropped"])


def test_two_cpus_at_once_count_as_one(wire: Wire, program: Path) -> None:
    """Two senders, each with a queue and a CPU of its own, and each number once: none is lost, none twice."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    leg = a_leg()
    with Node(wire, program, [leg]) as node:
        senders = [wire.send([stamped(leg, n) for n in range(cpu, 40_000, 2)], argument=cpu) for cpu in (0, 1)]
        for sender in senders:
            finish(sender)
        tallies, _, _ = node.stop()
    one = tallies["0"]
    assert tx_dropped(wire) == 0
    assert (one["packets"], one["distinct"], one["duplicated"]) == (40_000, 40_000, 0)
    assert one["too_late"] == one["astray"] == one["altered"] == 0


def test_the_hosts_own_traffic_passes(wire: Wire, program: Path) -> None:
    """ARP and a datagram go on to the stack, which answers, and are counted apart; test traffic does not reach it."""
    leg = a_leg()
    with Node(wire, program, [leg]) as node:
        _ip("netns", "exec", wire.sender, sys.executable, "-c", KNOCK)
        finish(wire.send([stamped(leg, n) for n in range(100)]))
        tallies, strangers, _ = node.stop()
    assert tallies["0"]["packets"] == 100
    assert strangers["other"] >= 2  # an ARP request and the datagram


@pytest.mark.parametrize("wire", [1, 2], indirect=True)
def test_samples_do_not_stop_the_count(wire: Wire, program: Path) -> None:
    leg = a_leg()
    with Node(wire, program, [leg]) as node:
        sender = wire.send([stamped(leg, n) for n in range(20_000)])
        seen = []
        while sender.poll() is None:
            seen.append(node.sample()["legs"]["0"])
        finish(sender)
        tallies, _, _ = node.stop()
    assert (tx_dropped(wire), tallies["0"]["distinct"]) == (0, 20_000)
    packets = [one["packets"] for one in seen]
    assert packets == sorted(packets)
    # The figures of a sample belong together, with a lock and without.
    assert all(one["packets"] == one["distinct"] and one["missing"] == 0 for one in seen)


def test_a_killed_receiver_leaves_nothing_attached(wire: Wire, program: Path) -> None:
    with Node(wire, program, [a_leg()]) as node:
        assert "xdp" in json.loads(_ip("-n", wire.receiver, "-j", "link", "show", "rx0"))[0]
        node.process.kill()
        node.process.wait()
    deadline = time.monotonic() + 5
    while "xdp" in json.loads(_ip("-n", wire.receiver, "-j", "link", "show", "rx0"))[0]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_where_the_driver_cannot_it_is_generic(wire: Wire, program: Path) -> None:
    """A bridge has no native XDP. GRO goes off meanwhile, because generic XDP comes after it."""
    _ip("-n", wire.receiver, "link", "add", "br0", "address", B, "type", "bridge")
    _ip("-n", wire.receiver, "link", "set", "rx0", "master", "br0")
    _ip("-n", wire.receiver, "link", "set", "br0", "up")
    gro = ["ip", "netns", "exec", wire.receiver, "ethtool", "-k", "br0"]
    before = subprocess.run(gro, check=True, capture_output=True, text=True).stdout
    assert "generic-receive-offload: on" in before
    leg = a_leg()
    with Node(wire, program, [leg], "br0") as node:
        assert node.attached.startswith("generic: bridge has no native XDP")
        assert "generic-receive-offload: off" in subprocess.run(gro, check=True, capture_output=True, text=True).stdout
        finish(wire.send([stamped(leg, n) for n in range(2000) if n % 100 != 7]))
        tallies, _, _ = node.stop()
    assert (tallies["0"]["distinct"], tallies["0"]["highest"], tallies["0"]["altered"]) == (1980, 1999, 0)
    assert subprocess.run(gro, check=True, capture_output=True, text=True).stdout == before


def test_the_interface_is_left_as_it_was(wire: Wire, program: Path) -> None:
    """Tags are not taken out of frames meanwhile, where the program could not see them."""
    command = ["ip", "netns", "exec", wire.receiver, "ethtool", "-k", "rx0"]
    before = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "rx-vlan-offload: on" in before
    with Node(wire, program, [a_leg()]) as node:
        assert "rx-vlan-offload: off" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
        node.stop()
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == before


def test_an_interface_with_another_program_is_an_error(wire: Wire, program: Path) -> None:
    with Node(wire, program, [a_leg()]), Node(wire, program, [a_leg()]) as second:
        assert second.attached.startswith("EngineError libbpf: attaching count")


def test_latency_agrees_with_a_captures_timestamps(wire: Wire, program: Path) -> None:
    """A packet socket behind the program sees the same frames a little later: the kernel's receive timestamps."""
    leg = a_leg()
    at = layout(stamped(leg, 0)).payload
    with Node(wire, program, [leg], mode="capture") as node, Listener(wire.receiver) as listener:
        finish(wire.send([stamped(leg, n) for n in range(500)], STAMPING_SENDER, at))
        theirs = sorted(listener.latencies(500, at))
        tallies, _, _ = node.stop()
    ours = tallies["0"]["latency"]
    assert ours["frames"] == len(theirs) == 500
    for name, place in (("p50_ns", 250), ("p90_ns", 450)):
        assert -5_000 < theirs[place] - ours[name] < 50_000, (name, ours, theirs[place])
    assert -5_000 < theirs[0] - ours["min_ns"] < 50_000


LISTENER = """
import socket, struct, sys, time
channel = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
channel.bind(("rx0", 3))
channel.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
print("ready", flush=True)
to_utc = time.time_ns() - time.monotonic_ns()
count, at = (int(word) for word in sys.stdin.readline().split())
channel.settimeout(10)
while count:
    frame, beside, _, _ = channel.recvmsg(2048, 256)
    if frame[at : at + 2] == b"PS":
        seconds, rest = struct.unpack("qq", beside[0][2][:16])
        (sent,) = struct.unpack_from(">Q", frame, at + 10)
        print(seconds * 10**9 + rest - to_utc - sent)
        count -= 1
"""


class Listener:
    """A packet socket with the kernel's timestamps, in the namespace."""

    def __init__(self, namespace: str) -> None:
        command = ["ip", "netns", "exec", namespace, sys.executable, "-c", LISTENER]
        self.process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def latencies(self, count: int, at: int) -> list[int]:
        out, _ = self.process.communicate(f"{count} {at}\n", timeout=30)
        return [int(line) for line in out.split()]
