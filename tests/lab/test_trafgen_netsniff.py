"""trafgen to netsniff-ng over one wire between two throwaway namespaces: every frame counted, as it was built."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

import forked
from pktswarm.traffic.capture.netsniff import CaptureFile
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription, Headers
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount, SendTask, to_json
from wire import A, B, Wire, ethtool, ip

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(not shutil.which("trafgen", path="/usr/sbin:/usr/bin"), reason="trafgen is not installed"),
]

ROOT = Path(__file__).parents[2]
ETHERNET = {"ethernet": {"src": A, "dst": B}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "dscp": 46, "df": 1}}
IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}
UDP = {"udp": {"src": 1000, "dst": 2000}}
TCP = {"tcp": {"src": 1000, "dst": 2000, "flags": "syn"}}
VLAN, SVLAN = {"vlan": {"id": 10, "priority": 3}}, {"svlan": {"id": 20}}
SHAPES: dict[str, Headers] = {
    "udp4": [ETHERNET, IPV4, UDP],
    "udp6": [ETHERNET, IPV6, UDP],
    "tcp4": [ETHERNET, IPV4, TCP],
    "tcp6": [ETHERNET, IPV6, TCP],
    "icmp": [ETHERNET, IPV4, {"icmp": {"id": 7}}],
    "icmpv6": [ETHERNET, IPV6, {"icmpv6": {"id": 7}}],
    "vlan": [ETHERNET, VLAN, IPV4, UDP],
    "qinq": [ETHERNET, SVLAN, VLAN, IPV4, UDP],
    "mpls": [ETHERNET, {"mpls": {"label": 16}}, {"mpls": {"label": 17}}, IPV4, UDP],
    "arp": [ETHERNET, {"arp": {"sender_mac": A, "sender_ip": "10.0.0.1", "target_ip": "10.0.0.2"}}],
    "raw": [ETHERNET, {"raw": {"hex": "deadbeef"}}],
    "varying": [
        ETHERNET,
        {"ipv4": {"src": {"increment": ["10.0.0.1", "10.0.0.9"], "step": 2}, "dst": "10.0.1.2"}},
        {"udp": {"src": {"random": [30000, 30999]}, "dst": {"decrement": [20003, 20000]}}},
    ],
    "vlans": [ETHERNET, {"vlan": {"id": {"increment": [100, 107]}}}, IPV4, UDP],
}


DRIVER = """
import json, sys, time
from pathlib import Path
from pktswarm.nodes.receivers.netsniff import NetsniffReceiver
from pktswarm.nodes.senders.trafgen import TrafgenSender
from pktswarm.traffic.protocol.task import receive_task_from_json, send_task_from_json, to_json
from pktswarm.traffic.errors import PktswarmError
role, task, spool = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
engine = (TrafgenSender(send_task_from_json(task), spool) if role == "transmit"
          else NetsniffReceiver(receive_task_from_json(task), spool))
try:
    engine.prepare()
    engine.start(time.monotonic_ns())
    deadline = time.monotonic() + 20
    if role == "transmit":
        while not engine.done() and time.monotonic() < deadline:
            time.sleep(0.01)
    else:
        while not engine.ready() and time.monotonic() < deadline:
            time.sleep(0.01)
        print("ready", flush=True)
        sys.stdin.readline()
    engine.stop()
    print(json.dumps([to_json(one) for one in engine.counts()]))
except PktswarmError as error:
    print(type(error).__name__, error)
    sys.exit(9)
finally:
    engine.stop()
    engine.restore()
