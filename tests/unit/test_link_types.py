"""Captures that were not made on Ethernet, by scapy; tshark reads what becomes of them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scapy.layers.dot11 import Dot11, Dot11Beacon, Dot11FCS, Dot11QoS, RadioTap
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import LLC, SNAP, CookedLinux, CookedLinuxV2, Ether
from scapy.layers.ppp import HDLC, PPP
from scapy.packet import Packet, Raw

from pktswarm.traffic.capture.files import Packet as Recorded
from pktswarm.traffic.capture.files import read_capture, write_pcap
from pktswarm.traffic.capture.index import index_capture
from pktswarm.traffic.capture.link_types import LINKS, as_ethernet
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.replay.parse import parse

FOUR = bytes(IP(src="192.0.2.1", dst="198.51.100.2") / UDP(sport=1000, dport=53) / Raw(b"four"))
SIX = bytes(IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=1000, dport=53) / Raw(b"and six"))
ARP, PLAIN = bytes(28), 0x0800


def wlan(kind: int, payload: bytes, **fields: object) -> Packet:
    return Dot11(type=2, **{"subtype": 0, **fields}) / LLC() / SNAP(code=kind) / Raw(payload)


def qos(kind: int, payload: bytes, several: int = 0) -> Packet:
    return Dot11(type=2, subtype=8) / Dot11QoS(A_MSDU_Present=several) / LLC() / SNAP(code=kind) / Raw(payload)


def with_fcs(kind: int, payload: bytes) -> Packet:
    flags = RadioTap(present="Flags", Flags="FCS")
    return flags / Dot11FCS(type=2, subtype=0) / LLC() / SNAP(code=kind) / Raw(payload)


def family(order: str, six: int) -> Callable[[int, bytes], bytes]:
    return lambda kind, payload: struct.pack(f"{order}I", 2 if kind == PLAIN else six) + payload


MADE: dict[str, tuple[int, Callable[[int, bytes], Packet | bytes]]] = {
    "raw": (101, lambda kind, payload: payload),
    "raw of OpenBSD": (12, lambda kind, payload: payload),
    "BSD, little-endian": (0, family("<", 30)),
    "BSD, big-endian": (0, family(">", 24)),
    "OpenBSD loopback": (108, family(">", 24)),
    "cooked": (113, lambda kind, payload: CookedLinux(proto=kind, src=bytes(6)) / Raw(payload)),
    "cooked 2": (276, lambda kind, payload: CookedLinuxV2(proto=kind) / Raw(payload)),
    "PPP": (9, lambda kind, payload: PPP(proto=0x21 if kind == PLAIN else 0x57) / Raw(payload)),
    "PPP in HDLC": (50, lambda kind, payload: HDLC() / PPP(proto=0x21 if kind == PLAIN else 0x57) / Raw(payload)),
    "802.11": (105, wlan),
    "802.11, four addresses": (105, lambda kind, payload: wlan(kind, payload, FCfield=3)),
    "802.11, QoS": (105, qos),
    "802.11, radiotap": (127, lambda kind, payload: RadioTap() / wlan(kind, payload)),
    "802.11, radiotap, checked": (127, with_fcs),
}


def capture(path: Path, link_type: int, packets: list[bytes]) -> Path:
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link_type)
    for number, packet in enumerate(packets):
        data += struct.pack("<IIII", number, 0, len(packet), len(packet)) + packet
    path.write_bytes(data)
    return path


def on_ethernet(path: Path) -> list[bytes]:
    index, _ = as_ethernet(index_capture(path))
    assert set(index.link_type.tolist()) <= {1} and (index.captured_bytes == index.wire_bytes).all()
    ends = zip(index.start.tolist(), (index.start + index.captured_bytes).tolist(), strict=True)
    return [bytes(index.data[start:end]) for start, end in ends]


@pytest.mark.parametrize("name", MADE)
def test_a_packet_of_any_link_type_is_the_same_packet_on_ethernet(name: str, tmp_path: Path) -> None:
    link_type, made = MADE[name]
    several = [bytes(made(PLAIN, FOUR)), bytes(made(0x86DD, SIX)), bytes(made(PLAIN, FOUR + bytes(1400)))]
    path = capture(tmp_path / "other.pcap", link_type, several)
    plain, six, long = (Ether(frame) for frame in on_ethernet(path))
    assert (plain.type, bytes(plain.payload)) == (PLAIN, FOUR) and (six.type, bytes(six.payload)) == (0x86DD, SIX)
    assert bytes(long)[14:] == FOUR + bytes(1400)
    parsed = parse(path)
    assert parsed.notes[0] == f"{path}: 3 packets of link type {LINKS[link_type][0]} get an Ethernet header"
    assert parsed.columns.version.tolist() == [4, 6, 4] and parsed.columns.l3.tolist() == [14] * 3
    assert parsed.columns.has_l4.all() and np.diff(parsed.columns.time_ns).tolist() == [10**9] * 2


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("name", MADE)
def test_tshark_sees_the_same_in_both(name: str, tmp_path: Path) -> None:
    link_type, made = MADE[name]
    before = capture(tmp_path / "other.pcap", link_type, [bytes(made(PLAIN, FOUR)), bytes(made(0x86DD, SIX))])
    after = tmp_path / "ethernet.pcap"
    after.write_bytes(write_pcap([Recorded(at, data) for at, data in enumerate(on_ethernet(before))]))
    fields = ("ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "udp.srcport", "udp.dstport", "udp.payload", "_ws.malformed")
    words = [word for field in fields for word in ("-e", field)]
    seen = [
        subprocess.run(
            ["tshark", "-n", "-r", path, "-T", "fields", *words], capture_output=True, text=True, check=True
        ).stdout
        for path in (before, after)
    ]
    assert seen[0] == seen[1] and FOUR[28:].hex() in seen[0] and SIX[48:].hex() in seen[0]


@pytest.mark.parametrize(
    ("link_type", "packet"),
    [
        (101, b"\x00" * 40),
        (113, bytes(CookedLinux(proto=0x0806) / Raw(ARP))),
        (113, bytes(CookedLinux(proto=PLAIN))[:9]),
        (9, bytes(PPP(proto=0xC021) / Raw(bytes(20)))),
        (105, bytes(Dot11(type=0, subtype=8) / Dot11Beacon())),
        (105, bytes(Dot11(type=2, subtype=4))),
        (105, bytes(wlan(PLAIN, FOUR, FCfield="protected"))),
        (105, bytes(qos(PLAIN, FOUR, several=1))),
        (127, b"\x00\x00\xff\xff"),
    ],
)
def test_what_is_no_ip_packet_is_left_out_and_counted(link_type: int, packet: bytes, tmp_path: Path) -> None:
    path = capture(tmp_path / "other.pcap", link_type, [packet])
    made = next(made for number, made in MADE.values() if number == link_type)
    good = capture(tmp_path / "good.pcap", link_type, [packet, bytes(made(PLAIN, FOUR))])
    with pytest.raises(BadInput, match="contains no packet that can be replayed"):
        parse(path)
    parsed = parse(good)
    assert sum(parsed.left_out.values()) == 1 and parsed.total == 2 and parsed.columns.number.tolist() == [2]


def test_a_file_of_several_link_types_keeps_its_order_and_what_is_on_ethernet(tmp_path: Path) -> None:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    frame = bytes(Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02")) + FOUR
    packets = [(1, SIX), (0, frame), (2, bytes(CookedLinux(proto=PLAIN) / Raw(FOUR))), (1, FOUR)]
    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    data += b"".join(block(1, struct.pack("<HHI", link_type, 0, 0)) for link_type in (1, 101, 113))
    for number, (of, packet) in enumerate(packets):
        data += block(6, struct.pack("<IIIII", of, 0, number, len(packet), len(packet)) + packet)
    path = tmp_path / "several.pcapng"
    path.write_bytes(data)
    frames = on_ethernet(path)
    assert frames[1] == frame and [one[14:] for one in frames] == [SIX, FOUR, FOUR, FOUR]
    assert [note.split(": ")[1] for note in parse(path).notes] == [
        "2 packets of link type RAW get an Ethernet header",
        "1 packets of link type LINUX_SLL get an Ethernet header",
    ]


def test_a_capture_on_ethernet_is_the_file_itself(tmp_path: Path) -> None:
    path = tmp_path / "ethernet.pcap"
    path.write_bytes(write_pcap([Recorded(0, bytes(Ether()) + FOUR)]))
    index = index_capture(path)
    assert as_ethernet(index) == (index, []) and len(list(read_capture(path))) == 1
    with pytest.raises(BadInput, match=r"DLT_USB.*Ethernet, NULL, PPP, RAW, 802.11, LOOP, LINUX_SLL"):
        parse(capture(tmp_path / "usb.pcap", 189, [bytes(60)]))
