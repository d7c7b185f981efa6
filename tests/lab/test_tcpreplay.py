"""tcpreplay for real: traces across a veth pair between two namespaces, counted and compared frame by frame."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nodes.senders.tcpreplay import TcpreplaySender
from traffic.errors import BadInput, EngineError
from traffic.recount import recount_trace
from traffic.task import Leg, SendCount, SendTask
from traffic.traces import Endpoint, Packet, Trace, lead_ns, read_trace, rewrite, split_by_flow, write_pcap

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "configs" / "traces" / "lab.pcapng"
REAL_TRACES = ROOT.parent / "shared" / "traces"
SOURCE, TARGET = Endpoint("02:00:00:00:0a:01", "10.77.0.1"), Endpoint("02:00:00:00:0a:02", "10.77.0.2")
SO_TIMESTAMPNS, SO_RCVBUFFORCE, PACKET_OUTGOING, ETH_P_ALL = 35, 33, 4, 3
SOL_PACKET, PACKET_AUXDATA, TP_STATUS_VLAN_VALID = 263, 8, 0x10

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make namespaces"),
    pytest.mark.skipif(bool(TcpreplaySender.missing()), reason=TcpreplaySender.missing()),
]


@dataclass
class Wire:
    """A veth pair, `v0` in both namespaces, and a socket that hears what arrives in `target`."""

    source: str
    target: str
    listener: socket.socket

    def arrived(self) -> list[Packet]:
        """Frames that came in since the last call, with the kernel's times."""
        frames = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, _, address = self.listener.recvmsg(65536, 256)
                told = {(level, kind): value for level, kind, value in ancillary}
                seconds, rest_ns = struct.unpack("qq", told[socket.SOL_SOCKET, SO_TIMESTAMPNS])
                if address[2] != PACKET_OUTGOING:
                    frame = with_vlan_tag(data, told[SOL_PACKET, PACKET_AUXDATA])
                    frames.append(Packet(seconds * 10**9 + rest_ns, frame))
        return frames