"""


def node(namespace: str, role: str, task: SendTask | ReceiveTask, spool: Path) -> subprocess.Popen[str]:
    """An engine's whole life in a process of its own inside the namespace, as in a node's guard."""
    command = [sys.executable, "-c", DRIVER, role, json.dumps(to_json(task)), str(spool)]
    return forked.popen(["ip", "netns", "exec", namespace, *command], stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=ROOT)


def a_leg(shape: str, number: int = 0, size_bytes: int = 128, count: int = 500, **more: Any) -> Leg:
    payload = more.pop("payload", {"fill": 0xA5})
    frame: FrameDescription = {"headers": SHAPES[shape], "payload": payload}
    match = Match.from_template(build_frame(frame, size_bytes)).to_data()
    leg = Leg(number, shape, "a", "b", "stream", frame=frame, size_bytes=size_bytes, count_packets=count, match=match)
    return replace(leg, **more)


def run(wire: Wire, legs: list[Leg], spool: Path, **receive: Any) -> tuple[list[SendCount], list[ReceiveCount]]:
    task = ReceiveTask("rx0", B, legs, 60, **{"ring_mib": 16, **receive})
    receiver = node(wire.receiver, "receive", task, spool)
    try:
        assert receiver.stdout is not None
        first = receiver.stdout.readline()
        if first != "ready\n":
            raise AssertionError(first + "".join(receiver.communicate(timeout=30)))
        sender = node(wire.sender, "transmit", SendTask("tx0", legs, 60), spool)
        out, err = sender.communicate(timeout=60)
        assert sender.returncode == 0, out + err
        said, complaint = receiver.communicate("\n", timeout=60)
        assert receiver.returncode == 0, said + complaint
    finally:
        receiver.kill()
        receiver.wait()
    return [SendCount(**one) for one in json.loads(out)], [ReceiveCount(**one) for one in json.loads(said)]


def assert_exact(legs: list[Leg], sent: list[SendCount], received: list[ReceiveCount]) -> None:
    for leg, one, two in zip(legs, sent, received, strict=True):
        assert (one.sent_packets, two.received_packets) == (leg.count_packets, leg.count_packets), leg.stream
        assert two.received_bytes == one.sent_bytes == one.sent_packets * (leg.size_bytes - 4), leg.stream
        assert two.dropped_packets == 0


@pytest.mark.parametrize("mode", ["capture", "count"])
@pytest.mark.parametrize("size_bytes", [64, 512, 1500])
def test_sizes_are_exact(wire: Wire, tmp_path: Path, size_bytes: int, mode: str) -> None:
    legs = [a_leg("udp4", size_bytes=size_bytes, count=3000)]
    assert_exact(legs, *run(wire, legs, tmp_path, mode=mode))


def test_every_shape_is_captured_as_it_was_built(wire: Wire, tmp_path: Path) -> None:
    names = [name for name in SHAPES if name not in ("varying", "vlans")]
    legs = [a_leg(name, number) for number, name in enumerate(names)]
    assert_exact(legs, *run(wire, legs, tmp_path))
    frames = Counter(frame for file in tmp_path.glob("*.pcap") for _, _, frame in CaptureFile(file).frames())
    assert frames == Counter({build_frame(leg.frame, leg.size_bytes).data: 500 for leg in legs})
    assert not malformed(tmp_path)


def test_every_shape_is_counted_without_a_capture(wire: Wire, tmp_path: Path) -> None:
    legs = [a_leg(name, number) for number, name in enumerate(SHAPES) if name != "varying"]
    assert_exact(legs, *run(wire, legs, tmp_path, mode="count"))


@pytest.mark.parametrize("mode", ["capture", "count"])
def test_varying_frames(wire: Wire, tmp_path: Path, mode: str) -> None:
    legs = [a_leg("varying", payload={"random": True}, count=5000)]
    assert_exact(legs, *run(wire, legs, tmp_path, mode=mode))
    # Random bytes on a random port look like a broken message of some protocol: only the checksums tell.
    assert not wrong_frames(tmp_path, wrong_checksum())


def wrong_checksum() -> str:
    return " or ".join(f"{name}.checksum.status == 0" for name in ("ip", "udp", "tcp", "icmp", "icmpv6"))


def malformed(folder: Path) -> list[str]:
    return wrong_frames(folder, f"_ws.malformed or {wrong_checksum()}")


def wrong_frames(folder: Path, wrong: str) -> list[str]:
    """What tshark finds wrong with any frame in the folder's captures."""
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    checks = [word for name in ("ip", "udp", "tcp") for word in ("-o", f"{name}.check_checksum:TRUE")]
    found = []
    for file in folder.glob("*.pcap"):
        command = ["tshark", "-r", str(file), *checks, "-Y", wrong]
        found += subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return found


def test_tshark_sees_a_wrong_checksum(tmp_path: Path) -> None:
    frame = bytearray(build_frame({"headers": SHAPES["udp4"]}, 128).data)
    frame[60] ^= 1
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    (tmp_path / "bad.pcap").write_bytes(header + struct.pack("<IIII", 1, 0, len(frame), len(frame)) + frame)
    assert len(malformed(tmp_path)) == 1


