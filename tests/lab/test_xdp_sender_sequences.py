"""The xdp sender's program on sequences of a source, and the due times of changing rates."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from pktswarm.nodes import availability
from pktswarm.nodes.libbpf import run_once
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.preview.frames import KernelMaker
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import due_times, xdp_limits
from pktswarm.traffic.schedule import pace as schedule_pace
from pktswarm.traffic.schedule.assemble import assemble
from pktswarm.traffic.schedule.records import TURN_LONG, TURN_OF_ONE, TURN_OVER
from xdp_ends import XDP_DROP, XDP_REDIRECT, loaded
from xdp_sender_ends import (
    PACES,
    SEQUENCE_SHAPES,
    SOME_SIZES,
    a_leg,
    a_sequence,
    due_in_the_kernel,
    expected,
    frames,
    mended,
)

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender()),
]


@pytest.mark.parametrize("shape", SEQUENCE_SHAPES)
def test_frames_of_a_sequence_are_the_templates_of_their_sizes_and_users(shape: str) -> None:
    leg, records = a_sequence(shape, SOME_SIZES, options={"stamp": False})
    assert not xdp_limits.unable(leg)
    made = frames([schedule.compile_leg(leg, 5, sequence=records)], len(records))
    assert made == expected(leg, records)


@pytest.mark.parametrize("shape", SEQUENCE_SHAPES)
def test_stamped_frames_of_a_sequence_keep_their_checksums(shape: str) -> None:
    leg, records = a_sequence(shape, SOME_SIZES)
    start = stamp.payload_offset(leg.frame["headers"])
    for index, one in enumerate(frames([schedule.compile_leg(leg, 5, sequence=records)], len(records))):
        template = build_frame(leg.frame, len(one) + 4)
        found = stamp.read_stamp(one[start:])
        assert found is not None and found[:2] == (3, index)
        assert one == mended(template, one)


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not there")
@pytest.mark.parametrize("shape", ["udp4", "udp6", "tcp4", "tcp6", "gtpu", "gtpu session", "gtpu in gtpu"])
def test_lengths_and_checksums_of_a_sequence_in_the_eyes_of_tshark(shape: str, tmp_path: Path) -> None:
    leg, records = a_sequence(shape, SOME_SIZES)
    made = frames([schedule.compile_leg(leg, 5, sequence=records)], len(records))
    (tmp_path / "made.pcap").write_bytes(write_pcap([Packet(n, one) for n, one in enumerate(made)]))
    options = [w for name in ("ip", "udp", "tcp") for w in ("-o", f"{name}.check_checksum:TRUE")]
    fields = ["ip.checksum.status", "udp.checksum.status", "tcp.checksum.status", "_ws.malformed", "frame.len"]
    command = ["tshark", "-r", str(tmp_path / "made.pcap"), *options, "-T", "fields"]
    command += [word for name in fields for word in ("-e", name)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in told.stdout.splitlines()]
    assert [int(row[4]) for row in rows] == records["frame_bytes"].tolist()
    for row in rows:
        assert set("".join(row[:3]).replace(",", "")) == {"1"}, "1 is good, 0 bad, 2 not checked"
        assert row[3] == ""


@pytest.mark.parametrize("shape", SEQUENCE_SHAPES)
def test_frames_of_a_sequence_are_those_of_a_preview(shape: str) -> None:
    leg, records = a_sequence(shape, SOME_SIZES)
    maker, start = KernelMaker(leg), stamp.payload_offset(leg.frame["headers"])
    made = frames([schedule.compile_leg(leg, schedule_pace.seed_of(leg), sequence=records)], len(records))
    for one, user in zip(made, records["user"].tolist(), strict=True):
        found = stamp.read_stamp(one[start:])
        assert maker.frame(found.time_ns if found else 0, len(one) + 4, user) == one


def test_a_sequence_and_streams_keep_to_their_own_records() -> None:
    one, first = a_sequence("udp4", [200, 100, 300], options={"stamp": False})
    two, second = a_sequence("tcp4", [400, 500], options={"stamp": False})
    compiled = [schedule.compile_leg(leg, 5, sequence=records) for leg, records in ((one, first), (two, second))]
    made = frames(compiled, 5)
    assert sorted(made) == sorted([*expected(one, first), *expected(two, second)])


def test_a_turn_of_one_ends_with_its_first_frame() -> None:
    legs = [a_leg(number=number, rates=[[0, 1000.0]], count_packets=3) for number in range(2)]
    whole = assemble([schedule.compile_leg(leg, schedule_pace.seed_of(leg)) for leg in legs])
    with loaded(whole, start_ns=max(1, time.monotonic_ns() - 10**9)) as program:
        program.state.turn = TURN_OF_ONE
        assert [run_once(program.fd, bytes(96))[0] for _ in range(3)] == [XDP_REDIRECT, XDP_DROP, XDP_DROP]
        assert program.state.turn == TURN_OVER
        program.state.turn = TURN_LONG
        verdicts = [run_once(program.fd, bytes(96))[0] for _ in range(8)]
        assert verdicts.count(XDP_REDIRECT) == 5, "each of the two legs' three frames, once"


@pytest.mark.kernel("burst")
@pytest.mark.parametrize("random_gaps", [False, True])
@pytest.mark.parametrize("name", PACES)
def test_due_times_are_those_that_numpy_computes(name: str, random_gaps: bool) -> None:
    table = due_times.exponential_gaps(1000) if random_gaps else []
    leg = a_leg(number=3, **{"duration_s": 4.0, **PACES[name]}, gap_table=table, seed=5)
    assert xdp_limits.unable(leg) == ""
    wanted = due_times.due_times(leg).tolist()
    assert len(wanted) > 5
    found, until_ns = due_in_the_kernel(leg, 20_000)
    assert found == [due_ns for due_ns in wanted[:20_000] if due_ns < until_ns] and len(found) > 1


def test_due_times_of_a_poisson_process() -> None:
    leg = a_leg(rate_pps=14e6, gap_table=due_times.exponential_gaps(), count_packets=20_000)
    assert due_in_the_kernel(leg, 30_000)[0] == due_times.due_times(leg).tolist()
