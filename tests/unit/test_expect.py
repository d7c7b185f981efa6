"""What a receiver expects of a flow. test_xdp_receiver_frames.py compares it with the parser in the kernel."""

from __future__ import annotations

from dataclasses import replace
from sys import byteorder
from typing import Any

import pytest

from pktswarm.nodes.receivers import xdp_matching
from pktswarm.traffic.counting.expect import behind_device, check, expectation, expected_match, numbered, rows
from pktswarm.traffic.counting.kernel_structs import (
    HEAD_BYTES,
    NO_LEG,
    NUMBERED_BY_PKTGEN,
    NUMBERED_BY_US,
    NUMBERED_NOT,
    Expectation,
    Fields,
    RawRow,
)
from pktswarm.traffic.counting.match import Match, Range
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask
from pktswarm.traffic.schedule.leg_frames import stamp_is_found

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
ETHERNET = {"ethernet": {"src": A, "dst": B}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "dscp": 46, "ttl": 9}}
UDP = {"udp": {"src": 1000, "dst": 2000}}


def expected(headers: list[dict[str, Any]], expect: dict[str, Any] | None = None) -> tuple[Fields, Fields, Expectation]:
    made = expectation("s", build_frame({"headers": headers}, 128), expect or {})
    return Fields.from_buffer_copy(bytes(made.value)), Fields.from_buffer_copy(bytes(made.mask)), made


def test_a_constant_frame_is_expected_as_it_is() -> None:
    value, mask, made = expected([ETHERNET, {"vlan": {"id": 10}}, IPV4, UDP])
    assert bytes(value.dst_mac).hex(":") == B and bytes(value.src_mac).hex(":") == A
    assert (value.tags, value.ip_version, value.protocol, value.ttl, value.tos) == (1, 4, 17, 9, 46 << 2)
    assert bytes(value.src_ip) == bytes([10, 0, 0, 1]) + bytes(12)
    assert bytes(Fields.from_buffer_copy(bytes(made.value)))[24:28] == (1000).to_bytes(2, "big") + (2000).to_bytes(
        2, "big"
    )
    assert mask.tos == 0xFC and bytes(mask)[:19] == b"\xff" * 19
    assert made.payload_bytes == 128 - 4 - 14 - 4 - 20 - 8


def test_the_users_own_header_counts_where_there_is_a_tunnel() -> None:
    inner = build_frame({"headers": [ETHERNET, {"ipv4": {"src": "10.45.0.2", "dst": "10.60.0.1"}}, UDP]}, 72).data[14:]
    gtpu = {"raw": {"hex": f"34ff{len(inner) + 8:04x}00001234" + "0000008501000900" + inner.hex()}}
    frame = build_frame({"headers": [ETHERNET, IPV4, {"udp": {"src": 2152, "dst": 2152}}, gtpu]}, 128)
    made = expectation("s", frame, {})
    value = Fields.from_buffer_copy(bytes(made.value))
    assert bytes(value.src_ip)[:4] == bytes([10, 45, 0, 2]) and value.ttl == 64
    assert value.teid.to_bytes(4, byteorder) == bytes.fromhex("00001234")
    assert layout(frame.data).payload == 14 + 20 + 8 + 16 + 28
    assert made.payload_bytes == 72 - 18 - 28


def test_a_varying_field_keeps_the_bits_that_all_its_values_share() -> None:
    _, mask, _ = expected([ETHERNET, IPV4, {"udp": {"src": {"random": [1024, 1031]}, "dst": 2000}}])
    assert mask.src_port.to_bytes(2, byteorder) == bytes([0xFF, 0xF8])
    assert mask.dst_port == 0xFFFF


def test_what_the_device_changes_is_said() -> None:
    expect = {"ttl": 8, "src_mac": "02:00:00:00:00:0c", "dst_mac": None, "dscp": 0, "length": None, "dst_ip": "fd00::1"}
    value, mask, made = expected([ETHERNET, IPV4, UDP], expect)
    assert (value.ttl, value.tos, bytes(value.src_mac).hex(":")) == (8, 0, "02:00:00:00:00:0c")
    assert bytes(mask.dst_mac) == bytes(6) == bytes(value.dst_mac)
    assert made.payload_bytes == 0
    assert bytes(value.dst_ip).hex() == "fd" + "00" * 14 + "01"


