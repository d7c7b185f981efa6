"""A receiver tells frames apart by what no device changes; its kernel filter says the same as the match itself."""

from __future__ import annotations

import random
from typing import Any

import pytest

from traffic import bpf
from traffic.frames import build_frame
from traffic.match import Match, Range, uncountable
from traffic.template import Template

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


def template(
    src: Any = 1000, *, tag: dict[str, Any] | None = None, dst_mac: Any = B, size_bytes: int = 100
) -> Template:
    headers: list[dict[str, Any]] = [{"ethernet": {"src": A, "dst": dst_mac}}, {"vlan": tag}][: 2 if tag else 1]
    headers += [{"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}, {"udp": {"src": src, "dst": 2000}}]
    return build_frame({"headers": headers}, size_bytes)


def match(*args: Any, **kwargs: Any) -> Match:
    return Match.from_template(template(*args, **kwargs))


def run(program: bpf.Program, frame: bytes) -> bool:
    """The kernel's part: the outermost tag out of the frame and beside it, then the instructions."""
    tag = frame[12:16] if frame[12:14] in (b"\x81\x00", b"\x88\xa8") else b""
    data = frame[:12] + frame[12 + len(tag) :]
    beside = {bpf.VLAN_PRESENT: int(bool(tag)), bpf.PACKET_TYPE: 0}
    beside |= {bpf.VLAN_TPID: int.from_bytes(tag[:2], "big"), bpf.VLAN_TCI: int.from_bytes(tag[2:], "big")}
    sizes = {bpf.LOAD_BYTE: 1, bpf.LOAD_HALF: 2, bpf.LOAD_WORD: 4}
    value, at = 0, 0
    while True:
        one = program[at]
        at += 1
        if one.code == bpf.RETURN:
            return one.k > 0
        if one.code == bpf.LOAD_LENGTH:
            value = len(data)
        elif one.code in sizes and one.k in beside:
            value = beside[one.k]
        elif one.code in sizes:
            if one.k + sizes[one.code] > len(data):
                return False
            value = int.from_bytes(data[one.k : one.k + sizes[one.code]], "big")
        elif one.code == bpf.AND:
            value &= one.k
        elif one.code == bpf.JUMP:
            at += one.k
        else:
            holds = {bpf.JUMP_EQUAL: value == one.k, bpf.JUMP_GREATER: value > one.k, bpf.JUMP_NOT_LESS: value >= one.k}
            at += one.if_true if holds[one.code] else one.if_false


KINDS: list[dict[str, Any]] = [
    {},
    {"src": 1001},
    {"src": {"increment": [1000, 1999]}},
    {"src": {"random": [3000, 3100]}},
    {"tag": {"id": 10}},
    {"tag": {"id": 10, "priority": 3}},
    {"tag": {"id": {"increment": [100, 107]}}},
    {"size_bytes": 200},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_match_and_kernel_filter_agree_on_every_kind_of_frame(kind: dict[str, Any]) -> None:
    one = match(**kind)
    again = Match.from_json(one.to_json())
    draw = random.Random(3)
    own = template(**kind)
    for index in range(50):
        assert one.matches(own.frame(index, draw))
    for other in KINDS:
        built = template(**other)
        for index in range(5):
            frame = built.frame(index, draw)
            assert run(one.program(), frame) == one.matches(frame) == again.matches(frame), other


def test_what_a_router_changes_does_not_matter_and_what_it_must_not_change_does() -> None:
    frame = template().data
    changed = {22: True, 18: True, 15: True, 24: True, 40: True, 0: False, 6: False, 26: False, 30: False, 35: False}
    for at, still in changed.items():
        other = bytearray(frame)
        other[at] ^= 1
        assert match().matches(bytes(other)) is still, at
    assert not match().matches(frame + b"\0") and not match().matches(frame[:30]) and not match().matches(b"")


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ({}, {}, True),
        ({}, {"src": 1001}, False),
        ({}, {"size_bytes": 200}, False),
        ({}, {"tag": {"id": 10}}, False),
        ({}, {"src": {"increment": [900, 1100]}}, True),
        ({"src": {"increment": [1000, 1099]}}, {"src": {"increment": [1100, 1199]}}, True),
        ({"src": {"increment": [1024, 1279]}}, {"src": {"increment": [1280, 1535]}}, False),
        ({"tag": {"id": 10}}, {"tag": {"id": 11}}, False),
    ],
)
def test_overlaps(one: dict[str, Any], two: dict[str, Any], expected: bool) -> None:
    """Ranges that share their upper bits with others are told apart only where they are cut alike: never too few."""
    assert match(**one).overlaps(match(**two)) is expected
    assert match(**two).overlaps(match(**one)) is expected


def test_a_rest_is_what_no_stream_between_the_two_claims() -> None:
    rest = Match.rest(A, B, [match()])
    mine, other = template().data, template(1001).data
    assert not rest.matches(mine) and rest.matches(other)
    assert [run(rest.program(), frame) for frame in (mine, other)] == [False, True]
    assert not rest.overlaps(match()) and rest.overlaps(match(1001))
    assert not rest.matches(other[6:12] + other[:6] + other[12:])
    assert Match.from_json(rest.to_json()) == rest


def test_what_cannot_be_counted_truly_is_said() -> None:
    assert "the destination MAC varies" in uncountable(match(dst_mac={"increment": [B, "02:00:00:00:00:0f"]}), "count")
    varying = match(tag={"id": {"increment": [1, 9]}})
    assert "use mode count" in uncountable(varying, "capture")
    assert uncountable(varying, "count") == uncountable(match(), "capture") == ""


def test_ranges_keep_to_the_bits_that_differ() -> None:
    assert match({"increment": [1000, 1007]}).ranges == (Range(34 * 8 + 13, 3, 0, 7),)
    assert "10.0.0" not in match().pcap_filter() and match().pcap_filter().startswith("len = 96 and ether[0:4] &")


def test_negation_and_combination() -> None:
    yes, no = bpf.ACCEPT, bpf.REFUSE
    for one in (yes, no):
        assert run(bpf.negate(one), b"") is not run(one, b"")
        for two in (yes, no):
            assert run(bpf.all_of(one, two), b"") is (one == two == yes)
            assert run(bpf.any_of(one, two), b"") is (yes in (one, two))
