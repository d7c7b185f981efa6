"""The engine tc: frames as those of xdp, on interfaces without XDP; long frames, queues that drop, refusals."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import availability
from pktswarm.nodes.availability import PLAIN_CLONER
from pktswarm.nodes.senders.ways_out import CLONES
from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.random.xorshift import KernelDraw
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import xdp_limits
from pktswarm.traffic.schedule.records import LARGEST_CLONE_BYTES
from wire import Wire, ip
from xdp_ends import Node, send, start
from xdp_sender_ends import (
    NEW_SHAPES,
    SHAPES,
    SOME_SIZES,
    USERS,
    a_leg,
    a_recording,
    a_sequence,
    a_trace_leg,
    by_user,
    expected,
    frames,
    mended,
    send_and_listen,
)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.tc_sender()), reason=availability.tc_sender()),
]


def by_tc(shape: str, **more: Any) -> Leg:
    return replace(a_leg(shape, **more), engine="tc")


@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}])
@pytest.mark.parametrize("shape", [*SHAPES, *NEW_SHAPES])
def test_frames_are_the_templates_byte_for_byte(shape: str, payload: dict[str, Any]) -> None:
    frame: FrameDescription = {"headers": {**SHAPES, **NEW_SHAPES}[shape], "payload": payload}
    leg = Leg(0, shape, "a", "b", "stream", engine="tc", frame=frame, size_bytes=161, options={"stamp": False})
    assert not xdp_limits.unable(leg, "tc")
    template, compiled = build_frame(frame, 161), schedule.compile_leg(leg, 5)
    draw = KernelDraw(compiled.record.random)
    assert frames([compiled], 50, way=CLONES) == [template.frame(index, draw) for index in range(50)]


@pytest.mark.parametrize("shape", ["udp4", "tcp6", "gtpu session", "gtpu in gtpu"])
def test_frames_of_a_sequence_are_the_templates_of_their_sizes_and_users(shape: str) -> None:
    leg, records = a_sequence(shape, SOME_SIZES, options={"stamp": False}, engine="tc")
    assert frames([schedule.compile_leg(leg, 5, sequence=records)], len(records), way=CLONES) == expected(leg, records)


def test_the_program_for_older_kernels_loads_and_makes_the_same() -> None:
    """It has no bpf_loop(). That one before 5.17 takes it, this kernel cannot show."""
    older = replace(CLONES, program=PLAIN_CLONER)
    leg = by_tc("udp4 varying", size_bytes=161, options={"stamp": False})
    made = [frames([schedule.compile_leg(leg, 5)], 50, way=way) for way in (CLONES, older)]
    assert made[0] == made[1] and len(set(made[0])) > 1


def test_every_frame_is_counted_without_xdp_at_either_end(wire: Wire, tmp_path: Path) -> None:
    legs = [
        by_tc("udp4 varying", number=0, count_packets=20_000, rate_pps=50_000.0),
        by_tc("vlan", number=1, count_packets=500, size_bytes=1518),
    ]
    counts = send(wire, tmp_path, legs, engine="tc")
    assert [(one["engine"], one["sent_packets"], one["failed_packets"]) for one in counts] == [
        ("tc", 20_000, 0),
        ("tc", 500, counts[1]["failed_packets"]),
    ]
    assert wire.counter("tx") == wire.counter("rx") == 20_500
    assert wire.counter("rx", "bytes") == sum(one["sent_bytes"] for one in counts)


def test_what_a_receiver_counts_of_it(wire: Wire, tmp_path: Path) -> None:
    legs = [by_tc("udp4 varying", number=n, count_packets=20_000, rate_pps=20_000.0) for n in (0, 5)]
    with Node(wire, None, legs) as node:
        counts = send(wire, tmp_path, legs, engine="tc")
        tallies, unmatched, _ = node.stop()
    assert [one["sent_packets"] for one in counts] == [20_000, 20_000]
    assert [tallies[name]["distinct"] for name in ("0", "5")] == [20_000, 20_000]
    assert [tallies[name]["reordered"] for name in ("0", "5")] == [0, 0] and not sum(unmatched.values())


def jumbo(wire: Wire) -> None:
    for name, interface in ((wire.sender, "tx0"), (wire.receiver, "rx0")):
        ip("-n", name, "link", "set", interface, "mtu", "9000")


@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}])
def test_frames_of_9000_bytes_beside_small_ones(wire: Wire, tmp_path: Path, payload: dict[str, Any]) -> None:
    jumbo(wire)
    sizes = {"size_bytes": 9018, "sizes": [[64, 2], [9018, 3], [5001, 1]]}
    leg = by_tc("udp4 varying", count_packets=600, rate_pps=2000.0, payload=payload, **sizes)
    [count], arrived = send_and_listen(wire, tmp_path, [leg], engine="tc")
    assert count["sent_packets"] == len(arrived) == 600 and wire.counter("tx") == 600
    templates = {size - 4: build_frame(leg.frame, size) for size in (64, 5001, 9018)}
    assert {len(frame) for frame in arrived} == set(templates)
    assert [found.sequence for frame in arrived if (found := stamp.read_stamp(frame[42:]))] == list(range(600))
    assert all(frame == mended(templates[len(frame)], frame) for frame in arrived)


def test_a_trace_with_frames_of_9000_bytes(wire: Wire, tmp_path: Path) -> None:
    jumbo(wire)
    packets = a_recording(300)
    packets = [Packet(one.time_ns, one.data + bytes([n % 256]) * (n % 2 * 7500)) for n, one in enumerate(packets)]
    _, arrived = send_and_listen(wire, tmp_path, [a_trace_leg(tmp_path, packets)], engine="tc")
    assert arrived == [packet.data for packet in packets]


def shape(wire: Wire, rate: str, limit_bytes: int = 10_000) -> None:
    words = f"tc qdisc add dev tx0 root tbf rate {rate} burst 2000 limit {limit_bytes}"
    ip("netns", "exec", wire.sender, *words.split())


def test_frames_that_a_qdisc_drops_are_not_sent(wire: Wire, tmp_path: Path) -> None:
    """A queue of 20 frames, 2,000 frames/s: the interface counts later what it has taken, and nothing else."""
    shape(wire, "8mbit")
    leg = by_tc("udp4 varying", count_packets=5000, rate_pps=50_000.0, size_bytes=504, users=USERS)
    [count], arrived = send_and_listen(wire, tmp_path, [leg], engine="tc")
    assert count["failed_packets"] > 1000 and count["sent_packets"] + count["failed_packets"] == 5000
    assert "that the interface's ring or qdisc did not take" in count["note"]
    assert wire.counter("tx") == wire.counter("rx") == len(arrived) == count["sent_packets"]
    assert count["users"] == by_user(arrived)


def test_a_leg_without_a_rate_makes_up_for_those_that_a_qdisc_drops(wire: Wire, tmp_path: Path) -> None:
    shape(wire, "40mbit")
    legs = [by_tc("udp4 varying", number=n, count_packets=1000, size_bytes=504, users=USERS) for n in (0, 1)]
    counts, arrived = send_and_listen(wire, tmp_path, legs, engine="tc")
    assert [one["sent_packets"] for one in counts] == [1000, 1000] and all(one["failed_packets"] for one in counts)
    assert wire.counter("tx") == len(arrived) == 2000
    assert [sum(users) for users in zip(*(one["users"] for one in counts), strict=True)] == by_user(arrived)


@pytest.mark.parametrize("rate", [None, 10_000.0])
def test_frames_for_an_interface_that_is_down_are_not_sent(wire: Wire, tmp_path: Path, rate: float | None) -> None:
    """Its queue then is one that drops all of them."""
    legs = [by_tc("udp4", number=0, count_packets=500, rate_pps=rate)]
    [count] = send(wire, tmp_path, legs, engine="tc", before_start=["ip", "link", "set", "tx0", "down"])
    assert count["sent_packets"] == wire.counter("tx") == 0
    assert count["failed_packets"] == 500 if rate else count["failed_packets"] > 500


def test_an_interface_that_takes_no_frame_does_not_hold_a_leg_without_a_rate(wire: Wire, tmp_path: Path) -> None:
    """The other end drops what exceeds its MTU, as a ring that never empties would."""
    ip("-n", wire.receiver, "link", "set", "rx0", "mtu", "600")
    legs = [by_tc("udp4", number=0, size_bytes=1000, count_packets=500)]
    [count] = send(wire, tmp_path, legs, engine="tc")
    assert count["sent_packets"] == 0 and count["failed_packets"] > 500


@pytest.mark.parametrize(
    ("leg", "why"),
    [
        ({"size_bytes": 1600}, "tx0: udp4.size_bytes = 1600: longer than the interface takes (allowed: up to 1522"),
        ({"options": {"cores": 64}}, "tx0: cores = 2: more processors than this node has"),
    ],
)
def test_what_is_refused_before_the_start(wire: Wire, tmp_path: Path, leg: dict[str, Any], why: str) -> None:
    number = len(os.sched_getaffinity(0)) + 1
    legs = [by_tc("udp4", number=n, count_packets=1, **leg) for n in range(number)]
    process = start(wire, tmp_path, legs, engine="tc")
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 9 and "BadInput" in text and why.replace("= 2:", f"= {number}:") in text


def probed(wire: Wire, interface: str) -> str:
    words = (
        "import sys; from pktswarm.nodes import clones, interface as i; print(clones.trouble(i.Interface(sys.argv[1])))"
    )
    return ip("netns", "exec", wire.sender, sys.executable, "-c", words, interface).strip()


def test_the_probe_sends_a_frame_to_see(wire: Wire) -> None:
    before = wire.counter("rx")
    assert probed(wire, "tx0") == "" and wire.counter("rx") == before + 1
    assert probed(wire, "nothing") == "nothing is not there, or has no carrier"
    ip("-n", wire.receiver, "link", "set", "rx0", "down")
    assert probed(wire, "tx0") == "tx0 is not there, or has no carrier"
    ip("-n", wire.receiver, "link", "set", "rx0", "up")
    shape(wire, "8mbit", limit_bytes=10)
    assert probed(wire, "tx0") == "tx0: its ring or its qdisc dropped the frame"


def test_the_kernel_s_limit_is_above_ours() -> None:
    leg = by_tc("udp4", size_bytes=LARGEST_CLONE_BYTES + 4, options={"stamp": False}, payload={"random": True})
    template, compiled = build_frame(leg.frame, leg.size_bytes), schedule.compile_leg(leg, 5)
    draw = KernelDraw(compiled.record.random)
    assert frames([compiled], 3, way=CLONES) == [template.frame(index, draw) for index in range(3)]
    assert "the maximum is 9604 bytes" in xdp_limits.unable(replace(leg, size_bytes=leg.size_bytes + 1), "tc")


CHANGED = """
import sys
from pathlib import Path
from pktswarm.nodes import changes, qdisc
from pktswarm.nodes.interface import Interface
folder = Path(sys.argv[1])
changes.write_down(folder, changes.of_qdisc(Interface("tx0"), qdisc.root("tx0"), "pfifo 7070:"))
qdisc.replace("tx0", "root", "7070:", "pfifo", "limit", "10")
[change] = changes.read(folder)[1]
assert change.stands() and str(change) == "qdisc of tx0 (was noqueue 0:)", change
change.undo()
assert qdisc.root("tx0") == "noqueue 0:" and not change.stands()
"""


def test_a_qdisc_that_a_killed_guard_left_is_put_back(wire: Wire, tmp_path: Path) -> None:
    ip("netns", "exec", wire.sender, sys.executable, "-P", "-c", CHANGED, str(tmp_path))