def with_vlan_tag(frame: bytes, auxiliary: bytes) -> bytes:
    """The kernel takes the outer tag out of a frame, and tells it apart (struct tpacket_auxdata)."""
    status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", auxiliary)
    return frame[:12] + struct.pack(">HH", tpid, tci) + frame[12:] if status & TP_STATUS_VLAN_VALID else frame


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread, and the processes it starts, are in `namespace`."""
    libc = ctypes.CDLL(None, use_errno=True)
    home, there = os.open("/proc/self/ns/net", os.O_RDONLY), os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        assert libc.setns(there, 0) == 0, os.strerror(ctypes.get_errno())
        yield
    finally:
        assert libc.setns(home, 0) == 0
        os.close(home)
        os.close(there)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.fixture
def wire() -> Iterator[Wire]:
    source, target = f"pkt-tr-a{os.getpid()}", f"pkt-tr-b{os.getpid()}"
    try:
        for name in (source, target):
            ip("netns", "add", name)
            subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"])
        ip("-n", source, "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", target)
        for name in (source, target):
            ip("-n", name, "link", "set", "v0", "up")
        with inside(target):
            listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            listener.bind(("v0", 0))
        listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 27)
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        listener.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        listener.setblocking(False)
        with listener:
            yield Wire(source, target, listener)
    finally:
        for name in (source, target):
            subprocess.run(["ip", "netns", "del", name], check=False)


def a_leg(packets: list[Packet], spool: Path, number: int = 0, **changes: Any) -> Leg:
    (spool / f"share{number}.pcap").write_bytes(write_pcap(packets))
    leg = Leg(number, "trace", "a", "b", "trace", trace_file=f"share{number}.pcap", timing={"mode": "top"})
    changes.setdefault("count_packets", len(packets) * changes.get("repeat", 1))
    return replace(leg, **changes)


def replay(wire: Wire, legs: list[Leg], spool: Path, stop_after_s: float = 20.0) -> tuple[list[SendCount], int]:
    """The counts, and CLOCK_REALTIME of the start instant."""
    sender = TcpreplaySender(SendTask("v0", legs, 30.0), spool)
    with inside(wire.source):
        try:
            sender.prepare()
            at_ns = time.monotonic_ns() + 5_000_000
            start_ns = time.time_ns() + at_ns - time.monotonic_ns()
            sender.start(at_ns)
            deadline = time.monotonic() + stop_after_s
            while not sender.done() and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            sender.stop()
            sender.restore()
    assert not list(spool.glob("tcpreplay-*.[gp]*"))
    return sender.counts(), start_ns


def readdressed(file: Path) -> Trace:
    if not file.exists():
        pytest.skip(f"{file} is not here")
    trace = read_trace(file)
    return Trace(file, rewrite(trace.packets, SOURCE, TARGET).packets)


@pytest.mark.parametrize(
    "file",
    [
        RECORDED,
        *(REAL_TRACES / name for name in ("443-firefox.pcap", "youtube_quic.pcap", "teams.pcap", "ipv6_in_gtp.pcap")),
        REAL_TRACES / "telegram_videocall.pcapng",
    ],
    ids=lambda file: file.name,
)
def test_every_frame_arrives_as_sent(wire: Wire, tmp_path: Path, file: Path) -> None:
    trace = readdressed(file)
    (count,), _ = replay(wire, [a_leg(trace.packets, tmp_path)], tmp_path)
    tally = recount_trace([p.data for p in trace.packets], [p.data for p in wire.arrived()])
    assert (count.sent_packets, count.sent_bytes) == (len(trace.packets), trace.size_bytes)
    assert (tally.received, tally.lost, tally.duplicated, tally.altered) == (len(trace.packets), 0, 0, 0)
    assert tally.reordered in (0, None)


def test_frames_longer_than_the_mtu_are_told_before_anything_is_sent(wire: Wire, tmp_path: Path) -> None:
    trace = readdressed(REAL_TRACES / "git.pcap")
    with pytest.raises(BadInput, match=r"packet 23 .*longer than the MTU of v0"):
        replay(wire, [a_leg(trace.packets, tmp_path)], tmp_path)
    assert wire.arrived() == []


def test_shares_keep_the_recorded_times_across_senders(wire: Wire, tmp_path: Path) -> None:
    trace = readdressed(REAL_TRACES / "youtube_quic.pcap")
    shares = [share for share in split_by_flow(trace.packets, 3) if share]
    legs = [
        a_leg(share, tmp_path, number, timing={"mode": "multiplier", "value": 2, "lead_ns": lead_ns(share) // 2})
        for number, share in enumerate(shares)
    ]
    assert max(lead_ns(share) for share in shares) > 200_000_000
    counts, start_ns = replay(wire, legs, tmp_path)
    arrived = wire.arrived()
    assert sum(count.sent_packets for count in counts) == len(arrived) == len(trace.packets)
    due_ns = {p.data: p.time_ns // 2 for share in shares for p in share}
    late_ns = sorted(abs(p.time_ns - start_ns - due_ns[p.data]) for p in arrived)
    assert late_ns[len(late_ns) // 2] < 20_000_000, "the median packet is not where it was recorded"


def test_passes_repeat_at_the_period_of_the_whole_trace(wire: Wire, tmp_path: Path) -> None:
    packets = [Packet(at_ms * 1_000_000, bytes(12) + b"\x88\xb5" + bytes([at_ms]) * 50) for at_ms in (0, 50, 100)]
    timing = {"mode": "original", "lead_ns": 0, "period_ns": 400_000_000}
    (count,), _ = replay(wire, [a_leg(packets, tmp_path, repeat=3, timing=timing)], tmp_path)
    times = [packet.time_ns for packet in wire.arrived()]
    assert count.sent_packets == len(times) == 9
    assert (times[6] - times[0]) / 1e9 == pytest.approx(0.8, abs=0.05)


def test_a_count_that_is_no_whole_number_of_passes(wire: Wire, tmp_path: Path) -> None:
    trace = readdressed(REAL_TRACES / "443-firefox.pcap")
    leg = a_leg(trace.packets, tmp_path, count_packets=1000, repeat=2)
    (count,), _ = replay(wire, [leg], tmp_path)
    assert count.sent_packets == len(wire.arrived()) == 1000


@pytest.mark.parametrize(("mode", "value", "pps"), [("pps", 500.0, 500.0), ("bps", 400_000.0, 500.0)])
def test_a_fixed_rate_and_a_duration(wire: Wire, tmp_path: Path, mode: str, value: float, pps: float) -> None:
    packets = [Packet(0, bytes(12) + b"\x88\xb5" + bytes([n]) * 82) for n in range(10)]  # 100 bytes with FCS
    leg = a_leg(packets, tmp_path, timing={"mode": mode, "value": value}, count_packets=None, duration_s=1.0)
    (count,), _ = replay(wire, [leg], tmp_path)
    assert count.sent_packets == len(wire.arrived()) == pytest.approx(pps, rel=0.05)
    assert count.started_ns is not None
    assert count.seconds == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.3])
def test_stopped_at_any_time_the_count_is_what_arrived(wire: Wire, tmp_path: Path, after_s: float) -> None:
    packets = [Packet(n * 1_000_000, bytes(12) + b"\x88\xb5" + bytes([n & 255]) * 50) for n in range(1000)]
    leg = a_leg(packets, tmp_path, timing={"mode": "original"})
    try:
        (count,), _ = replay(wire, [leg], tmp_path, stop_after_s=after_s)
    except EngineError as error:
        pytest.skip(f"tcpreplay could not tell, and that is told: {error}")
    assert count.sent_packets == len(wire.arrived()) < 1000


def test_an_interface_that_goes_down_is_told(wire: Wire, tmp_path: Path) -> None:
    ip("-n", wire.source, "link", "set", "v0", "down")
    with pytest.raises(EngineError, match="Network is down"):
        replay(wire, [a_leg([Packet(0, bytes(60))], tmp_path)], tmp_path)


def test_the_first_packet_leaves_at_the_start(wire: Wire, tmp_path: Path) -> None:
    """Without the gate tcpreplay needs some 50 ms."""
    skews_ns = []
    for _ in range(5):
        _, start_ns = replay(wire, [a_leg([Packet(0, bytes(60))], tmp_path)], tmp_path)
        skews_ns.append(wire.arrived()[0].time_ns - start_ns)
    assert -100_000 < sorted(skews_ns)[2] < 10_000_000
