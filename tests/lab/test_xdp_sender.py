"""The XDP sender over one wire between two throwaway namespaces, and its program on single frames."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from nodes.libbpf import run_once
from nodes.senders.xdp import Program, XdpSender
from nodes.xdp_features import features
from traffic import schedule, stamp
from traffic.capture_file import Packet, write_pcap
from traffic.frames import build_frame
from traffic.schedule_records import LARGEST_BYTES, LINKED, RANDOM
from traffic.sums import mending_order
from traffic.task import Leg, SendTask, to_json
from traffic.template import Checksum, Template, VaryingField, get_bits

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(XdpSender.missing()), reason=XdpSender.missing()),
]

ROOT = Path(__file__).parents[2]
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
ETHERNET = {"ethernet": {"src": A, "dst": B}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}
IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}
UDP, TCP = {"udp": {"src": 1000, "dst": 2000}}, {"tcp": {"src": 1000, "dst": 2000}}
VARYING4 = {
    "ipv4": {
        "src": {"increment": ["10.0.0.1", "10.0.0.9"], "step": 2},
        "dst": {"random": ["10.0.0.0", "10.255.255.255"]},
    }
}
VARYING6 = {"ipv6": {"src": "fd00::1", "dst": {"decrement": ["fd00::ffff:ffff", "fd00::5"], "step": 9}}}
VARYING_UDP = {"udp": {"src": {"random": [0, 65535]}, "dst": {"decrement": [20003, 20000]}}}
VARYING_ETHERNET = {"ethernet": {"src": A, "dst": {"increment": ["02:00:00:00:00:01", "02:ff:00:00:00:00"]}}}
SHAPES: dict[str, list[dict[str, Any]]] = {
    "udp4": [ETHERNET, IPV4, UDP],
    "udp4 varying": [ETHERNET, VARYING4, VARYING_UDP],
    "udp6 varying": [ETHERNET, VARYING6, VARYING_UDP],
    "tcp4 varying": [
        ETHERNET,
        VARYING4,
        {"tcp": {"src": {"random": [1, 9]}, "dst": 2, "seq": {"increment": [0, 2**32 - 1], "step": 2**31 + 1}}},
    ],
    "tcp6": [ETHERNET, IPV6, TCP],
    "icmp": [ETHERNET, IPV4, {"icmp": {"id": 7, "sequence": {"increment": [0, 65535]}}}],
    "icmpv6": [ETHERNET, VARYING6, {"icmpv6": {"id": {"random": [0, 65535]}}}],
    "vlan": [VARYING_ETHERNET, {"vlan": {"id": {"increment": [100, 107]}, "priority": 5}}, VARYING4, VARYING_UDP],
    "mpls": [ETHERNET, {"mpls": {"label": {"random": [16, 1048575]}}}, VARYING4, UDP],
    "odd offset": [
        ETHERNET,
        {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "ttl": {"increment": [1, 255]}, "dscp": {"random": [0, 63]}}},
        UDP,
    ],
    "checksum given": [ETHERNET, VARYING4, {"udp": {"src": {"random": [0, 65535]}, "dst": 1, "checksum": 0xBAD}}],
    "arp": [
        ETHERNET,
        {"arp": {"sender_mac": A, "sender_ip": "10.0.0.1", "target_ip": {"increment": ["10.0.0.2", "10.0.0.9"]}}},
    ],
}


def a_leg(shape: str = "udp4", number: int = 0, **more: Any) -> Leg:
    frame = {"headers": SHAPES[shape], "payload": more.pop("payload", {"fill": 0xA5})}
    return Leg(number, shape, "a", "b", "stream", engine="xdp", frame=frame, **{"size_bytes": 100, **more})


# --- the program on single frames ----------------------------------------------------------------------------------


def frames(compiled: list[schedule.CompiledLeg], number: int) -> list[bytes]:
    """What the program makes, one frame after the other, and each time into a page full of something else."""
    program = Program(schedule.assemble(compiled), interface_index=1, batch=64)
    try:
        program.start(time.monotonic_ns() - 10**9)
        made = []
        for _ in range(number):
            verdict, frame = run_once(program.fd, b"\xee" * 300)
            assert verdict == 4  # XDP_REDIRECT
            made.append(frame)
        return made
    finally:
        program.close()


def mended(template: Template, frame: bytes) -> bytes:
    """The frame with its checksums computed over whole data."""
    data = bytearray(frame)
    for checksum in mending_order(template.checksums):
        checksum.mend(data)
    return bytes(data)


def check_fields(template: Template, frame: bytes, index: int) -> None:
    for field in template.fields:
        found = get_bits(frame, field.bit, field.width_bits)
        if field.mode == "random":
            assert field.first <= found <= field.last
        else:
            assert found == field.value(index, random.Random())


@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}, {"hex": "00112233445566778899aabbccddee"}])
@pytest.mark.parametrize("size", [100, 101, 1000])
@pytest.mark.parametrize("shape", SHAPES)
def test_frames_are_as_the_template_says(shape: str, size: int, payload: dict[str, Any]) -> None:
    leg = a_leg(shape, 3, size_bytes=size, payload=payload)
    template = build_frame(leg.frame, size)
    assert not schedule.unable(leg)
    made = frames([schedule.compile_leg(leg, 1)], 40)
    start = stamp.payload_offset(leg.frame["headers"])
    for index, frame in enumerate(made):
        assert frame == mended(template, frame)
        check_fields(template, frame, index)
        free = start
        if schedule.stamped(leg):
            found = stamp.read_stamp(frame[start:])
            assert found is not None and found[:2] == (3, index)
            free += stamp.PLAIN_BYTES
        constant = [at for at in range(len(frame)) if not start <= at < free and not template.varying_mask[at]]
        sums = {c.offset_bytes + i for c in template.checksums for i in (0, 1)}
        assert all(frame[at] == template.data[at] for at in constant if at not in sums)
    if payload == {"random": True}:
        assert len({frame[-9:] for frame in made}) == len(made)


def test_a_udp_checksum_of_zero_is_sent_as_ones() -> None:
    def leg(ports: list[int]) -> Leg:
        headers = [ETHERNET, IPV4, {"udp": {"src": {"increment": ports}, "dst": 1}}]
        frame = {"headers": headers, "payload": {}}
        return Leg(0, "s", "a", "b", "stream", frame=frame, size_bytes=100, options={"stamp": False})

    # Each step of the port takes one from the checksum, so this port brings it to 0.
    port = int.from_bytes(build_frame(leg([0, 9]).frame, 100).data[40:42], "big")
    made = frames([schedule.compile_leg(leg([port - 1, port + 1]), 1)], 6)
    assert [frame[40:42].hex() for frame in made] == ["0001", "ffff", "fffe"] * 2


def test_random_fields_reach_all_of_their_range() -> None:
    headers = [ETHERNET, IPV4, {"udp": {"src": {"random": [10, 13]}, "dst": 1}}]
    leg = Leg(0, "s", "a", "b", "stream", frame={"headers": headers}, size_bytes=100)
    ports = [int.from_bytes(frame[34:36], "big") for frame in frames([schedule.compile_leg(leg, 1)], 2000)]
    assert all(400 < ports.count(port) < 600 for port in range(10, 14))


def test_a_checksum_over_another_checksum_stays_right() -> None:
    """An outer UDP checksum over an inner IPv4 and UDP, as in a tunnel; the inner addresses vary, one oddly placed."""
    outer = Checksum(40, ((26, 34), (34, 101)), 17 + 67, True)
    inner_ip, inner_udp = Checksum(61, ((51, 71),)), Checksum(77, ((63, 71), (71, 101)), 17 + 30, True)
    fields = (
        VaryingField("inner src", 63, 4, "random", 0, 2**32 - 1, 1, 0, 32),
        VaryingField("odd byte", 86, 1, "increment", 0, 255, 1, 0, 8),
        VaryingField("teid", 46, 4, "increment", 1, 1000, 1, 0, 32),
    )
    data = bytearray(random.Random(1).randbytes(101))
    for one in (inner_ip, inner_udp, outer):
        one.mend(data)
    template = Template(bytes(data), fields, (outer, inner_ip, inner_udp), (0, 0), bytes(101), bytes(101))
    leg = a_leg(size_bytes=105, options={"stamp": False})
    made = frames([schedule.compile_stream(leg, [template], 1)], 300)
    assert len(set(made)) == 300
    assert all(frame == mended(template, frame) for frame in made)


def test_legs_share_the_interface_by_their_rates() -> None:
    """Due times a second back, so all are due: the order is that of the due times."""
    rates = [100.0, 300.0, 50.0]
    legs = [a_leg(number=number, rate_pps=rate) for number, rate in enumerate(rates)]
    made = frames([schedule.compile_leg(leg, 1) for leg in legs], 450)
    numbers = [found.stream for frame in made if (found := stamp.read_stamp(frame[42:]))]
    assert [numbers.count(number) for number in range(3)] == [100, 300, 50]
    assert sorted(numbers[:9]) == [0, 0, 1, 1, 1, 1, 1, 1, 2]


def test_sizes_mix_by_their_weights_and_each_frame_is_whole() -> None:
    leg = a_leg("udp4 varying", 3, options={"imix_weights": [[64, 7], [594, 4], [1518, 1]]}, payload={"random": True})
    made = frames([schedule.compile_leg(leg, 1)], 1200)
    templates = {size - 4: build_frame(leg.frame, size) for size in (64, 594, 1518)}
    for index, frame in enumerate(made):
        assert frame == mended(templates[len(frame)], frame)
        check_fields(templates[len(frame)], frame, index)
        found = stamp.read_stamp(frame[42:])
        assert found is not None and found.sequence == index
    shares = [sum(len(frame) == size for frame in made) for size in (60, 590, 1514)]
    assert 620 < shares[0] < 780 and 330 < shares[1] < 470 and 60 < shares[2] < 140


def test_linked_rules_and_lists() -> None:
    """A user's port is drawn from a list, and the TTL of the same user goes with it."""
    headers = [ETHERNET, {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "ttl": {"increment": [1, 4]}}}]
    leg = Leg(0, "s", "a", "b", "stream", size_bytes=100, frame={"headers": [*headers, VARYING_UDP], "payload": {}})
    compiled = schedule.compile_leg(leg, 1)
    ttl, port = compiled.record.rule[0], compiled.record.rule[1]
    ttl.mode, ttl.count = RANDOM, 4
    port.mode, port.link, port.table, port.first, compiled.table = LINKED, 0, 1, 0, [700, 65535, 80, 9000]
    other = schedule.compile_leg(a_leg(options={"imix_weights": [[64, 1], [100, 2]]}, number=1), 1)
    made = [frame for frame in frames([other, compiled], 400) if len(frame) == 96 and frame[22] < 5]
    pairs = {(frame[22], int.from_bytes(frame[34:36], "big")) for frame in made}
    assert pairs == {(1, 700), (2, 65535), (3, 80), (4, 9000)}
    template = build_frame(leg.frame, 100)
    assert all(frame == mended(template, frame) for frame in made)


