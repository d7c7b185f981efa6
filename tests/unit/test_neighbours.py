"""Sets of addresses, questions for neighbours and their answers, and frames behind a router; scapy is the reference."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

from pktswarm.traffic.counting import routed
from pktswarm.traffic.frames import neighbours
from pktswarm.traffic.frames.address_set import AddressSet
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription
from pktswarm.traffic.frames.ranges import ranges_of
from pktswarm.traffic.frames.responder import MOST_GREETINGS, Responder
from pktswarm.traffic.leg import Gateway

OWN, ROUTER, RECEIVER = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
MAC = neighbours.packed_mac(OWN)


def packed(text: str) -> bytes:
    return ip_address(text).packed


def test_ranges_that_touch_are_one() -> None:
    made = AddressSet.parse(["10.0.0.5-10.0.0.9", "10.0.0.0/30", "10.0.0.4", "2001:db8::1", "0.0.0.9"])
    assert made.texts() == ["0.0.0.9", "10.0.0.0-10.0.0.9", "2001:db8::1"]
    assert AddressSet.parse(made.texts()) == made
    inside = {"10.0.0.0": True, "10.0.0.9": True, "10.0.0.10": False, "9.255.255.255": False, "2001:db8::1": True}
    inside |= {"2001:db8::2": False, "::10.0.0.5": False, "0.0.0.8": False}
    assert {text: packed(text) in made for text in inside} == inside
    assert b"" not in made and b"\x0a\0\0" not in made and packed("10.0.0.5") not in AddressSet()


@pytest.mark.parametrize("text", ["10.0.0.1/24", "10.0.0.9-10.0.0.1", "10.0.0.1-2001:db8::1", "gnb7", "10.0.0.1-"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        AddressSet.parse([text])


def test_differences_and_sums_of_sets_hold_for_every_address() -> None:
    texts = (["10.0.0.0/28", "10.0.0.40-10.0.0.50"], ["10.0.0.3", "10.0.0.5-10.0.0.41", "10.0.0.50", "::/96"])
    one, two = map(AddressSet.parse, texts)
    for value in range(64):
        address = packed(f"10.0.0.{value}")
        assert (address in one.without(two)) == (address in one and address not in two), value
        assert (address in two.without(one)) == (address in two and address not in one), value
        assert (address in (one | two)) == (address in one or address in two), value
    assert list(map(str, two.addresses(3))) == ["10.0.0.3", "10.0.0.5", "10.0.0.6"]
    last = int(ip_address("10.0.0.41"))
    assert len(list(one.addresses(100))) == 16 + 11 and two.covers((4, last, last))
    assert not one.without(one)


VALUES = {
    "constant": ("10.0.0.1", ["10.0.0.1"]),
    "a counter": ({"increment": ["10.0.0.1", "10.0.0.9"]}, ["10.0.0.1-10.0.0.9"]),
    "steps": ({"increment": ["10.0.0.0", "10.0.2.5"], "step": 256}, ["10.0.0.0", "10.0.1.0", "10.0.2.0"]),
    "steps down": ({"decrement": ["10.0.2.5", "10.0.0.0"], "step": 256}, ["10.0.0.5", "10.0.1.5", "10.0.2.5"]),
    "many steps": ({"increment": ["10.0.0.0", "10.1.0.0"], "step": 2}, ["10.0.0.0-10.1.0.0"]),
    "random": ({"random": ["10.0.0.0", "10.0.0.255"]}, ["10.0.0.0-10.0.0.255"]),
    "a list": ({"list": ["10.0.0.7", "10.0.0.1", "10.0.0.7"]}, ["10.0.0.1", "10.0.0.7"]),
}


@pytest.mark.parametrize("what", VALUES)
def test_the_addresses_of_a_field(what: str) -> None:
    value, expected = VALUES[what]
    assert AddressSet(ranges_of("ipv4", "dst", value)).texts() == expected


def test_a_question_is_the_one_that_scapy_makes() -> None:
    arp = Ether(src=OWN, dst="ff:ff:ff:ff:ff:ff") / ARP(
        hwsrc=OWN, psrc="10.0.0.9", pdst="10.0.0.1", hwdst="0:0:0:0:0:0"
    )
    assert neighbours.question(MAC, "10.0.0.9", "10.0.0.1") == bytes(arp).ljust(60, b"\0")
    solicitation = Ether(src=OWN, dst="33:33:ff:aa:00:01") / IPv6(src="fd00::9", dst="ff02::1:ffaa:1", hlim=255)
    solicitation /= ICMPv6ND_NS(tgt="fd00::aa:1") / ICMPv6NDOptSrcLLAddr(lladdr=OWN)
    assert neighbours.question(MAC, "fd00::9", "fd00::aa:1") == bytes(solicitation)
    with pytest.raises(ValueError, match="cannot ask for"):
        neighbours.question(MAC, "10.0.0.9", "fd00::1")


def advertised(option: bool = True, hops: int = 255) -> Packet:
    made = Ether(src=ROUTER, dst=OWN) / IPv6(src="fd00::1", dst="fd00::9", hlim=hops) / ICMPv6ND_NA(tgt="fd00::1")
    return made / ICMPv6NDOptDstLLAddr(lladdr=RECEIVER) if option else made


def test_answers_name_the_address_and_its_mac() -> None:
    reply = Ether(src=ROUTER, dst=OWN) / ARP(op=2, hwsrc=ROUTER, psrc="10.0.0.1", hwdst=OWN, pdst="10.0.0.9")
    assert neighbours.answer(bytes(reply)) == ("10.0.0.1", ROUTER)
    assert neighbours.answer(bytes(advertised())) == ("fd00::1", RECEIVER)
    assert neighbours.answer(bytes(advertised(option=False))) == ("fd00::1", ROUTER)
    for other in (advertised(hops=254), Ether() / ARP(op=1), Ether() / IP() / UDP(), Ether() / IPv6() / UDP()):
        assert neighbours.answer(bytes(other)) is None
    for whole in (bytes(reply), bytes(advertised())):
        assert [neighbours.answer(whole[:length]) for length in range(42)] == [None] * 42


def test_a_router_that_asks_by_unicast_is_answered() -> None:
    one = Responder(OWN, ["10.0.0.0/8", "fd00::/64"])
    for question in (
        Ether(src=ROUTER, dst=OWN) / ARP(hwsrc=ROUTER, psrc="10.0.0.1", pdst="10.200.3.4", hwdst=OWN),
        Ether(src=ROUTER, dst=OWN) / IPv6(src="fe80::2", dst="fd00::77", hlim=255) / ICMPv6ND_NS(tgt="fd00::77"),
    ):
        answer = one.answer(bytes(question))
        assert answer is not None and neighbours.answer(answer) in {("10.200.3.4", OWN), ("fd00::77", OWN)}
    assert one.received.counts == {"arp": 1, "neighbour": 1}


def test_greetings_are_bounded_and_of_the_target_s_version() -> None:
    one = Responder(OWN, ["10.0.0.0/8", "fd00::9"])
    assert len(list(one.greetings("10.0.0.1"))) == MOST_GREETINGS
    assert list(one.greetings("fd00::1")) == [neighbours.question(MAC, "fd00::9", "fd00::1")]


GATEWAY = Gateway("10.0.0.1", ROUTER, "10.0.0.9", RECEIVER)
SENT = {
    "IPv4": Ether(src=OWN, dst=ROUTER) / IP(src="10.0.0.9", dst="10.1.0.9", ttl=33) / UDP() / b"payload",
    "IPv4 with options": Ether(src=OWN, dst=ROUTER) / IP(dst="10.1.0.9", ttl=2, options=b"\x94\x04\0\0") / UDP(),
    "IPv6": Ether(src=OWN, dst=ROUTER) / IPv6(src="fd00::9", dst="fd01::9", hlim=64) / UDP() / b"payload",
}


@pytest.mark.parametrize("what", SENT)
def test_a_frame_behind_a_router_is_the_one_that_scapy_makes(what: str) -> None:
    sent, expected = SENT[what], SENT[what].copy()
    for name in ("dst", "src"):
        setattr(expected[Ether], name, RECEIVER if name == "dst" else "00:00:00:00:00:00")
    if IP in expected:
        expected[IP].ttl -= 1
        del expected[IP].chksum
    else:
        expected[IPv6].hlim -= 1
    assert routed.as_received(GATEWAY, bytes(sent)) == bytes(expected)
    captured = bytes(expected)[:6] + b"\x02\x93\0\0\0\x01" + bytes(expected)[12:]
    assert routed.as_captured(GATEWAY, captured) == bytes(expected)
    assert routed.as_received(None, bytes(sent)) == routed.as_captured(None, bytes(sent)) == bytes(sent)


@pytest.mark.parametrize("tunnel", [False, True])
def test_the_shape_of_a_stream_behind_a_router(tunnel: bool) -> None:
    """`ttl` of `expect` is the innermost; in front of another IP header the shape alone has the router's."""
    inner = [{"ipv4": {"src": "10.9.0.1", "dst": "10.9.0.2", "ttl": 50}}, {"udp": {"src": 5, "dst": 6}}]
    outer = [{"ipv6": {"src": "fd00::9", "dst": "fd01::9", "hop_limit": 40}}]
    ethernet = {"ethernet": {"src": OWN, "dst": ROUTER}}
    headers: list[Any] = [ethernet, *(outer if tunnel else []), *inner]
    template = build_frame(FrameDescription(headers=headers, payload={}), 128)
    assert routed.ttl_of(template) == (40 if tunnel else 50)
    expect = {"dst_mac": RECEIVER, "src_mac": None, **({} if tunnel else {"ttl": 49})}
    data, varying = routed.shape(template, expect)
    received = routed.as_received(GATEWAY, template.data)
    differing = int.from_bytes(data, "big") ^ int.from_bytes(received, "big")
    assert not differing & ~int.from_bytes(varying, "big")
    at = routed.TTL_AT[6 if tunnel else 4]
    assert varying[at] == 0 and data[at] == (39 if tunnel else 49) and varying[6:12] == b"\xff" * 6
