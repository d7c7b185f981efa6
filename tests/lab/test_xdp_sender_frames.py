"""The xdp sender's program on single frames: fields, checksums, stamps, sizes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import availability
from pktswarm.nodes.libbpf import kernel, run_once
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.nodes.senders.xdp import TAI_KERNEL
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription, Headers
from pktswarm.traffic.frames.template import Checksum, Template, VaryingField
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.preview.due_frames import KernelMarks
from pktswarm.traffic.preview.frames import KernelMaker
from pktswarm.traffic.protocol.task import Clock, ReceiveTask
from pktswarm.traffic.random.xorshift import KernelDraw
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import leg_frames, xdp_limits
from pktswarm.traffic.schedule import pace as schedule_pace
from pktswarm.traffic.schedule.assemble import assemble
from wire import B
from xdp_ends import loaded, made_by
from xdp_sender_ends import (
    ETHERNET,
    IPV4,
    NEW_SHAPES,
    SHAPES,
    a_leg,
    check_fields,
    frames,
    mended,
)

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender()),
]


@pytest.mark.kernel("-100-", "payload1")
@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}, {"hex": "00112233445566778899aabbccddee"}])
@pytest.mark.parametrize("size", [100, 101, 1000])
@pytest.mark.parametrize("shape", SHAPES)
def test_frames_are_as_the_template_says(shape: str, size: int, payload: dict[str, Any]) -> None:
    leg = a_leg(shape, 3, size_bytes=size, payload=payload)
    template = build_frame(leg.frame, size)
    assert not xdp_limits.unable(leg)
    made = frames([schedule.compile_leg(leg, 1)], 40)
    start = stamp.payload_offset(leg.frame["headers"])
    for index, frame in enumerate(made):
        assert frame == mended(template, frame)
        check_fields(template, frame, index)
        free = start
        if leg_frames.stamped(leg):
            found = stamp.read_stamp(frame[start:])
            assert found is not None and found[:2] == (3, index)
            free += leg_frames.stamp_bytes(leg)
            if found.checksum is not None:
                assert found.checksum % 0xFFFFFFFF == stamp.payload_sum(frame[free:])
            assert (found.checksum is None) == (free == start + stamp.PLAIN_BYTES)
        constant = [at for at in range(len(frame)) if not start <= at < free and not template.varying_mask[at]]
        sums = {c.offset_bytes + i for c in template.checksums for i in (0, 1)}
        assert all(frame[at] == template.data[at] for at in constant if at not in sums)
    # With less room than that two may be alike: a reading of the clock stands for several frames.
    if payload == {"random": True} and len(made[0]) - free >= 8:
        assert len({frame[free:] for frame in made}) == len(made)


@pytest.mark.kernel("sizes2-payload1")
@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}])
@pytest.mark.parametrize("sizes", [[[68, 1]], [[69, 1], [1001, 1]], [[70, 1], [71, 1], [1518, 1]]])
def test_the_receiver_sees_one_altered_byte(sizes: list[list[int]], payload: dict[str, Any], tmp_path: Path) -> None:
    more = {"sizes": sizes, "expect": {"length": None}}  # of several lengths
    leg = a_leg("udp4 varying", 3, size_bytes=sizes[-1][0], payload=payload, **more)
    made = frames([schedule.compile_leg(leg, 1)], 60)
    receiver = XdpReceiver(ReceiveTask("lo", B, [leg], 60, mode="count", offsets_ns={"a": 0}), tmp_path)
    receiver.prepare()
    try:
        program = receiver.program.counter_fd
        for frame in made:
            run_once(program, frame)
        tally = receiver.figures.tallies()[3]
        assert (tally.packets, tally.distinct, tally.altered) == (60, 60, 0), tally.altered_by
        longer = [frame for frame in made if len(frame) > 64] or made
        for altered, frame in enumerate(longer[:8], 1):
            where = random.Random(altered).randrange(60 if len(frame) == 64 else 64, len(frame))
            run_once(program, frame[:where] + bytes([frame[where] ^ 0x10]) + frame[where + 1 :])
            tally = receiver.figures.tallies()[3]
            assert (tally.altered_by or {})["payload"] == tally.altered == altered
    finally:
        receiver.restore()


def test_udp_checksums_in_the_eyes_of_tshark(tmp_path: Path) -> None:
    """Of checked stamps over noise, which nobody here computed."""
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    made = []
    for shape, size in (("udp4 varying", 101), ("udp6 varying", 999), ("tcp4 varying", 600)):
        leg = a_leg(shape, 3, size_bytes=size, payload={"random": True})
        assert leg_frames.stamp_bytes(leg) == stamp.CHECKED_BYTES
        made += frames([schedule.compile_leg(leg, 1)], 50)
    (tmp_path / "made.pcap").write_bytes(write_pcap([Packet(n, frame) for n, frame in enumerate(made)]))
    options = ["-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    fields = [word for name in ("ip", "udp", "tcp") for word in ("-e", f"{name}.checksum.status")]
    command = ["tshark", "-r", str(tmp_path / "made.pcap"), *options, "-T", "fields", *fields]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert {line.replace("\t", "") for line in lines} == {"11", "1"} and len(lines) == 150


@pytest.mark.kernel
@pytest.mark.skipif(kernel() < TAI_KERNEL, reason="TAI in XDP programs needs Linux 6.1")
@pytest.mark.parametrize(("clock", "number"), [("monotonic", time.CLOCK_MONOTONIC), ("ptp", time.CLOCK_TAI)])
def test_stamps_tell_the_clock_that_was_asked_for(clock: Clock, number: int) -> None:
    before_ns = time.clock_gettime_ns(number)
    leg = a_leg(size_bytes=200)
    template = build_frame(leg.frame, 200)
    made = frames([schedule.compile_leg(leg, 1)], 20, clock)
    times = [found.time_ns for frame in made if (found := stamp.read_stamp(frame[42:]))]
    times = [before_ns + (time_ns - before_ns) % 2**stamp.NUMBER_BITS for time_ns in times]
    in_order = [before_ns, *times, time.clock_gettime_ns(number)]
    assert len(times) == 20 and in_order == sorted(in_order)
    assert all(frame == mended(template, frame) for frame in made)


def test_sixteen_frames_of_a_call_share_a_reading_and_the_next_call_has_its_own() -> None:
    def times(number: int) -> list[int]:
        return [found.time_ns for frame in made_by(program, number) if (found := stamp.read_stamp(frame[42:]))]

    with loaded(assemble([schedule.compile_leg(a_leg(size_bytes=200), 1)])) as program:
        program.state.runs = 0
        first = times(20)
        assert [first.count(one) for one in sorted(set(first))] == [16, 4] and program.state.runs == 20
        program.state.runs = 0  # as before each call
        (later,) = times(1)
        assert later > first[-1]


def test_a_udp_checksum_of_zero_is_sent_as_ones() -> None:
    def leg(ports: list[int]) -> Leg:
        headers: Headers = [ETHERNET, IPV4, {"udp": {"src": {"increment": ports}, "dst": 1}}]
        frame: FrameDescription = {"headers": headers, "payload": {}}
        return Leg(0, "s", "a", "b", "stream", frame=frame, size_bytes=100, options={"stamp": False})

    # Each step of the port takes one from the checksum, so this port brings it to 0.
    port = int.from_bytes(build_frame(leg([0, 9]).frame, 100).data[40:42], "big")
    made = frames([schedule.compile_leg(leg([port - 1, port + 1]), 1)], 6)
    assert [frame[40:42].hex() for frame in made] == ["0001", "ffff", "fffe"] * 2


def test_random_fields_reach_all_of_their_range() -> None:
    headers: Headers = [ETHERNET, IPV4, {"udp": {"src": {"random": [10, 13]}, "dst": 1}}]
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


@pytest.mark.kernel
def test_sizes_mix_by_their_weights_and_each_frame_is_whole() -> None:
    leg = a_leg("udp4 varying", 3, size_bytes=1518, sizes=[[64, 7], [594, 4], [1518, 1]], payload={"random": True})
    made = frames([schedule.compile_leg(leg, 1)], 1200)
    templates = {size - 4: build_frame(leg.frame, size) for size in (64, 594, 1518)}
    for index, frame in enumerate(made):
        assert frame == mended(templates[len(frame)], frame)
        check_fields(templates[len(frame)], frame, index)
        found = stamp.read_stamp(frame[42:])
        assert found is not None and found.sequence == index
    shares = [sum(len(frame) == size for frame in made) for size in (60, 590, 1514)]
    assert 620 < shares[0] < 780 and 330 < shares[1] < 470 and 60 < shares[2] < 140


@pytest.mark.kernel("161", "payload1", "gtpu")
@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}])
@pytest.mark.parametrize("size", [160, 161])
@pytest.mark.parametrize("shape", [*SHAPES, *NEW_SHAPES])
def test_frames_are_the_templates_byte_for_byte(shape: str, size: int, payload: dict[str, Any]) -> None:
    headers = {**SHAPES, **NEW_SHAPES}[shape]
    frame: FrameDescription = {"headers": headers, "payload": payload}
    leg = Leg(0, shape, "a", "b", "stream", frame=frame, size_bytes=size, options={"stamp": False})
    assert not xdp_limits.unable(leg)
    template, compiled = build_frame(frame, size), schedule.compile_leg(leg, 5)
    draw = KernelDraw(compiled.record.random)
    assert frames([compiled], 100) == [template.frame(index, draw) for index in range(100)]


@pytest.mark.parametrize("sizes", [{}, {"sizes": [[160, 3], [301, 2]]}, {"sizes": [[301, 1]], "sizes_in_turn": True}])
@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}])
@pytest.mark.parametrize("shape", [*SHAPES, *NEW_SHAPES])
def test_frames_are_those_of_a_preview(shape: str, payload: dict[str, Any], sizes: dict[str, Any]) -> None:
    frame: FrameDescription = {"headers": {**SHAPES, **NEW_SHAPES}[shape], "payload": payload}
    leg = Leg(3, shape, "a", "b", "stream", engine="xdp", frame=frame, size_bytes=301, seed=7, **sizes)
    made = frames([schedule.compile_leg(leg, schedule_pace.seed_of(leg))], 60)
    assert [len(one) + 4 for one in made] == KernelMarks(leg).take(60)[0].tolist()
    maker, start = KernelMaker(leg), stamp.payload_offset(frame["headers"])
    for one in made:
        found = stamp.read_stamp(one[start:])  # the time in it is the only thing that a preview does not know
        assert maker.frame(found.time_ns if found else 0, len(one) + 4, 0) == one


@pytest.mark.parametrize("shape", NEW_SHAPES)
def test_a_stamp_leaves_every_checksum_as_right_or_wrong_as_it_was(shape: str) -> None:
    frame: FrameDescription = {"headers": NEW_SHAPES[shape], "payload": {"random": True}}
    leg = Leg(3, shape, "a", "b", "stream", frame=frame, size_bytes=161)
    template, start = build_frame(frame, 161), stamp.payload_offset(frame["headers"])
    for index, one in enumerate(frames([schedule.compile_leg(leg, 5)], 50)):
        found = stamp.read_stamp(one[start:])
        assert found is not None and found[:2] == (3, index)
        assert one == mended(template, one)


def test_a_udp_checksum_that_would_be_wrong_as_zero_is_sent_as_ones() -> None:
    def leg(first: int, last: int) -> Leg:
        udp = {"src": {"increment": [first, last]}, "dst": 1, "checksum": {"off_by": 9}}
        frame: FrameDescription = {"headers": [ETHERNET, IPV4, {"udp": udp}], "payload": {}}
        return Leg(0, "s", "a", "b", "stream", frame=frame, size_bytes=100, options={"stamp": False})

    port = int.from_bytes(build_frame(leg(0, 9).frame, 100).data[40:42], "big")
    made = frames([schedule.compile_leg(leg(port - 1, port + 1), 1)], 6)
    assert [frame[40:42].hex() for frame in made] == ["0001", "ffff", "fffe"] * 2


def test_sizes_in_turn() -> None:
    leg = a_leg("udp4 varying", size_bytes=1518, sizes=[[64, 1], [1518, 2], [512, 1]], sizes_in_turn=True)
    made = frames([schedule.compile_leg(leg, 1)], 9)
    assert [len(frame) + 4 for frame in made] == [64, 1518, 1518, 512, 64, 1518, 1518, 512, 64]
    assert all(frame == mended(build_frame(leg.frame, len(frame) + 4), frame) for frame in made)


def test_legs_with_lists_and_sizes_keep_to_their_own_part_of_the_table() -> None:
    ports = {"src": {"pick": [700, 65535, 80, 9000]}, "dst": {"with": "udp.src", "increment": [1, 4]}}
    headers: Headers = [ETHERNET, IPV4, {"udp": ports}]
    leg = Leg(0, "s", "a", "b", "stream", size_bytes=110, frame={"headers": headers, "payload": {}})
    other = a_leg(size_bytes=100, sizes=[[64, 1], [100, 1]], number=1)
    made = [frame for frame in frames([schedule.compile_leg(one, 1) for one in (other, leg)], 400) if len(frame) == 106]
    pairs = {(int.from_bytes(frame[36:38], "big"), int.from_bytes(frame[34:36], "big")) for frame in made}
    assert pairs == {(1, 700), (2, 65535), (3, 80), (4, 9000)}
