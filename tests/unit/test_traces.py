"""Traces: read whatever a recorder writes, split by flow, readdressed so that every checksum is right."""

from __future__ import annotations

import random
import socket
import struct
from dataclasses import replace
from pathlib import Path

import dpkt
import pytest

from traffic.checksum import amended, checksum
from traffic.errors import BadInput
from traffic.flows import flow_keys
from traffic.rewrite import FIRST_FREE_PORT
from traffic.traces import (
    Endpoint,
    Packet,
    check_mtu,
    lead_ns,
    read_packets,
    read_trace,
    rewrite,
    split_by_flow,
    write_pcap,
    write_pcapng,
)

RECORDED = Path(__file__).parents[2] / "configs" / "traces" / "lab.pcapng"
SOURCE = Endpoint("02:00:00:00:00:01", "10.9.0.1")
TARGET = Endpoint("02:00:00:00:00:02", "10.9.0.2")
T0_NS = 1_700_000_000_123_456_789
MACS = bytes.fromhex("0a00000000020a0000000001")


def ipv4(source: str, target: str, l4: bytes, protocol: int, identification: int = 0, place: int = 0) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(l4), identification, place, 64, protocol, 0)
    addresses = socket.inet_aton(source) + socket.inet_aton(target)
    summed = head[:10] + reference_checksum(head + addresses).to_bytes(2, "big")
    return MACS + b"\x08\x00" + summed + addresses + l4


def udp(source: str, sport: int, target: str, dport: int, payload: bytes = b"payload") -> bytes:
    datagram = dpkt.udp.UDP(sport=sport, dport=dport, data=payload, ulen=8 + len(payload))
    pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack(">HH", 17, datagram.ulen)
    datagram.sum = reference_checksum(pseudo + bytes(datagram))
    return ipv4(source, target, bytes(datagram), 17)


def reference_checksum(data: bytes) -> int:
    """RFC 1071 as it is written there, to hold the other one against."""
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def checksums_right(frame: bytes) -> bool:
    """Of an untagged IPv4 or IPv6 frame with TCP, UDP or ICMPv6 right behind the header."""
    if frame[12:14] == b"\x08\x00":
        header, l4, addresses, protocol = frame[14:34], frame[34:], frame[26:34], frame[23]
        if reference_checksum(header):
            return False
    else:
        l4, addresses, protocol = frame[54:], frame[22:54], frame[20]
    return reference_checksum(addresses + struct.pack(">HH", protocol, len(l4)) + l4) == 0


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
def test_what_is_written_is_read_again(tmp_path: Path, write) -> None:  # type: ignore[no-untyped-def]
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
        (GOOD[:24], "there is no packet in it"),
        (section("<") + interface("<"), "there is no packet in it"),
        (b"GET / HTTP/1.1\r\n\r\n", "'47455420': is not a capture file .allowed: pcap or pcapng"),
        (GOOD[:3], "is not a capture file"),
        (GOOD[:20], "ends inside the file header"),
        (GOOD[:-1], "truncated: it ends inside packet 2"),
        (GOOD[: 24 + 16 + len(FRAMES[0]) + 8], "truncated: it ends inside packet 2"),
        (GOOD_NG[:-1], "truncated: it ends inside packet 2"),
        (GOOD_NG[:-40], "truncated: it ends inside packet 2"),
        (GOOD[:24] + struct.pack("<IIII", 1, 0, 1 << 30, 60), "packet 1 says it has 1073741824 bytes"),
        (GOOD_NG + struct.pack("<II", 6, 2), "a block after packet 2 says it has 2 bytes|truncated"),
        (
            pcap("<", 0xA1B2C3D4, [(1, 0, bytes(40))], link_type=113),
            r"DLT_LINUX_SLL \(113\).*not Ethernet.*DLT_EN10MB \(1\)",
        ),
        (section("<") + interface("<", b"", 101) + enhanced("<", 0, 1, bytes(60)), r"DLT_RAW \(101\)"),
        (section("<") + enhanced("<", 0, 1, bytes(60)), "packet 1 cannot be read: its interface 0 is not described"),
        (section("<") + interface("<") + block("<", 3, bytes(64)), "packet 1 cannot be read: it has no time"),
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


