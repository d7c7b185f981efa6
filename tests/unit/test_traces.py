"""Traces: read whatever a recorder writes, strictly."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from pathlib import Path

import dpkt
import pytest

from pktswarm.master.scenario import scenario
from pktswarm.traffic.capture import walk
from pktswarm.traffic.capture.trace import Packet, read_packets, read_trace, write_pcap, write_pcapng
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.replay.parse import parse
from pktswarm.traffic.replay.prepare import Settings, prepare, share_rows
from recordings import T0_NS, made, udp

RECORDED = Path(__file__).parents[2] / "configs" / "traces" / "lab.pcapng"


def a_file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "trace.pcap"
    path.write_bytes(data)
    return path


def pcap(order: str, magic: int, packets: list[tuple[int, int, bytes]], link_type: int = 1) -> bytes:
    data = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, link_type)
    for seconds, ticks, frame in packets:
        data += struct.pack(f"{order}IIII", seconds, ticks, len(frame), len(frame)) + frame
    return data


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack(f"{order}II", kind, len(body) + 12) + body + struct.pack(f"{order}I", len(body) + 12)


def section(order: str) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(order: str, options: bytes = b"", link_type: int = 1) -> bytes:
    return block(order, 1, struct.pack(f"{order}HHI", link_type, 0, 0) + options)


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


def enhanced(order: str, number: int, ticks: int, frame: bytes) -> bytes:
    head = struct.pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(order, 6, head + frame)


FRAMES = [udp("1.1.1.1", 1000, "2.2.2.2", 53), udp("2.2.2.2", 53, "1.1.1.1", 1000, b"a longer answer")]


# --- Reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "ns_per_tick"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_pcap_in_both_byte_orders_and_resolutions(tmp_path: Path, order: str, magic: int, ns_per_tick: int) -> None:
    packets = [(1_700_000_000, 999_999, FRAMES[0]), (1_700_000_001, 1, FRAMES[1])]
    trace = read_trace(a_file(tmp_path, pcap(order, magic, packets)))
    expected = [1_700_000_000 * 10**9 + 999_999 * ns_per_tick, 1_700_000_001 * 10**9 + ns_per_tick]
    assert trace.packets == [Packet(t, f) for t, f in zip(expected, FRAMES, strict=True)]
    assert trace.size_bytes == len(FRAMES[0]) + len(FRAMES[1])


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_with_a_clock_for_each_interface(tmp_path: Path, order: str) -> None:
    data = section(order) + interface(order) + interface(order, option(order, 9, b"\x09"))
    data += interface(order, option(order, 9, b"\x8a") + option(order, 14, struct.pack(f"{order}q", 100)))
    data += enhanced(order, 1, T0_NS, FRAMES[0]) + enhanced(order, 0, T0_NS // 1000, FRAMES[1])
    data += block(order, 5, bytes(12))  # interface statistics: not of interest
    data += enhanced(order, 2, 5 * 1024 + 512, FRAMES[0])
    times = [packet.time_ns for packet in read_trace(a_file(tmp_path, data)).packets]
    assert times == [T0_NS, T0_NS // 1000 * 1000, 105_500_000_000]


def test_pcapng_sections_each_with_their_own_interfaces_and_byte_order(tmp_path: Path) -> None:
    data = section("<") + interface("<", option("<", 9, b"\x09")) + enhanced("<", 0, 7, FRAMES[0])
    data += section(">") + interface(">") + enhanced(">", 0, 7, FRAMES[1])
    trace = read_trace(a_file(tmp_path, data))
    assert trace.packets == [Packet(7, FRAMES[0]), Packet(7000, FRAMES[1])]


@pytest.mark.parametrize("write", [write_pcap, write_pcapng])
def test_what_is_written_is_read_again(tmp_path: Path, write: Callable[[list[Packet]], bytes]) -> None:
    packets = [Packet(T0_NS + n, bytes(60 + n)) for n in range(5)]
    assert read_trace(a_file(tmp_path, write(packets))).packets == packets


def test_dpkt_reads_what_is_written(tmp_path: Path) -> None:
    path = a_file(tmp_path, write_pcap([Packet(T0_NS, FRAMES[0])]))
    with path.open("rb") as file:
        ((time_s, data),) = dpkt.pcap.Reader(file)
    assert (int(time_s * 10**9), data) == (T0_NS, FRAMES[0])


def test_a_recorded_check_sequence_is_left_off(tmp_path: Path) -> None:
    data = pcap("<", 0xA1B2C3D4, [(1, 0, FRAMES[0] + b"\xde\xad\xbe\xef")], link_type=0x2400_0001)
    assert read_trace(a_file(tmp_path, data)).packets[0].data == FRAMES[0]


GOOD = pcap("<", 0xA1B2C3D4, [(1, 0, FRAMES[0]), (2, 0, FRAMES[1])])
GOOD_NG = write_pcapng([Packet(1, FRAMES[0]), Packet(2, FRAMES[1])])
CUT = GOOD[:24] + struct.pack("<IIII", 1, 0, 40, 1514) + bytes(40)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (GOOD[:24], "contains no packet"),
        (section("<") + interface("<"), "contains no packet"),
        (b"GET / HTTP/1.1\r\n\r\n", "'47455420': is not a capture file .allowed: pcap or pcapng"),
        (GOOD[:3], "is not a capture file"),
        (GOOD[:20], "ends inside the file header"),
        (GOOD[:-1], "truncated: it ends inside packet 2"),
        (GOOD[: 24 + 16 + len(FRAMES[0]) + 8], "truncated: it ends inside packet 2"),
        (GOOD_NG[:-1], "truncated: it ends inside packet 2"),
        (GOOD_NG[:-40], "truncated: it ends inside packet 2"),
        (GOOD[:24] + struct.pack("<IIII", 1, 0, 1 << 30, 60), "packet 1 has a length of 1073741824 bytes"),
        (
            GOOD + struct.pack("<IIII", 3, 0, 40, (1 << 20) + 1) + bytes(40),
            "packet 3 has a length of 1048577 bytes on the wire: the file is damaged .allowed: up to 1048576",
        ),
        (
            section("<") + interface("<") + block("<", 6, struct.pack("<5I", 0, 0, 0, 0, 0xFFFFFFFF)),
            "packet 1 has a length of 4294967295 bytes on the wire",
        ),
        (GOOD_NG + struct.pack("<II", 6, 2), "a block after packet 2 has a length of 2 bytes|truncated"),
        (
            pcap("<", 0xA1B2C3D4, [(1, 0, bytes(40))], link_type=113),
            r"DLT_LINUX_SLL \(113\).*not Ethernet.*DLT_EN10MB \(1\)",
        ),
        (section("<") + interface("<", b"", 101) + enhanced("<", 0, 1, bytes(60)), r"DLT_RAW \(101\)"),
        (section("<") + enhanced("<", 0, 1, bytes(60)), "packet 1 cannot be read: its interface 0 is not described"),
        (section("<") + interface("<") + block("<", 3, bytes(64)), "packet 1 cannot be read: it has no time"),
        (section("<") + block("<", 1, bytes(4)), "interface 0 after packet 0 is not described right: .* 4 bytes"),
        (section("<") + interface("<", option("<", 9, b"")), "its time resolution has 0 bytes .allowed: 1"),
        (section("<") + interface("<", option("<", 14, bytes(4))), "its time offset has 4 bytes .allowed: 8"),
        (
            section("<") + interface("<", option("<", 9, b"\x00")) + enhanced("<", 0, 1 << 40, FRAMES[0]),
            "packet 1 cannot be read: its time is before 1970 or after 2106",
        ),
        (
            section("<") + interface("<", option("<", 14, b"\xff" * 8)) + enhanced("<", 0, 7, FRAMES[0]),
            "packet 1 cannot be read: its time is before 1970",
        ),
        (
            pcap("<", 0xA1B2C3D4, [(1, 0, FRAMES[0]), (0xFFFFFFFF, 10**6, FRAMES[0])]),
            "packet 2 cannot be read: its time",
        ),
        (section("<") + interface("<") + block("<", 6, bytes(16)), "its block has 28 bytes, a packet's needs 32"),
        (CUT, "'40 of 1514 bytes': packet 1 was cut when it was recorded"),
        (pcap("<", 0xA1B2C3D4, [(1, 0, bytes(10))]), "packet 1 is shorter than an Ethernet header"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_cannot_be_replayed_is_told_with_the_file(tmp_path: Path, data: bytes, message: str) -> None:
    path = a_file(tmp_path, data)
    with pytest.raises(BadInput, match=message) as caught:
        read_trace(path)
    assert str(caught.value).startswith(str(path))


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nothing\.pcap: there is no such file"):
        read_trace(tmp_path / "nothing.pcap")
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        read_trace(tmp_path)


def test_a_receiver_that_captured_nothing_is_no_error(tmp_path: Path) -> None:
    assert read_packets(a_file(tmp_path, write_pcap([]))) == []


def test_time_that_goes_backwards_is_kept_told_and_scheduled_in_order(tmp_path: Path) -> None:
    frames = [udp("1.1.1.1", n, "2.2.2.2", 53) for n in (1, 2, 3)]
    trace = read_trace(a_file(tmp_path, write_pcap([Packet(t, f) for t, f in zip((5, 9, 7), frames, strict=True)])))
    assert [packet.data for packet in trace.packets] == frames
    assert "backwards at 1 packets, first at 3" in trace.notes[0]
    found = prepare(trace.path, Settings())
    assert found.pieces.columns.number.tolist() == [1, 3, 2] and found.due.time_ns.tolist() == [0, 2, 4]
    assert found.notes == trace.notes
    assert (trace.duration_ns, trace.period_ns, found.due.period_ns) == (4, 6, 6)


# --- The trace that ships --------------------------------------------------------------------------------------------


def test_the_shipped_trace_is_what_its_note_says() -> None:
    trace, found = read_trace(RECORDED), prepare(RECORDED, Settings())
    assert made(found).mended == 0 and trace.notes == []
    assert found.notes == [f"{RECORDED}: 2 of 897 packets are not replayed: 2 ARP"]
    assert int(found.frame_bytes.max()) <= 1514
    assert 200_000 < trace.size_bytes < 800_000
    assert 3e9 < trace.duration_ns < 8e9
    assert all(len(part["all"]) for part in share_rows(found, 3))
    ports = {port for packet in trace.packets for port in struct.unpack(">HH", packet.data[34:38])}
    assert {443, 53, 5201, 16384} <= ports


# --- many walkers through one file -----------------------------------------------------------------------------------


def one_by_one(data: bytes) -> list[int]:
    at, found = 24, []
    while at + 16 <= len(data):
        found.append(at)
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
    return [*found, at]


def a_record(payload: bytes, wire_bytes: int | None = None) -> bytes:
    return struct.pack("<IIII", 1, 2, len(payload), wire_bytes or len(payload)) + payload


@pytest.mark.parametrize("kind", ["noise", "captures in packets", "invalid_sequence", "long"])
@pytest.mark.parametrize("cut", [0, 5, 30])
def test_many_walkers_find_what_one_finds(kind: str, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where payloads look like records: whole ones, and chains that never join the true one."""
    monkeypatch.setattr(walk, "WALKER_BYTES", 3000)
    draw = random.Random(1)
    packets: list[bytes] = []
    while sum(map(len, packets)) < 300_000:
        size = draw.randrange(14, 60_000 if kind == "long" else 1500)
        inner = b"".join(a_record(draw.randbytes(draw.randrange(14, 90))) for _ in range(draw.randrange(40)))
        packets.append({"noise": draw.randbytes(size), "captures in packets": inner}.get(kind, bytes(size)))
        if kind == "invalid_sequence":
            # Each of these passes over the true records behind it.
            packets[-1] = b"".join(a_record(bytes(20)) for _ in range(30)) + struct.pack("<IIII", 1, 1, 9999, 9999)
    data = bytes(24) + b"".join(map(a_record, packets))
    data = data[: len(data) - cut]
    chain = walk.walk(data, "<", 24)
    assert [*chain.at.tolist(), chain.end] == one_by_one(data)
    sizes = [struct.unpack_from("<I", data, at + 8)[0] for at in chain.at.tolist()]
    assert chain.header[:, walk.CAPTURED].tolist() == sizes and len(sizes) > 5


