"""A receiver tells frames apart by what no device changes; its kernel filter says the same as the match itself."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pktswarm.traffic.capture import cbpf
from pktswarm.traffic.counting.match import Match, Range, uncountable
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.template import Template, put_bits

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


def template(
    src: Any = 1000, *, tag: dict[str, Any] | None = None, dst_mac: Any = B, size_bytes: int = 100
) -> Template:
    headers: list[dict[str, Any]] = [{"ethernet": {"src": A, "dst": dst_mac}}, *([{"vlan": tag}] if tag else [])]
    headers += [{"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}, {"udp": {"src": src, "dst": 2000}}]
    return build_frame({"headers": headers}, size_bytes)


def match(*args: Any, **kwargs: Any) -> Match:
    return Match.from_template(template(*args, **kwargs))


def run(program: cbpf.Program, frame: bytes) -> bool:
    """The kernel's part: the outermost tag out of the frame and beside it, then the instructions."""
    tag = frame[12:16] if frame[12:14] in (b"\x81\x00", b"\x88\xa8") else b""
    data = frame[:12] + frame[12 + len(tag) :]
    beside = {cbpf.VLAN_PRESENT: int(bool(tag)), cbpf.PACKET_TYPE: 0}
    beside |= {cbpf.VLAN_TPID: int.from_bytes(tag[:2], "big"), cbpf.VLAN_TCI: int.from_bytes(tag[2:], "big")}
    sizes = {cbpf.LOAD_BYTE: 1, cbpf.LOAD_HALF: 2, cbpf.LOAD_WORD: 4}
    value, at = 0, 0
    while True:
        one = program[at]
        at += 1
        if one.code == cbpf.RETURN:
            return one.k > 0
        if one.code == cbpf.LOAD_LENGTH:
            value = len(data)
        elif one.code in sizes and one.k in beside:
            value = beside[one.k]
        elif one.code in sizes:
            if one.k + sizes[one.code] > len(data):
                return False
            value = int.from_bytes(data[one.k : one.k + sizes[one.code]], "big")
        elif one.code == cbpf.AND:
            value &= one.k
        elif one.code == cbpf.JUMP:
            at += one.k
        else:
            holds = {
                cbpf.JUMP_EQUAL: value == one.k,
                cbpf.JUMP_GREATER: value > one.k,
                cbpf.JUMP_NOT_LESS: value >= one.k,
            }
            at += one.if_true if holds[one.code] else one.if_false


KINDS: list[dict[str, Any]] = [
    {},
    {"src": 1001},
    {"src": {"increment": [1000, 1999]}},
    {"src": {"random": [3000, 3100]}},
    {"tag": {"id": 10}},
    {"tag": {"id": 10, "priority": 3}},
    {"tag": {"id": {"increment": [100, 107]}}},
    {"tag": {"id": {"increment": [240, 530]}}},
    {"tag": {"id": 10, "priority": {"increment": [2, 5]}}},
    {"size_bytes": 200},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_match_and_kernel_filter_agree_on_every_kind_of_frame(kind: dict[str, Any]) -> None:
    one = match(**kind)
    again = Match.from_data(one.to_data())
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
    assert Match.from_data(rest.to_data()) == rest


def test_what_cannot_be_counted_truly_is_said() -> None:
    assert "the destination MAC varies" in uncountable(match(dst_mac={"increment": [B, "02:00:00:00:00:0f"]}), "count")
    varying = match(tag={"id": {"increment": [1, 9]}})
    assert "use mode count" in uncountable(varying, "capture")
    assert uncountable(varying, "count") == uncountable(match(), "capture") == ""


def test_ranges_keep_to_the_bits_that_differ() -> None:
    assert match({"increment": [1000, 1007]}).ranges == (Range(34 * 8 + 13, 3, 0, 7),)
    assert "10.0.0" not in match().pcap_filter() and match().pcap_filter().startswith("len = 96 and ether[0:4] &")


def test_negation_and_combination() -> None:
    yes, no = cbpf.ACCEPT, cbpf.REFUSE
    for one in (yes, no):
        assert run(cbpf.negate(one), b"") is not run(one, b"")
        for two in (yes, no):
            assert run(cbpf.all_of(one, two), b"") is (one == two == yes)
            assert run(cbpf.any_of(one, two), b"") is (yes in (one, two))


HOSTS = {"source_mac": A, "target_mac": B, "source_ipv4": "10.0.0.1", "target_ipv4": "10.0.0.2"}


def bits_looked_at(one: Match, frame: bytes) -> set[int]:
    """The bytes of which no bit may change; of each byte all bits or none."""
    found = set()
    for at in range(len(frame)):
        still = {one.matches(frame[:at] + bytes([frame[at] ^ 1 << bit]) + frame[at + 1 :]) for bit in range(8)}
        assert len(still) == 1, at
        found |= {at} if still == {False} else set()
    return found


def test_the_packets_between_two_hosts_are_known_by_macs_type_and_addresses() -> None:
    one = Match.of_addresses(**HOSTS)
    frame = template().data
    assert one.matches(frame) and run(one.program(), frame)
    assert bits_looked_at(one, frame) == {*range(14), *range(26, 34)}
    assert Match.from_data(one.to_data()) == one


def test_a_hosts_arp_is_known_by_macs_type_and_the_senders_address() -> None:
    one = Match.of_arp(A, B, "10.0.0.1")
    head = bytes.fromhex((B + A).replace(":", "")) + b"\x08\x06" + bytes.fromhex("0001080006040002")
    frame = head + bytes.fromhex(A.replace(":", "")) + bytes([10, 0, 0, 1]) + bytes(10 + 18)
    assert one.matches(frame) and run(one.program(), frame)
    assert bits_looked_at(one, frame) == {*range(14), *range(28, 32)}


def numbered(number: int, fixed: bytes = b"\x12\x34") -> bytes:
    """The number at byte 20, two fixed bytes at 14."""
    frame = bytearray(bytes.fromhex((B + A).replace(":", "")) + b"\x08\x00" + bytes(30))
    frame[14:16], frame[20:24] = fixed, number.to_bytes(4, "big")
    return bytes(frame)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (5, 5),
        (7, 1000),
        (0, (1 << 24) - 1),
        (0x7F00_0000, 0x7FFF_FFFF),
        (0x7F12_3456, 0x7F12_3458),
        (0xFFFF_FFFE, 0xFFFF_FFFF),
    ],
)
def test_numbers_in_a_range_are_matched_to_the_last_one(first: int, last: int) -> None:
    one = Match.of_numbers(A, B, {14: b"\x12\x34"}, 20, first, last)
    near = {first - 1, first, first + 1, last - 1, last, last + 1, first ^ 1 << 31, first + (1 << 24), 0}
    for number in (number for number in near if 0 <= number < 1 << 32):
        frame = numbered(number)
        assert one.matches(frame) is run(one.program(), frame) is (first <= number <= last), number
    assert not one.matches(numbered(first, b"\x12\x35"))
    for size, whole in ((23, False), (24, True)):  # the number ends with byte 23
        frame = numbered(first)[:size]
        assert one.matches(frame) is run(one.program(), frame) is whole