# --- over a wire ---------------------------------------------------------------------------------------------------

DRIVER = """
import json, os, subprocess, sys, time
from pathlib import Path
from nodes.senders.xdp import XdpSender
from traffic.task import send_task_from_json, to_json
from traffic.errors import PktswarmError
task, spool, extra = json.loads(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
engine = XdpSender(send_task_from_json(task), spool, extra.get("repeat", 2**32 - 1))
try:
    engine.prepare()
    if "before_start" in extra:
        subprocess.run(extra["before_start"], check=True)
    at_ns = time.monotonic_ns() + 20_000_000
    engine.start(at_ns)
    began = time.monotonic()
    while not engine.done() and time.monotonic() < began + extra.get("limit_s", 20):
        time.sleep(0.01)
        if "new_rate" in extra and time.monotonic() > began + 0.5:
            engine.set_rate(0, extra.pop("new_rate"))
    engine.stop()
    counts = [{**to_json(one), "delay_ns": one.started_ns - at_ns} for one in engine.counts()]
    print(json.dumps({"counts": counts, "sample": engine.sample()}))
except PktswarmError as error:
    print(type(error).__name__, error)
    sys.exit(9)
finally:
    engine.stop()
    engine.restore()
"""

LISTENER = """
import socket, sys, time
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
ear.bind(("rx0", 0))
ear.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
ear.settimeout(0.2)
print("ready", flush=True)
over = False
def end(*_):
    global over
    over = True
import signal
signal.signal(signal.SIGTERM, end)
while True:
    try:
        print(ear.recv(9000).hex())
    except TimeoutError:
        if over:
            break
"""


