"""The UPF's XDP programs with IPv6 on N3, frame in, frame out. Checksums are scapy's."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
from scapy.packet import Packet, Raw

from pktswarm.lab.upf.outer import in_ipv4, in_ipv6
from pktswarm.lab.upf.rules import OUTER_IPV4, OUTER_IPV6, Qer
from test_upf_frames import (
    DROP,
    GNB,
    GNB_6,
    GNB_MAC,
    N3,
    N3_6,
    N3_MAC,
    PASS,
    REDIRECT,
    Path,
    n3_frame,
    namespace,
    path,
    sent_up,
)
from upf_ends import ethernet, g_pdu, user4, user6

__all__ = ["namespace", "path"]
pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to load XDP programs"),
]
IPV6 = 0x86DD


def n3_frame6(gtp: bytes, chain: tuple[Packet, ...] = (), check: int | None = None, **outer: Any) -> bytes:
    made: Packet = IPv6(**{"src": GNB_6, "dst": N3_6, **outer})
    for one in chain:
        made /= one
    return ethernet(N3_MAC, GNB_MAC, IPV6) + bytes(made / UDP(sport=2152, dport=2152, chksum=check) / Raw(gtp))


def sent_down6(packet: bytes, teid: int = 0x2001, qfi: int | None = None) -> bytes:
    options = b"" if qfi is None else bytes([0, 0, 0, 0x85, 1, 0, qfi, 0])
    gtp = struct.pack(">BBHI", 0x30 if qfi is None else 0x34, 255, len(options) + len(packet), teid) + options + packet
    return ethernet(GNB_MAC, N3_MAC, IPV6) + from_n3(gtp)


def from_n3(gtp: bytes, port: int = 2152) -> bytes:
    return bytes(IPv6(src=N3_6, dst=GNB_6, hlim=64) / UDP(sport=2152, dport=port) / Raw(gtp))


def to_gnb6(path: Path, **more: Any) -> None:
    path.install(gnb=socket.inet_pton(socket.AF_INET6, GNB_6), **more)


@pytest.mark.parametrize("packet", [user4(), user4(28), user4(1401), user6(), user6(48)], ids=len)
@pytest.mark.parametrize("more", [{}, {"S": 1, "seq": 77}, {"container": 9}, {"container": 9, "S": 1}], ids=str)
def test_uplink_loses_its_tunnel_and_nothing_else(path: Path, packet: bytes, more: dict[str, Any]) -> None:
    assert path.up(n3_frame6(g_pdu(packet, 0x1001, **more))) == (REDIRECT, sent_up(packet))
    assert path.counted() == {"forwarded_uplink": 1}


@pytest.mark.parametrize("qfi", [None, 9])
@pytest.mark.parametrize("size", [28, 29, 60, 127, 128, 129, 1000, 1001, 1436])
def test_downlink_gets_a_tunnel_with_a_right_checksum(path: Path, size: int, qfi: int | None) -> None:
    to_gnb6(path, qers=() if qfi is None else (Qer(1, qfi=qfi),))
    packet = user4(size, number=size if size > 31 else 0, down=True)
    assert path.down(packet) == (REDIRECT, sent_down6(packet, qfi=qfi))
    assert path.down(user6(down=True)) == (REDIRECT, sent_down6(user6(down=True), qfi=qfi))
    assert path.counted() == {"forwarded_downlink": 2}


def test_a_checksum_that_comes_to_zero_is_written_as_ones(path: Path) -> None:
    """RFC 768. Two bytes of the payload are chosen so."""
    to_gnb6(path)
    plain = bytearray(bytes(IP(user4(40, down=True))))
    plain[-2:] = b"\0\0"
    check = struct.unpack_from(">H", sent_down6(bytes(plain)), 60)[0]
    plain[-2:] = struct.pack(">H", check)
    wanted = sent_down6(bytes(plain))
    assert wanted[60:62] == b"\xff\xff"
    assert path.down(bytes(plain)) == (REDIRECT, wanted)


@pytest.mark.parametrize(("size_bytes", "verdict"), [(1436, REDIRECT), (1437, DROP)])
def test_what_does_not_fit_the_mtu_with_its_tunnel_is_dropped(path: Path, size_bytes: int, verdict: int) -> None:
    to_gnb6(path, qers=(Qer(1, qfi=9),))
    assert path.down(user4(size_bytes, down=True))[0] == verdict
    assert path.dropped(2) == ({} if verdict == REDIRECT else {"too_big": 1})


@pytest.mark.parametrize("check", [0, 1])
def test_a_wrong_checksum_and_none_are_malformed(path: Path, check: int) -> None:
    assert path.up(n3_frame6(g_pdu(user4(), 0x1001), check=check))[0] == DROP
    assert path.counted() == {"malformed": 1}


def test_a_frame_cut_anywhere_and_every_changed_byte_end_in_a_verdict(path: Path) -> None:
    """What is covered by the checksum is never carried when it was changed: only the outer header's first 8 bytes and
    Ethernet's are not."""
    frame = n3_frame6(g_pdu(user4(40), 0x1001, container=9, S=1))
    for size in range(14, len(frame)):
        assert path.up(frame[:size])[0] == DROP
    for at in range(len(frame)):
        for bits in (0x01, 0x80, 0xFF):
            changed = bytearray(frame)
            changed[at] ^= bits
            verdict, _ = path.up(bytes(changed))
            assert verdict in ((PASS, DROP, REDIRECT) if at < 22 else (PASS, DROP)), at


