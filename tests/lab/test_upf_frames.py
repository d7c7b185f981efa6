"""The UPF's XDP programs, frame in, frame out: what is carried, what is dropped and why, what is answered."""

from __future__ import annotations

import os
import socket
import struct
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

from pktswarm.lab.upf import rules
from pktswarm.lab.upf.datapath import EVENT_BUFFERED, EVENT_HELD, EVENT_NO_NEIGHBOUR, DataPath, Settings
from pktswarm.lab.upf.rules import ACCESS, BUFFER, CORE, FORWARD, NOTIFY, Far, Filter, Pdr, Qer
from pktswarm.lab.upf.session import Content
from pktswarm.nodes import libbpf
from upf_ends import SERVER4, UE4, UE6, ethernet, g_pdu, user4, user6
from wire import inside, ip

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to load XDP programs"),
]

PASS, DROP, REDIRECT = 2, 1, 4
N3_MAC, N6_MAC, GNB_MAC, DN_MAC = (f"02:00:00:00:00:{last}" for last in ("03", "06", "a3", "a6"))
N3, N6, GNB, DN = "198.51.100.1", "203.0.113.1", "198.51.100.9", "203.0.113.9"
N3_6, GNB_6 = "2001:db8:92::1", "2001:db8:92::9"
MTU = 1500
UP, DOWN = struct.pack(">I", 0x1001), struct.pack(">I", 0x2001)
UE6_KEY = socket.inet_pton(socket.AF_INET6, UE6)[:8]


