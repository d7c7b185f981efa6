"""Streams of sessions whose gNBs have IPv6 addresses: their frames byte by byte, by scapy, and as tshark reads them."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from pktswarm.master.cluster import inventory
from pktswarm.master.plan import plan
from pktswarm.master.plan.session_streams import ends_of, in_tunnels
from pktswarm.master.scenario import scenario
from pktswarm.master.scenario.upf import filled_in, parse
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.counting import tunnel_fields, users
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import xdp_limits
from pktswarm.traffic.schedule.leg_frames import templates_as_received
from test_upf_tunnels import CONTAINER, DOWN, GROUP, UP, UPF, ends, hosts_file, node, planned, session_of, users_of

N3_6 = "2001:db8:92::1"
UPF6 = {**UPF, "n3_ipv6": N3_6}
GNBS = {"tx1": "2001:db8:92::b", "tx2": "2001:db8:92::c"}
TUNNEL = 40 + 8 + 8
DUAL = {**GROUP, "ue_addresses": ["10.45.0.1/16", "2001:db8:45::7/48"]}


def hosts6(folder: Path, upf: dict[str, Any] | None = UPF6) -> Path:
    n3 = {name: node("n3", 2 + number, ipv6=address) for number, (name, address) in enumerate(GNBS.items())}
    return hosts_file(folder, upf, nodes={**n3, "rx1": node("n6", 4, ipv6="2001:db8:93::e")})


def in_place(found: plan.Plan, hosts: Path, both: bool = True) -> list[Leg]:
    assert found.upf is not None
    sessions = Sessions(found.upf)
    sessions.upf_v6[:] = np.frombuffer(IPv6Address(N3_6).packed, dtype=np.uint8)
    sessions.upf_v4[:] = 0x0A5C0001 if both else 0
    sessions.uplink_teid[:] = np.arange(7000, 7000 + sessions.count)
    known = {host.name: host for host in inventory.load(hosts).hosts}
    return [in_tunnels(leg, found.tunnels[leg.id], found.upf, sessions, known) for leg in found.legs]


def legs(folder: Path, ip: str, **more: Any) -> list[Leg]:
    hosts = hosts6(folder)
    streams = [{**one, "ip": ip, **more} for one in (UP, DOWN)]
    return in_place(planned(folder, hosts, *streams, groups=[DUAL], n3_ip="ipv6"), hosts)


@pytest.mark.parametrize("ip", ["ipv4", "ipv6"])
def test_the_tunnel_is_over_ipv6_and_the_users_packet_the_same(tmp_path: Path, ip: str) -> None:
    """Written down from RFC 8200, RFC 768 and TS 29.281."""
    for leg in legs(tmp_path, ip):
        up = leg.stream == "up"
        number = list(GNBS).index(session_of(leg).gnb)
        assert xdp_limits.unable(leg) == ""
        size = TUNNEL + (CONTAINER if up else 0)
        for index in range(7):
            row = number + 2 * (index % users_of(leg).count)
            sent, received = ends(leg, index)
            plain, wrapped = (received, sent) if up else (sent, received)
            assert plain[14:] == wrapped[14 + size :] and len(wrapped) == len(plain) + size
            gnb, n3 = IPv6Address(GNBS[session_of(leg).gnb]).packed, IPv6Address(N3_6).packed
            wanted = bytes.fromhex("86dd60000000") + struct.pack(">HBB", len(wrapped) - 54, 17, 64)
            wanted += gnb + n3 if up else n3 + gnb
            wanted += struct.pack(">HHH", 2152, 2152, len(wrapped) - 54)
            assert wrapped[12:60] == wanted
            gtpu = struct.pack(">BBHI", 0x34 if up else 0x30, 255, len(wrapped) - 70, row + (7000 if up else 1))
            assert wrapped[62 : 14 + size] == gtpu + (bytes.fromhex("00000085 01100900") if up else b"")


@pytest.mark.parametrize("ip", ["ipv4", "ipv6"])
def test_scapy_makes_the_same_checksum_of_each_frame(tmp_path: Path, ip: str) -> None:
    for leg in legs(tmp_path, ip):
        up = leg.stream == "up"
        for index in range(7):
            wrapped = ends(leg, index)[not up]
            udp = wrapped[54:]
            frame = Ether(wrapped[:54])[IPv6] / UDP(sport=2152, dport=2152) / udp[8:]
            del frame.plen
            assert bytes(frame)[46:48] == udp[6:8] != b"\0\0"
            assert Ether(wrapped)[GTP_U_Header].teid == int.from_bytes(wrapped[66:70], "big")


def test_tshark_finds_nothing_wrong(tmp_path: Path) -> None:
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    frames = [
        ends(leg, index)[leg.stream == "down"]
        for ip in ("ipv4", "ipv6")
        for leg in legs(tmp_path, ip)
        for index in range(3)
    ]
    path = tmp_path / "frames.pcap"
    path.write_bytes(write_pcap([Packet(number, frame) for number, frame in enumerate(frames)]))
    command = ["tshark", "-n", "-r", str(path), "-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    fields = [word for name in ("udp.checksum.status", "gtp.teid", "ipv6.src") for word in ("-e", name)]
    done = subprocess.run([*command, "-T", "fields", *fields], capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1,1"] * len(frames)
    assert {int(row[1], 0) for row in rows} == {1, 2, 3, 4, 5, *range(7000, 7005)}
    assert {row[2].split(",")[0] for row in rows} == {N3_6, *GNBS.values()}
    wrong = subprocess.run([*command, "-Y", "_ws.malformed or _ws.expert"], capture_output=True, text=True, check=True)
    assert wrong.stdout == ""


def test_users_are_known_as_over_ipv4(tmp_path: Path) -> None:
    hosts = hosts6(tmp_path)
    for ip in ("ipv4", "ipv6"):
        over6 = legs(tmp_path, ip)
        streams = [{**one, "ip": ip} for one in (UP, DOWN)]
        over4 = in_place(planned(tmp_path, hosts, *streams, groups=[DUAL]), hosts)
        for one, other in zip(over6, over4, strict=True):
            rules = [
                users.rule(next(iter(templates_as_received(leg).values())), users_of(leg), 0) for leg in (one, other)
            ]
            assert bytes(rules[0]) == bytes(rules[1])
            assert users.values(users_of(one)) == users.values(users_of(other))
            assert schedule.compile_leg(one, 1).users == schedule.compile_leg(other, 1).users
            up = one.stream == "up"
            assert [a - b for a, b in zip(session_of(one).outer_bytes, session_of(other).outer_bytes, strict=True)] == [
                20 * up,
                20 * (not up),
            ]


def test_a_recount_leaves_aside_what_a_upf_chooses(tmp_path: Path) -> None:
    """The traffic class, the flow label, the hop limit, the source port and the checksum; and lengths, which are
    checked before: nothing else."""
    leg = legs(tmp_path, "ipv6")[2]
    template = next(iter(templates_as_received(leg).values()))
    data, free = tunnel_fields.shape(template, leg.expect)
    frame = bytearray(template.frame(1, random.Random(1)))
    chosen = {14: 0x0F, 15: 0xFF, 16: 0xFF, 17: 0xFF, 21: 0xFF, 54: 0xFF, 55: 0xFF, 60: 0xFF, 61: 0xFF}
    lengths = (18, 19, 58, 59, 64, 65)
    for at in range(12, 66):
        other = frame[at] ^ chosen.get(at, 0xFF)
        differs = bool((other ^ data[at]) & ~free[at])
        assert differs == (at not in chosen and at not in lengths), at


def test_what_a_node_plays_and_what_the_inventory_gives(tmp_path: Path) -> None:
    hosts = hosts6(tmp_path)
    found = planned(tmp_path, hosts, UP, n3_ip="ipv6")
    assert found.upf is not None and (found.upf.n3, found.upf.gnbs) == (N3_6, GNBS)
    known = {"rx1": inventory.load(hosts).host("rx1")}
    assert ends_of(found.legs[1], found.tunnels[1], found.upf, known) == {"tx2": [GNBS["tx2"]], "rx1": ["10.93.0.14"]}
    named = planned(tmp_path, hosts, UP, gnbs={"east": "2001:db8:92:0::c"})
    assert named.upf is not None and named.upf.n3 == N3_6
    assert [leg.source for leg in named.legs] == ["tx2"]


def test_gnbs_of_both_kinds_are_of_different_groups(tmp_path: Path) -> None:
    hosts = hosts6(tmp_path)
    groups = [{**GROUP, "gnb": "old"}, {**GROUP, "name": "new", "ue_addresses": "10.46.0.1/16", "gnb": "young"}]
    both = {"old": "10.92.0.12", "young": GNBS["tx1"]}
    found = planned(tmp_path, hosts, UP, {**DOWN, "sessions": "new"}, gnbs=both, groups=groups)
    up, down = in_place(found, hosts)
    assert (up.source, down.target) == ("tx1", "tx1")
    assert (ends(up, 0)[0][12:14], ends(down, 0)[1][12:14]) == (b"\x08\0", b"\x86\xdd")
    with pytest.raises(
        BadInput, match=r"group users: its gNBs have IPv4 and IPv6 addresses; the gNBs of a group must have one kind"
    ):
        planned(tmp_path, hosts, UP, gnbs=both)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"n3_ip": "ipv5"}, r"upf\.n3_ip = 'ipv5': unknown choice; the nearest is 'ipv6' \(allowed: ipv4, ipv6\)"),
        (
            {"n3_ip": "ipv6", "gnbs": {"a": GNBS["tx1"]}},
            r"upf\.n3_ip = 'ipv6': selects addresses of the inventory and contradicts gnbs \(allowed: n3_ip or gnbs\)",
        ),
        (
            {"gnbs": {"far": "2001:db8::9"}},
            r"upf\.gnbs\.far = '2001:db8::9': streams\.0 needs a node there; .* has that ipv6.*tx1 2001:db8:92::b",
        ),
        (
            {"n3": "10.92.0.1", "n3_ip": "ipv6", "groups": [{**GROUP, "first_teid": 1}]},
            r"group users: its gNB has 2001:db8:92::b, the UPF n3 = 10\.92\.0\.1: one IPv4, the other IPv6",
        ),
    ],
)
def test_what_does_not_go_together_is_told(tmp_path: Path, section: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        planned(tmp_path, hosts6(tmp_path), UP, **section)


@pytest.mark.parametrize(("stream", "by"), [(UP, "outer"), (UP, "inner"), (DOWN, "inner")])
def test_tunnels_over_ipv6_are_not_cut_here(tmp_path: Path, stream: dict[str, Any], by: str) -> None:
    words = rf"streams\.0\.oversize = '{by}': fragments need tunnels over IPv4; tx1 has 2001:db8:92::b .*refuse"
    with pytest.raises(BadInput, match=words):
        planned(tmp_path, hosts6(tmp_path), {**stream, "oversize": by}, n3_ip="ipv6")
    assert planned(tmp_path, hosts6(tmp_path), {**DOWN, "oversize": "outer"}, n3_ip="ipv6").legs


def test_addresses_that_are_not_there_are_told(tmp_path: Path) -> None:
    without = hosts_file(tmp_path, UPF6)
    with pytest.raises(BadInput, match=r"upf\.gnbs: are missing \(allowed: here, or hosts of side n3 with ipv6"):
        planned(tmp_path, without, UP, n3_ip="ipv6")
    hosts = hosts6(tmp_path)
    found = planned(tmp_path, hosts, UP, n3_ip="ipv6")
    assert found.upf is not None
    known = {host.name: host for host in inventory.load(hosts).hosts}
    sessions = Sessions(found.upf)
    sessions.upf_v4[:] = 1
    with pytest.raises(BadInput, match=r"the UPF must report one IPv6 address for the tunnels .*; it reported none"):
        in_tunnels(found.legs[0], found.tunnels[0], found.upf, sessions, known)
    sessions.upf_v6[:, 15] = np.arange(1, 6)
    with pytest.raises(BadInput, match=r"one IPv6 address for the tunnels .*; it reported ::1, ::3, ::5"):
        in_tunnels(found.legs[0], found.tunnels[0], found.upf, sessions, known)


def test_without_an_inventory_gnbs_say_which_address_of_the_upf_is_meant(tmp_path: Path) -> None:
    section = {"n4": "192.0.2.2", "n3": N3_6, "gnbs": {"a": GNBS["tx1"]}, "groups": [{**GROUP, "first_teid": 9}]}
    made = filled_in(tmp_path, parse(tmp_path, json.loads(json.dumps(section))), None)
    assert Sessions(made).user(0)["upf"] == N3_6


def test_the_scenario_that_ships_is_planned() -> None:
    path = Path("configs/upf/ipv6.yaml")
    found = plan.plan(scenario.load(path), path, inventory.load(Path("hosts/upf.yml")))
    assert found.upf is not None
    assert (found.upf.n3, list(found.upf.gnbs.values())) == (N3_6, ["2001:db8:92::11", "2001:db8:92::12"])
    assert {leg.stream for leg in found.legs} == {"up", "up-echo", "down"}


def test_one_host_plays_a_gnb_of_each_kind(tmp_path: Path) -> None:
    groups = [{**GROUP, "gnb": "a"}, {**GROUP, "name": "new", "ue_addresses": "10.46.0.1/16", "gnb": "b"}]
    both = {"a": "10.92.0.12", "b": GNBS["tx1"]}
    streams = [UP, {**UP, "name": "up2", "sessions": "new"}]
    found = planned(tmp_path, hosts6(tmp_path), *streams, gnbs=both, groups=groups)
    assert [leg.source for leg in found.legs] == ["tx1", "tx1"]