def test_frames_longer_than_the_mtu(tmp_path: Path) -> None:
    tagged = MACS + b"\x81\x00\x00\x05\x08\x00" + bytes(1500)
    trace = read_trace(a_file(tmp_path, write_pcap([Packet(1, bytes(1514)), Packet(2, tagged)])))
    check_mtu(trace, 1500, "eth1")
    twice = MACS + b"\x88\xa8\x00\x05\x81\x00\x00\x06\x08\x00" + bytes(1500)
    for frame in (bytes(1515), tagged + b"x", twice):
        trace = read_trace(a_file(tmp_path, write_pcap([Packet(1, bytes(60)), Packet(2, frame), Packet(3, frame)])))
        with pytest.raises(BadInput, match=rf"'{len(frame)} bytes': packet 2 \(and 1 more\) .*MTU of eth1.*1500"):
            check_mtu(trace, 1500, "eth1")


def test_time_that_goes_backwards_is_kept_told_and_scheduled_in_order(tmp_path: Path) -> None:
    frames = [udp("1.1.1.1", n, "2.2.2.2", 53) for n in (1, 2, 3)]
    trace = read_trace(a_file(tmp_path, write_pcap([Packet(t, f) for t, f in zip((5, 9, 7), frames, strict=True)])))
    assert [packet.data for packet in trace.packets] == frames
    assert "backwards at 1 packets, first at 3" in trace.notes[0]
    (share,) = split_by_flow(trace.packets, 1)
    assert share == [Packet(0, frames[0]), Packet(2, frames[2]), Packet(4, frames[1])]
    assert (trace.duration_ns, trace.period_ns) == (4, 6)


# --- Splitting -------------------------------------------------------------------------------------------------------


def conversation(count: int = 400, flows: int = 23) -> list[Packet]:
    """Packets of many flows, in both directions, of many sizes."""
    source = random.Random(7)
    packets = []
    for n in range(count):
        client, size = source.randrange(flows), source.randrange(1000)
        ends = (f"10.1.0.{client}", 40000 + client), ("10.2.0.1", 443)
        (a, a_port), (b, b_port) = ends if source.random() < 0.5 else ends[::-1]
        packets.append(Packet(T0_NS + n * 1000, udp(a, a_port, b, b_port, struct.pack(">I", n) + bytes(size))))
    return packets


@pytest.mark.parametrize("shares", [1, 2, 3, 7])
def test_each_flow_is_whole_and_in_order_in_one_share(shares: int) -> None:
    packets = conversation()
    parts = split_by_flow(packets, shares)
    assert len(parts) == shares
    assert sorted((p.time_ns + T0_NS, p.data) for part in parts for p in part) == sorted(packets)
    homes: dict[object, set[int]] = {}
    for number, part in enumerate(parts):
        assert part == sorted(part, key=lambda packet: packet.time_ns)
        for key in flow_keys([packet.data for packet in part]):
            homes.setdefault(key, set()).add(number)
    assert len(homes) == 23
    assert all(len(home) == 1 for home in homes.values())
    sizes = [sum(len(p.data) for p in part) for part in parts]
    assert max(sizes) < 1.25 * min(sizes)


def test_the_same_trace_is_always_split_alike() -> None:
    packets = conversation()
    assert split_by_flow(packets, 3) == split_by_flow(list(packets), 3)


def test_a_share_that_starts_later_says_by_how_much() -> None:
    packets = [Packet(T0_NS, udp("1.1.1.1", 1, "2.2.2.2", 2, bytes(500)))]
    packets += [Packet(T0_NS + 1_300_000_000, udp("1.1.1.1", 3, "2.2.2.2", 4))]
    first, second, none = split_by_flow(packets, 3)
    assert (lead_ns(first), lead_ns(second), lead_ns(none)) == (0, 1_300_000_000, 0)


def fragments(identification: int, size: int = 100) -> list[bytes]:
    whole = udp("1.1.1.1", 7, "2.2.2.2", 8, bytes(size))[34:]
    first = ipv4("1.1.1.1", "2.2.2.2", whole[:64], 17, identification, 0x2000)
    rest = ipv4("1.1.1.1", "2.2.2.2", whole[64:], 17, identification, 8)
    return [first, rest]


@pytest.mark.parametrize("turned", [False, True])
def test_fragments_stay_with_the_one_that_has_the_ports(turned: bool) -> None:
    frames = fragments(77)
    frames = frames[::-1] if turned else frames
    keys = flow_keys([*frames, udp("1.1.1.1", 7, "2.2.2.2", 8), udp("1.1.1.1", 9, "2.2.2.2", 8)])
    assert keys[0] == keys[1] == keys[2] != keys[3]


def test_frames_without_ip_are_flows_by_mac_and_type() -> None:
    a, b = MACS[:6], MACS[6:]
    arp, arp_back, other = a + b + b"\x08\x06" + bytes(28), b + a + b"\x08\x06" + bytes(28), a + b + b"\x88\xcc"
    keys = flow_keys([arp, arp_back, other + bytes(46)])
    assert keys[0] == keys[1] != keys[2]