class Path:
    """The data path with one session: its PDRs' counters are 1 (uplink) and 2 (downlink)."""

    def __init__(self, settings: Settings) -> None:
        self.path = DataPath(settings)
        both = rules.OUTER_IPV4 | rules.OUTER_IPV6
        self.up_pdr = Pdr(1, 100, ACCESS, 1, teid=UP, outer=both, removes=both, counts=self.path.take_counts())
        self.down_pdr = Pdr(2, 100, CORE, 2, ue4=socket.inet_aton(UE4), ue6=UE6_KEY, counts=self.path.take_counts())
        self.down_far = Far(2, FORWARD, socket.inet_aton(GNB), DOWN)
        self.install()

    def install(
        self, *more: Pdr, qers: tuple[Qer, ...] = (), up: dict[str, Any] | None = None, **down_far: Any
    ) -> None:
        """`qers`: of both PDRs; `up`: fields of the uplink PDR; the rest: fields of the downlink FAR."""
        of = tuple(qer.id for qer in qers)
        content = Content(fars={1: Far(1, FORWARD), 2: replace(self.down_far, **down_far)})
        pdrs = (replace(self.up_pdr, qers=of, **(up or {})), replace(self.down_pdr, qers=of), *more)
        content.pdrs = {pdr.id: pdr for pdr in pdrs}
        content.qers = {qer.id: qer for qer in qers}
        policers = {key: self.path.take_policer(kbps) for key, kbps in content.policed().items()}
        for key, packed in content.entries(content.by_key(), policers).items():
            self.path.install(*key, packed)

    def run(self, program: str, frame: bytes) -> tuple[int, bytes]:
        return libbpf.run_once(self.path.object.program_fd(program), frame)

    def up(self, frame: bytes) -> tuple[int, bytes]:
        return self.run("upf_n3", frame)

    def down(self, packet: bytes) -> tuple[int, bytes]:
        return self.run("upf_n6", n6_frame(packet))

    def counted(self) -> dict[str, int]:
        """What is not 0 of the totals."""
        return {name: count for name, count in self.path.totals().items() if count}

    def dropped(self, index: int) -> dict[str, int]:
        return {name: count for name, count in self.path.read_counts(index).dropped.items() if count}


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """n3 and n6, with a gNB and a server as neighbours."""
    name = f"pk-upf-{uuid.uuid4().hex[:6]}"
    ip("netns", "add", name)
    try:
        for interface, mac, address, hop, hop_mac in (
            ("n3", N3_MAC, N3, GNB, GNB_MAC),
            ("n6", N6_MAC, N6, DN, DN_MAC),
        ):
            add = ["link", "add", interface, "address", mac, "type", "veth", "peer", "name", f"{interface}x"]
            ip("-n", name, *add)
            for end in (interface, f"{interface}x"):
                ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", interface)
            ip("-n", name, "neighbour", "add", hop, "lladdr", hop_mac, "dev", interface)
        ip("-n", name, "address", "add", f"{N3_6}/64", "dev", "n3", "nodad")
        ip("-n", name, "neighbour", "add", GNB_6, "lladdr", GNB_MAC, "dev", "n3")
        ip("-n", name, "neighbour", "add", "fe80::9", "lladdr", DN_MAC, "dev", "n6")
        ip("-n", name, "route", "add", "default", "via", DN)
        ip("-n", name, "route", "add", "default", "via", "fe80::9", "dev", "n6")
        ip("netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        yield name
    finally:
        ip("netns", "del", name)


@pytest.fixture
def path(namespace: str) -> Iterator[Path]:
    with inside(namespace):
        index = {name: socket.if_nametoindex(name) for name in ("n3", "n6")}
        n3_mac, n6_mac = (bytes.fromhex(mac.replace(":", "")) for mac in (N3_MAC, N6_MAC))
        n3, n6, n3_6 = socket.inet_aton(N3), socket.inet_aton(N6), socket.inet_pton(socket.AF_INET6, N3_6)
        one = Path(Settings(index["n3"], index["n6"], n3, n6, MTU, n3_mac, n6_mac, n3_6))
        try:
            yield one
        finally:
            one.path.close()


def n3_frame(gtp: bytes, **outer: Any) -> bytes:
    packet = IP(**{"src": GNB, "dst": N3, **outer}) / UDP(sport=2152, dport=2152) / Raw(gtp)
    return ethernet(N3_MAC, GNB_MAC, 0x0800) + bytes(packet)


def n6_frame(packet: bytes) -> bytes:
    kind = 0x86DD if packet[0] >> 4 == 6 else 0x0800
    return (ethernet(N6_MAC, DN_MAC, kind) + packet).ljust(60, b"\0")


def sent_up(packet: bytes) -> bytes:
    return ethernet(DN_MAC, N6_MAC, 0x86DD if packet[0] >> 4 == 6 else 0x0800) + packet


def sent_down(packet: bytes, teid: int = 0x2001, qfi: int | None = None) -> bytes:
    """As TS 29.281 and TS 38.415 have it, written by hand: scapy pads the container otherwise."""
    options = b"" if qfi is None else bytes([0, 0, 0, 0x85, 1, 0, qfi, 0])
    gtp = struct.pack(">BBHI", 0x30 if qfi is None else 0x34, 255, len(options) + len(packet), teid) + options + packet
    outer = IP(src=N3, dst=GNB, id=0, flags="DF", ttl=64) / UDP(sport=2152, dport=2152, chksum=0) / Raw(gtp)
    return ethernet(GNB_MAC, N3_MAC, 0x0800) + bytes(outer)


@pytest.mark.parametrize("packet", [user4(), user4(28), user4(1400), user6(), user6(48)], ids=len)
@pytest.mark.parametrize(
    "more",
    [
        *({}, {"S": 1, "seq": 77}, {"PN": 1}, {"container": 9}, {"container": 9, "S": 1}),
    ],
    ids=str,
)
def test_uplink_loses_its_tunnel_and_nothing_else(path: Path, packet: bytes, more: dict[str, Any]) -> None:
    assert path.up(n3_frame(g_pdu(packet, 0x1001, **more))) == (REDIRECT, sent_up(packet))
    counts = path.path.read_counts(1)
    assert (counts.packets, counts.bytes, path.dropped(1)) == (1, len(packet), {})
    assert path.counted() == {"forwarded_uplink": 1}


@pytest.mark.parametrize("packet", [user4(down=True), user4(28, down=True), user6(down=True)], ids=len)
@pytest.mark.parametrize("qfi", [None, 9, 63])
def test_downlink_gets_a_tunnel_and_loses_ethernet_s_padding(path: Path, packet: bytes, qfi: int | None) -> None:
    if qfi is not None:
        path.install(qers=(Qer(1, qfi=qfi),))
    assert path.down(packet) == (REDIRECT, sent_down(packet, qfi=qfi))
    counts = path.path.read_counts(2)
    assert (counts.packets, counts.bytes, path.dropped(2)) == (1, len(packet), {})
    assert path.counted() == {"forwarded_downlink": 1}


def test_several_extension_headers_and_outer_options_are_passed_over(path: Path) -> None:
    packet = user4()
    extensions = bytes([0, 0, 0, 0x40]) + bytes([1, 8, 104, 0x85]) + bytes([2, 0x10, 9, 0, 0, 0, 0, 0])
    gtp = struct.pack(">BBHI", 0x34, 255, len(extensions) + len(packet), 0x1001) + extensions + packet
    assert path.up(n3_frame(gtp)) == (REDIRECT, sent_up(packet))
    assert path.up(n3_frame(gtp, options=b"\x01\x01\x01\x00")) == (REDIRECT, sent_up(packet))


def test_bytes_behind_the_user_s_packet_are_cut_off(path: Path) -> None:
    frame = n3_frame(g_pdu(user4(), 0x1001))
    assert path.up(frame + b"trailer") == (REDIRECT, sent_up(user4()))
    assert path.up(n3_frame(g_pdu(user4() + b"xyz", 0x1001))) == (REDIRECT, sent_up(user4()))


MALFORMED = {
    "version 2": b"\x50" + g_pdu(user4(), 0x1001)[1:],
    "GTP prime": b"\x20" + g_pdu(user4(), 0x1001)[1:],
    "length too long": g_pdu(user4(), 0x1001)[:2] + b"\xff\xff" + g_pdu(user4(), 0x1001)[4:],
    "no user's packet": g_pdu(b"", 0x1001),
    "neither IPv4 nor IPv6": g_pdu(b"\x10" + user4()[1:], 0x1001),
    "inner IPv4 longer than what is there": g_pdu(user4()[:-1], 0x1001),
    "inner IPv4 header cut": g_pdu(user4()[:19], 0x1001),
    "inner IPv6 longer than what is there": g_pdu(user6()[:-1], 0x1001),
    "inner header length of 4": g_pdu(b"\x41" + user4()[1:], 0x1001),
    "extension of no length": struct.pack(">BBHIII", 0x34, 255, 108, 0x1001, 0x85, 0) + user4(),
    "extension beyond the end": struct.pack(">BBHII", 0x34, 255, 8, 0x1001, 0x85) + b"\xff\0\0\0",
    "seven extensions": struct.pack(">BBHII", 0x34, 255, 132, 0x1001, 0x85) + b"\1\0\1\x85" * 6 + b"\1\0\1\0" + user4(),
    "six bytes": b"\x30\xff\0\0\0\0",
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_malformed_is_dropped_and_counted(path: Path, case: str) -> None:
    assert path.up(n3_frame(MALFORMED[case]))[0] == DROP
    assert path.counted() == {"malformed": 1}


def test_a_frame_cut_anywhere_is_dropped_or_left_to_the_kernel(path: Path) -> None:
    """Never carried: its outer length says that something is missing."""
    frame = n3_frame(g_pdu(user4(), 0x1001, container=9, S=1))
    for size in range(14, len(frame)):
        assert path.up(frame[:size])[0] == DROP
    assert path.counted() == {"malformed": len(frame) - 14}
    frame = n6_frame(user4(down=True))
    for size in range(14, len(frame)):
        assert path.run("upf_n6", frame[:size])[0] == DROP


def test_every_changed_byte_ends_in_a_verdict(path: Path) -> None:
    frame = n3_frame(g_pdu(user4(40), 0x1001, container=9, S=1))
    for at in range(len(frame)):
        for bits in (0x01, 0x80, 0xFF):
            changed = bytearray(frame)
            changed[at] ^= bits
            assert path.up(bytes(changed))[0] in (PASS, DROP, REDIRECT)


def test_other_traffic_is_the_kernel_s(path: Path) -> None:
    other_port = IP(src=GNB, dst=N3) / UDP(sport=2152, dport=2153) / Raw(g_pdu(user4(), 0x1001))
    for frame in (
        ethernet(N3_MAC, GNB_MAC, 0x0800) + bytes(other_port),
        n3_frame(g_pdu(user4(), 0x1001), dst="198.51.100.2"),
        ethernet("ff:ff:ff:ff:ff:ff", GNB_MAC, 0x0806) + bytes(46),
        ethernet("02:00:00:00:00:77", GNB_MAC, 0x0800) + n3_frame(g_pdu(user4(), 0x1001))[14:],
    ):
        assert path.up(frame) == (PASS, frame)
    own = bytes(IP(src=DN, dst=N6) / UDP())
    assert path.down(own)[0] == PASS
    assert path.counted() == {}


def test_an_outer_fragment_is_the_kernel_s_to_put_together(path: Path) -> None:
    assert path.up(n3_frame(g_pdu(user4(), 0x1001), flags="MF"))[0] == PASS
    assert path.counted() == {"fragment": 1}


@pytest.mark.parametrize("sequence", [0, 0x1234])
def test_an_echo_request_is_answered(path: Path, sequence: int) -> None:
    request = struct.pack(">BBHIHBB", 0x32, 1, 4, 0, sequence, 0, 0)
    outer = IP(src=GNB, dst=N3) / UDP(sport=40000, dport=2152) / Raw(request)
    verdict, frame = path.up(ethernet(N3_MAC, GNB_MAC, 0x0800) + bytes(outer))
    answer = struct.pack(">BBHIHBBBB", 0x32, 2, 6, 0, sequence, 0, 0, 14, 0)
    wanted = IP(src=N3, dst=GNB, id=0, flags="DF") / UDP(sport=2152, dport=40000, chksum=0) / Raw(answer)
    assert (verdict, frame) == (REDIRECT, ethernet(GNB_MAC, N3_MAC, 0x0800) + bytes(wanted))
    assert path.counted() == {"echo_request": 1}


def test_an_unknown_teid_gets_an_error_indication(path: Path) -> None:
    verdict, frame = path.up(n3_frame(g_pdu(user4(), 0x9999)))
    elements = struct.pack(">BI", 16, 0x9999) + struct.pack(">BH4s", 133, 4, socket.inet_aton(N3))
    answer = struct.pack(">BBHII", 0x32, 26, 16, 0, 0) + elements
    wanted = IP(src=N3, dst=GNB, id=0, flags="DF") / UDP(sport=2152, dport=2152, chksum=0) / Raw(answer)
    assert (verdict, frame) == (REDIRECT, ethernet(GNB_MAC, N3_MAC, 0x0800) + bytes(wanted))
    assert path.counted() == {"unknown_teid": 1, "error_indication_sent": 1}


@pytest.mark.parametrize(
    ("kind", "total"),
    [(2, "echo_response"), (26, "error_indication_seen"), (254, "end_marker_seen"), (31, "other_gtpu")],
)
def test_other_messages_are_counted(path: Path, kind: int, total: str) -> None:
    assert path.up(n3_frame(struct.pack(">BBHI", 0x30, kind, 0, 0x1001)))[0] == DROP
    assert path.counted() == {total: 1}


def test_packets_to_nobody_are_counted(path: Path) -> None:
    packet = bytes(IP(src=SERVER4, dst="10.45.0.3") / UDP())
    assert path.down(packet)[0] == DROP
    assert path.counted() == {"unknown_ue": 1}


def test_a_user_with_another_s_address_matches_no_rule(path: Path) -> None:
    path.install(up={"ue4": socket.inet_aton(UE4), "ue6": UE6_KEY})
    assert path.up(n3_frame(g_pdu(user4(), 0x1001)))[0] == REDIRECT
    assert path.up(n3_frame(g_pdu(user6(), 0x1001)))[0] == REDIRECT
    other = bytes(IP(src="10.45.0.99", dst=SERVER4) / UDP())
    assert path.up(n3_frame(g_pdu(other, 0x1001)))[0] == DROP
    assert path.counted() == {"forwarded_uplink": 2, "no_rule": 1}


def test_a_closed_gate_drops_its_direction_alone(path: Path) -> None:
    path.install(qers=(Qer(1, closed=(True, False)),))
    assert path.up(n3_frame(g_pdu(user4(), 0x1001)))[0] == DROP
    assert path.down(user4(down=True))[0] == REDIRECT
    assert path.dropped(1) == {"gate": 1}
    assert path.path.read_counts(1).packets == 0


def test_a_far_that_drops_drops(path: Path) -> None:
    path.install(action=rules.DROP)
    assert path.down(user4(down=True))[0] == DROP
    assert path.dropped(2) == {"rule": 1}


def test_packets_of_an_idle_user_are_handed_over(path: Path) -> None:
    path.install(action=BUFFER | NOTIFY)
    assert path.down(user4(down=True))[0] == DROP
    (event,) = path.path.events()
    assert (event.kind, event.counts, event.value) == (EVENT_BUFFERED, 2, BUFFER | NOTIFY)
    assert event.frame == user4(down=True)
    assert path.dropped(2) == {"buffered": 1}


@pytest.mark.parametrize(
    ("size_bytes", "qfi", "verdict"),
    [(1464, None, REDIRECT), (1465, None, DROP), (1456, 9, REDIRECT), (1457, 9, DROP)],
)
def test_what_does_not_fit_the_mtu_with_its_tunnel_is_dropped(
    path: Path, size_bytes: int, qfi: int | None, verdict: int
) -> None:
    if qfi is not None:
        path.install(qers=(Qer(1, qfi=qfi),))
    assert path.down(user4(size_bytes, down=True))[0] == verdict
    assert path.dropped(2) == ({} if verdict == REDIRECT else {"too_big": 1})


def test_a_gnb_that_is_no_neighbour_is_asked_for(path: Path) -> None:
    path.install(gnb=socket.inet_aton("198.51.100.77"))
    assert path.down(user4(down=True))[0] == DROP
    (event,) = path.path.events()
    assert (event.kind, event.port, event.counts) == (EVENT_NO_NEIGHBOUR, 0, 2)
    assert path.dropped(2) == {"no_neighbour": 1}


def test_the_rate_is_kept_to(path: Path) -> None:
    """All at once: 5 ms of the rate and the packet that goes beyond. 1 Mbit/s: 625 bytes."""
    path.install(qers=(Qer(1, mbr=(1_000, 0)),))
    frame = n3_frame(g_pdu(user4(125), 0x1001))
    verdicts = [path.up(frame)[0] for _ in range(50)]
    passed = verdicts.count(REDIRECT)
    assert 6 <= passed < 50
    assert path.dropped(1) == {"rate": 50 - passed}
    assert path.path.read_counts(1).packets == passed
    assert path.down(user4(down=True))[0] == DROP  # a rate of 0
    assert path.dropped(2) == {"rate": 1}


def test_a_filter_chooses_the_rule_by_precedence(path: Path) -> None:
    counts = path.path.take_counts()
    flow = Filter(socket.inet_aton(SERVER4), b"\xff" * 4, (5000, 5001), 17)
    other = Filter(socket.inet_aton("10.60.0.0"), b"\xff\xff\0\0", (7000, 7000), 17)
    path.install(replace(path.up_pdr, id=3, precedence=50, flows=(flow, other), counts=counts))
    for port, which in ((4999, 1), (5000, counts), (5001, counts), (5002, 1), (7000, counts)):
        before = path.path.read_counts(which).packets
        assert path.up(n3_frame(g_pdu(user4(port=port), 0x1001)))[0] == REDIRECT
        assert path.path.read_counts(which).packets == before + 1
    assert path.up(n3_frame(g_pdu(user6(), 0x1001)))[0] == REDIRECT
    assert path.path.read_counts(1).packets == 3


def test_listed_packets_meet_their_faults(path: Path) -> None:
    faults = {(0, 1): (1, 0, 0), (1, 0): (2, 0, 0x0F), (1, 1): (4, 0, 1), (1, 2): (0, 1, 0)}
    path.path.list_faults(faults)
    frame, packet = n3_frame(g_pdu(user4(), 0x1001)), user4(down=True)
    assert [path.up(frame)[0] for _ in range(3)] == [REDIRECT, DROP, REDIRECT]
    assert path.dropped(1) == {"fault": 1}
    wrong = struct.unpack("=I", struct.pack("=I", struct.unpack("=I", DOWN)[0] ^ 0x0F))[0]
    assert path.down(packet) == (REDIRECT, sent_down(packet, struct.unpack(">I", struct.pack("=I", wrong))[0]))
    assert [path.down(packet)[0] for _ in range(2)] == [DROP, REDIRECT]
    held, release = path.path.events()
    assert (held.kind, held.number, held.value, held.frame) == (EVENT_HELD, 1, 1, sent_down(packet))
    assert release.number == 2
    assert path.path.read_counts(2).packets == 3
    path.path.list_faults({})
    assert path.up(frame)[0] == REDIRECT
    assert path.path.fault_numbers() == (0, 0)
