"""The stamp: its table in Python against the one in C, and its arithmetic."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.replay.frames import STAMP_BYTES
from pktswarm.traffic.schedule.leg_frames import stamp_is_found

OBJECT = libbpf.OBJECTS / "send.o"
ETHERNET = {"ethernet": {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}
IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}
UDP, TCP, VLAN = {"udp": {"src": 1, "dst": 2}}, {"tcp": {"src": 1, "dst": 2}}, {"vlan": {"id": 7}}


@pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing() or "libbpf is there")
def test_the_two_tables_are_one() -> None:
    fields = libbpf.struct_layout(OBJECT, "stamp")
    assert fields == {
        "magic": (0, 2),
        "stream": (stamp.STREAM_OFFSET, 2),
        "sequence_high": (stamp.SEQUENCE_OFFSET, 2),
        "sequence_low": (stamp.SEQUENCE_OFFSET + 2, 4),
        "check": (stamp.CHECK_OFFSET, 2),
        "time_high": (stamp.TIME_OFFSET, 2),
        "time_low": (stamp.TIME_OFFSET + 2, 4),
    }
    offset, size = fields["time_low"]
    assert offset + size == stamp.PLAIN_BYTES
    checked = libbpf.struct_layout(OBJECT, "stamp_checked")
    assert checked == {"stamp": (0, stamp.PLAIN_BYTES), "checksum": (stamp.CHECKSUM_OFFSET, 4)}
    balanced = libbpf.struct_layout(OBJECT, "stamp_balanced")
    assert balanced == {"checked": (0, stamp.CHECKED_BYTES), "balance": (stamp.CHECKED_BYTES, 2)}
    assert stamp.CHECKED_BYTES + 2 == STAMP_BYTES


def test_bytes_of_a_stamp() -> None:
    one = stamp.Stamp(0x0102, 0x030405060708, 0x131415161718)
    assert one.pack().hex() == "5053" + "0102" + "030405060708" + "6056" + "131415161718"
    assert stamp.read_stamp(one.pack() + b"more") == one


def test_a_check_of_nothing_is_zero_as_the_kernel_writes_it() -> None:
    """The other words add up to 0xffff, which an Internet checksum cannot tell from 0."""
    one = stamp.Stamp(3, 0x25, 0x19241A2B7C45, 0)
    assert one.pack().hex() == "5043" + "0003" + "000000000025" + "0000" + "19241a2b7c45" + "00000000"
    assert stamp.read_stamp(one.pack()) == one


def test_a_time_is_kept_modulo_two_to_the_48() -> None:
    assert stamp.Stamp(1, 2, 7 << 48 | 3).pack() == stamp.Stamp(1, 2, 3).pack()


@pytest.mark.parametrize("checksum", [None, 0x01020304])
@pytest.mark.parametrize("bit", range(stamp.PLAIN_BYTES * 8))
def test_a_stamp_with_any_bit_damaged_is_none(bit: int, checksum: int | None) -> None:
    data = bytearray(stamp.Stamp(258, 77, 10**15, checksum).pack())
    data[bit // 8] ^= 0x80 >> bit % 8
    assert stamp.read_stamp(bytes(data)) is None


def test_the_words_of_every_stamp_have_one_sum() -> None:
    draw = random.Random(5)
    for _ in range(1000):
        one = stamp.Stamp(draw.randrange(1 << 16), draw.randrange(1 << 48), draw.randrange(1 << 64))
        data = one.pack()
        assert sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, 18, 2)) % 0xFFFF == 0


def test_bytes_of_a_stamp_with_a_checksum() -> None:
    one = stamp.Stamp(1, 2, 3, 0xA1A2A3A4)
    assert one.pack().hex() == "5043" + "0001" + "000000000002" + "afb6" + "000000000003" + "a1a2a3a4"
    assert stamp.read_stamp(one.pack()) == one


@pytest.mark.parametrize(
    "payload", [b"", bytes(18), b"PS" + bytes(15), b"PC" + bytes(19), b"SP" + bytes(30), b"PS" + bytes(16)]
)
def test_what_is_no_stamp(payload: bytes) -> None:
    assert stamp.read_stamp(payload) is None


def test_payload_sum_adds_words_with_their_carries() -> None:
    assert stamp.payload_sum(b"\x00\x00\x00\x05\xff\xff\xff\xff") == 5
    assert stamp.payload_sum(b"\xff\xff\xff\xfe\x00\x00\x00\x03") == 2
    assert stamp.payload_sum(b"\x00\x00\x00\x01\x80") == 0x80000001
    assert stamp.payload_sum(b"") == stamp.payload_sum(b"\xff" * 8) == 0


FIELDS: dict[str, Mapping[str, object]] = {
    "ethernet": ETHERNET["ethernet"],
    "vlan": {"id": 7},
    "ipv4": IPV4["ipv4"],
    "ipv6": IPV6["ipv6"],
    "udp": {"src": 1, "dst": 2152},
    "tcp": {"src": 1, "dst": 2},
    "gtpu": {"teid": 1},
    "gtpu_options": {},
    "pdu_session": {},
}


def documented() -> list[tuple[str, int]]:
    """The table of docs/xdp.md: (headers, least size)."""
    text = Path("docs/xdp.md").read_text().split("| headers | bytes |")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ether")]
    return [(headers, int(size)) for headers, size in rows]


@pytest.mark.parametrize(("names", "least"), documented())
def test_the_documented_least_sizes_are_right_and_enough(names: str, least: int) -> None:
    headers = [{name: FIELDS[name]} for name in names.split(", ")]
    assert stamp.least_size_bytes(headers) == least
    assert stamp_is_found(build_frame({"headers": headers}, least), headers)


def test_the_least_size_of_gtpu_is_documented_for_each_variant() -> None:
    tunnels = {names for names, _ in documented() if "gtpu" in names}
    variants = {(tag, options, ip) for tag in (0, 1) for options in (0, 1) for ip in ("ipv4", "ipv6")}
    assert {("vlan" in n, "pdu_session" in n, n.split(", ")[-2]) for n in tunnels} >= variants


@pytest.mark.parametrize(
    ("headers", "offset", "least"),
    [
        ([ETHERNET, IPV4, UDP], 42, 64),
        ([ETHERNET, VLAN, IPV4, UDP], 46, 68),
        ([ETHERNET, IPV4, TCP], 54, 76),
        ([ETHERNET, IPV6, UDP], 62, 84),
        ([ETHERNET, IPV6, TCP], 74, 96),
        ([ETHERNET, IPV4, {"raw": {"hex": "00112233"}}], 38, 64),
    ],
)
def test_where_the_payload_begins(headers: list[dict[str, dict[str, object]]], offset: int, least: int) -> None:
    assert stamp.payload_offset(headers) == offset
    assert stamp.least_size_bytes(headers) == least
    frame = build_frame({"headers": headers, "payload": {"fill": 0xEE}}, 200).data
    assert frame[offset:] == b"\xee" * (196 - offset) and frame[offset - 1] != 0xEE
