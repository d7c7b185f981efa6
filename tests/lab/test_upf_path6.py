"""The lab's UPF with IPv6 on N3: what its N4 agrees to, and packets on the wire between a gNB and a server."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
from scapy.contrib import pfcp
from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6, in6_chksum
from scapy.packet import Packet

from pktswarm import lab
from pktswarm.lab.namespaces import network_of
from pktswarm.lab.upf.ie import Cause
from test_upf_path import BUFFER, FORWARD, NOTIFY, ends, establish, user_packet, within
from upf_ends import SMF_SEID, TEID_DOWN, TEID_UP, Ends, cause, qer, update_far, user4, user6

__all__ = ["ends"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")
OVER_IPV6, OVER_BOTH = 1, 6
"""Outer Header Removal (TS 29.244, 8.2.64)."""


def at_ipv6(ends: Ends, **how: Any) -> dict[str, Any]:
    """A session of a gNB with an IPv6 address."""
    teid = pfcp.IE_FTEID(V6=1, TEID=TEID_UP, ipv6=ends.upf.n3_ipv6)
    return {"teid": teid, "removal": OVER_IPV6, "gnb": ends.gnb.ipv6, **how}


def checked(frame: Packet) -> Packet:
    """Its UDP checksum is what scapy makes of it."""
    udp = frame.original[40:]
    assert in6_chksum(17, frame, udp[:6] + b"\0\0" + udp[8:]) == int.from_bytes(udp[6:8], "big") != 0
    return frame


def test_packets_each_way_are_counted_alike_by_all(ends: Ends) -> None:
    establish(ends, **at_ipv6(ends, qers=[qer(qfi=9)]))
    up = [user4(200, number) if number % 3 else user6(200, number) for number in range(300)]
    down = [user4(301, number, down=True) if number % 3 else user6(301, number, down=True) for number in range(300)]
    for one, other in zip(up, down, strict=True):
        ends.n3.send(ends.n3_frame6(one, container=9))
        ends.down(other)
    assert ends.at_server(300) == up
    frames = ends.at_gnb(300)
    assert [user_packet(checked(each)) for each in frames] == down
    assert {(one.src, one.dst, one[GTP_U_Header].teid) for one in frames} == {
        (str(ends.upf.n3_ipv6), ends.gnb.ipv6, TEID_DOWN)
    }
    for direction, size in (("uplink", 200), ("downlink", 301)):
        counts = ends.counts(direction)
        assert (counts["packets"], counts["bytes"], any(counts["dropped"].values())) == (300, 300 * size, False)


@pytest.mark.parametrize(
    ("flags", "removal", "works"),
    [({"V6": 1}, OVER_IPV6, {6}), ({"V4": 1, "V6": 1}, OVER_BOTH, {4, 6}), ({"V4": 1, "V6": 1}, OVER_IPV6, {6})],
)
def test_the_address_asked_for_is_chosen(ends: Ends, flags: dict[str, int], removal: int, works: set[int]) -> None:
    teid = pfcp.IE_FTEID(CH=1, **flags)
    answer = ends.establish(*ends.session(teid=teid, removal=removal))
    assert cause(answer) == Cause.ACCEPTED
    local = next(one for one in answer.IE_list if isinstance(one, pfcp.IE_CreatedPDR))[pfcp.IE_FTEID]
    assert {"V4": 0, **flags} == {"V4": local.V4, "V6": local.V6} and local.ipv6 == ends.upf.n3_ipv6
    for version, frame in ((4, ends.n3_frame), (6, ends.n3_frame6)):
        ends.n3.send(frame(user4(), teid=local.TEID))
        wanted = [user4()] if version in works else []
        assert ends.at_server(len(wanted) or None) == wanted


def test_what_n3_has_not_and_what_does_not_fit_is_refused(ends: Ends) -> None:
    other = pfcp.IE_FTEID(V6=1, TEID=TEID_UP, ipv6="2001:db8:92::77")
    answer = ends.establish(*ends.session(**at_ipv6(ends, teid=other)))
    assert (cause(answer), answer[pfcp.IE_OffendingIE].type) == (Cause.MANDATORY_INCORRECT, 21)
    answer = ends.establish(*ends.session(**at_ipv6(ends, removal=0)))
    assert (cause(answer), answer[pfcp.IE_OffendingIE].type) == (Cause.RULE_FAILURE, 95)
    answer = ends.establish(*ends.session(**at_ipv6(ends, removal=2)))
    assert (cause(answer), answer[pfcp.IE_OffendingIE].type) == (Cause.NOT_SUPPORTED, 95)
    answer = ends.establish(*ends.session(teid=pfcp.IE_FTEID(CH=1)))
    assert (cause(answer), answer[pfcp.IE_OffendingIE].type) == (Cause.MANDATORY_INCORRECT, 21)
    assert ends.tell({"status": {}})["sessions"] == 0


def test_packets_that_waited_and_an_end_marker_go_over_ipv6(ends: Ends) -> None:
    """To a gNB with IPv4, and from there on to one with IPv6, and back."""
    seid = establish(ends, **at_ipv6(ends, action=BUFFER))
    packets = [user4(number=number, down=True) for number in range(3)]
    for packet in packets:
        ends.down(packet)
    assert within(5, lambda: ends.tell({"status": {}})["waiting"]["users"] == 3)
    assert cause(ends.modify(seid, update_far(FORWARD, ends.gnb.ipv6, 0x3003))) == Cause.ACCEPTED
    frames = ends.at_gnb(3)
    assert [user_packet(checked(each)) for each in frames] == packets
    assert {(each.dst, each[GTP_U_Header].teid) for each in frames} == {(ends.gnb.ipv6, 0x3003)}
    assert cause(ends.modify(seid, update_far(FORWARD, ends.gnb.ipv4, 0x4004, end_marker=True))) == Cause.ACCEPTED
    ends.down(user4(down=True))
    marker, packet = ends.at_gnb(2)
    assert (marker.dst, marker[GTP_U_Header].gtp_type, marker[GTP_U_Header].teid) == (ends.gnb.ipv6, 254, 0x3003)
    assert (packet.dst, packet[GTP_U_Header].teid) == (ends.gnb.ipv4, 0x4004)
    checked(marker)


def test_outer_fragments_are_put_together(ends: Ends) -> None:
    establish(ends, **at_ipv6(ends))
    packets = [user4(1480, number) for number in range(10)]
    for number, packet in enumerate(packets):
        frame = ends.n3_frame6(packet, container=9)
        whole = IPv6(frame[14:])
        ends_of = IPv6(src=whole.src, dst=whole.dst)
        pieces = fragment6(ends_of / IPv6ExtHdrFragment(nh=17, id=number + 1) / whole.payload, 1280)
        assert len(pieces) == 2
        for piece in reversed(pieces):
            ends.n3.send(frame[:14] + bytes(piece))
    assert ends.at_server(10) == packets
    assert ends.counts("uplink")["packets"] == 10


def test_a_gnb_that_is_no_neighbour_yet_is_asked_for(ends: Ends) -> None:
    """Its kernel answers: for this test it has the address."""
    address = ends.gnb.ipv6.rpartition(":")[0] + ":99"
    change = ["ip", "address", "add", f"{address}/64", "dev", "eth1", "nodad"]
    enable = ["sysctl", "-qw", "net.ipv6.conf.eth1.disable_ipv6=0"]
    assert lab.run_in(ends.name, "tx1", enable, ends.folder) == 0
    assert lab.run_in(ends.name, "tx1", change, ends.folder) == 0
    try:
        seid = establish(ends, **at_ipv6(ends))
        assert cause(ends.modify(seid, update_far(FORWARD, address, 0x9))) == Cause.ACCEPTED
        ends.down(user4(down=True))
        assert ends.at_gnb() == []
        assert ends.counts("downlink")["dropped"]["no_neighbour"] == 1

        def arrives() -> bool:
            ends.down(user4(down=True))
            return bool(ends.at_gnb())

        assert within(5, arrives)
    finally:
        disable = ["sysctl", "-qw", "net.ipv6.conf.eth1.disable_ipv6=1"]
        assert lab.run_in(ends.name, "tx1", disable, ends.folder) == 0


def test_an_smf_with_an_ipv6_address_is_told_of_waiting_packets_there(ends: Ends) -> None:
    """F-SEIDs with IPv6 addresses; a request that comes from IPv4 may name one too."""
    with network_of(ends.state.keeper.pids["m0"]):
        n4 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    with n4:
        n4.bind((ends.upf.smf_ipv6, 8805))
        n4.settimeout(5)
        f_seid = pfcp.IE_FSEID(v6=1, seid=SMF_SEID, ipv6=ends.upf.smf_ipv6)
        body = [ends.node_id(), f_seid, *ends.session(**at_ipv6(ends, action=BUFFER | NOTIFY))]
        request = pfcp.PFCP(version=1, S=1, seid=0, seq=7) / pfcp.PFCPSessionEstablishmentRequest(IE_list=body)
        n4.sendto(bytes(request), (ends.upf.n4_ipv6, 8805))
        answer = pfcp.PFCP(n4.recv(65535))
        assert (cause(answer), answer.seq) == (Cause.ACCEPTED, 7)
        assert (answer[pfcp.IE_FSEID].v4, answer[pfcp.IE_FSEID].ipv6) == (0, ends.upf.n4_ipv6)
        ends.down(user4(down=True))
        data, peer = n4.recvfrom(65535)
        assert (pfcp.PFCP(data).message_type, pfcp.PFCP(data).seid) == (56, SMF_SEID)
        assert peer[:2] == (ends.upf.n4_ipv6, 8805)
