"""What a node answers for the addresses that it plays: questions that scapy makes, answers that tshark reads."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib.gtp import (
    IE_TEIDI,
    GTP_U_Header,
    GTPEchoRequest,
    GTPErrorIndication,
    GTPHeader,
    GTPPDUSessionContainer,
)
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet as Layer

from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.frames.responder import MOST_ENDED, MOST_TEIDS, Responder, ResponderCounts

OWN, UPF = "02:00:00:00:00:01", "02:00:00:00:00:02"
GNB, GNB6, OTHER = "10.92.0.11", "fd00:92::11", "10.92.0.12"
SOLICITED_NODE = "ff02::1:ff00:11"


def player() -> Responder:
    return Responder(OWN, [GNB, GNB6])


def read(frame: bytes, tmp_path: Path) -> dict[str, Any]:
    """The layers as tshark dissects them, its checksums checked; nothing in it is malformed or a warning."""
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    path = tmp_path / "answer.pcap"
    path.write_bytes(write_pcap([Packet(0, frame)]))
    command = [
        "tshark",
        "-n",
        "-r",
        str(path),
        "-T",
        "json",
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "udp.check_checksum:TRUE",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "expert.severity" not in done.stdout and "malformed" not in done.stdout, done.stdout
    return dict(json.loads(done.stdout)[0]["_source"]["layers"])


def test_each_ipv4_address_asks_for_the_upf(tmp_path: Path) -> None:
    made = list(Responder(OWN, [GNB, GNB6, OTHER]).greetings("10.92.0.1"))
    for frame, own in zip(made, (GNB, OTHER), strict=True):
        layers = read(frame, tmp_path)
        assert (layers["eth"]["eth.src"], layers["eth"]["eth.dst"]) == (OWN, "ff:ff:ff:ff:ff:ff")
        arp = layers["arp"]
        assert (arp["arp.opcode"], arp["arp.src.hw_mac"], arp["arp.src.proto_ipv4"]) == ("1", OWN, own)
        assert arp["arp.dst.proto_ipv4"] == "10.92.0.1" and len(frame) == 60
    assert list(player().greetings("")) == []


def test_who_has_an_address_is_told(tmp_path: Path) -> None:
    question = Ether(src=UPF, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=UPF, psrc="10.92.0.1", pdst=GNB)
    one = player()
    answer = one.answer(bytes(question))
    assert answer is not None and len(answer) == 60
    layers = read(answer, tmp_path)
    assert (layers["eth"]["eth.dst"], layers["eth"]["eth.src"]) == (UPF, OWN)
    fields = ("arp.opcode", "arp.src.hw_mac", "arp.src.proto_ipv4", "arp.dst.hw_mac", "arp.dst.proto_ipv4")
    assert [layers["arp"][field] for field in fields] == ["2", OWN, GNB, UPF, "10.92.0.1"]
    assert one.received == ResponderCounts(Counter(arp=1))


@pytest.mark.parametrize(("source", "to", "solicited"), [("fe80::2", "fe80::2", True), ("::", "ff02::1", False)])
def test_a_neighbour_is_discovered(tmp_path: Path, source: str, to: str, solicited: bool) -> None:
    question = IPv6(src=source, dst=SOLICITED_NODE, hlim=255) / ICMPv6ND_NS(tgt=GNB6)
    if solicited:
        question /= ICMPv6NDOptSrcLLAddr(lladdr=UPF)
    answer = player().answer(bytes(Ether(src=UPF, dst="33:33:ff:00:00:11") / question))
    assert answer is not None
    layers = read(answer, tmp_path)
    assert layers["eth"]["eth.dst"] == (UPF if solicited else "33:33:00:00:00:01")
    assert (layers["ipv6"]["ipv6.src"], layers["ipv6"]["ipv6.dst"], layers["ipv6"]["ipv6.hlim"]) == (GNB6, to, "255")
    told = layers["icmpv6"]
    assert (told["icmpv6.type"], told["icmpv6.nd.na.target_address"], told["icmpv6.checksum.status"]) == (
        "136",
        GNB6,
        "1",
    )
    flags = told["icmpv6.nd.na.flag_tree"]
    assert flags["icmpv6.nd.na.flag.s"] == ("1" if solicited else "0") and flags["icmpv6.nd.na.flag.o"] == "1"
    assert OWN in json.dumps(told)


def echo(sequence: int | None, to: str = GNB) -> Layer:
    header = GTPHeader(gtp_type=1, S=0 if sequence is None else 1, seq=sequence or 0)
    network = IPv6(src="fd00:92::1", dst=to) if ":" in to else IP(src="10.92.0.1", dst=to)
    return Ether(src=UPF, dst=OWN) / network / UDP(sport=40000, dport=2152) / header / GTPEchoRequest()


@pytest.mark.parametrize("to", [GNB, GNB6])
@pytest.mark.parametrize("sequence", [0, 0xBEEF])
def test_an_echo_request_has_a_response(tmp_path: Path, to: str, sequence: int) -> None:
    answer = player().answer(bytes(echo(sequence, to)))
    assert answer is not None
    layers = read(answer, tmp_path)
    network = layers["ipv6"] if ":" in to else layers["ip"]
    assert to in network.values()
    udp = layers["udp"]
    assert (udp["udp.srcport"], udp["udp.dstport"]) == ("2152", "40000")
    assert udp["udp.checksum.status"] == "1"
    gtp = layers["gtp"]
    assert (gtp["gtp.message"], gtp["gtp.teid"], int(gtp["gtp.seq_number"], 0)) == ("0x02", "0x00000000", sequence)
    assert "gtp.recovery" in json.dumps(gtp)


def test_what_the_upf_tells_of_tunnels_is_counted_and_not_answered() -> None:
    one = player()
    network = Ether(src=UPF, dst=OWN) / IP(src="10.92.0.1", dst=GNB) / UDP(sport=2152, dport=2152)
    for teid in range(1, MOST_TEIDS + 3):
        indication = GTPErrorIndication(IE_list=[IE_TEIDI(TEIDI=teid)])
        assert one.answer(bytes(network / GTPHeader(gtp_type=26, S=1, seq=teid) / indication)) is None
    for teid in (7, 7, 9):
        assert one.answer(bytes(network / GTP_U_Header(gtp_type=254, teid=teid))) is None
    received = one.received
    assert received.counts == {"error_indication": MOST_TEIDS + 2, "end_marker": 3}
    assert received.teids == {"error_indication": list(range(1, MOST_TEIDS + 1)), "end_marker": [7, 9]}
    assert received.ended == {7: 2, 9: 1}


def test_there_is_an_end_to_the_tunnels_whose_ends_are_counted_one_by_one() -> None:
    one = player()
    for teid in range(MOST_ENDED + 2):
        one.received.note_end(teid)
    one.received.note_end(5)
    assert (len(one.received.ended), one.received.ended[5]) == (MOST_ENDED, 2)
    assert one.received.counts["end_marker"] == MOST_ENDED + 3


def test_an_error_indication_behind_an_extension_header() -> None:
    """TS 29.281, 5.2.2.1: a UDP port extension, 4 bytes, then the TEID."""
    message = bytes.fromhex("341a000d00000000" + "00000040" + "019c4000" + "1000000005")
    one = player()
    frame = Ether(src=UPF, dst=OWN) / IP(src="10.92.0.1", dst=GNB) / UDP(sport=2152, dport=2152) / message
    assert one.answer(bytes(frame)) is None
    assert one.received.teids == {"error_indication": [5]}


G_PDU = GTP_U_Header(teid=5, E=1) / GTPPDUSessionContainer(type=0, QFI=9) / IP() / UDP() / b"payload"
NOT_FOR_US = {
    "another's address": Ether(src=UPF) / ARP(psrc="10.92.0.1", pdst=OTHER),
    "a reply": Ether(src=UPF) / ARP(op=2, psrc="10.92.0.1", pdst=GNB),
    "another's neighbour": Ether(src=UPF)
    / IPv6(src="fe80::2", dst=SOLICITED_NODE, hlim=255)
    / ICMPv6ND_NS(tgt="fd00::1"),
    "through a router": Ether(src=UPF) / IPv6(src="fe80::2", dst=SOLICITED_NODE, hlim=254) / ICMPv6ND_NS(tgt=GNB6),
    "another's echo": echo(1, OTHER),
    "a ping": Ether(src=UPF, dst=OWN) / IP(src="10.92.0.1", dst=GNB) / ICMP(),
    "a user's packet": Ether(src=UPF, dst=OWN) / IP(src="10.92.0.1", dst=GNB) / UDP(sport=2152, dport=2152) / G_PDU,
    "another port": Ether(src=UPF, dst=OWN)
    / IP(src="10.92.0.1", dst=GNB)
    / UDP(sport=2152, dport=2123)
    / GTPHeader(gtp_type=1),
    "a fragment": Ether(src=UPF, dst=OWN) / IP(src="10.92.0.1", dst=GNB, frag=3, proto=17) / bytes(40),
}


@pytest.mark.parametrize("what", NOT_FOR_US)
def test_nothing_else_is_answered(what: str) -> None:
    one = player()
    assert one.answer(bytes(NOT_FOR_US[what])) is None and not one.received.counts


def test_frames_that_end_early_are_nothing() -> None:
    for whole in (echo(1), echo(1, GNB6), Ether(src=UPF) / ARP(psrc="10.92.0.1", pdst=GNB)):
        data = bytes(whole)
        for length in range(len(data)):
            assert player().answer(data[:length]) is None, length


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="gnb7"):
        Responder(OWN, ["gnb7"])