def test_of_several_sizes_any_length_is_right() -> None:
    leg = Leg(1, "s", "a", "b", "stream", "xdp", {"headers": [ETHERNET, IPV4, UDP]}, 128, [[64, 1], [128, 1]])
    task = ReceiveTask("lo", B, [leg], 1.0)

    def payload_bytes(**changed: Any) -> int:
        return int(xdp_matching.expectation(task, replace(leg, **changed), {}).payload_bytes)

    assert payload_bytes() == 0
    assert payload_bytes(sizes=[]) == 128 - 4 - 42
    assert payload_bytes(expect={"length": 50}) == 50


def test_stamps_have_to_be_found_in_the_smallest_frame() -> None:
    """There a length that is wrong on purpose leaves no room for one."""
    short = {"udp": {**UDP["udp"], "length": {"off_by": -4}}}
    leg = Leg(1, "s", "a", "b", "stream", "xdp", {"headers": [ETHERNET, IPV4, short]}, 128, [[64, 1], [128, 1]])
    assert numbered(leg) == NUMBERED_NOT
    assert numbered(replace(leg, sizes=[[68, 1], [128, 1]])) == NUMBERED_BY_US


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        ({"hops": 3}, r"s: expect.hops: unknown field \(allowed: dst_mac, .*\)"),
        ({"ttl": 256}, r"s: expect.ttl = 256: out of range \(allowed: 0 to 255\)"),
        ({"dscp": 64}, r"s: expect.dscp = 64: out of range \(allowed: 0 to 63\)"),
        ({"ttl": "many"}, "s: expect.ttl = 'many': out of range"),
        ({"length": -1}, "s: expect.length = -1: out of range"),
        ({"src_mac": "02:00"}, r"s: expect.src_mac = '02:00': invalid value \(allowed: a MAC address\)"),
        ({"src_ip": "10.0.0"}, "s: expect.src_ip = '10.0.0': invalid value"),
    ],
)
def test_a_wrong_expectation_is_named(expect: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        expected([ETHERNET, IPV4, UDP], expect)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([ETHERNET, IPV4, UDP], True),
        ([ETHERNET, IPV4, UDP, {"raw": {"hex": "00112233"}}], False),
        ([ETHERNET, {"raw": {"hex": "00112233"}}], False),
        ([ETHERNET, {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "mf": 1}}, UDP], False),
        ([ETHERNET, {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "length": 20}}], False),
        (
            [ETHERNET, {"ipv6": {"src": "fd00::1", "dst": "fd00::2", "next_header": 44}}, {"raw": {"hex": "00" * 8}}],
            False,
        ),
    ],
)
def test_whether_the_receiver_finds_the_stamp(headers: list[dict[str, Any]], found: bool) -> None:
    assert stamp_is_found(build_frame({"headers": headers}, 128), headers) == found


def a_match(port: int) -> Match:
    return Match.from_template(build_frame({"headers": [ETHERNET, IPV4, {"udp": {"src": port, "dst": 2000}}]}, 128))


def test_rows_come_in_the_order_in_which_the_first_that_fits_is_right() -> None:
    mine, others = a_match(1), a_match(2)
    made = rows("s", [(0, Match.rest(A, B, [mine, others])), (1, mine)])
    assert [row.slot for row in made] == [1, NO_LEG, 0]
    assert [row.length for row in made] == [124, 124, 0]
    assert bytes(made[0].mask)[:14] == b"\xff" * 14 and bytes(made[0].value)[:6].hex(":") == B


def test_a_range_is_found_in_the_last_four_bytes_that_hold_it() -> None:
    match = Match(b"\xff", b"\1", None, (Range(272, 16, 3000, 3099), Range(4, 3, 1, 2)))
    (row,) = rows("s", [(0, match)])
    assert isinstance(row, RawRow) and row.ranges == 2 and row.head_bytes == 36
    assert (row.range[0].offset, row.range[0].mask, row.range[0].low) == (32, 0xFFFF, 3000)
    assert (row.range[1].offset, row.range[1].mask, row.range[1].high) == (0, 7 << 25, 2 << 25)