def test_a_walker_begins_in_each_part_of_a_usual_file() -> None:
    data = bytes(24) + b"".join(a_record(random.Random(n).randbytes(700)) for n in range(3000))
    begins = walk._Walkers(data, "<").likely_beginnings(24)
    assert len(begins) == len(data) // walk.WALKER_BYTES - 1
    assert not ((begins - 24) % 716).any()


# --- several files ---------------------------------------------------------------------------------------------------


def test_several_files_are_one_trace_in_their_order(tmp_path: Path) -> None:
    """The second is compressed, the third is not on Ethernet."""
    frames = [udp("1.1.1.1", 1000 + number, "2.2.2.2", 53) for number in range(5)]
    whole = tmp_path / "whole.pcap"
    whole.write_bytes(pcap("<", 0xA1B2C3D4, [(number, 0, frame) for number, frame in enumerate(frames)]))
    first, second, third = (tmp_path / name for name in ("first.pcap", "second.pcap.gz", "third.pcap"))
    first.write_bytes(pcap("<", 0xA1B2C3D4, [(0, 0, frames[0]), (1, 0, frames[1])]))
    second.write_bytes(gzip.compress(pcap(">", 0xA1B23C4D, [(2, 0, frames[2]), (3, 0, frames[3])])))
    third.write_bytes(pcap("<", 0xA1B2C3D4, [(4, 0, frames[4][14:])], link_type=101))
    several, one = parse([first, second, third]), parse(whole)
    assert several.path == Path(f"{first} and 2 more") and several.total == one.total == 5
    for name in ("number", "time_ns", "length", "l3", "l4", "end", "channel"):
        assert getattr(several.columns, name).tolist() == getattr(one.columns, name).tolist()
    assert several.channels == one.channels
    assert several.notes == [f"{third}: 1 packets of link type RAW get an Ethernet header"]
    packets = [
        [columns.data[at + 14 : at + size].tobytes() for at, size in zip(columns.start, columns.length, strict=True)]
        for columns in (several.columns, one.columns)
    ]
    assert packets[0] == packets[1] == [frame[14:] for frame in frames]