def test_a_tunnel_of_the_other_ip_version_matches_no_rule(path: Path) -> None:
    frames = {OUTER_IPV4: n3_frame(g_pdu(user4(), 0x1001)), OUTER_IPV6: n3_frame6(g_pdu(user4(), 0x1001))}
    for outer in frames:
        path.install(up={"outer": outer, "removes": outer})
        assert {one: path.up(frame)[0] for one, frame in frames.items()} == {
            one: REDIRECT if one == outer else DROP for one in frames
        }
    assert path.counted() == {"forwarded_uplink": 2, "no_rule": 2}


def test_other_traffic_is_the_kernel_s(path: Path) -> None:
    gtp = g_pdu(user4(), 0x1001)
    other_port = IPv6(src=GNB_6, dst=N3_6) / UDP(sport=2152, dport=2153) / Raw(gtp)
    for frame in (
        ethernet(N3_MAC, GNB_MAC, IPV6) + bytes(other_port),
        n3_frame6(gtp, dst="2001:db8:92::2"),
        n3_frame6(gtp, chain=(IPv6ExtHdrDestOpt(),)),
        ethernet("02:00:00:00:00:77", GNB_MAC, IPV6) + n3_frame6(gtp)[14:],
    ):
        assert path.up(frame) == (PASS, frame)
    assert path.counted() == {}
    assert path.up(n3_frame6(gtp, chain=(IPv6ExtHdrFragment(m=1),)))[0] == PASS
    assert path.counted() == {"fragment": 1}


def test_an_echo_request_is_answered(path: Path) -> None:
    request = struct.pack(">BBHIHBB", 0x32, 1, 4, 0, 0x1234, 0, 0)
    outer = IPv6(src=GNB_6, dst=N3_6) / UDP(sport=40000, dport=2152) / Raw(request)
    answer = struct.pack(">BBHIHBBBB", 0x32, 2, 6, 0, 0x1234, 0, 0, 14, 0)
    wanted = ethernet(GNB_MAC, N3_MAC, IPV6) + from_n3(answer, 40000)
    assert path.up(ethernet(N3_MAC, GNB_MAC, IPV6) + bytes(outer)) == (REDIRECT, wanted)
    assert path.counted() == {"echo_request": 1}


def test_an_unknown_teid_gets_an_error_indication(path: Path) -> None:
    address = socket.inet_pton(socket.AF_INET6, N3_6)
    elements = struct.pack(">BI", 16, 0x9999) + struct.pack(">BH16s", 133, 16, address)
    answer = struct.pack(">BBHII", 0x32, 26, 28, 0, 0) + elements
    wanted = ethernet(GNB_MAC, N3_MAC, IPV6) + from_n3(answer)
    assert path.up(n3_frame6(g_pdu(user4(), 0x9999))) == (REDIRECT, wanted)
    assert path.counted() == {"unknown_teid": 1, "error_indication_sent": 1}


@pytest.mark.parametrize("size", [0, 1, 100, 101])
def test_what_came_in_fragments_is_put_into_a_frame_again(path: Path, size: int) -> None:
    """As lab/upf does it."""
    message = g_pdu(user4(100 + size), 0x1001)
    source, target = (socket.inet_pton(socket.AF_INET6, address) for address in (GNB_6, N3_6))
    frame = bytes.fromhex((N3_MAC + GNB_MAC).replace(":", "")) + in_ipv6(source, target, message)
    assert frame == n3_frame6(message)
    assert path.up(frame) == (REDIRECT, sent_up(user4(100 + size)))
    over_ipv4 = frame[:12] + in_ipv4(socket.inet_aton(GNB), socket.inet_aton(N3), message)
    assert path.up(over_ipv4) == (REDIRECT, sent_up(user4(100 + size)))
