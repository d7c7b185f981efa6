"""The xdp sender over a wire: every frame arrives as it was made; traces, rates, durations, processors."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from pktswarm.nodes import availability
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.leg import Timing
from pktswarm.traffic.schedule import compile as schedule
from wire import EMULATED, Wire
from xdp_ends import send, start
from xdp_sender_ends import (
    SLOW,
    USERS,
    a_leg,
    a_recording,
    a_trace_leg,
    away_s,
    check_fields,
    complete,
    latest_s,
    mended,
    send_and_listen,
)

pytestmark = [
    pytest.mark.usefixtures("live_frames"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender()),
]


@pytest.mark.kernel
def test_every_frame_arrives_as_it_was_made(wire: Wire, tmp_path: Path, engine: str) -> None:
    leg = a_leg("udp4 varying", 5, count_packets=2000, rate_pps=20_000.0, options={"late": "catch_up"})
    template = build_frame(leg.frame, leg.size_bytes)
    [count], arrived = send_and_listen(wire, tmp_path, [leg], engine=engine)
    assert (count["sent_packets"], count["failed_packets"], count["sent_bytes"]) == (2000, 0, 2000 * 96)
    assert wire.counter("tx") == wire.counter("rx") == len(arrived) == 2000
    times = []
    for index, frame in enumerate(arrived):
        found = stamp.read_stamp(frame[42:])
        assert found is not None and found[:2] == (5, index)
        assert frame == mended(template, frame)
        check_fields(template, frame, index)
        times.append(found.time_ns)
    assert times[0] == count["started_ns"] and times == sorted(times)
    due_ns = [count["started_ns"] - count["delay_ns"] + 50_000 * index for index in range(2000)]
    late_ns = [time_ns - due for time_ns, due in zip(times, due_ns, strict=True)]
    assert min(late_ns) >= 0 and abs(max(late_ns) / 1e9 - latest_s(count)) < 1e-6


@pytest.mark.kernel
def test_frames_of_several_sizes_do_not_show_through_each_other(wire: Wire, tmp_path: Path, engine: str) -> None:
    """Pages are used again and again, by legs of other sizes too."""
    sizes = (64, 1518, 200, 65)
    legs = [a_leg(number=n, size_bytes=size, count_packets=400) for n, size in enumerate(sizes)]
    counts, arrived = send_and_listen(wire, tmp_path, legs, engine=engine)
    assert [count["sent_packets"] for count in counts] == [400] * 4
    for leg in legs:
        template = build_frame(leg.frame, leg.size_bytes)
        own = [frame for frame in arrived if len(frame) == leg.size_bytes - 4]
        assert len(own) == 400
        for frame in own:
            assert frame == mended(template, frame)
            assert frame[64:] == template.data[64:] and frame[:34] == template.data[:34]


@pytest.mark.kernel
def test_a_trace_is_replayed_byte_for_byte(wire: Wire, tmp_path: Path, engine: str) -> None:
    packets = a_recording(2000)
    [count], arrived = send_and_listen(wire, tmp_path, [a_trace_leg(tmp_path, packets)], engine=engine)
    assert arrived == [packet.data for packet in packets]
    assert (count["sent_packets"], count["sent_bytes"]) == (2000, sum(len(packet.data) for packet in packets))
    recorded_s = (packets[-1].time_ns - packets[0].time_ns) / 1e9
    assert abs(count["seconds"] - recorded_s) <= latest_s(count)


def test_passes_of_a_trace_follow_each_other(wire: Wire, tmp_path: Path, engine: str) -> None:
    packets = a_recording(100)
    leg = a_trace_leg(tmp_path, packets, count_packets=250, timing=Timing(period_ns=200_000_000, lead_ns=50_000_000))
    [count], arrived = send_and_listen(wire, tmp_path, [leg], engine=engine)
    assert arrived == [packet.data for packet in (packets * 3)[:250]]
    recorded_s = 2 * 0.2 + (packets[49].time_ns - packets[0].time_ns) / 1e9
    assert abs(count["seconds"] - recorded_s) <= latest_s(count)
    assert 0 <= count["delay_ns"] / 1e9 - 0.05 <= latest_s(count)


def test_a_duration_ends_a_trace(wire: Wire, tmp_path: Path) -> None:
    leg = a_trace_leg(tmp_path, a_recording(10), "pps", 1000.0, duration_s=0.2)
    [count] = send(wire, tmp_path, [leg])
    assert complete(count, 200)


def test_what_the_file_leaves_out_is_sent_as_zeros(wire: Wire, tmp_path: Path, engine: str) -> None:
    packets = a_recording(300)
    leg = a_trace_leg(tmp_path, packets, "top")
    data = bytearray(write_pcap([Packet(packet.time_ns, packet.data[:40]) for packet in packets]))
    at = 24
    for packet in packets:
        data[at + 12 : at + 16] = struct.pack("<I", len(packet.data))
        at += 16 + len(packet.data[:40])
    (tmp_path / "0.pcap").write_bytes(data)
    _, arrived = send_and_listen(wire, tmp_path, [leg], engine=engine)
    assert arrived == [packet.data[:40] + bytes(len(packet.data[40:])) for packet in packets]


def test_traces_and_streams_on_one_interface(wire: Wire, tmp_path: Path, engine: str) -> None:
    first, second = a_recording(500), a_recording(700, seed=2)
    legs = [
        a_trace_leg(tmp_path, first, number=0),
        a_leg(number=1, count_packets=500, rate_pps=10_000.0, size_bytes=1518, sizes=[[64, 1], [1518, 1]]),
        a_trace_leg(tmp_path, second, "multiplier", 2.0, number=2),
        a_leg(number=3, count_packets=0),
    ]
    counts, arrived = send_and_listen(wire, tmp_path, legs, engine=engine)
    assert [count["sent_packets"] for count in counts] == [500, 500, 700, 0]
    replayed = sorted(frame for frame in arrived if frame[12:14] == b"\x88\xb5")
    assert replayed == sorted(packet.data for packet in first + second)
    assert sum(count["sent_bytes"] for count in counts) == sum(map(len, arrived))


@pytest.mark.parametrize("rate", [1000.0, pytest.param(100_000.0, marks=pytest.mark.skipif(EMULATED, reason=SLOW))])
@pytest.mark.parametrize(("options", "share"), [({}, schedule.STRETCHED_SHARE), ({"late": "catch_up"}, 0.0)])
def test_the_rate_holds(wire: Wire, tmp_path: Path, rate: float, options: dict[str, str], share: float) -> None:
    [count] = send(wire, tmp_path, [a_leg(count_packets=int(rate), rate_pps=rate, options=options)])
    assert count["sent_packets"] == rate
    assert abs(count["seconds"] - (rate - 1) / rate) <= latest_s(count) + share
    assert share or "stretched" not in count["note"]


def test_a_duration_ends_a_leg_without_a_count(wire: Wire, tmp_path: Path, engine: str) -> None:
    [count] = send(wire, tmp_path, [a_leg(duration_s=0.3)], engine=engine)
    assert count["sent_packets"] > 100 and wire.settled(count["sent_packets"])
    assert 0.299 - away_s(count) < count["delay_ns"] / 1e9 + count["seconds"] <= 0.3


def test_legs_with_and_without_a_rate(wire: Wire, tmp_path: Path) -> None:
    legs = [a_leg(number=0, duration_s=0.5), a_leg(number=1, duration_s=0.5, rate_pps=1000.0)]
    fast, paced = send(wire, tmp_path, legs)
    assert complete(paced, 500)
    assert wire.settled(fast["sent_packets"] + paced["sent_packets"])
    assert fast["sent_packets"] > 2 * paced["sent_packets"]


def test_what_cannot_be_kept_up_with_is_skipped(wire: Wire, tmp_path: Path, engine: str) -> None:
    [count] = send(wire, tmp_path, [a_leg(duration_s=0.3, rate_pps=100e6, options={"late": "skip"})], engine=engine)
    passed = count["sent_packets"] + count["failed_packets"] + count["skipped_packets"]
    assert wire.settled(count["sent_packets"]) and count["late_packets"] == 0
    # Nothing is skipped any more that fell due while nobody looked and the duration's grace ended.
    unseen = max(0.0, away_s(count) - schedule.GRACE_NS / 1e9) * 100e6
    assert count["skipped_packets"] > 0 and 0 <= 30_000_000 - passed <= unseen + 100_000


def test_what_is_caught_up_is_counted_as_late_and_what_did_not_leave_is_not(wire: Wire, tmp_path: Path) -> None:
    wire.receive_in_threads()
    [count] = send(wire, tmp_path, [a_leg(count_packets=200_000, rate_pps=100e6)])
    assert count["failed_packets"] > 0 and count["skipped_packets"] == 0
    # It takes 2 ms in theory, so but for the first all are late.
    assert 0.5 * count["sent_packets"] < count["late_packets"] <= count["sent_packets"]


@pytest.mark.kernel
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_two_processors_share_the_legs(wire: Wire, tmp_path: Path, engine: str) -> None:
    """Each with its own frames, its own dropped ones, and the other's seen by neither."""
    wire.receive_in_threads()
    two = {"cores": 2}
    legs = [
        a_leg("udp4 varying", 0, count_packets=60_000, users=USERS, options=two),
        a_leg("udp4 varying", 1, count_packets=50_000, users=USERS, size_bytes=200),
        a_leg(number=2, count_packets=500, rate_pps=20_000.0),
        a_leg(number=3, count_packets=700, rate_pps=20_000.0),
    ]
    counts = send(wire, tmp_path, legs, engine=engine)
    assert [count["leg"] for count in counts] == [0, 1, 2, 3]
    assert [count["sent_packets"] for count in counts[:2]] == [60_000, 50_000]
    assert all(sum(count["users"]) == count["sent_packets"] for count in counts[:2])
    assert all(c["sent_packets"] + c["failed_packets"] == n for c, n in zip(counts[2:], (500, 700), strict=True))
    cpus = [count["note"].split("on processor ")[1].split(";")[0] for count in counts]
    assert cpus[0] != cpus[1]
    assert wire.settled(sum(count["sent_packets"] for count in counts))


def test_more_processors_than_there_are(wire: Wire, tmp_path: Path) -> None:
    legs = [a_leg(number=number, count_packets=1, options={"cores": 64}) for number in range(64)]
    process = start(wire, tmp_path, legs)
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 9
    assert "tx0: cores = 64: more processors than this node has (allowed: up to" in text