def test_numbers_of_more_than_a_filter_can_compare_are_any() -> None:
    one = Match.of_numbers(A, B, {14: b"\x12\x34"}, 20, 5, 1 << 24)
    assert one.ranges == () and one.matches(numbered(1 << 31)) and not one.matches(numbered(5, b"\0\0"))
    assert len(one.mask) == 16, "what is not looked at need not be there"


def test_two_ranges_of_numbers_are_seen_to_be_apart() -> None:
    def numbers(first: int, last: int) -> Match:
        return Match.of_numbers(A, B, {}, 20, first, last)

    assert numbers(1, 9).overlaps(numbers(9, 20)) and numbers(9, 20).overlaps(numbers(1, 9))
    assert not numbers(1, 9).overlaps(numbers(10, 20)) and not numbers(10, 20).overlaps(numbers(1, 9))
    assert not numbers(1, 9).overlaps(numbers((1 << 24) + 1, (1 << 24) + 9))


def test_a_frame_too_short_for_the_other_is_nobody_elses() -> None:
    short = Match.from_template(template(size_bytes=64))
    exactly, longer = (Match(bytes(at) + b"\xff", bytes(at + 1)) for at in (59, 60))
    assert short.length == 60 and not short.overlaps(longer) and not longer.overlaps(short)
    assert short.overlaps(exactly) and exactly.overlaps(short)


@pytest.mark.parametrize("low", [3, 4, 5, 6, 7, 8, 9, 12, 16, 20])
@pytest.mark.parametrize("width", [1, 3, 8, 12, 24])
def test_a_range_lies_anywhere_in_a_frame(low: int, width: int) -> None:
    """Also across bytes, in front of the tags, and where the kernel keeps the outer tag."""
    draw = random.Random(f"{low} {width}")
    bit, values = 8 * low + draw.randrange(8), sorted(draw.randrange(1 << width) for _ in range(2))
    one = Match(b"", b"", ranges=(Range(bit, width, *values),))
    for value in {*values, values[0] - 1, values[1] + 1, 0, (1 << width) - 1}:
        if not 0 <= value < 1 << width:
            continue
        frame = bytearray(draw.randbytes(40))
        frame[12:14] = b"\x08\x00"
        put_bits(frame, bit, width, value)
        if bytes(frame[12:14]) not in (b"\x81\x00", b"\x88\xa8"):
            assert one.matches(bytes(frame)) is run(one.program(), bytes(frame)) is (values[0] <= value <= values[1])