@pytest.mark.parametrize(
    "match",
    [
        Match(b"\xff" * (HEAD_BYTES + 1), b"\1" * (HEAD_BYTES + 1)),
        Match(b"\xff", b"\1", None, tuple(Range(8 * n, 8, 1, 2) for n in range(5))),
        Match(b"\xff", b"\1", None, (Range(HEAD_BYTES * 8, 8, 1, 2),)),
    ],
)
def test_a_stream_that_cannot_be_told_apart_is_refused(match: Match) -> None:
    with pytest.raises(BadInput, match=r"s: an unstamped stream has too long a match for XDP .*160 bytes"):
        rows("s", [(0, match)])


def test_too_many_unstamped_streams_are_refused() -> None:
    with pytest.raises(BadInput, match="s: 65 unstamped streams"):
        rows("s", [(n, a_match(n)) for n in range(65)])


def test_a_frame_is_known_by_what_the_device_makes_of_it() -> None:
    template = build_frame({"headers": [ETHERNET, IPV4, {"udp": {"src": {"increment": [1, 9]}, "dst": 2000}}]}, 128)
    match = Match.from_template(template)
    assert expected_match(match, template, {}) == match
    changed = {"src_mac": "02:00:00:00:00:0c", "dst_mac": None, "dst_ip": "10.9.9.9", "src_port": 77, "ttl": 63}
    made = expected_match(match, template, changed)
    frame = bytearray(template.data)
    assert match.matches(bytes(frame)) and not made.matches(bytes(frame))
    frame[:6], frame[11], frame[30:34], frame[34:36], frame[22] = b"anyone", 0x0C, bytes([10, 9, 9, 9]), b"\0\x4d", 63
    assert made.matches(bytes(frame)) and made.ranges == ()
    frame[36] ^= 1
    assert not made.matches(bytes(frame))


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        ({"ttl": 256}, r"s.yaml: streams.0.expect.ttl = 256: out of range \(allowed: 0 to 255\)"),
        ({"colour": 1}, "streams.0.expect.colour: unknown field"),
        ({"src_ip": "ten"}, "streams.0.expect.src_ip = 'ten': invalid value"),
        ({"length": -1}, "streams.0.expect.length = -1: out of range"),
    ],
)
def test_a_wrong_expectation_is_named_in_the_scenario(expect: dict[str, Any], words: str) -> None:
    check("s.yaml", "streams.0.expect", {"ttl": 63, "src_mac": None, "length": None, "dscp": 1})
    with pytest.raises(BadInput, match=words):
        check("s.yaml", "streams.0.expect", expect)


@pytest.mark.parametrize("options", [{}, {"clone_skb": 10}, {"burst": 4}, {"threads": 2}])
def test_pktgens_numbers_count_where_each_frame_has_its_own(options: dict[str, int]) -> None:
    leg = Leg(0, "s", "a", "b", "stream", "pktgen", options=options)
    assert numbered(leg) == (NUMBERED_NOT if options else NUMBERED_BY_PKTGEN)


def test_a_frame_behind_the_device_has_what_it_put_there() -> None:
    template = build_frame({"headers": [ETHERNET, IPV4, UDP]}, 128)
    assert behind_device(template, {}) == (template.data, template.varying_mask)
    data, varying = behind_device(template, {"ttl": 8, "src_mac": None, "dscp": 0, "dst_ip": "10.9.9.9"})
    assert (data[22], data[30:34], varying[22], varying[30:34]) == (8, bytes([10, 9, 9, 9]), 0, bytes(4))
    assert varying[6:12] == b"\xff" * 6 and varying[15] == 0xFF
    assert varying[24:26] == varying[40:42] == b"\xff\xff", "checksums"
    assert sum(varying) == (6 + 1 + 4) * 255