def test_strangers_and_the_users_filter_are_left_out(wire: Wire, tmp_path: Path) -> None:
    """Frames to another MAC are not taken, nor those the filter refuses: `vlan` sees the outermost tag."""
    other = {"ethernet": {"src": A, "dst": "02:00:00:00:00:99"}}
    legs = [a_leg("vlan", 0), a_leg("udp4", 1)]
    unmatched: FrameDescription = {"headers": [other, IPV4, UDP]}
    sent_too = replace(a_leg("udp4", 2), frame=unmatched)
    task = ReceiveTask("rx0", B, legs, 60, ring_mib=16, filter="vlan 10")
    receiver = node(wire.receiver, "receive", task, tmp_path)
    try:
        assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
        sender = node(wire.sender, "transmit", SendTask("tx0", [*legs, sent_too], 60), tmp_path)
        assert sender.wait(60) == 0
        counts = json.loads(receiver.communicate("\n", timeout=60)[0])
    finally:
        receiver.kill()
        receiver.wait()
    assert [one["received_packets"] for one in counts] == [500, 0]
    assert sum(1 for file in tmp_path.glob("*.pcap") for _ in CaptureFile(file).frames()) == 500


@pytest.mark.parametrize(
    ("role", "task", "words"),
    [
        ("receive", ReceiveTask("rx0", B, [a_leg("udp4")], 60, filter="udp prot 5"), "udp prot 5"),
        ("receive", ReceiveTask("rx0", B, [a_leg("vlans")], 60), "the outermost VLAN tag varies"),
        ("receive", ReceiveTask("nope0", B, [a_leg("udp4")], 60), "there is no such interface"),
        ("transmit", SendTask("tx0", [a_leg("udp4", size_bytes=1519)], 60), "up to 1518"),
        ("transmit", SendTask("nope0", [a_leg("udp4")], 60), "there is no such interface"),
    ],
)
def test_bad_input_is_named_before_the_start(
    wire: Wire, tmp_path: Path, role: str, task: SendTask | ReceiveTask, words: str
) -> None:
    namespace = wire.sender if role == "transmit" else wire.receiver
    out, err = node(namespace, role, task, tmp_path).communicate(timeout=30)
    assert out.startswith("BadInput") and words in out, out + err


def test_a_link_that_is_down_is_an_error_before_the_start(wire: Wire, tmp_path: Path) -> None:
    ip("-n", wire.receiver, "link", "set", "rx0", "down")
    out, err = node(wire.sender, "transmit", SendTask("tx0", [a_leg("udp4")], 60), tmp_path).communicate(timeout=30)
    assert out.startswith("EngineError") and "carrier" in out, out + err


def settings() -> str:
    names = [f"net/core/{kind}mem_{which}" for kind in "rw" for which in ("default", "max")]
    return "".join((Path("/proc/sys") / name).read_text() for name in names)


def test_the_node_is_left_as_it_was(wire: Wire, tmp_path: Path) -> None:
    """Socket memory at no time changes; GRO goes off while receiving, and comes back."""
    ethtool(wire.receiver, "-K", "rx0", "gro", "on")
    before, memory = ethtool(wire.receiver, "-k", "rx0"), settings()
    receiver = node(wire.receiver, "receive", ReceiveTask("rx0", B, [a_leg("udp4")], 60), tmp_path)
    try:
        assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
        assert settings() == memory
        assert "generic-receive-offload: off" in ethtool(wire.receiver, "-k", "rx0")
        receiver.communicate("\n", timeout=30)
    finally:
        receiver.kill()
        receiver.wait()
    assert (ethtool(wire.receiver, "-k", "rx0"), settings()) == (before, memory)


def test_a_rate_and_a_duration_send_exactly_their_product(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg("udp4", count_packets=None, rate_pps=2000.0, duration_s=0.5)
    (sent,), (received,) = run(wire, [leg], tmp_path)
    assert sent.sent_packets == received.received_packets == 1000
    assert sent.seconds is not None and sent.seconds > 0.4
    assert received.first_ns is not None and received.last_ns is not None
    assert 0.4e9 < received.last_ns - received.first_ns <= sent.seconds * 1e9 + 10_000_000
    # A busy machine may keep it waiting now and then, and that is not made up for: the pace is that of most gaps.
    (file,) = tmp_path.glob("*.pcap")
    gaps_ns = [b - a for a, b in pairwise(time_ns for time_ns, _, _ in CaptureFile(file).frames())]
    assert 400_000 < statistics.median(gaps_ns) < 1_000_000


def test_top_speed_for_a_duration_is_stopped_and_counted(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg("udp4", size_bytes=1500, count_packets=None, duration_s=0.3)
    (sent,), (received,) = run(wire, [leg], tmp_path, mode="count")
    assert sent.sent_packets > 1000
    assert received.received_packets + received.dropped_packets == sent.sent_packets
