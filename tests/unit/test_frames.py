"""Frames are refused with the place, the value and what is allowed, and are built with every byte in its place."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import dpkt
import pytest
import yaml

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.check import check_frame
from pktswarm.traffic.frames.headers import HEADERS
from pktswarm.traffic.frames.placement import least_size_bytes
from pktswarm.traffic.frames.template import Checksum

ETHERNET: dict[str, Any] = {"ethernet": {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}}
IPV4: dict[str, Any] = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}
IPV6: dict[str, Any] = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}
UDP: dict[str, Any] = {"udp": {"src": 1000, "dst": 2000}}
TCP: dict[str, Any] = {"tcp": {"src": 1000, "dst": 2000, "flags": ["syn", "ack"]}}


def frame(*headers: dict[str, Any], **payload: Any) -> dict[str, Any]:
    return copy.deepcopy({"headers": list(headers), "payload": payload})


def ip4(**fields: Any) -> dict[str, Any]:
    return {"ipv4": {**IPV4["ipv4"], **fields}}


@pytest.mark.parametrize(
    ("bad", "key", "words"),
    [
        ({}, "streams.0.headers", "allowed: a list that starts with ethernet"),
        (frame(IPV4), "streams.0.headers.0", "'ipv4': cannot be the first header (allowed: ethernet)"),
        (frame({"ethernet": {}}), "streams.0.headers.0.ethernet.dst", "missing (allowed: a MAC"),
        (frame(ETHERNET, {"ipx": {}}), "streams.0.headers.1", "'ipx': unknown header (allowed: ethernet, vlan"),
        (frame(ETHERNET, {"udp": {}, "tcp": {}}), "streams.0.headers.1", "not a header"),
        (frame(ETHERNET, UDP), "streams.0.headers.1", "'udp': cannot follow ethernet (allowed: vlan, svlan, mpls"),
        (frame(ETHERNET, IPV6, {"icmp": {}}), "streams.0.headers.2", "'icmp': cannot follow ipv6"),
        (frame(ETHERNET, {"raw": {"hex": "00"}}, IPV4), "streams.0.headers.2", "cannot follow raw"),
        (frame(ETHERNET, ip4(colour=1)), "streams.0.headers.1.ipv4.colour", "1: unknown field (allowed: version"),
        (frame(ETHERNET, ip4(src="10.0.0.256")), "streams.0.headers.1.ipv4.src", "'10.0.0.256': not an IPv4 address"),
        (frame(ETHERNET, ip4(ttl=256)), "streams.0.headers.1.ipv4.ttl", "256: out of range (allowed: a whole"),
        (frame(ETHERNET, ip4(ttl=True)), "streams.0.headers.1.ipv4.ttl", "True: not a number"),
        (frame(ETHERNET, ip4(ttl=-1)), "streams.0.headers.1.ipv4.ttl", "-1: out of range"),
        (frame(ETHERNET, ip4(tos=4, dscp=1)), "streams.0.headers.1.ipv4.tos", "tos or dscp, not both"),
        (frame(ETHERNET, {"vlan": {"id": 4096}}), "streams.0.headers.1.vlan.id", "from 0 to 4095"),
        (frame(ETHERNET, ip4(id={"increment": [9, 1]})), "streams.0.headers.1.ipv4.id.increment", "in the wrong order"),
        (frame(ETHERNET, ip4(id={"decrement": [1, 9]})), "streams.0.headers.1.ipv4.id.decrement", "larger value first"),
        (frame(ETHERNET, ip4(id={"random": [9, 1]})), "streams.0.headers.1.ipv4.id.random", "in the wrong order"),
        (frame(ETHERNET, ip4(id={"random": [1, 9], "step": 2})), "streams.0.headers.1.ipv4.id.step", "takes no step"),
        (frame(ETHERNET, ip4(id={"increment": [1, 9], "step": 0})), "streams.0.headers.1.ipv4.id.step", "from 1 to 8"),
        (frame(ETHERNET, ip4(id={"increment": [1]})), "streams.0.headers.1.ipv4.id.increment", "not a range"),
        (frame(ETHERNET, ip4(id={"count": [1, 2]})), "streams.0.headers.1.ipv4.id", "invalid varying value"),
        (frame(ETHERNET, ip4(src={"increment": ["10.0.0.1", "x"]})), "streams.0.headers.1.ipv4.src.increment.1", "'x'"),
        (frame(ETHERNET, {"raw": {"hex": "abc"}}), "streams.0.headers.1.raw.hex", "not hex digits"),
        (frame(ETHERNET, {"raw": {}}), "streams.0.headers.1.raw", "not raw bytes"),
        (frame(ETHERNET, fill=256), "streams.0.payload.fill", "out of range"),
        (frame(ETHERNET, random=1), "streams.0.payload.random", "allowed: true"),
        (frame(ETHERNET, hex="zz"), "streams.0.payload.hex", "not hex digits"),
        (frame(ETHERNET, fill=1, hex="00"), "streams.0.payload", "not a payload"),
    ],
)  # fmt: skip
def test_bad_frames_are_named(bad: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_frame(bad, "a.yaml", "streams.0", 1000)
    assert caught.value.key == key
    assert words in str(caught.value)


def test_too_small_a_frame_tells_the_least_size() -> None:
    headers = frame(ETHERNET, IPV6, TCP)
    assert least_size_bytes(headers["headers"]) == 14 + 40 + 20 + 4
    assert least_size_bytes(frame(ETHERNET)["headers"]) == 64
    with pytest.raises(BadInput, match=r"streams\.0\.size_bytes = 77: .*allowed: 78 to"):
        check_frame(headers, "a.yaml", "streams.0", 77)
    check_frame(headers, "a.yaml", "streams.0", 78)
    with pytest.raises(BadInput, match="allowed: 88 to"):
        check_frame({**headers, "payload": {"hex": "00" * 10}}, "a.yaml", "streams.0", 80)


def test_a_udp_frame_to_the_byte() -> None:
    """Worked out by hand: lengths, the header checksum of RFC 1071 and the UDP checksum with its pseudo header."""
    built = build_frame(frame(ETHERNET, ip4(dscp=46, df=1, id=0x1234), UDP, hex="cafe"), 64)
    assert built.data[:44].hex() == (
        "020000000002" "020000000001" "0800" "45b8002e" "12344000" "4011" "13d1" "0a000001" "0a000002"
        "03e807d0" "001a" "1501" "cafe"
    )  # fmt: skip
    assert len(built.data) == 60 and built.constant and built.period == 1


@pytest.mark.parametrize("above", [UDP, TCP])
@pytest.mark.parametrize("below", [IPV4, IPV6])
@pytest.mark.parametrize("size_bytes", [78, 97, 1518])
def test_dpkt_finds_every_checksum_right(below: dict[str, Any], above: dict[str, Any], size_bytes: int) -> None:
    data = build_frame(frame(ETHERNET, below, above, fill=0xEE), size_bytes).data
    packet = dpkt.ethernet.Ethernet(data).data
    found = packet.data.sum
    packet.data.sum = 0
    if isinstance(packet, dpkt.ip.IP):
        packet.sum = 0
    again = type(packet)(bytes(packet))
    assert again.data.sum == found
    assert bytes(again) == data[14:]


@pytest.mark.parametrize(
    ("headers", "at", "expected"),
    [
        ([ETHERNET, {"svlan": {"id": 20}}, {"vlan": {"id": 10, "priority": 3, "dei": 1}}, IPV4], 12,
         "88a800148100700a0800"),
        ([ETHERNET, {"mpls": {"label": 16, "tc": 5}}, {"mpls": {"label": 0xFFFFF}}, IPV4], 12, "884700010a40fffff140"),
        ([ETHERNET, {"vlan": {"id": 1, "type": 0x1234}}], 12, "810000011234"),
        ([ETHERNET], 12, "88b5"),
        ([ETHERNET, IPV4], 23, "fd"),
        ([ETHERNET, IPV4, {"ipv6": IPV6["ipv6"]}], 23, "29"),
        ([ETHERNET, {"ipv6": {**IPV6["ipv6"], "traffic_class": 0xB8, "flow_label": 0xABCDE}}, UDP], 14, "6b8abcde"),
        ([ETHERNET, IPV4, {"tcp": {"src": 1, "dst": 2, "flags": "syn,ack", "window": 9}}], 46, "50120009"),
        ([ETHERNET, {"raw": {"hex": "dead beef"}}], 12, "88b5deadbeef0000"),
    ],
)  # fmt: skip
def test_headers_tell_what_follows_and_bits_stand_in_their_place(headers: list[Any], at: int, expected: str) -> None:
    data = build_frame(frame(*headers), 64 + 28).data
    assert data[at : at + len(expected) // 2].hex() == expected


def test_varying_fields_and_what_depends_on_them() -> None:
    varying = frame(
        ETHERNET,
        {"vlan": {"id": {"increment": [5, 8], "step": 2}}},
        ip4(dst={"decrement": ["10.0.0.9", "10.0.0.7"]}),
        {"udp": {"src": {"random": [1, 3]}, "dst": 2000}},
    )
    built = build_frame(varying, 64)
    draw = random.Random(1)
    frames = [dpkt.ethernet.Ethernet(built.frame(index, draw)) for index in range(8)]
    assert [one.vlan_tags[0].id for one in frames] == [5, 7, 5, 7, 5, 7, 5, 7]
    assert [one.data.dst[3] for one in frames] == [9, 8, 7, 9, 8, 7, 9, 8]
    assert {one.data.data.sport for one in frames} == {1, 2, 3}
    assert built.period == 6
    for one in frames:
        sums = one.data.sum, one.data.data.sum
        one.data.sum = one.data.data.sum = 0
        again = dpkt.ip.IP(bytes(one.data))
        assert (again.sum, again.data.sum) == sums
    changed = bytearray(60)
    for index in range(200):
        for place, (one, two) in enumerate(zip(built.data, built.frame(index, draw), strict=True)):
            changed[place] |= one ^ two
    assert all(not bits & ~mask for bits, mask in zip(changed, built.varying_mask, strict=True))
    assert built.varying_mask[28:30] == built.varying_mask[44:46] == b"\xff\xff"


def test_a_random_payload_is_drawn_afresh_and_its_checksum_kept() -> None:
    built = build_frame(frame(ETHERNET, IPV4, UDP, random=True), 100)
    draw = random.Random(7)
    one, two = built.frame(0, draw), built.frame(1, draw)
    assert one[:40] == two[:40] and one[42:] != two[42:] and one[40:42] != two[40:42]
    assert built.frame(0, random.Random(7)) == one
    assert built.random_payload == (42, 96)


@pytest.mark.parametrize(("udp", "expected"), [(True, 0xFFFF), (False, 0)])
def test_a_checksum_of_zero_is_written_as_ones_by_udp_only(udp: bool, expected: int) -> None:
    data = bytearray.fromhex("0000 ffff")
    Checksum(0, ((2, 4),), 0, udp).mend(data)
    assert int.from_bytes(data[:2], "big") == expected


def test_the_documented_examples_are_frames() -> None:
    examples = [
        yaml.safe_load(part.split("```")[0]) for part in Path("docs/headers.md").read_text().split("```yaml")[1:]
    ]
    whole = next(one for one in examples if isinstance(one, dict))
    tunnel = next(one for one in examples if isinstance(one, list))
    assert build_frame(whole, 100).period == 9
    template = build_frame(frame(ETHERNET, IPV4, *tunnel), 128)
    assert template.period == 1000 and template.data[40:42] == b"\0\0"


def documented() -> dict[str, list[str]]:
    """The sections of docs/headers.md: header → its lines."""
    sections = Path("docs/headers.md").read_text().split("\n### ")[1:]
    return {lines[0]: lines[1:] for lines in (section.split("\n") for section in sections)}


def test_every_header_and_field_is_documented_as_it_is() -> None:
    found = documented()
    assert list(found) == list(HEADERS)
    for name, header in HEADERS.items():
        lines = found[name]
        assert lines[0] == f"{header.size_bytes} bytes. May be followed by: {', '.join([*header.next_headers, 'raw'])}."
        rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
        assert [row[0].strip("`") for row in rows] == list(header.fields)
        for (_, bits, default, value), field in zip(rows, header.fields.values(), strict=True):
            assert (int(bits), value) == (field.width, field.allowed)
            known = "computed" if field.auto else "required" if field.default is None else default
            assert default == known and (known != default or not default.isdigit() or int(default) == field.default)