def test_a_bad_file_among_several_is_named(tmp_path: Path) -> None:
    good = tmp_path / "good.pcap"
    good.write_bytes(pcap("<", 0xA1B2C3D4, [(0, 0, FRAMES[0])]))
    with pytest.raises(BadInput, match=r"missing\.pcap: there is no such file"):
        parse([good, tmp_path / "missing.pcap"])
    again = parse([good, good])
    assert again.total == 2 and again.columns.number.tolist() == [1, 2]


@pytest.mark.parametrize(("given", "allowed"), [("[]", "a path or 1 or more items"), ("5", "a path or a list")])
def test_a_trace_without_a_file_is_refused(given: str, allowed: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"name: s\ntraces: [{{name: t, file: {given}}}]\n")
    with pytest.raises(BadInput, match=rf"s\.yaml:2: traces\.0\.file.*cannot be used \(allowed: {allowed}\)"):
        scenario.load(path)


def test_the_files_of_a_trace_are_beside_its_scenario(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: s\ntraces: [{name: t, file: [a.pcap, b/c.pcap]}, {name: u, file: a.pcap}]\n")
    several, one = scenario.load(path).traces
    assert several.files == (tmp_path / "a.pcap", tmp_path / "b/c.pcap") and one.files == (tmp_path / "a.pcap",)
