"""The shape of a stream of sessions: ports, turns, flows and servers of its users, on both sides of a UPF."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.plan.session_streams import ends_of
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import xdp_limits
from test_upf_tunnels import DOWN, GROUP, UP, UPF, ends, hosts_file, in_place, node, planned, session_of, users_of

FIVE = {**GROUP, "gnb": "tx1"}


def legs_of(folder: Path, *streams: dict[str, Any], **group: Any) -> list[Leg]:
    """Once the sessions stand, which have TEIDs 7000, 7001, … uplink; users are 10.45.0.1 and so on."""
    hosts = hosts_file(folder, UPF)
    return in_place(planned(folder, hosts, *streams, groups=[{**FIVE, **group}]), hosts)


def number(frame: bytes, at: int, size: int = 2) -> int:
    return int.from_bytes(frame[at : at + size], "big")


def sent(leg: Leg, frames: int) -> list[bytes]:
    assert not xdp_limits.unable(leg)
    return [ends(leg, index)[0] for index in range(frames)]


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        (2152, [2152] * 7),
        (40000, [40000] * 7),
        ("per-user", [49152, 49153, 49154, 49155, 49156, 49152, 49153]),
        ([50000, 50002], [50000, 50001, 50002, 50000, 50001, 50000, 50001]),
        ([50000, 50000], [50000] * 7),
        ([50000, 65535], [50000, 50001, 50002, 50003, 50004, 50000, 50001]),
    ],
)
def test_the_outer_source_port(tmp_path: Path, given: Any, ports: list[int]) -> None:
    """User n has the n-th, modulo their number."""
    (leg,) = legs_of(tmp_path, {**UP, "outer_source_port": given})
    assert [number(frame, 34) for frame in sent(leg, 7)] == ports
    assert [number(frame, 36) for frame in sent(leg, 2)] == [2152, 2152]


def test_more_users_than_ports_share_them(tmp_path: Path) -> None:
    users = {"sessions": 20000, "ue_addresses": "10.45.0.1/16"}
    (leg,) = legs_of(tmp_path, {**UP, "outer_source_port": "per-user"}, **users)
    made = [ends(leg, index)[0] for index in (0, 16383, 16384, 19999, 20000)]
    assert [(number(frame, 34), number(frame, 46, 4) - 7000) for frame in made] == [
        (49152, 0),
        (65535, 16383),
        (49152, 16384),
        (49152 + 19999 - 16384, 19999),
        (49152, 0),
    ]


def test_each_gnb_counts_its_own_users(tmp_path: Path) -> None:
    for leg in legs_of(tmp_path, {**UP, "outer_source_port": "per-user"}, gnb=["tx1", "tx2"]):
        assert {number(frame, 34) for frame in sent(leg, 9)} == set(range(49152, 49152 + users_of(leg).count))


@pytest.mark.parametrize("ip", ["ipv4", "ipv6"])
@pytest.mark.parametrize("stream", [UP, DOWN], ids=["up", "down"])
def test_so_many_frames_of_a_user_in_a_row(tmp_path: Path, stream: dict[str, Any], ip: str) -> None:
    addresses = {"ue_addresses": ["10.45.0.1/16", "2001:db8:45::7/48"]}
    given = {**stream, "ip": ip, "interleave": 3, "outer_source_port": "per-user"}
    if stream is DOWN:
        del given["outer_source_port"]
    (leg,) = legs_of(tmp_path, given, **addresses)
    assert xdp_limits.unable(leg) == ""
    turns = [user for _ in range(2) for user in range(5) for _ in range(3)][:20]
    at = (26 if stream is UP else 30) if ip == "ipv4" else (22 if stream is UP else 38)
    for index, user in enumerate(turns):
        plain, wrapped = ends(leg, index)[:: -1 if stream is UP else 1]
        assert number(wrapped, 46, 4) == (7000 if stream is UP else 1) + user
        assert (
            number(plain, at, 4 if ip == "ipv4" else 8) == (0x0A2D0001 if ip == "ipv4" else 0x20010DB800450000) + user
        )
        assert number(wrapped, 34) == (49152 + user if stream is UP else 2152)
        assert plain[14:] == wrapped[-len(plain[14:]) :]


def test_a_user_s_counter_is_his_place_however_long_his_turns(tmp_path: Path) -> None:
    (leg,) = legs_of(tmp_path, {**UP, "interleave": 4096})
    compiled = schedule.compile_leg(leg, 1)
    assert compiled.users == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("interleave", [1, 3])
@pytest.mark.parametrize("stream", [UP, DOWN], ids=["up", "down"])
def test_each_turn_of_a_user_is_by_the_next_of_his_ports(
    tmp_path: Path, stream: dict[str, Any], interleave: int
) -> None:
    (leg,) = legs_of(tmp_path, {**stream, "interleave": interleave}, flows_per_user=4)
    assert xdp_limits.unable(leg) == ""
    users: dict[int, list[int]] = {}
    at = 34 if stream is UP else 36
    for index in range(5 * 9 * interleave):
        plain, wrapped = ends(leg, index)[:: -1 if stream is UP else 1]
        assert plain[14:] == wrapped[-len(plain[14:]) :]
        assert number(plain, 70 - at) == 5001
        users.setdefault(number(plain, 26 if stream is UP else 30, 4), []).append(number(plain, at))
    turns = [49152 + turn % 4 for turn in range(9) for _ in range(interleave)]
    assert users == {0x0A2D0001 + user: turns for user in range(5)}


POOL: dict[str, Any] = {"first": ["10.93.0.200", "2001:db8:93::200"], "count": 5}
TWO = {
    "tx1": node("n3", 2),
    "tx2": node("n3", 3),
    "rx1": node("n6", 4, ipv6="2001:db8:93::e"),
    "rx2": node("n6", 5, ipv6="2001:db8:93::f"),
}


@pytest.mark.parametrize("ip", ["ipv4", "ipv6"])
@pytest.mark.parametrize("stream", [UP, DOWN], ids=["up", "down"])
def test_users_talk_to_the_servers_of_their_node(tmp_path: Path, stream: dict[str, Any], ip: str) -> None:
    """User n of a gNB to the n-th, modulo their number; of five rx1 plays three, rx2 two."""
    hosts = hosts_file(tmp_path, UPF, nodes=TWO)
    group = {**GROUP, "sessions": 10, "ue_addresses": ["10.45.0.1/16", "2001:db8:45::7/48"], "flows_per_user": 2}
    found = planned(tmp_path, hosts, {**stream, "ip": ip, "interleave": 2}, groups=[group], servers=POOL)
    known = {host.name: host for host in inventory.load(hosts).hosts}
    at, size = {"ipv4": (30 if stream is UP else 26, 4), "ipv6": (38 if stream is UP else 22, 16)}[ip]
    first = [ip_address(one) for one in POOL["first"]][ip == "ipv6"]
    for leg, (begin, count) in zip(in_place(found, hosts), [(0, 3), (3, 2)], strict=True):
        assert xdp_limits.unable(leg) == "" and users_of(leg).count == 5
        for index in range(25):
            plain, wrapped = ends(leg, index)[:: -1 if stream is UP else 1]
            assert plain[14:] == wrapped[-len(plain[14:]) :]
            user = index // 2 % 5
            assert plain[at : at + size] == (first + begin + user % count).packed
        assert found.upf is not None
        core = f"rx{session_of(leg).gnb[-1]}"
        own = getattr(known[core], ip)
        played = ends_of(leg, found.tunnels[leg.id], found.upf, known)[core]
        assert played == [own, *(str(first + begin + number) for number in range(count))]


def test_one_user_talks_to_one_server_and_a_pool_of_one_kind_leaves_the_other_alone(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    section = {"groups": [{**FIVE, "sessions": 1, "ue_addresses": ["10.45.0.1/16", "2001:db8:45::7/48"]}]}
    streams = [UP, {**UP, "name": "up6", "ip": "ipv6"}]
    found = planned(tmp_path, hosts, *streams, servers={"first": "10.60.0.1", "count": 4}, **section)
    four, six = in_place(found, hosts)
    assert ends(four, 1)[1][30:34] == ip_address("10.60.0.1").packed
    assert ends(six, 1)[1][38:54] == ip_address("2001:db8:93::e").packed


def test_the_data_network_s_parts_are_told_by_the_inventory_alone(tmp_path: Path) -> None:
    """Whoever a stream is to: rx2 has the same servers in every stream."""
    hosts = hosts_file(tmp_path, UPF, nodes=TWO)
    found = planned(tmp_path, hosts, {**UP, "to": "rx2"}, UP | {"name": "all"}, servers=POOL)
    parts = {(leg.stream, leg.target): found.tunnels[leg.id].shape.servers for leg in found.legs}
    assert parts["up", "rx2"] == parts["all", "rx2"] == (ip_address("10.93.0.203"), 2)


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ({"first": "10.93.0.300"}, r"upf\.servers: .*10\.93\.0\.300"),
        ({"first": []}, r"servers: first is an IPv4 address, an IPv6 address or one of each, not \[\]"),
        ({"first": ["10.60.0.1", "10.61.0.1"]}, r"one of each, not \['10\.60\.0\.1', '10\.61\.0\.1'\]"),
        (
            {"first": "255.255.255.254"},
            r"servers: 5 addresses from 255\.255\.255\.254 on do not end within 0\.0\.0\.0/0",
        ),
        ({"first": "2001:db8::ffff:ffff:ffff:fffe"}, r"servers: 5 addresses from .* on do not end within a /64"),
        ({"count": 0}, r"upf\.servers\.count = 0: out of range \(allowed: 1 or more"),
        ({"count": 4097}, r"upf\.servers\.count = 4097: out of range \(allowed: up to 4096"),
        ({"count": 1}, r"upf\.servers\.count = 1: each host of side n6 in .* serves some of them \(allowed: 2 or more"),
        ({"number": 5}, r"upf\.servers\.number: unknown key \(allowed: first, count\)"),
        (
            {"first": "10.93.0.10"},
            r"upf\.servers\.first = '10\.93\.0\.10': rx1 has 10\.93\.0\.14, which is one of the 5",
        ),
        ({"first": "10.92.0.1"}, r"the UPF on N3 has 10\.92\.0\.1, which is one of the 5"),
        ({"first": "2001:db8:93::c"}, r"rx1 has 2001:db8:93::e, which is one of the 5"),
        ({"first": "10.44.255.255"}, r"servers: an address is also one of a user of group users"),
        ({"first": "2001:db8:45::9:0"}, r"servers: an address is also one of a user of group users"),
    ],
)
def test_wrong_servers_are_told(tmp_path: Path, servers: dict[str, Any], words: str) -> None:
    section = {"groups": [{**GROUP, "ue_addresses": ["10.45.0.1/16", "2001:db8:45::7/48"]}]}
    given = {"first": "10.93.0.200", "count": 5, **servers}
    with pytest.raises(BadInput, match=words):
        planned(tmp_path, hosts_file(tmp_path, UPF, nodes=TWO), UP, servers=given, **section)


def test_servers_that_have_an_address_of_the_section_are_told(tmp_path: Path) -> None:
    given = {"first": "10.93.0.200", "count": 5}
    with pytest.raises(BadInput, match=r"the UPF on N6 has 10\.93\.0\.201, which is one of the 5"):
        planned(tmp_path, hosts_file(tmp_path, UPF, nodes=TWO), UP, servers=given, n6="10.93.0.201")


WORDS = r"streams\.0\.outer_source_port.*: a port is 1 to 65535, per-user, or \[first, last\] for users in turn, not "


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ({"outer_source_port": 0}, WORDS + "0"),
        ({"outer_source_port": True}, WORDS + "True"),
        ({"outer_source_port": "per-core"}, WORDS + "'per-core'"),
        ({"outer_source_port": [9, 8]}, WORDS + r"\[9, 8\]"),
        ({"outer_source_port": [1, 2, 3]}, WORDS),
        ({**DOWN, "outer_source_port": 2153}, r"streams\.0: outer_source_port needs direction: up"),
        ({"sessions": None, "direction": None, "outer_source_port": 9}, r"outer_source_port goes with sessions"),
        ({"sessions": None, "direction": None, "interleave": 9}, r"streams\.0: interleave goes with sessions"),
        (
            {"groups": [{**FIVE, "flows_per_user": 0}]},
            r"upf\.groups\.0\.flows_per_user = 0: out of range \(allowed: 1 or more",
        ),
        (
            {"groups": [{**FIVE, "flows_per_user": 16385}]},
            r"flows_per_user = 16385: out of range \(allowed: up to 16384",
        ),
        ({"interleave": 0}, r"streams\.0\.interleave = 0: out of range \(allowed: 1 or more"),
        ({"interleave": 4097}, r"streams\.0\.interleave = 4097: out of range \(allowed: up to 4096"),
        ({"interleave": 1.5}, r"streams\.0\.interleave = 1\.5: cannot be used \(allowed: a whole number"),
    ],
)
def test_a_wrong_shape_is_told(tmp_path: Path, stream: dict[str, Any], words: str) -> None:
    section = {name: stream.pop(name) for name in ("groups",) if name in stream}
    given = {name: value for name, value in {**UP, **stream}.items() if value is not None}
    with pytest.raises(BadInput, match=words):
        planned(tmp_path, hosts_file(tmp_path, UPF), given, **section)
