"""The receiver xdp on what the kernel's pktgen really sends, on the virtual machine's older kernel."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.capture import ebpf
from pktswarm.traffic.capture import filter as pcap
from pktswarm.traffic.counting import users
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.leg_frames import templates_as_sent
from wires import Wire, headers, leg
from xdp_ends import Node

COUNT = 200
"""No more than the ring of the receiver's veth end holds (256): a frame it refuses takes its number with it."""


def a_leg(**changes: Any) -> Leg:
    made = leg(source="a", count_packets=COUNT, size_bytes=128, **changes)
    (template,) = templates_as_sent(made).values()
    return replace(made, match=Match.from_template(template).to_data())


def realtime_less_monotonic_ns() -> int:
    """Of many readings the one that took least: the processor is emulated, and a reading slow."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(100)]
    before, realtime, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return realtime - (before + after) // 2


def counted(wire: Wire, spool: Path, one: Leg, **task: Any) -> tuple[dict[str, Any], dict[str, int], dict[str, Any]]:
    """What the receiver says of a leg that arrived in full."""
    realtime_ns = {"a": realtime_less_monotonic_ns()}
    place: Any = SimpleNamespace(receiver=wire.rx)
    with Node(place, libbpf.OBJECTS / "count.o", [one], "r0", realtime_ns=realtime_ns, **task) as node:
        assert node.attached == "native"
        (sent,) = wire.send(spool, one)
        assert sent.sent_packets == COUNT
        time.sleep(0.5)
        tallies, unmatched, (count,) = node.stop()
    return tallies["0"], unmatched, count


def test_each_frame_counts_by_pktgens_number_and_time(wire: Wire, tmp_path: Path) -> None:
    (template,) = templates_as_sent(made := a_leg(frame={"headers": headers(src={"increment": [5000, 5049]})})).values()
    made = replace(made, users=users.of_template("test", "users", template, "udp.src"))
    program = ebpf.to_hex(ebpf.translate(pcap.compile_ethernet("udp dst port 6000 and ip[8] = 32", "test")))
    tally, unmatched, count = counted(wire, tmp_path, made, filter_program=program)
    assert (tally["packets"], tally["distinct"], tally["highest"]) == (COUNT, COUNT, COUNT - 1)
    assert [tally[name] for name in ("duplicated", "reordered", "too_late", "invalid_sequence", "altered")] == [0] * 5
    assert tally["latency"]["frames"] == COUNT
    assert -100_000 < tally["latency"]["min_ns"] < tally["latency"]["max_ns"] < 1_000_000_000
    assert tally["jitter"]["pairs"] == COUNT - 1
    assert unmatched["other"] == 0
    assert users.unpack(count["users"]["packets"]) == [COUNT // 50] * 50 + [0]
    assert users.unpack(count["users"]["latencies"]) == [COUNT // 50] * 50 + [0]


def test_at_a_rate_it_has_numbers_and_no_times(wire: Wire, tmp_path: Path) -> None:
    tally, _, count = counted(wire, tmp_path, a_leg(rate_pps=2000.0))
    assert (tally["distinct"], tally["duplicated"], tally["latency"], tally["jitter"]) == (COUNT, 0, None, None)
    assert "pktgen writes a frame's time before it waits" in count["note"]


@pytest.mark.parametrize("threads", [2])
def test_threads_that_number_for_themselves_are_counted_by_bytes(wire: Wire, tmp_path: Path, threads: int) -> None:
    tally, _, _ = counted(wire, tmp_path, a_leg(options={"threads": threads}))
    assert (tally["packets"], tally["distinct"]) == (COUNT, None)


def test_the_tai_clock_is_there(wire: Wire) -> None:
    place: Any = SimpleNamespace(receiver=wire.rx)
    with Node(place, libbpf.OBJECTS / "count.o", [a_leg()], "r0", tai=True) as node:
        assert node.attached == "native"
        node.stop()
