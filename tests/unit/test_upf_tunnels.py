"""Streams of sessions: their frames on both sides of a UPF, their users, and one message for each way to be wrong."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.plan import plan
from pktswarm.master.plan.session_streams import ends_of, in_tunnels
from pktswarm.master.results.count_verdicts import judge_tunnels
from pktswarm.master.results.row import ReceivedCounts, Row, SentCounts
from pktswarm.master.results.users import Users
from pktswarm.master.scenario import scenario
from pktswarm.master.scenario.expectations import Expect
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.counting import users
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import FlowUsers, Leg, SessionUsers
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import xdp_limits
from pktswarm.traffic.schedule.leg_frames import templates_as_received, templates_as_sent

UPF = {
    "n4_ipv4": "192.0.2.2",
    "n3_ipv4": "10.92.0.1",
    "n3_mac": "02:92:00:00:00:01",
    "n6_ipv4": "10.93.0.1",
    "n6_mac": "02:93:00:00:00:01",
}
GROUP = {"name": "users", "sessions": 5, "ue_addresses": "10.45.0.1/16", "qos": {"qfi": 9}}
UP = {"name": "up", "sessions": "users", "direction": "up", "rate_pps": 1000, "count_packets": 100, "size_bytes": 200}
DOWN = {**UP, "name": "down", "direction": "down"}
IP_UDP_GTPU, CONTAINER = 36, 8


def node(side: str, number: int, **changes: Any) -> dict[str, Any]:
    net = {"n3": 92, "n6": 93}[side]
    own = {"mac": f"02:{net}:00:00:00:0{number}", "ipv4": f"10.{net}.0.{10 + number}"}
    return {"traffic_interface": "eth1", "side": side, **own, **changes}


def hosts_file(
    folder: Path, upf: dict[str, Any] | None, roles: str = "both", nodes: dict[str, dict[str, Any]] | None = None
) -> Path:
    nodes = nodes or {"tx1": node("n3", 2), "tx2": node("n3", 3), "rx1": node("n6", 4, ipv6="2001:db8:93::e")}
    ends = {"transmit": nodes, "receive": nodes}
    if roles == "one":
        ends = {
            "transmit": {name: one for name, one in nodes.items() if one["side"] == "n3"},
            "receive": {name: one for name, one in nodes.items() if one["side"] == "n6"},
        }
    groups: dict[str, Any] = {"master": {"hosts": {"m0": {}}}} | {name: {"hosts": each} for name, each in ends.items()}
    path = folder / "hosts.yml"
    path.write_text(json.dumps({"all": {"vars": {"pktswarm_upf": upf} if upf else {}, "children": groups}}))
    return path


def planned(folder: Path, hosts: Path, *streams: dict[str, Any], **section: Any) -> plan.Plan:
    path = folder / "s.yaml"
    upf = {"groups": [GROUP], **section}
    whole = {"name": "s", "upf": upf, "streams": streams, "receive": {"mode": "count"}}
    path.write_text(json.dumps(whole))
    return plan.plan(scenario.load(path), path, inventory.load(hosts))


def in_place(found: plan.Plan, hosts: Path, teids: list[int] | None = None) -> list[Leg]:
    """As it is once the UPF has told its part."""
    assert found.upf is not None
    sessions = Sessions(found.upf)
    sessions.upf_v4[:] = int(IPv4Address("10.92.0.1"))
    sessions.uplink_teid[:] = np.array(teids or range(7000, 7000 + sessions.count))
    known = {host.name: host for host in inventory.load(hosts).hosts}
    return [in_tunnels(leg, found.tunnels[leg.id], found.upf, sessions, known) for leg in found.legs]


def users_of(leg: Leg) -> FlowUsers:
    assert leg.users is not None
    return leg.users


def session_of(leg: Leg) -> SessionUsers:
    session = users_of(leg).session
    assert session is not None
    return session


def ends(leg: Leg, index: int) -> tuple[bytes, bytes]:
    """A frame of it as sent and as received, stamps left out."""
    sent, received = (next(iter(make(leg).values())) for make in (templates_as_sent, templates_as_received))
    return sent.frame(index, random.Random(1)), received.frame(index, random.Random(1))


def test_up_what_arrives_is_what_was_in_the_tunnel(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    legs = in_place(planned(tmp_path, hosts, UP), hosts, [7000, 9, 8, 3, 7001])
    assert [(leg.source, leg.target, users_of(leg).count) for leg in legs] == [("tx1", "rx1", 3), ("tx2", "rx1", 2)]
    for number, leg in enumerate(legs):
        for index in range(7):
            sent, received = ends(leg, index)
            tunnel = 14 + IP_UDP_GTPU + CONTAINER
            assert sent[tunnel:] == received[14:]
            assert len(sent) == len(received) + IP_UDP_GTPU + CONTAINER == 196
            row = number + 2 * (index % users_of(leg).count)
            assert int.from_bytes(sent[46:50], "big") == [7000, 9, 8, 3, 7001][row]
            assert received[26:30] == (IPv4Address("10.45.0.1") + row).packed
            assert sent[26:34] == IPv4Address(f"10.92.0.1{2 + number}").packed + IPv4Address("10.92.0.1").packed
            assert (sent[:6].hex(":"), received[6:12].hex(":")) == (UPF["n3_mac"], UPF["n6_mac"])
            assert sent[tunnel - 4 : tunnel] == bytes([1, 0x10, 9, 0])


def test_down_what_arrives_is_what_was_sent_in_a_tunnel(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    legs = in_place(planned(tmp_path, hosts, DOWN), hosts)
    assert [(leg.source, leg.target) for leg in legs] == [("rx1", "tx1"), ("rx1", "tx2")]
    for number, leg in enumerate(legs):
        for index in range(7):
            sent, received = ends(leg, index)
            assert sent[14:] == received[14 + IP_UDP_GTPU :]
            row = number + 2 * (index % users_of(leg).count)
            assert int.from_bytes(received[46:50], "big") == row + 1
            assert sent[30:34] == (IPv4Address("10.45.0.1") + row).packed
            assert (sent[:6].hex(":"), received[6:12].hex(":")) == (UPF["n6_mac"], UPF["n3_mac"])


def test_ipv6_users_are_told_apart_by_their_prefixes(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    section = {"groups": [{**GROUP, "ue_addresses": ["10.45.0.1/16", "2001:db8:45::7/48"]}]}
    streams = [{**one, "ip": "ipv6"} for one in (UP, DOWN)]
    found = planned(tmp_path, hosts, *streams, **section)
    legs = in_place(found, hosts)
    server = IPv6Address("2001:db8:93::e").packed
    assert found.upf is not None
    for leg, row in ((legs[0], 0), (legs[1], 1), (legs[2], 0), (legs[3], 1)):
        played = ends_of(leg, found.tunnels[leg.id], found.upf, {"rx1": inventory.load(hosts).host("rx1")})
        assert played == {f"tx{row + 1}": [f"10.92.0.1{row + 2}"], "rx1": ["2001:db8:93::e"]}
        up = leg.stream == "up"
        wanted = [IPv6Address(f"2001:db8:45:{row + 2 * n:x}::7") for n in range(users_of(leg).count)]
        assert [IPv6Address(one) for one in users.values(users_of(leg))] == wanted
        assert xdp_limits.unable(leg) == ""
        tunnel = IP_UDP_GTPU + (CONTAINER if up else 0)
        for index in range(7):
            sent, received = ends(leg, index)
            plain, wrapped = (received, sent) if up else (sent, received)
            assert plain[14:] == wrapped[14 + tunnel :] and plain[12:14] == b"\x86\xdd"
            user = wanted[index % len(wanted)].packed
            assert (plain[22:38], plain[38:54]) == ((user, server) if up else (server, user))
        rule = users.rule(next(iter(templates_as_received(leg).values())), users_of(leg), 0)
        first = int(wanted[0]) >> 64 if up else row + 1
        assert (rule.first, rule.step, rule.mask) == (first, 2, 2**64 - 1 if up else 2**32 - 1)


def test_one_ipv6_user_at_a_gnb(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    section = {"groups": [{**GROUP, "sessions": 2, "ue_addresses": "2001:db8:45::7/48"}]}
    for leg in in_place(planned(tmp_path, hosts, UP, DOWN, **section), hosts):
        own = {"tx1": "2001:db8:45::7", "tx2": "2001:db8:45:1::7"}[session_of(leg).gnb]
        assert users.values(users_of(leg)) == [own]
        assert schedule.compile_leg(leg, 1).users == [0]


def test_users_are_known_by_their_tunnels_and_told_by_their_addresses(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    leg = in_place(planned(tmp_path, hosts, DOWN), hosts)[1]
    assert users.values(users_of(leg)) == ["10.45.0.2", "10.45.0.4"]
    rule = users.rule(next(iter(templates_as_received(leg).values())), users_of(leg), 0)
    assert (rule.first, rule.step, rule.count) == (2, 2, 2)


def test_what_the_scenario_says_goes_before_the_inventory(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    found = planned(tmp_path, hosts, UP, n4="192.0.2.9", n6_mac="02:00:00:00:00:99", gnbs={"east": "10.92.0.13"})
    assert found.upf is not None and (found.upf.n4, found.upf.n3) == ("192.0.2.9", "10.92.0.1")
    assert [leg.source for leg in found.legs] == ["tx2"]
    assert ends(found.legs[0], 0)[1][6:12].hex(":") == "02:00:00:00:00:99"


def test_a_packet_in_another_users_tunnel_is_not_as_expected(tmp_path: Path) -> None:
    leg = planned(tmp_path, hosts_file(tmp_path, UPF), {**DOWN, "count_packets": 40}).legs[0]
    counted = Users(leg, True, [7, 7, 6], {"packets": [7, 6, 7, 0], "distinct": [7, 6, 7], "damaged": [0] * 4})
    row = Row(leg, 20, SentCounts("xdp", 20), ReceivedCounts(20), users=counted)
    (verdict,) = judge_tunnels(Expect(loss=0), [row])
    assert verdict["text"] == "down: 1 arrived as another user's, expected 0" and not verdict["holds"]
    assert verdict["what"] == "down: arrived as another user's", "it has no figure of the run in it"
    counted.received = {"packets": [7, 7, 6, 0], "distinct": [7, 7, 6], "damaged": [0] * 4}
    assert judge_tunnels(Expect(loss=0), [row])[0]["holds"]
    assert not judge_tunnels(Expect(), [row])


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ({"sessions": "nobody"}, r"streams\.0\.sessions = 'nobody': no such group; groups are users"),
        ({"direction": None}, r"streams\.0: sessions need a direction: up or down"),
        ({"ip": "ipv6"}, r"streams\.0\.sessions = 'users': its users have no ipv6 address"),
        ({"ip": "ipv5"}, r"streams\.0\.ip = 'ipv5': unknown choice; the nearest is 'ipv6' \(allowed: ipv4, ipv6\)"),
        ({"direction": "sideways"}, r"streams\.0\.direction = 'sideways': unknown choice \(allowed: up, down\)"),
        ({"sessions": None}, r"streams\.0: direction needs sessions"),
        ({"from": "tx1"}, r"streams\.0: from follows from the sessions; leave it out"),
        ({"direction": "down", "to": "tx1"}, r"streams\.0: to follows from the sessions"),
        ({"headers": [{"ethernet": {}}]}, r"streams\.0: headers follows from the sessions"),
        ({"engine": "trafgen"}, r"streams\.0: frames of sessions are identified by stamps, which need engine xdp"),
        ({"to": "tx1"}, r"streams\.0\.to = 'tx1': no such host of side n6 in .*allowed: receive, rx1"),
        ({"size_bytes": 80}, r"streams\.0\.size_bytes = 80: frame size out of range"),
        ({"size_bytes": 100}, r"streams\.0\.size_bytes = 100: its frames .* stamps.*allowed: 108 or more, as sent"),
        ({"payload": {"hex": "00"}}, r"streams\.0\.size_bytes = 200: its frames .* stamps.*no payload in hex"),
    ],
)
def test_a_wrong_stream_is_told(tmp_path: Path, stream: dict[str, Any], words: str) -> None:
    given = {name: value for name, value in {**UP, **stream}.items() if value is not None}
    with pytest.raises(BadInput, match=words):
        planned(tmp_path, hosts_file(tmp_path, UPF), given)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"churn": {"group": "users", "sessions_per_s": 1}}, r"its sessions come and go \(upf\.churn\)"),
        ({"gnbs": {"far": "10.99.0.1"}}, r"upf\.gnbs\.far = '10\.99\.0\.1': streams\.0 needs a node there.*tx1 10\.92"),
        (
            {"groups": [{**GROUP, "gnb": ["tx1", "tx1"]}]},
            r"upf\.groups\.users\.gnb = .*: a gNB given twice",
        ),
        ({"groups": [{**GROUP, "gnb": "tx9"}]}, r"group users: no gNB 'tx9'; gnbs are tx1, tx2"),
        (
            {"groups": [{**GROUP, "sesions": 1}]},
            r"upf\.groups\.0\.sesions: unknown key; the nearest is 'sessions' \(allowed: name, sessions",
        ),
        (
            {"gnbs": {"a": "10.92.0.12", "b": "10.92.0.12"}},
            r"upf\.gnbs\.b = '10\.92\.0\.12': gNB a is at the same host",
        ),
        ({"n3_mac": "far"}, r"upf\.n3_mac = 'far'"),
    ],
)
def test_a_section_that_cannot_be_is_told(tmp_path: Path, section: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        planned(tmp_path, hosts_file(tmp_path, UPF), UP, **section)


@pytest.mark.parametrize("qos", [{"qfi": 9}, {"qfi": 9, "mbr_up_bps": 1000, "mbr_down_bps": 1000}])
def test_an_mbr_can_be_expected_of_streams_whose_users_have_one(tmp_path: Path, qos: dict[str, Any]) -> None:
    path = tmp_path / "s.yaml"
    other = {
        **GROUP,
        "name": "other",
        "ue_addresses": "10.46.0.1/16",
        "qos": {"mbr_up_bps": 1000, "mbr_down_bps": 1000},
    }
    whole = {"name": "s", "upf": {"groups": [{**GROUP, "qos": qos}, other]}, "streams": [UP], "expect": {"mbr": True}}
    path.write_text(json.dumps(whole))
    if "mbr_up_bps" in qos:
        assert scenario.load(path).expect.mbr
        path.write_text(json.dumps({**whole, "expect": {"mbr": 2}}))
        with pytest.raises(BadInput, match=r"expect\.mbr = 2: cannot be used \(allowed: true or false\)"):
            scenario.load(path)
        return
    with pytest.raises(BadInput, match=r"expect\.mbr: no user of a stream or trace has an MBR \(qos: {mbr_up_bps"):
        scenario.load(path)


def test_a_stream_of_sessions_needs_a_section_upf(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps({"name": "s", "streams": [UP]}))
    with pytest.raises(BadInput, match=r"streams\.0\.sessions = 'users': there is no section upf"):
        scenario.load(path)


def test_what_neither_scenario_nor_inventory_has_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"upf\.n4: is missing \(allowed: here, or pktswarm_upf"):
        planned(tmp_path, hosts_file(tmp_path, None), UP)
    with pytest.raises(BadInput, match=r"upf\.n3_mac: is missing, and streams\.0 needs it"):
        planned(tmp_path, hosts_file(tmp_path, {"n4_ipv4": "192.0.2.2"}), UP)
    far = {"a": {**node("n6", 2)}, "b": node("n6", 3)}
    with pytest.raises(BadInput, match=r"upf\.gnbs: are missing \(allowed: here, or hosts of side n3"):
        planned(tmp_path, hosts_file(tmp_path, UPF, nodes=far), UP)
    near = {"tx1": node("n3", 2), "tx2": node("n3", 3)}
    with pytest.raises(BadInput, match=r"streams\.0\.to = 'receive': no such host of side n6"):
        planned(tmp_path, hosts_file(tmp_path, UPF, nodes=near), UP)
    with pytest.raises(BadInput, match=r"streams\.0: tx1 has no role 'receive', which this direction needs"):
        planned(tmp_path, hosts_file(tmp_path, UPF, roles="one"), DOWN)


def test_users_that_cannot_be_counted_one_by_one_are_told(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    found = planned(tmp_path, hosts, UP)
    assert found.upf is not None
    sessions = Sessions(found.upf)
    sessions.ue_v4[4] += 9
    with pytest.raises(BadInput, match=r"streams\.0\.sessions = 'users': its UE addresses at tx1 must be one step"):
        in_tunnels(found.legs[0], found.tunnels[0], found.upf, sessions)
    sessions = Sessions(found.upf)
    known = {host.name: host for host in inventory.load(hosts).hosts}
    with pytest.raises(BadInput, match=r"one IPv4 address for the tunnels of a gNB's users; it reported none"):
        in_tunnels(found.legs[0], found.tunnels[0], found.upf, sessions, known)
    known["rx1"] = replace(known["rx1"], ipv4="")
    sessions.ue_v6[4, 15] = 9
    with pytest.raises(BadInput, match=r"the interface identifiers of its users at tx1 must be equal"):
        in_tunnels(found.legs[0], replace(found.tunnels[0], ip="ipv6"), found.upf, sessions)
    with pytest.raises(BadInput, match=r"rx1: ipv4: no address known for the users' server"):
        in_tunnels(found.legs[0], found.tunnels[0], found.upf, sessions, known)