# --- Rewriting -------------------------------------------------------------------------------------------------------


def rewritten(*frames: bytes, source: Endpoint = SOURCE) -> list[bytes]:
    return [packet.data for packet in rewrite([Packet(n, f) for n, f in enumerate(frames)], source, TARGET).packets]


def test_both_directions_go_from_the_source_to_the_target() -> None:
    for frame, before in zip(rewritten(*FRAMES), FRAMES, strict=True):
        assert frame[:12] == TARGET.mac_bytes + SOURCE.mac_bytes
        assert frame[26:34] == bytes([10, 9, 0, 1, 10, 9, 0, 2])
        assert frame[34:40] == before[34:40], "ports and length are kept"
        assert frame[42:] == before[42:], "the payload is kept"
        assert checksums_right(frame)


def test_tcp_with_options_padding_and_an_odd_length() -> None:
    segment = dpkt.tcp.TCP(sport=50000, dport=443, seq=9, flags=24, opts=b"\x01\x01\x01\x00", data=b"odd")
    segment.off = 6
    frame = bytearray(ipv4("1.1.1.1", "2.2.2.2", bytes(segment), 6))
    (after,) = rewritten(bytes(frame) + b"\0" * 3)
    assert checksums_right(after[:-3])
    assert after[-3:] == bytes(3)


def test_a_checksum_that_the_card_should_have_made_is_mended_and_counted() -> None:
    wrong = bytearray(FRAMES[0])
    wrong[40:42] = b"\x12\x34"
    result = rewrite([Packet(0, bytes(wrong)), Packet(1, FRAMES[1])], SOURCE, TARGET)
    assert result.mended == 1
    assert all(checksums_right(packet.data) for packet in result.packets)


def test_udp_without_a_checksum_stays_so() -> None:
    without = bytearray(FRAMES[0])
    without[40:42] = b"\0\0"
    result = rewrite([Packet(0, bytes(without))], SOURCE, TARGET)
    assert (result.packets[0].data[40:42], result.mended) == (b"\0\0", 0)


def test_a_udp_checksum_of_zero_is_written_as_all_ones() -> None:
    """RFC 768: 0 would mean that there is none."""
    frame = bytearray(rewritten(udp("1.1.1.1", 1, "2.2.2.2", 2, b"\0\0"))[0])
    # A payload equal to the checksum makes the sum over everything zero.
    payload = frame[40:42]
    (after,) = rewritten(udp("1.1.1.1", 1, "2.2.2.2", 2, bytes(payload)))
    assert after[40:42] == b"\xff\xff"


def test_a_fragmented_datagram_still_sums_up() -> None:
    first, rest = rewritten(*fragments(77))
    addresses, datagram = first[26:34], first[34:] + rest[34:]
    assert addresses == rest[26:34] == bytes([10, 9, 0, 1, 10, 9, 0, 2])
    assert reference_checksum(addresses + struct.pack(">HH", 17, len(datagram)) + datagram) == 0
    assert reference_checksum(first[14:34]) == reference_checksum(rest[14:34]) == 0


@pytest.mark.parametrize("tags", [b"\x81\x00\x00\x05", b"\x88\xa8\x00\x06\x81\x00\x00\x05"])
def test_vlan_tags_are_kept(tags: bytes) -> None:
    (after,) = rewritten(FRAMES[0][:12] + tags + FRAMES[0][12:])
    assert after[12 : 12 + len(tags)] == tags
    assert checksums_right(after[:12] + after[12 + len(tags) :])


def ipv6(source: bytes, target: bytes, protocol: int, l4: bytes) -> bytes:
    header = b"\x60\0\0\0" + struct.pack(">HBB", len(l4), protocol, 64) + source + target
    return MACS + b"\x86\xdd" + header + l4


def test_ipv6_gets_addresses_made_from_the_nodes_ipv4() -> None:
    group = bytes.fromhex("ff020000000000000000000000000001")
    (after,) = rewritten(ipv6(bytes(15) + b"\x01", group, 58, b"\x80\0\0\0" + b"echo"))
    assert after[22:38] == socket.inet_pton(socket.AF_INET6, "fd00::10.9.0.1")
    assert after[38:54] == socket.inet_pton(socket.AF_INET6, "fd00::10.9.0.2")
    assert checksums_right(after)
    (after,) = rewritten(ipv6(bytes(16), group, 58, b"\x80\0\0\0"), source=replace(SOURCE, ipv6="2001:db8::1"))
    assert after[22:38] == socket.inet_pton(socket.AF_INET6, "2001:db8::1")