class Wire:
    def __init__(self) -> None:
        tail = uuid.uuid4().hex[:8]
        self.sender, self.receiver = f"xs-a-{tail}", f"xs-b-{tail}"

    def up(self) -> None:
        for name in (self.sender, self.receiver):
            _ip("netns", "add", name)
        pair = ["tx0", "address", A, "type", "veth", "peer", "name", "rx0", "address", B, "netns", self.receiver]
        _ip("-n", self.sender, "link", "add", *pair)
        for name, interface in ((self.sender, "tx0"), (self.receiver, "rx0")):
            # Without IPv6 the kernel sends nothing of its own on the wire.
            _ip("netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            _ip("-n", name, "link", "set", interface, "up")
        self.take_live_frames(True)

    def take_live_frames(self, yes: bool) -> None:
        """A veth end takes them with GRO, or with an XDP program."""
        _ip("netns", "exec", self.receiver, "ethtool", "-K", "rx0", "gro", "on" if yes else "off")

    def down(self) -> None:
        for name in (self.sender, self.receiver):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def counter(self, side: str, what: str = "packets") -> int:
        name, file = (self.sender, "tx0/statistics/tx") if side == "tx" else (self.receiver, "rx0/statistics/rx")
        words = ["ip", "netns", "exec", name, "cat", f"/sys/class/net/{file}_{what}"]
        return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def wire() -> Iterator[Wire]:
    one = Wire()
    try:
        one.up()
        yield one
    finally:
        one.down()


def start(wire: Wire, spool: Path, legs: list[Leg], limit_s: float = 30, **extra: Any) -> subprocess.Popen[str]:
    """The sender's whole life in a process of its own inside the namespace, as in a node's guard."""
    task = json.dumps(to_json(SendTask("tx0", legs, limit_s)))
    command = [sys.executable, "-c", DRIVER, task, str(spool), json.dumps(extra)]
    return subprocess.Popen(["ip", "netns", "exec", wire.sender, *command], stdout=PIPE, text=True, cwd=ROOT)


def send(wire: Wire, spool: Path, legs: list[Leg], **extra: Any) -> list[dict[str, Any]]:
    process = start(wire, spool, legs, **extra)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0, text
    counts: list[dict[str, Any]] = json.loads(text)["counts"]
    return counts


def send_and_listen(wire: Wire, spool: Path, legs: list[Leg], **extra: Any) -> tuple[list[dict[str, Any]], list[bytes]]:
    words = ["ip", "netns", "exec", wire.receiver, sys.executable, "-c", LISTENER]
    listener = subprocess.Popen(words, stdout=PIPE, text=True)
    try:
        assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
        # What it prints is read at the end; until then its socket holds what the pipe has no room for.
        counts = send(wire, spool, legs, **extra)
        listener.terminate()
        text, _ = listener.communicate(timeout=20)
        return counts, [bytes.fromhex(line) for line in text.split()]
    finally:
        listener.kill()
        listener.wait()


def test_every_frame_arrives_as_it_was_made(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg("udp4 varying", 5, count_packets=2000, rate_pps=20_000.0)
    template = build_frame(leg.frame, leg.size_bytes)
    [count], arrived = send_and_listen(wire, tmp_path, [leg])
    assert (count["sent_packets"], count["failed_packets"], count["sent_bytes"]) == (2000, 0, 2000 * 96)
    assert wire.counter("tx") == wire.counter("rx") == len(arrived) == 2000
    times = []
    for index, frame in enumerate(arrived):
        found = stamp.read_stamp(frame[42:])
        assert found is not None and found[:2] == (5, index)
        assert frame == mended(template, frame)
        check_fields(template, frame, index)
        times.append(found.time_ns)
    assert 0 <= count["delay_ns"] < 50_000_000
    assert times[0] == count["started_ns"] and times == sorted(times)
    assert 0.0999 < (times[-1] - times[0]) / 1e9 < 0.15


def test_frames_of_several_sizes_do_not_show_through_each_other(wire: Wire, tmp_path: Path) -> None:
    """Pages are used again and again, by legs of other sizes too."""
    sizes = (64, 1518, 200, 65)
    legs = [a_leg(number=n, size_bytes=size, count_packets=400) for n, size in enumerate(sizes)]
    counts, arrived = send_and_listen(wire, tmp_path, legs)
    assert [count["sent_packets"] for count in counts] == [400] * 4
    for leg in legs:
        template = build_frame(leg.frame, leg.size_bytes)
        own = [frame for frame in arrived if len(frame) == leg.size_bytes - 4]
        assert len(own) == 400
        for frame in own:
            assert frame == mended(template, frame)
            assert frame[60:] == template.data[60:] and frame[:34] == template.data[:34]


def a_trace_leg(spool: Path, packets: list[Packet], mode: str = "original", value: float = 1.0, **more: Any) -> Leg:
    number = more.pop("number", 0)
    (spool / f"{number}.pcap").write_bytes(write_pcap(packets))
    timing = {"mode": mode, "value": value, **more.pop("timing", {})}
    count = {"count_packets": len(packets)} if "duration_s" not in more else {}
    return Leg(number, "t", "a", "b", "trace", trace_file=f"{number}.pcap", timing=timing, **{**count, **more})


def a_recording(packets: int, seed: int = 1) -> list[Packet]:
    """Exponential gaps of 100 us on average; every size up to 1514; not TCP, which the receiver would merge."""
    draw, time_ns, made = random.Random(seed), 10**18, []
    for number in range(packets):
        body = draw.randbytes(draw.randrange(4, 1500))
        made.append(
            Packet(time_ns, bytes.fromhex("02000000000b02000000000a88b5") + number.to_bytes(4, "big") + body[4:])
        )
        time_ns += round(draw.expovariate(1 / 100_000))
    return made


def test_a_trace_is_replayed_byte_for_byte(wire: Wire, tmp_path: Path) -> None:
    packets = a_recording(2000)
    [count], arrived = send_and_listen(wire, tmp_path, [a_trace_leg(tmp_path, packets)])
    assert arrived == [packet.data for packet in packets]
    assert (count["sent_packets"], count["sent_bytes"]) == (2000, sum(len(packet.data) for packet in packets))
    recorded_s = (packets[-1].time_ns - packets[0].time_ns) / 1e9
    assert recorded_s - 0.001 < count["seconds"] < recorded_s + 0.05


def test_passes_of_a_trace_follow_each_other(wire: Wire, tmp_path: Path) -> None:
    packets = a_recording(100)
    leg = a_trace_leg(tmp_path, packets, count_packets=250, timing={"period_ns": 200_000_000, "lead_ns": 50_000_000})
    [count], arrived = send_and_listen(wire, tmp_path, [leg])
    assert arrived == [packet.data for packet in (packets * 3)[:250]]
    assert 0.4 < count["seconds"] < 0.46
    assert 50_000_000 <= count["delay_ns"] < 90_000_000


def test_a_duration_ends_a_trace(wire: Wire, tmp_path: Path) -> None:
    leg = a_trace_leg(tmp_path, a_recording(10), "pps", 1000.0, duration_s=0.2)
    assert [count["sent_packets"] for count in send(wire, tmp_path, [leg])] == [200]


def test_kept_bytes_and_zeros_for_the_rest(wire: Wire, tmp_path: Path) -> None:
    packets = a_recording(300)
    leg = a_trace_leg(tmp_path, packets, "top", options={"keep_bytes": 40})
    _, arrived = send_and_listen(wire, tmp_path, [leg])
    assert arrived == [packet.data[:40] + bytes(len(packet.data[40:])) for packet in packets]


def test_traces_and_streams_on_one_interface(wire: Wire, tmp_path: Path) -> None:
    first, second = a_recording(500), a_recording(700, seed=2)
    legs = [
        a_trace_leg(tmp_path, first, number=0),
        a_leg(number=1, count_packets=500, rate_pps=10_000.0, options={"imix_weights": [[64, 1], [1518, 1]]}),
        a_trace_leg(tmp_path, second, "multiplier", 2.0, number=2),
        a_leg(number=3, count_packets=0),
    ]
    counts, arrived = send_and_listen(wire, tmp_path, legs)
    assert [count["sent_packets"] for count in counts] == [500, 500, 700, 0]
    replayed = sorted(frame for frame in arrived if frame[12:14] == b"\x88\xb5")
    assert replayed == sorted(packet.data for packet in first + second)
    assert sum(count["sent_bytes"] for count in counts) == sum(map(len, arrived))


@pytest.mark.parametrize("rate", [1000.0, 100_000.0])
def test_the_rate_holds(wire: Wire, tmp_path: Path, rate: float) -> None:
    [count] = send(wire, tmp_path, [a_leg(duration_s=1.0, rate_pps=rate)])
    assert count["sent_packets"] == rate
    assert abs(count["seconds"] - (rate - 1) / rate) < 0.05


def test_a_duration_ends_a_leg_without_a_count(wire: Wire, tmp_path: Path) -> None:
    [count] = send(wire, tmp_path, [a_leg(duration_s=0.3)])
    assert count["sent_packets"] == wire.counter("rx") > 1000
    assert 0.2 < count["seconds"] < 0.301


def test_legs_with_and_without_a_rate(wire: Wire, tmp_path: Path) -> None:
    legs = [a_leg(number=0, duration_s=0.5), a_leg(number=1, duration_s=0.5, rate_pps=1000.0)]
    fast, paced = send(wire, tmp_path, legs)
    assert paced["sent_packets"] == 500
    assert fast["sent_packets"] + 500 == wire.counter("rx")
    assert fast["sent_packets"] > 5000


def test_what_cannot_be_kept_up_with_is_skipped(wire: Wire, tmp_path: Path) -> None:
    [count] = send(wire, tmp_path, [a_leg(duration_s=0.3, rate_pps=100e6, options={"late": "skip"})])
    skipped = int(count["note"].split(" late, ")[1].split()[0])
    assert count["sent_packets"] == wire.counter("rx")
    assert skipped > 0 and abs(count["sent_packets"] + skipped - 30_000_000) < 3_000_000


def test_the_rate_changes_while_it_runs(wire: Wire, tmp_path: Path) -> None:
    [count] = send(wire, tmp_path, [a_leg(count_packets=3000, rate_pps=1000.0)], new_rate=10_000.0)
    assert count["sent_packets"] == 3000
    assert 0.65 < count["seconds"] < 1.3


def test_a_new_call_to_the_kernel_loses_and_doubles_nothing(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg(count_packets=3000, rate_pps=10_000.0)
    [count], arrived = send_and_listen(wire, tmp_path, [leg], repeat=2000)
    assert count["output"].count("a new call to the kernel") >= 2
    assert "call" in count["note"]
    sequences = [found.sequence for frame in arrived if (found := stamp.read_stamp(frame[42:]))]
    assert sequences == list(range(3000)) and count["sent_packets"] == 3000


def test_frames_that_a_full_ring_drops_are_made_up_for(wire: Wire, tmp_path: Path) -> None:
    """The receiving end works in a thread of its own, which cannot keep up: its ring overflows."""
    _ip("netns", "exec", wire.receiver, "sh", "-c", "echo 1 > /sys/class/net/rx0/threaded")
    legs = [a_leg(number=0, count_packets=150_000), a_leg(number=1, count_packets=50_000, size_bytes=1000)]
    counts = send(wire, tmp_path, legs)
    assert [count["sent_packets"] for count in counts] == [150_000, 50_000]
    assert [count["sent_bytes"] for count in counts] == [150_000 * 96, 50_000 * 996]
    assert all(count["failed_packets"] > 0 for count in counts)
    time.sleep(0.3)
    assert (wire.counter("rx"), wire.counter("rx", "bytes")) == (200_000, 150_000 * 96 + 50_000 * 996)


@pytest.mark.parametrize("rate", [None, 10_000.0])
def test_frames_that_the_device_does_not_take_are_not_sent(wire: Wire, tmp_path: Path, rate: float | None) -> None:
    """Without GRO and without an XDP program at its other end a veth takes none."""
    off = ["ip", "netns", "exec", wire.receiver, "ethtool", "-K", "rx0", "gro", "off"]
    legs = [a_leg(number=0, count_packets=500, rate_pps=rate), a_leg(number=1, count_packets=300, rate_pps=rate)]
    counts = send(wire, tmp_path, legs, before_start=off)
    assert [(count["sent_packets"], count["failed_packets"]) for count in counts] == [(0, 500), (0, 300)]
    assert wire.counter("rx") == 0


@pytest.mark.skipif(features(1) is None, reason="the kernel does not tell a driver's XDP features (6.3 does)")
def test_an_interface_that_takes_no_live_frames_is_told_before_the_start(wire: Wire, tmp_path: Path) -> None:
    wire.take_live_frames(False)
    process = start(wire, tmp_path, [a_leg(count_packets=1)])
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 9
    assert text.startswith("EngineError xdp: tx0: its other end takes no live frames (ethtool -K … gro on, or an XDP")


def test_the_longest_frames(wire: Wire, tmp_path: Path) -> None:
    for name, interface in ((wire.sender, "tx0"), (wire.receiver, "rx0")):
        _ip("-n", name, "link", "set", interface, "mtu", "3500")
    leg = a_leg(size_bytes=LARGEST_BYTES + 4, count_packets=300, payload={"random": True})
    template = build_frame(leg.frame, leg.size_bytes)
    [count], arrived = send_and_listen(wire, tmp_path, [leg])
    assert count["sent_packets"] == len(arrived) == 300
    assert all(frame == mended(template, frame) for frame in arrived)


@pytest.mark.parametrize(
    ("leg", "why"),
    [
        ({"size_bytes": 1600}, "tx0: udp4.size_bytes = 1600: longer than the interface takes (allowed: up to 1522"),
        ({"options": {"imix_weights": [[64, 1], [1600, 1]]}}, "udp4.size_bytes = 1600: longer than the interface"),
    ],
)
def test_frames_longer_than_the_mtu_are_refused_before_the_start(
    wire: Wire, tmp_path: Path, leg: dict[str, Any], why: str
) -> None:
    process = start(wire, tmp_path, [a_leg(count_packets=1, **leg)])
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 9 and "BadInput" in text and why in text


def test_frames_that_the_kernel_refuses_are_not_sent(wire: Wire, tmp_path: Path) -> None:
    legs = [a_leg(number=0, size_bytes=1000, count_packets=500), a_leg(number=1, size_bytes=100, count_packets=300)]
    long, short = send(wire, tmp_path, legs, before_start=["ip", "link", "set", "tx0", "mtu", "600"])
    assert (long["sent_packets"], long["failed_packets"]) == (0, 500)
    assert (short["sent_packets"], short["failed_packets"]) == (300, 0)
    assert "Message too long" in long["note"]
    assert wire.counter("rx") == 300


def test_a_process_that_dies_is_told(wire: Wire, tmp_path: Path) -> None:
    """Killed at its own hard stop: 30 s after the task's limit, here 30 s before it."""
    process = start(wire, tmp_path, [a_leg(rate_pps=1000.0, duration_s=60.0)], limit_s=-28.5)
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 9 and "ended before it was stopped, exit 137" in text


def test_it_does_not_outlive_its_guard(wire: Wire, tmp_path: Path) -> None:
    process = start(wire, tmp_path, [a_leg(rate_pps=1000.0, duration_s=60.0)], limit_s=60)
    try:
        deadline = time.monotonic() + 10
        while wire.counter("rx") < 10 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert wire.counter("rx") >= 10
    finally:
        process.kill()
        process.wait()
    time.sleep(0.3)
    before = wire.counter("rx")
    time.sleep(0.3)
    assert wire.counter("rx") == before
