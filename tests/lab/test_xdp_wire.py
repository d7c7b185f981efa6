"""The xdp receiver on a wire between two throwaway namespaces: frames sent raw from Python, with known faults."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import pytest

from pktswarm.nodes import availability, libbpf
from pktswarm.traffic.capture import ebpf
from pktswarm.traffic.capture import filter as pcap
from pktswarm.traffic.counting import users
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.leg import FlowUsers
from pktswarm.traffic.protocol.task import ReceiveTask, to_json
from wire import EMULATED, Wire, ethtool, ip, shown
from xdp_ends import ROOT, Node, finish, send, send_raw
from xdp_frames import CHECKED, B, a_leg, mended, stamped

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]

QUEUES = 2
"""With two receive queues the program takes a lock, with one it takes none."""

STAMPING_SENDER = """
import socket, struct, sys, time
channel = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
channel.bind(("tx0", 0))
at = int(sys.argv[1])
for line in [bytearray.fromhex(line) for line in sys.stdin]:
    time.sleep(0.001)
    line[at + 10 : at + 18] = (time.monotonic_ns() % 2**48).to_bytes(8, "big")
    line[at + 10 : at + 12] = (0xFFFF - int.from_bytes(line[at : at + 18], "big") % 0xFFFF).to_bytes(2, "big")
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


@pytest.mark.kernel("[2]")
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
        finish(send_raw(wire, frames))
        tallies, unmatched, counts = node.stop()
    assert wire.counter("tx", "dropped") == 0
    one, two = tallies["0"], tallies["7"]
    assert (8000 - one["distinct"], one["duplicated"], one["reordered"]) == (137, 29, 41)
    assert one["altered"] == len(damaged - doubled) and one["altered_by"] == {"payload": len(damaged - doubled)}
    assert (two["packets"], two["distinct"], two["duplicated"], two["reordered"]) == (7863, 7863, 0, 0)
    assert two["altered"] == 0
    assert [count["received_packets"] for count in counts] == [7863 + 29, 7863]
    assert [count["received_bytes"] for count in counts] == [(7863 + 29) * 160, 7863 * 160]
    assert abs(counts[0]["last_ns"] - time.time_ns()) < 60e9 and counts[0]["first_ns"] < counts[0]["last_ns"]
    assert unmatched["unknown_stream"] == unmatched["fragment"] == unmatched["malformed"] == 0


@pytest.mark.kernel("None-2")
@pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender() or "-")
@pytest.mark.parametrize("wire", [1, 2], indirect=True)
@pytest.mark.parametrize("rate_pps", [100_000.0, None])
def test_the_xdp_senders_stamps_are_counted(wire: Wire, program: Path, tmp_path: Path, rate_pps: float | None) -> None:
    """Paced, and at top speed: every frame is there once, in order, as it was sent."""
    legs = [a_leg(number=3, size_bytes=64), a_leg("vlan", 4)]
    legs = [replace(leg, rate_pps=rate_pps, count_packets=100_000) for leg in legs]
    sent = [replace(leg, options={}) for leg in legs]
    with Node(wire, program, legs) as node:
        counts = send(wire, tmp_path, sent)
        tallies, _, _ = node.stop()
    for leg, count in zip(legs, counts, strict=True):
        one = tallies[str(leg.id)]
        assert count["sent_packets"] == one["packets"] == one["distinct"] == 100_000
        assert (one["duplicated"], one["reordered"], one["altered"], one["invalid_sequence"]) == (0, 0, 0, 0)
        assert one["latency"]["frames"] == 100_000 and 0 < one["latency"]["p50_ns"] < 10_000_000