def test_ipv6_behind_extension_headers() -> None:
    datagram = struct.pack(">HHHH", 7, 8, 12, 0) + b"data"
    hop_by_hop = b"\x11\0\x01\x04\0\0\0\0"
    frame = bytearray(ipv6(bytes(15) + b"\x01", bytes(15) + b"\x02", 0, hop_by_hop + datagram))
    pseudo = bytes(frame[22:54]) + struct.pack(">II", 12, 17)
    frame[68:70] = reference_checksum(pseudo + datagram).to_bytes(2, "big")
    result = rewrite([Packet(0, bytes(frame))], SOURCE, TARGET)
    after = result.packets[0].data
    assert result.mended == 0
    assert reference_checksum(after[22:54] + struct.pack(">II", 12, 17) + after[62:]) == 0


def test_arp_tells_the_truth_about_the_nodes() -> None:
    request = b"\xff" * 6 + MACS[6:] + b"\x08\x06" + bytes.fromhex("0001080006040001") + MACS[6:]
    request += socket.inet_aton("1.1.1.1") + bytes(6) + socket.inet_aton("2.2.2.2")
    (after,) = rewritten(request)
    assert after[:12] == TARGET.mac_bytes + SOURCE.mac_bytes
    assert after[22:32] == SOURCE.mac_bytes + bytes([10, 9, 0, 1])
    assert after[32:42] == bytes(6) + bytes([10, 9, 0, 2])


def test_what_is_no_ip_gets_only_new_macs_and_is_counted() -> None:
    spanning_tree = b"\x01\x80\xc2\0\0\0" + MACS[6:] + b"\x00\x26" + bytes(46)
    damaged = FRAMES[0][:30]
    result = rewrite([Packet(0, spanning_tree), Packet(1, damaged)], SOURCE, TARGET)
    assert result.opaque == 2
    assert [p.data[12:] for p in result.packets] == [spanning_tree[12:], damaged[12:]]


def test_flows_that_would_become_one_get_another_port() -> None:
    one, two = udp("1.1.1.1", 50000, "9.9.9.1", 3478), udp("1.1.1.1", 50000, "9.9.9.2", 3478)
    back = udp("9.9.9.2", 3478, "1.1.1.1", 50000)
    result = rewrite([Packet(n, f) for n, f in enumerate((one, two, back, one))], SOURCE, TARGET)
    ports = [struct.unpack(">HH", packet.data[34:38]) for packet in result.packets]
    assert ports == [(50000, 3478), (FIRST_FREE_PORT, 3478), (3478, FIRST_FREE_PORT), (50000, 3478)]
    assert result.moved_flows == 1
    assert all(checksums_right(packet.data) for packet in result.packets)


def test_of_two_equal_ports_the_receiver_still_sees_its_own() -> None:
    frames = [udp("1.1.1.1", 2152, f"9.9.9.{n}", 2152) for n in (1, 2)]
    ports = [struct.unpack(">HH", frame[34:38]) for frame in rewritten(*frames)]
    assert ports == [(2152, 2152), (FIRST_FREE_PORT, 2152)]


def test_as_many_flows_after_as_before() -> None:
    frames = [udp(f"10.0.{n % 7}.1", 5000 + n % 3, f"10.1.{n % 5}.1", 443, bytes([n])) for n in range(210)]
    assert len(set(flow_keys(rewritten(*frames)))) == len(set(flow_keys(frames))) == 105


@pytest.mark.parametrize("size", [0, 1, 2, 33, 1480])
def test_checksum_against_the_rfc_text(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert checksum(data) == reference_checksum(data)


def test_an_amended_checksum_is_the_recomputed_one() -> None:
    source = random.Random(3)
    for _ in range(300):
        old, new, rest = source.randbytes(8), source.randbytes(8), source.randbytes(31)
        assert amended(reference_checksum(old + rest), old, new) == reference_checksum(new + rest)


# --- The trace that ships --------------------------------------------------------------------------------------------


def test_the_shipped_trace_is_what_its_note_says() -> None:
    trace = read_trace(RECORDED)
    check_mtu(trace, 1500, "any")
    result = rewrite(trace.packets, SOURCE, TARGET)
    assert (result.mended, result.moved_flows, trace.notes) == (0, 0, [])
    assert 200_000 < trace.size_bytes < 800_000
    assert 3e9 < trace.duration_ns < 8e9
    assert sum(bool(share) for share in split_by_flow(trace.packets, 3)) == 3
    ports = {port for packet in trace.packets for port in struct.unpack(">HH", packet.data[34:38])}
    assert {443, 53, 5201, 16384} <= ports
