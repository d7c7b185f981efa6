"""tcpreplay for real: traces across a veth pair between two namespaces, counted and compared frame by frame."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pktswarm.nodes import availability
from pktswarm.nodes.senders import tcpreplay_gate
from pktswarm.nodes.senders.tcpreplay import TcpreplaySender
from pktswarm.traffic.capture.trace import Packet, Trace, write_pcap
from pktswarm.traffic.counting.recount import recount_trace
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg, Timing, TraceMode
from pktswarm.traffic.protocol.task import SendCount, SendTask
from pktswarm.traffic.replay.files import packets
from pktswarm.traffic.replay.prepare import Nodes, Settings, frames_of, prepare, share_rows
from wire import PACKET_AUXDATA, PACKET_OUTGOING, SO_RCVBUFFORCE, SOL_PACKET, Wire, inside, ip, with_vlan_tag

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "configs" / "traces" / "lab.pcapng"
REAL_TRACES = ROOT.parent / "shared" / "traces"
ENDS = Nodes(bytes.fromhex("020000000a01"), bytes.fromhex("020000000a02"), bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2]))
SO_TIMESTAMPNS, ETH_P_ALL = 35, 3

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make namespaces"),
    pytest.mark.skipif(bool(availability.tcpreplay()), reason=availability.tcpreplay()),
]


@dataclass
class Listened:
    """A wire, and a socket that hears what arrives at its far end."""

    wire: Wire
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
                    frame = with_vlan_tag(data, ancillary)
                    frames.append(Packet(seconds * 10**9 + rest_ns, frame))
        return frames


@pytest.fixture
def ears(wire: Wire) -> Iterator[Listened]:
    with inside(wire.receiver):
        listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        listener.bind(("rx0", 0))
    listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 27)
    listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    listener.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    listener.setblocking(False)
    with listener:
        yield Listened(wire, listener)


def a_leg(packets: list[Packet], spool: Path, number: int = 0, **changes: Any) -> Leg:
    (spool / f"share{number}.pcap").write_bytes(write_pcap(packets))
    leg = Leg(number, "trace", "a", "b", "trace", trace_file=f"share{number}.pcap", timing=Timing(mode="top"))
    changes.setdefault("count_packets", len(packets) * changes.get("repeat", 1))
    return replace(leg, **changes)


def replay(ears: Listened, legs: list[Leg], spool: Path, stop_after_s: float = 20.0) -> tuple[list[SendCount], int]:
    """The counts, and CLOCK_REALTIME of the start instant."""
    sender = TcpreplaySender(SendTask("tx0", legs, 30.0), spool)
    with inside(ears.wire.sender):
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
    found = prepare(file, Settings())
    every = np.arange(len(found.flow))
    return Trace(file, packets(frames_of(found, every, ENDS), every))


@pytest.mark.parametrize(
    "file",
    [
        RECORDED,
        *(REAL_TRACES / name for name in ("443-firefox.pcap", "youtube_quic.pcap", "teams.pcap", "ipv6_in_gtp.pcap")),
        REAL_TRACES / "telegram_videocall.pcapng",
    ],
    ids=lambda file: file.name,
)
def test_every_frame_arrives_as_sent(ears: Listened, tmp_path: Path, file: Path) -> None:
    trace = readdressed(file)
    (count,), _ = replay(ears, [a_leg(trace.packets, tmp_path)], tmp_path)
    tally = recount_trace([p.data for p in trace.packets], [p.data for p in ears.arrived()])
    assert (count.sent_packets, count.sent_bytes) == (len(trace.packets), trace.size_bytes)
    assert (tally.received, tally.lost, tally.duplicated, tally.altered) == (len(trace.packets), 0, 0, 0)
    assert tally.reordered in (0, None)


def test_frames_longer_than_the_mtu_are_told_before_anything_is_sent(ears: Listened, tmp_path: Path) -> None:
    trace = readdressed(REAL_TRACES / "git.pcap")
    with pytest.raises(BadInput, match=r"packet 23 .*longer than the MTU of tx0"):
        replay(ears, [a_leg(trace.packets, tmp_path)], tmp_path)
    assert ears.arrived() == []


def behind_ns(count: SendCount) -> int:
    """By how much the gate was late, at most: so long a busy machine kept it from the processor."""
    (told,) = re.findall(rf"^{tcpreplay_gate.BEHIND}(\d+) ns$", count.output, re.MULTILINE)
    return int(told)


def test_shares_keep_the_recorded_times_across_senders(ears: Listened, tmp_path: Path) -> None:
    trace = readdressed(REAL_TRACES / "youtube_quic.pcap")
    parts = [part["all"] for part in share_rows(prepare(trace.path, Settings()), 3)]
    shares = [[trace.packets[row] for row in rows] for rows in parts if len(rows)]
    legs = [
        a_leg(share, tmp_path, number, timing=Timing(mode="multiplier", value=2, lead_ns=share[0].time_ns // 2))
        for number, share in enumerate(shares)
    ]
    assert max(share[0].time_ns for share in shares) > 200_000_000
    counts, start_ns = replay(ears, legs, tmp_path)
    arrived = ears.arrived()
    assert sum(count.sent_packets for count in counts) == len(arrived) == len(trace.packets)
    due_ns = {p.data: p.time_ns // 2 for share in shares for p in share}
    late_ns = sorted(p.time_ns - start_ns - due_ns[p.data] for p in arrived)
    assert late_ns[0] > -100_000, "none goes before its time"
    busy_ns = max(behind_ns(count) for count in counts)
    assert late_ns[len(late_ns) // 2] < 20_000_000 + busy_ns, "the median packet is not where it was recorded"


def test_passes_repeat_at_the_period_of_the_whole_trace(ears: Listened, tmp_path: Path) -> None:
    packets = [Packet(at_ms * 1_000_000, bytes(12) + b"\x88\xb5" + bytes([at_ms]) * 50) for at_ms in (0, 50, 100)]
    timing = Timing(mode="original", lead_ns=0, period_ns=400_000_000)
    (count,), start_ns = replay(ears, [a_leg(packets, tmp_path, repeat=3, timing=timing)], tmp_path)
    times = [packet.time_ns for packet in ears.arrived()]
    assert count.sent_packets == len(times) == 9
    assert -100_000 < times[6] - start_ns - 800_000_000 < 50_000_000 + behind_ns(count)


def test_a_count_that_is_no_whole_number_of_passes(ears: Listened, tmp_path: Path) -> None:
    trace = readdressed(REAL_TRACES / "443-firefox.pcap")
    leg = a_leg(trace.packets, tmp_path, count_packets=1000, repeat=2)
    (count,), _ = replay(ears, [leg], tmp_path)
    assert count.sent_packets == len(ears.arrived()) == 1000


@pytest.mark.parametrize(("mode", "value", "pps"), [("pps", 500.0, 500.0), ("bps", 400_000.0, 500.0)])
def test_a_fixed_rate_and_a_duration(ears: Listened, tmp_path: Path, mode: TraceMode, value: float, pps: float) -> None:
    packets = [Packet(0, bytes(12) + b"\x88\xb5" + bytes([n]) * 82) for n in range(10)]  # 100 bytes with FCS
    leg = a_leg(packets, tmp_path, timing=Timing(mode=mode, value=value), count_packets=None, duration_s=1.0)
    (count,), start_ns = replay(ears, [leg], tmp_path)
    arrived = ears.arrived()
    # A signal ends it, which a busy machine may bring late; what it sends until then it sends at its rate.
    lasted_s = max(1.0, (arrived[-1].time_ns - start_ns) / 1e9)
    assert count.sent_packets == len(arrived) == pytest.approx(pps * lasted_s, rel=0.05)
    assert count.started_ns is not None
    assert count.seconds == pytest.approx(lasted_s, abs=0.05)


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.3])
def test_stopped_at_any_time_the_count_is_what_arrived(ears: Listened, tmp_path: Path, after_s: float) -> None:
    packets = [Packet(n * 1_000_000, bytes(12) + b"\x88\xb5" + bytes([n & 255]) * 50) for n in range(1000)]
    leg = a_leg(packets, tmp_path, timing=Timing(mode="original"))
    try:
        (count,), _ = replay(ears, [leg], tmp_path, stop_after_s=after_s)
    except EngineError as error:
        pytest.skip(f"tcpreplay could not tell, and that is told: {error}")
    assert count.sent_packets == len(ears.arrived()) < 1000


def test_an_interface_that_goes_down_is_told(ears: Listened, tmp_path: Path) -> None:
    ip("-n", ears.wire.sender, "link", "set", "tx0", "down")
    with pytest.raises(EngineError, match="Network is down"):
        replay(ears, [a_leg([Packet(0, bytes(60))], tmp_path)], tmp_path)


def test_the_first_packet_leaves_at_the_start(ears: Listened, tmp_path: Path) -> None:
    """Without the gate tcpreplay needs some 50 ms."""
    skews_ns = []
    for _ in range(5):
        _, start_ns = replay(ears, [a_leg([Packet(0, bytes(60))], tmp_path)], tmp_path)
        skews_ns.append(ears.arrived()[0].time_ns - start_ns)
    assert -100_000 < sorted(skews_ns)[2] < 10_000_000


def test_all_of_one_queue_keep_to_one_processor_and_their_feeders_to_none(ears: Listened, tmp_path: Path) -> None:
    packets = [Packet(n * 100_000_000, bytes(12) + b"\x88\xb5" + bytes([n]) * 50) for n in range(3)]
    legs = [a_leg(packets, tmp_path, number, timing=Timing(mode="original")) for number in (4, 5, 6)]
    allowed = os.sched_getaffinity(0)
    sender = TcpreplaySender(SendTask("tx0", legs, 30.0), tmp_path)
    with inside(ears.wire.sender):
        try:
            sender.prepare()
            pairs = [replayer_and_feeder(str(tmp_path / f"tcpreplay-{leg.id}.gate")) for leg in legs]
            kept = [os.sched_getaffinity(replayer) for replayer, _ in pairs]
            assert [os.sched_getaffinity(feeder) for _, feeder in pairs] == [allowed] * len(legs)
        finally:
            sender.stop()
            sender.restore()
    assert kept == [kept[0]] * len(legs) and len(kept[0]) == 1


def replayer_and_feeder(gate: str) -> tuple[int, int]:
    """The processes of a leg: a tcpreplay, and its child, which still has the gate's command line."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if gate in (process / "cmdline").read_text() and "tcpreplay" in Path(f"/proc/{parent}/comm").read_text():
                return parent, int(process.name)
    raise AssertionError(f"no tcpreplay whose child was given {gate}")
