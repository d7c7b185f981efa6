"""Single packets of one user, built and decoded by scapy.

Frames are without FCS. A number in the payload identifies a packet.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from pktswarm.traffic.frames.responder import ECHO_REQUEST

GTPU_PORT, USER_PORT, SERVER_PORT = 2152, 49200, 5201
G_PDU = 255
MAGIC = b"pktswarm probe "
UPLINK_PDU = 1


@dataclass(frozen=True)
class Wiring:
    """User plane addresses of the UPF, the gNB and the server; empty if there is none."""

    gnb_mac: str
    server_mac: str
    n3_mac: str
    n6_mac: str
    gnb: str
    n3: str
    server_v4: str
    server_v6: str

    def server(self, user: str) -> str:
        return self.server_v6 if ip_address(user).version == 6 else self.server_v4


@dataclass(frozen=True)
class Tunnel:
    """Tunnel of one user; `uplink_teid` is the UPF's, `downlink_teid` the gNB's."""

    user: str
    uplink_teid: int
    downlink_teid: int
    qfi: int | None = None


def payload(number: int, size_bytes: int = 0) -> bytes:
    """Returns the number, padded to `size_bytes`."""
    return (MAGIC + number.to_bytes(4, "big")).ljust(size_bytes, b".")


def user_packet(wiring: Wiring, user: str, number: int, up: bool, ip_bytes: int = 0) -> Packet:
    """Returns an IP packet of `ip_bytes` (0: the minimum)."""
    server, is_v6 = wiring.server(user), ip_address(user).version == 6
    source, target = (user, server) if up else (server, user)
    ports = {"sport": USER_PORT, "dport": SERVER_PORT} if up else {"sport": SERVER_PORT, "dport": USER_PORT}
    ip = IPv6(src=source, dst=target) if is_v6 else IP(src=source, dst=target)
    headers_bytes = (40 if is_v6 else 20) + 8
    return ip / UDP(**ports) / Raw(payload(number, ip_bytes - headers_bytes))


def uplink(wiring: Wiring, tunnel: Tunnel, number: int, ip_bytes: int = 0) -> bytes:
    inner = user_packet(wiring, tunnel.user, number, up=True, ip_bytes=ip_bytes)
    header = _gtpu(tunnel.uplink_teid, G_PDU)
    if tunnel.qfi is not None:
        header.E, header.next_ex = 1, 0x85
        header = header / GTPPDUSessionContainer(type=UPLINK_PDU, QFI=tunnel.qfi)
    return bytes(_to_n3(wiring) / header / inner)


def downlink(wiring: Wiring, tunnel: Tunnel, number: int, ip_bytes: int = 0) -> bytes:
    inner = user_packet(wiring, tunnel.user, number, up=False, ip_bytes=ip_bytes)
    return bytes(Ether(src=wiring.server_mac, dst=wiring.n6_mac) / inner)


def echo_request(wiring: Wiring, sequence: int) -> bytes:
    """Returns an Echo Request (TS 29.281, 7.2.1: flag S set, TEID 0)."""
    return bytes(_to_n3(wiring) / GTP_U_Header(teid=0, gtp_type=ECHO_REQUEST, S=1, seq=sequence))


def tunnel_bytes(wiring: Wiring, has_container: bool) -> int:
    """Returns the bytes of a tunnel's headers: IP, UDP, GTP-U, and the PDU session container."""
    return (40 if ":" in wiring.gnb else 20) + 8 + 8 + (8 if has_container else 0)


def _gtpu(teid: int, kind: int) -> Packet:
    return GTP_U_Header(teid=teid, gtp_type=kind)


def _to_n3(wiring: Wiring) -> Packet:
    ethernet = Ether(src=wiring.gnb_mac, dst=wiring.n3_mac)
    if ":" in wiring.gnb:
        return ethernet / IPv6(src=wiring.gnb, dst=wiring.n3) / UDP(sport=GTPU_PORT, dport=GTPU_PORT)
    return ethernet / IP(src=wiring.gnb, dst=wiring.n3) / UDP(sport=GTPU_PORT, dport=GTPU_PORT, chksum=0)


@dataclass(frozen=True)
class Gtpu:
    """A GTP-U message received by the gNB."""

    kind: int
    teid: int
    sequence: int | None
    has_container: bool
    source: str
    inner: Any
    """The user's packet of a G-PDU (a scapy packet)."""


def gtpu(frame: bytes) -> Gtpu | None:
    """Decodes a frame; None for another protocol."""
    packet = Ether(frame)
    if UDP not in packet or packet[UDP].dport != GTPU_PORT or GTP_U_Header not in packet:
        return None
    header, ip = packet[GTP_U_Header], packet[IP] if packet.type == 0x0800 else packet[IPv6]
    inner = header.payload
    has_container = GTPPDUSessionContainer in header
    while inner and not isinstance(inner, (IP, IPv6)):
        inner = inner.payload
    sequence = header.seq if header.S else None
    return Gtpu(header.gtp_type, header.teid, sequence, has_container, ip.src, inner if inner else None)


def number_of(packet: Any) -> int | None:
    """Returns the number of a probe's packet; None for any other."""
    data = bytes(packet[UDP].payload) if packet is not None and UDP in packet else b""
    return int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "big") if data.startswith(MAGIC) else None


def user_packet_of(frame: bytes) -> Any:
    """Returns the user's packet in a frame received by the data network; None for another frame."""
    packet = Ether(frame)
    for layer in (IP, IPv6):
        if layer in packet and UDP in packet and packet[UDP].dport == SERVER_PORT:
            return packet[layer]
    return None