TAGGED = [
    (bit, width)
    for bit in (24, 40, 56, 88, 114, 116, 120, 122, 127, 128, 130, 144, 148, 160, 170)
    for width in (1, 5, 8)
    if not bit < 128 < bit + width  # no field of a tag goes beyond it
]


@pytest.mark.parametrize(("bit", "width"), TAGGED)
def test_a_range_lies_anywhere_in_a_frame_with_a_tag(bit: int, width: int) -> None:
    """The kernel keeps the tag beside the frame: what is behind it stands 4 bytes further on in the match."""
    tci_fixed = not 112 <= bit < 128
    mask = bytes(12) + b"\xff\xff" + (b"\xff\xff" if tci_fixed else b"")
    one = Match(mask, bytes(12) + b"\x81\x00\x60\x0a"[: len(mask) - 12], ranges=(Range(bit, width, 1, 1 << width - 1),))
    for value in range(1 << width):
        frame = bytearray(random.Random(value).randbytes(40))
        frame[12:16] = b"\x81\x00\x60\x0a"
        put_bits(frame, bit, width, value)
        assert one.matches(bytes(frame)) is run(one.program(), bytes(frame)) is (1 <= value <= 1 << width - 1), value


@pytest.mark.parametrize("size", range(1, 13))
def test_a_mask_of_any_length_is_looked_at_whole(size: int) -> None:
    """And a frame that is no longer than it is enough."""
    value = bytes(range(1, size + 1))
    one = Match(b"\xff" * size, value)
    assert one.matches(value) and run(one.program(), value)
    assert "ether[0:" in one.pcap_filter() and ":3]" not in one.pcap_filter()
    for at in range(size):
        other = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
        assert not one.matches(other) and not run(one.program(), other)
    assert not one.matches(value[:-1]) and not run(one.program(), value[:-1])


def test_a_constant_where_the_other_has_a_range_tells_them_apart() -> None:
    ranged = Match(b"", b"", ranges=(Range(24, 8, 10, 20),))
    for value, expected in ((9, False), (10, True), (20, True), (21, False)):
        fixed = Match(b"\0\0\0\xff", bytes([0, 0, 0, value]))
        assert ranged.overlaps(fixed) is fixed.overlaps(ranged) is expected
    for mask in (b"\0\0\0\xfe", b"\0\0\0\x7f", b"\xff\xff\xff", b"\0\0\0\0\xff"):
        unknown = Match(mask, bytes(len(mask)))
        assert ranged.overlaps(unknown) and unknown.overlaps(ranged)


def test_a_range_has_at_most_so_many_bits_as_a_filter_can_compare() -> None:
    def addresses(last: str) -> tuple[Range, ...]:
        source = {"increment": ["10.0.0.0", last]}
        headers = [
            {"ethernet": {"src": A, "dst": B}},
            {"ipv4": {"src": source, "dst": "10.0.0.2"}},
            {"udp": {"src": 1, "dst": 2}},
        ]
        return Match.from_template(build_frame({"headers": headers}, 64)).ranges

    assert addresses("10.255.255.255") == (Range(26 * 8 + 8, 24, 0, (1 << 24) - 1),)
    assert addresses("11.0.0.0") == ()


def test_the_destination_is_known_where_it_does_not_vary() -> None:
    assert match().target_mac == bytes.fromhex(B.replace(":", ""))
    assert Match(b"\xff" * 5, bytes(5)).target_mac is None and Match(b"\xff" * 6, bytes(6)).target_mac == bytes(6)


def chosen(folder: Path, frames: list[bytes], expression: str) -> list[bool]:
    """Which of the frames libpcap takes."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    records = [struct.pack("<IIII", n, 0, len(frame), len(frame)) + frame for n, frame in enumerate(frames)]
    path = folder / "frames.pcap"
    path.write_bytes(head + b"".join(records))
    command = ["tcpdump", "-tt", "-q", "-n", "-r", str(path), expression]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    taken = {int(line.partition(".")[0]) for line in out.splitlines()}
    return [n in taken for n in range(len(frames))]


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="needs tcpdump")
def test_libpcap_takes_the_same_frames(tmp_path: Path) -> None:
    draw = random.Random(4)
    frames = [template(**kind).frame(index, draw) for kind in KINDS for index in range(8)]
    frames += [numbered(number) for number in (0, 4, 5, 6, 7, 1 << 24)]
    rest = Match.rest(A, B, [match(), match({"increment": [1000, 1999]})])
    numbers = Match.of_numbers(A, B, {14: b"\x12\x34"}, 20, 5, 6)
    for one in [match(**kind) for kind in KINDS] + [rest, numbers, Match.of_addresses(**HOSTS)]:
        expected = [one.matches(frame) for frame in frames]
        assert any(expected) and not all(expected)
        assert chosen(tmp_path, frames, one.pcap_filter()) == expected