@pytest.mark.kernel
def test_two_cpus_at_once_count_as_one(wire: Wire, program: Path) -> None:
    """Two senders, each with a CPU of its own, and each number once: none is lost, none twice."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    leg = a_leg()
    with Node(wire, program, [leg]) as node:
        senders = [send_raw(wire, [stamped(leg, n) for n in range(cpu, 40_000, 2)], argument=cpu) for cpu in (0, 1)]
        for sender in senders:
            finish(sender)
        tallies, _, _ = node.stop()
    one = tallies["0"]
    assert (one["packets"], one["distinct"], one["duplicated"]) == (40_000, 40_000, 0)
    assert one["too_late"] == one["invalid_sequence"] == one["altered"] == 0


def test_users_on_two_cpus_at_once_are_whole(wire: Wire, program: Path) -> None:
    """Frames of the same few users come in on both CPUs: packets, distinct numbers and latencies are exact."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    leg = a_leg(users=FlowUsers(field="udp.src", by="src_port", first=1000, step=1, count=4))
    shape = [*leg.frame["headers"][:2], {"udp": {"src": {"increment": [1000, 1003]}, "dst": 2000}}]
    leg = replace(leg, frame={**leg.frame, "headers": shape})

    def of_user(n: int) -> bytes:
        frame = stamped(leg, n, time.monotonic_ns())
        return mended(frame[:34] + (1000 + n // 2 % 4).to_bytes(2, "big") + frame[36:])

    with Node(wire, program, [leg]) as node:
        senders = [send_raw(wire, [of_user(n) for n in range(cpu, 40_000, 2)], argument=cpu) for cpu in (0, 1)]
        for sender in senders:
            finish(sender)
        tallies, _, (count,) = node.stop()
    found = {name: users.unpack(column) for name, column in count["users"].items()}
    assert tallies["0"]["packets"] == tallies["0"]["distinct"] == 40_000
    assert found["packets"] == found["distinct"] == found["latencies"] == [10_000] * 4 + [0]
    assert found["bytes"] == [10_000 * 160] * 4 + [0]
    assert min(found["latency_min_ns"][:4]) == tallies["0"]["latency"]["min_ns"]
    assert max(found["latency_max_ns"][:4]) == tallies["0"]["latency"]["max_ns"]


@pytest.mark.kernel
def test_a_filter_stands_before_the_count(wire: Wire, program: Path) -> None:
    """On the wire, tags included: what it keeps out goes on to the host and is counted as filtered."""
    legs = [a_leg(), a_leg("vlan", 7)]
    text = ebpf.to_hex(ebpf.translate(pcap.compile_ethernet("vlan 10 and udp", "test")))
    with Node(wire, program, legs, filter_program=text) as node:
        assert node.attached == "native"
        finish(send_raw(wire, [stamped(leg, n) for n in range(500) for leg in legs]))
        tallies, unmatched, _ = node.stop()
    assert (tallies["0"]["packets"], tallies["7"]["packets"], tallies["7"]["distinct"]) == (0, 500, 500)
    assert unmatched["filtered"] >= 500


def test_the_hosts_own_traffic_passes(wire: Wire, program: Path) -> None:
    """ARP and a datagram go on to the stack, which answers, and are counted apart; test traffic does not reach it."""
    leg = a_leg()
    wire.address()
    with Node(wire, program, [leg]) as node:
        ip("netns", "exec", wire.sender, sys.executable, "-c", KNOCK)
        finish(send_raw(wire, [stamped(leg, n) for n in range(100)]))
        tallies, unmatched, _ = node.stop()
    assert tallies["0"]["packets"] == 100
    assert unmatched["other"] >= 2  # an ARP request and the datagram


@pytest.mark.parametrize("wire", [1, 2], indirect=True)
def test_samples_do_not_stop_the_count(wire: Wire, program: Path) -> None:
    leg = a_leg()
    with Node(wire, program, [leg]) as node:
        sender = send_raw(wire, [stamped(leg, n) for n in range(20_000)])
        seen = []
        while sender.poll() is None:
            seen.append(node.sample()["0"])
        finish(sender)
        tallies, _, _ = node.stop()
    assert (wire.counter("tx", "dropped"), tallies["0"]["distinct"]) == (0, 20_000)
    packets = [one["packets"] for one in seen]
    assert packets == sorted(packets)
    # The figures of a sample belong together, with a lock and without.
    assert [one for one in seen if one["packets"] != one["distinct"] or one["missing"]] == []


@pytest.mark.kernel
def test_a_killed_receiver_leaves_nothing_attached(wire: Wire, program: Path) -> None:
    with Node(wire, program, [a_leg()]) as node:
        assert "xdp" in shown(wire.receiver, "rx0")
        node.process.kill()
        node.process.wait()
    deadline = time.monotonic() + 5
    while "xdp" in shown(wire.receiver, "rx0"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


RANK = """
import sys
from pktswarm.nodes import guard
from pktswarm.traffic.protocol import guard_orders
pipe = guard.spawn("nobody")
pipe.send(guard_orders.Prepare("receive", sys.argv[1]))

while pipe.receive(0.5) or not pipe.closed:
    for event, _ in pipe.messages():
        print(event.NAME, getattr(event, "problem", ""), flush=True)
    if not pipe.closed:
        pipe.send(guard_orders.Word())
"""


MEND = "from pktswarm.nodes import stale_spools; print(stale_spools.mend(stale_spools.SPOOLS, stale_spools.SPOOLS))"


def test_a_killed_guard_leaves_nothing_attached(wire: Wire) -> None:
    """And what it left changed, with its folder, is found by the next one."""
    task = json.dumps(to_json(ReceiveTask("rx0", B, [a_leg()], 60, mode="count", engine="xdp")))
    words = ["ip", "netns", "exec", wire.receiver, sys.executable, "-c", RANK, task]
    rank = subprocess.Popen(words, stdout=PIPE, text=True, cwd=ROOT)
    try:
        assert rank.stdout is not None and rank.stdout.readline().split() == ["ready"]
        assert "xdp" in shown(wire.receiver, "rx0")
        [guard] = Path(f"/proc/{rank.pid}/task/{rank.pid}/children").read_text().split()
        os.kill(int(guard), signal.SIGKILL)
        deadline = time.monotonic() + 5
        while "xdp" in shown(wire.receiver, "rx0"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        mend = ["ip", "netns", "exec", wire.receiver, sys.executable, "-c", MEND]
        assert "rxvlan of rx0" in subprocess.run(mend, check=True, capture_output=True, text=True, cwd=ROOT).stdout
        assert "rx-vlan-offload: on" in ethtool(wire.receiver, "-k", "rx0")
    finally:
        rank.kill()
        rank.wait()


@pytest.mark.kernel
def test_frames_too_large_for_native_xdp_are_counted_by_generic(wire: Wire, program: Path) -> None:
    """veth refuses a native program whose frames would not fit one buffer."""
    for namespace, interface in ((wire.sender, "tx0"), (wire.receiver, "rx0")):
        ip("-n", namespace, "link", "set", interface, "mtu", "9000")
    leg = a_leg()
    with Node(wire, program, [leg]) as node:
        assert node.attached.startswith("generic: veth has no native XDP")
        finish(send_raw(wire, [stamped(leg, n, magic=CHECKED) for n in range(3000) if n % 100 != 7]))
        tallies, _, _ = node.stop()
    assert (tallies["0"]["distinct"], tallies["0"]["highest"], tallies["0"]["altered"]) == (2970, 2999, 0)


@pytest.mark.kernel
def test_where_the_driver_cannot_it_is_generic(wire: Wire, program: Path) -> None:
    """A bridge has no native XDP. GRO goes off meanwhile, because generic XDP comes after it."""
    ip("-n", wire.receiver, "link", "add", "br0", "address", B, "type", "bridge")
    ip("-n", wire.receiver, "link", "set", "rx0", "master", "br0")
    ip("-n", wire.receiver, "link", "set", "br0", "up")
    before = ethtool(wire.receiver, "-k", "br0")
    assert "generic-receive-offload: on" in before
    leg = a_leg()
    with Node(wire, program, [leg], "br0") as node:
        assert node.attached.startswith("generic: bridge has no native XDP")
        assert "generic-receive-offload: off" in ethtool(wire.receiver, "-k", "br0")
        finish(send_raw(wire, [stamped(leg, n) for n in range(2000) if n % 100 != 7]))
        tallies, _, _ = node.stop()
    assert (tallies["0"]["distinct"], tallies["0"]["highest"], tallies["0"]["altered"]) == (1980, 1999, 0)
    assert ethtool(wire.receiver, "-k", "br0") == before


def test_the_interface_is_left_as_it_was(wire: Wire, program: Path) -> None:
    """Tags are not taken out of frames meanwhile, where the program could not see them."""
    before = ethtool(wire.receiver, "-k", "rx0")
    assert "rx-vlan-offload: on" in before
    with Node(wire, program, [a_leg()]) as node:
        assert "rx-vlan-offload: off" in ethtool(wire.receiver, "-k", "rx0")
        node.stop()
    assert ethtool(wire.receiver, "-k", "rx0") == before


def test_an_interface_with_another_program_is_an_error(wire: Wire, program: Path) -> None:
    with Node(wire, program, [a_leg()]), Node(wire, program, [a_leg()]) as second:
        assert second.attached.startswith("EngineError libbpf: attaching")


@pytest.mark.kernel
def test_latency_agrees_with_a_captures_timestamps(wire: Wire, program: Path) -> None:
    """A packet socket behind the program sees the same frames a little later: the kernel's receive timestamps."""
    leg = a_leg()
    at = layout(stamped(leg, 0)).payload
    with Node(wire, program, [leg], mode="capture") as node, Listener(wire.receiver) as listener:
        finish(send_raw(wire, [stamped(leg, n) for n in range(500)], STAMPING_SENDER, at))
        theirs = sorted(listener.latencies(500, at))
        tallies, _, _ = node.stop()
    ours = tallies["0"]["latency"]
    assert ours["frames"] == len(theirs) == 500
    # A frame's timestamp is given when the batch it came in goes up the stack: emulated, that takes its time.
    most_ns = 1_000_000 if EMULATED else 50_000
    assert -5_000 < theirs[0] - ours["min_ns"] < most_ns
    for name, place in (("p50_ns", 250), ("p90_ns", 450)):
        # A percentile is the middle of a bucket, at most 0.8 % off; of a few frames the timestamp may come late.
        off_ns = 0.008 * ours[name]
        assert -5_000 - off_ns < theirs[place] - ours[name], (name, ours, theirs[place])
        assert theirs[place - 5] - ours[name] < most_ns + off_ns, (name, ours, theirs[place - 5])


LISTENER = """
import socket, struct, sys, time
channel = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
channel.bind(("rx0", 3))
channel.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
channel.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE: read at the end only
print("ready", flush=True)
# What comes between the two readings makes the difference too small.
to_utc = max(time.time_ns() - time.monotonic_ns() for _ in range(100))
count, at = (int(word) for word in sys.stdin.readline().split())
channel.settimeout(10)
while count:
    frame, beside, _, _ = channel.recvmsg(2048, 256)
    if frame[at : at + 2] == b"PS":
        seconds, rest = struct.unpack("qq", beside[0][2][:16])
        print((seconds * 10**9 + rest - to_utc - int.from_bytes(frame[at + 12 : at + 18], "big")) % 2**48)
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


def test_frames_made_up_for_are_not_lost(wire: Wire, program: Path, tmp_path: Path) -> None:
    """What a full ring drops has used up its number, so numbers go on beyond the leg's count."""
    wire.take_live_frames(True)
    wire.receive_in_threads()
    leg = a_leg(count_packets=300_000)
    with Node(wire, program, [leg]) as node:
        (count,) = send(wire, tmp_path, [leg])
        assert wire.settled(count["sent_packets"])
        tallies, unmatched, _ = node.stop()
    assert count["failed_packets"] > 0
    figures = [tallies["0"][name] for name in ("distinct", "packets", "duplicated", "invalid_sequence", "too_late")]
    assert figures == [count["sent_packets"], 300_000, 0, 0, 0], unmatched
