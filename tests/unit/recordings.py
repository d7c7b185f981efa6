"""Frames and captures for tests of traces, and checksums by the text of the RFC to hold them against."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace
from pathlib import Path

import dpkt
import numpy as np

from pktswarm.traffic.capture.trace import Packet, write_pcap
from pktswarm.traffic.replay.frames import Frames
from pktswarm.traffic.replay.prepare import Nodes, Prepared, Settings, frames_of, prepare

MACS = bytes.fromhex("0a00000000020a0000000001")
NODES = Nodes(bytes.fromhex("020000000001"), bytes.fromhex("020000000002"), bytes([10, 9, 0, 1]), bytes([10, 9, 0, 2]))
T0_NS = 1_700_000_000_123_456_789


def reference_checksum(data: bytes) -> int:
    """RFC 1071 as it is written there."""
    total: int = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(source: str, target: str, l4: bytes, protocol: int, identification: int = 0, place: int = 0) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(l4), identification, place, 64, protocol, 0)
    addresses = socket.inet_aton(source) + socket.inet_aton(target)
    summed = head[:10] + reference_checksum(head + addresses).to_bytes(2, "big")
    return MACS + b"\x08\x00" + summed + addresses + l4


def ipv6(source: bytes, target: bytes, protocol: int, l4: bytes) -> bytes:
    header = b"\x60\0\0\0" + struct.pack(">HBB", len(l4), protocol, 64) + source + target
    return MACS + b"\x86\xdd" + header + l4


def udp(source: str, sport: int, target: str, dport: int, payload: bytes = b"payload") -> bytes:
    datagram = dpkt.udp.UDP(sport=sport, dport=dport, data=payload, ulen=8 + len(payload))
    pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack(">HH", 17, datagram.ulen)
    datagram.sum = reference_checksum(pseudo + bytes(datagram))
    return ipv4(source, target, bytes(datagram), 17)


def tcp(
    source: str, sport: int, target: str, dport: int, payload: bytes = b"", flags: int = 0x10, **more: int
) -> bytes:
    """`more`: seq, ack, and identification of the IP header."""
    identification = more.pop("identification", 0)
    segment = dpkt.tcp.TCP(sport=sport, dport=dport, flags=flags, data=payload, **more)
    pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack(">HH", 6, len(segment))
    segment.sum = reference_checksum(pseudo + bytes(segment))
    return ipv4(source, target, bytes(segment), 6, identification)


def checksums_right(frame: bytes) -> bool:
    """Of an untagged IPv4 or IPv6 frame with TCP, UDP or ICMPv6 right behind the header; padding is passed over."""
    if frame[12:14] == b"\x08\x00":
        end = 14 + int.from_bytes(frame[16:18], "big")
        header, l4, addresses, protocol = frame[14:34], frame[34:end], frame[26:34], frame[23]
        if reference_checksum(header):
            return False
    else:
        end = 54 + int.from_bytes(frame[18:20], "big")
        l4, addresses, protocol = frame[54:end], frame[22:54], frame[20]
    return reference_checksum(addresses + struct.pack(">HH", protocol, len(l4)) + l4) == 0


def a_capture(folder: Path, frames: list[bytes], gap_ns: int = 1_000_000) -> Path:
    path = folder / "trace.pcap"
    path.write_bytes(write_pcap([Packet(T0_NS + n * gap_ns, frame) for n, frame in enumerate(frames)]))
    return path


def prepared(folder: Path, frames: list[bytes], settings: Settings | None = None) -> Prepared:
    settings = settings or Settings()
    return prepare(a_capture(folder, frames), replace(settings, where="test.yaml", key="traces.0"))


def made(found: Prepared, downlink: bool = False) -> Frames:
    return frames_of(found, np.arange(len(found.due.order)), NODES, downlink)


def listed(frames: Frames) -> list[bytes]:
    return [frames.frame(row) for row in range(len(frames))]


def replayed(folder: Path, frames: list[bytes], settings: Settings | None = None) -> list[bytes]:
    return listed(made(prepared(folder, frames, settings)))
