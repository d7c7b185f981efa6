"""Schedules: the structures against the compiled object's, pacing, rules, and checksums as linear sums."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import pytest

from nodes import libbpf
from traffic import schedule
from traffic.frames import build_frame
from traffic.task import Leg
from traffic.template import Checksum, put_bits

OBJECT = libbpf.OBJECTS / "send.o"
ETHERNET = {"ethernet": {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}
IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}
UDP = {"udp": {"src": 1, "dst": 2}}


def a_leg(*headers: dict[str, Any], **more: Any) -> Leg:
    frame = {"headers": [ETHERNET, *(headers or (IPV4, UDP))], "payload": more.pop("payload", {})}
    return Leg(7, "s", "a", "b", "stream", frame=frame, **{"size_bytes": 100, **more})


@pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing() or "libbpf is there")
@pytest.mark.skipif(not OBJECT.exists(), reason="kernel/build.sh has not been run")
@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("leg", schedule.LegRecord),
        ("rule", schedule.RuleRecord),
        ("noise", schedule.NoiseRecord),
        ("sum", schedule.SumRecord),
        ("state", schedule.StateRecord),
    ],
)
def test_the_two_tables_are_one(name: str, record: type[ctypes.Structure]) -> None:
    ours = {}
    for field, *_ in record._fields_:
        place = getattr(record, field)
        ours[field] = (place.offset, place.size)
    assert libbpf.struct_layout(OBJECT, name) == ours


@pytest.mark.parametrize("rate", [0.001, 1.0, 3.0, 1e6, 14_880_952.38])
def test_a_gap_adds_up_to_the_rate(rate: float) -> None:
    """The error of ten days' frames, in their due times."""
    frames = rate * 864_000
    seconds = schedule.gap(rate) * frames / 2**24 / 1e9
    assert abs(seconds - 864_000) / 864_000 < 1e-9
    assert schedule.gap(rate) < 2**64


def test_no_rate_is_no_gap_and_a_burst_has_one_for_all_its_frames() -> None:
    assert schedule.gap(None) == 0
    assert schedule.gap(1000.0, 10) == 10 * schedule.gap(1000.0)


def test_when_a_leg_ends() -> None:
    timed = schedule.compile_leg(a_leg(duration_s=2.0), 1)
    paced = schedule.compile_leg(a_leg(duration_s=2.0, rate_pps=1000.0), 1)
    counted = schedule.compile_leg(a_leg(count_packets=5), 1)
    assert (timed.record.remaining, schedule.stop_ns(timed, 10)) == (schedule.NEVER, 2_000_000_010)
    assert (paced.record.remaining, schedule.stop_ns(paced, 10)) == (2000, 2_010_000_010)
    assert (counted.record.remaining, schedule.stop_ns(counted, 10)) == (5, schedule.NEVER)


def test_a_stamp_stands_in_the_first_payload_bytes() -> None:
    compiled = schedule.compile_leg(a_leg(), 1)
    assert compiled.record.stamp == 42
    assert compiled.slot[42:60].hex() == "5053" + "0007" + "00" * 14
    assert build_frame(a_leg().frame, 100).data[:34] == compiled.slot[:34]


@pytest.mark.parametrize(
    "leg",
    [
        a_leg(IPV6, UDP, size_bytes=64 + 19),
        a_leg(payload={"hex": "00"}),
        a_leg({"arp": {"sender_mac": "02:00:00:00:00:0a", "sender_ip": "10.0.0.1", "target_ip": "10.0.0.2"}}),
        a_leg(options={"stamp": False}),
    ],
)
def test_frames_that_carry_no_stamp(leg: Leg) -> None:
    assert schedule.unable(leg) == ""
    assert not schedule.stamped(leg) and schedule.compile_leg(leg, 1).record.stamp == 0


@pytest.mark.parametrize(
    ("leg", "why"),
    [
        (Leg(0, "t", "a", "b", "trace"), "it sends no traces yet"),
        (a_leg(options={"clone_skb": 1}), "it has no option 'clone_skb'"),
        (a_leg(size_bytes=3405), "its frames have at most 3404 bytes"),
        (a_leg(options={"burst": 0}), "burst is a whole number from 1 to 65536, not 0"),
        (a_leg(options={"late": "drop"}), "late is catch_up or skip, not 'drop'"),
        (
            a_leg(IPV6, UDP, size_bytes=83, options={"stamp": True}),
            "a stamp needs 18 bytes of free payload: a frame of at least 84 bytes",
        ),
        (
            a_leg({"ipv6": {"src": {"increment": ["fd00::", "fd01::"]}, "dst": "fd00::2"}}, UDP),
            "ipv6.src varies in more than its last 64 bits",
        ),
    ],
)
def test_what_it_cannot_send(leg: Leg, why: str) -> None:
    assert schedule.unable(leg) == why


def test_weights_say_by_how_much_a_sum_grows() -> None:
    """Nested sums at odd places: each weight against sums of the whole data, with one byte changed."""
    outer, inner = Checksum(6, ((1, 41),), 99), Checksum(24, ((19, 40), (10, 14)))
    draw = random.Random(1)
    for at in [*range(1, 5), *range(8, 22), *range(27, 40)]:
        found = schedule.weights((outer, inner), at, at + 1, at + 1)
        data = bytearray(draw.randbytes(48))
        data[at] = 100
        for one in (inner, outer):
            one.mend(data)
        before = [int.from_bytes(data[one.offset_bytes : one.offset_bytes + 2], "big") for one in (outer, inner)]
        data[at] += 1
        for one in (inner, outer):
            one.mend(data)
        after = [int.from_bytes(data[one.offset_bytes : one.offset_bytes + 2], "big") for one in (outer, inner)]
        assert found[:2] == [(old - new) % 0xFFFF for old, new in zip(before, after, strict=True)]


def test_an_inner_checksum_is_mended_before_the_one_over_it() -> None:
    outer, inner = Checksum(0, ((0, 40),)), Checksum(20, ((18, 40),))
    assert schedule.mending_order((outer, inner)) == [inner, outer]


@pytest.mark.parametrize("headers", [(IPV4, {"udp": {"src": {"increment": [1, 9]}, "dst": 2}}), (IPV6, UDP)])
def test_a_rule_writes_its_field_and_nothing_else(headers: tuple[dict[str, Any], ...]) -> None:
    leg = a_leg(*headers)
    template, record = build_frame(leg.frame, 100), schedule.compile_leg(leg, 1).record
    for index, field in enumerate(template.fields):
        rule = record.rule[index]
        data = bytearray(96)
        put_bits(data, field.bit, field.width_bits, (1 << field.width_bits) - 1)
        window = int.from_bytes(data[rule.window : rule.window + 8], "big")
        assert window == rule.mask
        assert sum(data) == sum(data[rule.window : rule.window + 8])


@pytest.mark.parametrize("legs", [1, 2, 3, 5, 64, 200, 256])
def test_a_tournament_knows_every_leg(legs: int) -> None:
    leaves, winner = schedule.tournament(legs)
    assert leaves >= legs and leaves.bit_count() == 1 and len(winner) == 2 * leaves
    assert winner[leaves:] == list(range(leaves)) and winner[1] == 0
    assert all(winner[node] in (winner[2 * node], winner[2 * node + 1]) for node in range(1, leaves))


def test_seeds_next_to_each_other_draw_differently() -> None:
    states = {schedule.compile_leg(a_leg(), seed).record.random for seed in range(100)}
    assert len(states) == 100 and 0 not in states
