"""Traces of sessions: their frames as sent, how they are known behind the UPF, and one message for each way to be
wrong."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.plan import plan, resolve_traces, session_traces, shares
from pktswarm.master.results import trace_verify
from pktswarm.master.results.document import empty_document
from pktswarm.master.scenario import scenario
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.capture.trace import Packet, read_trace, write_pcap
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.dissect import TCP
from pktswarm.traffic.leg import FlowUsers, Leg, SessionUsers, Shift
from pktswarm.traffic.replay.prepare import frames_of

LAB = Path("configs/traces/lab.pcapng").resolve()
MACS = {"n3_mac": "02:92:00:00:00:01", "n6_mac": "02:93:00:00:00:01"}
UPF = {"n4_ipv4": "192.0.2.2", "n3_ipv4": "10.92.0.1", **MACS}
GROUP = {"name": "web", "sessions": 5, "ue_addresses": "10.45.0.1/16", "qos": {"qfi": 9}, "gnb": "tx1"}
TRACE = {"name": "t", "file": str(LAB), "sessions": "web", "direction": "both", "scale": 3}


def node(side: str, number: int) -> dict[str, Any]:
    net = {"n3": 92, "n6": 93}[side]
    own = {"mac": f"02:{net}:00:00:00:0{number}", "ipv4": f"10.{net}.0.{10 + number}"}
    return {"traffic_interface": "eth1", "side": side, **own}


def hosts_file(folder: Path, upf: dict[str, Any] = UPF, one_way: bool = False) -> Path:
    gnbs, core = {"tx1": node("n3", 2), "tx2": node("n3", 3)}, {"rx1": node("n6", 4)}
    ends = {"transmit": gnbs if one_way else gnbs | core, "receive": core if one_way else gnbs | core}
    groups: dict[str, Any] = {name: {"hosts": each} for name, each in ends.items()}
    groups["master"] = {"hosts": {"m0": {}}}
    path = folder / "hosts.yml"
    path.write_text(json.dumps({"all": {"vars": {"pktswarm_upf": upf}, "children": groups}}))
    return path


def planned(
    folder: Path, hosts: Path, group: dict[str, Any] = GROUP, mode: str = "count", expect: Any = None, **changes: Any
) -> plan.Plan:
    path = folder / "s.yaml"
    given = {name: value for name, value in {**TRACE, **changes}.items() if value is not None}
    whole = {"name": "s", "upf": {"groups": [group]}, "traces": [given], "receive": {"mode": mode}}
    path.write_text(json.dumps({**whole, "expect": expect or {}}))
    return plan.plan(scenario.load(path), path, inventory.load(hosts))


def sessions_of(found: plan.Plan, teids: list[int] | None = None) -> Sessions:
    assert found.upf is not None
    sessions = Sessions(found.upf)
    sessions.upf_v4[:] = int(IPv4Address("10.92.0.1"))
    sessions.uplink_teid[:] = np.array(teids or range(7000, 7000 + sessions.count))
    return sessions


def sent(found: plan.Plan, hosts: Path, number: int) -> list[bytes]:
    """The frames of a leg."""
    assert found.upf is not None
    leg, known = found.legs[number], {host.name: host for host in inventory.load(hosts).hosts}
    share, tunnels = found.shares[leg.id], found.trace_sessions[leg.id]
    ends = (leg.target, leg.source) if share.downlink else (leg.source, leg.target)
    nodes = session_traces.nodes(tunnels, found.upf, known[ends[0]], known[ends[1]], share.downlink)
    prepared = session_traces.as_they_stand(share.prepared, tunnels, sessions_of(found))
    frames = frames_of(prepared, share.rows, nodes, share.downlink)
    return [frames.frame(row) for row in range(len(frames))]


def test_each_instance_has_users_of_its_own_and_each_direction_its_nodes(tmp_path: Path) -> None:
    found = planned(tmp_path, hosts_file(tmp_path))
    assert [(leg.source, leg.target, leg.engine) for leg in found.legs] == [
        *[("tx1", "rx1", "field")] * 3,
        *[("rx1", "tx1", "field")] * 3,
    ]
    assert [leg.shift for leg in found.legs[:3]] == [Shift(user=n, teid=n) for n in (0, 1, 2)]
    first = int(IPv4Address("10.45.0.1"))
    up, down = SessionUsers("web", "tx1", "up", None, (58, 14)), SessionUsers("web", "tx1", "down", None, (14, 58))
    for number, end, session in ((0, "src", up), (3, "dst", down)):
        assert found.legs[number].users == FlowUsers(f"ipv4.{end}", f"{end}_ip", first, 1, 3, session=session)


def test_a_group_that_does_not_say_where_is_at_the_first_gnb(tmp_path: Path) -> None:
    found = planned(tmp_path, hosts_file(tmp_path), {**GROUP, "gnb": None})
    assert {leg.transmitter for leg in found.legs} == {"tx1", "rx1"}
    assert set(sessions_of(found).gnb) == {0}


def test_up_in_the_tunnel_that_the_upf_chose(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path)
    frames = sent(planned(tmp_path, hosts), hosts, 0)
    # The recording has 419 packets from its user, in the same order.
    assert len(frames) == 419
    for frame in frames:
        assert frame[:12].hex(":") == f"{UPF['n3_mac']}:02:92:00:00:00:02"
        assert frame[26:34] == IPv4Address("10.92.0.12").packed + IPv4Address("10.92.0.1").packed
        assert int.from_bytes(frame[46:50], "big") == 7000
        assert frame[54:58] == bytes([1, 0x10, 9, 0])
        assert frame[58 + 12 : 58 + 20] == IPv4Address("10.45.0.1").packed + IPv4Address("10.93.0.14").packed


def test_down_as_it_is_to_the_upf(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path)
    for direction, number in (("both", 3), ("down", 0)):
        frames = sent(planned(tmp_path, hosts, direction=direction), hosts, number)
        assert len(frames) == 476
        for frame in frames:
            assert frame[:12].hex(":") == f"{UPF['n6_mac']}:02:93:00:00:00:04"
            assert frame[26:34] == IPv4Address("10.93.0.14").packed + IPv4Address("10.45.0.1").packed


def test_what_arrives_is_known_by_its_users(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path)
    found = planned(tmp_path, hosts)
    known = {host.name: host for host in inventory.load(hosts).hosts}
    assert found.upf is not None
    tunnels, sessions = found.trace_sessions[0], sessions_of(found)
    ends = known["tx1"], known["rx1"]
    up, down = (session_traces.match(tunnels, found.upf, sessions, *ends, way) for way in (False, True))
    out, back = sent(found, hosts, 0)[0], sent(found, hosts, 3)[0]
    at_core = bytes.fromhex((ends[1].mac + UPF["n6_mac"]).replace(":", "")) + b"\x08\x00" + out[58:]
    assert up.matches(at_core) and not up.matches(out) and not down.matches(at_core)
    outer = out[14:34] + (2152).to_bytes(2, "big") * 2 + bytes(4) + b"\x30\xff" + bytes(2)
    for teid, mine in ((0, False), (1, True), (5, True), (6, False)):
        macs = bytes.fromhex((ends[0].mac + UPF["n3_mac"]).replace(":", ""))
        at_gnb = macs + b"\x08\x00" + outer + teid.to_bytes(4, "big") + back[14:]
        assert down.matches(at_gnb) == mine, teid
        end_marker = at_gnb[:43] + b"\xfe" + at_gnb[44:50]
        assert not down.matches(end_marker) and not down.matches(end_marker + at_gnb[50:])


def test_two_ranges_of_numbers_are_seen_to_be_apart() -> None:
    macs = "02:00:00:00:00:01", "02:00:00:00:00:02"

    def between(first: int, last: int) -> Match:
        return Match.of_numbers(*macs, {12: b"\x08\x00"}, 26, first, last)

    one = between(1, 3)
    assert not one.overlaps(between(4, 13)) and one.overlaps(between(3, 13))
    assert not one.overlaps(between(2**24 + 1, 2**24 + 3))
    assert one.overlaps(between(2**24 - 1, 2**24 + 1)), "too wide for a filter: all that has the rest"
    assert between(5, 5) == Match.from_data(between(5, 5).to_data())


def test_what_goes_down_leaves_room_for_its_tunnel(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path)
    reports = {name: {"interface": {"name": "eth1", "mtu": 1500}} for name in ("tx1", "rx1")}
    whole = planned(tmp_path, hosts, direction="down", scale=1)
    assert max(map(len, sent(whole, hosts, 0))) == 1514
    with pytest.raises(BadInput, match="longer than the MTU of tx1 eth1 less 44 bytes of its tunnel"):
        resolve_traces.check_trace_mtu(whole.legs[0], whole.shares[0], reports)
    for way in ("skip", "cut"):
        fits = planned(tmp_path, hosts, direction="down", scale=1, oversize=way)
        resolve_traces.check_trace_mtu(fits.legs[0], fits.shares[0], reports)
        assert max(map(len, sent(fits, hosts, 0))) <= 1470


def mbr_bps(leg: Leg) -> float | None:
    if leg.users is None:
        return None
    assert leg.users.session is not None
    return leg.users.session.mbr_bps


def test_an_mbr_is_of_what_a_trace_brings_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {**GROUP, "qos": {"mbr_up_bps": 1000, "mbr_down_bps": 2000}}
    hosts = hosts_file(tmp_path)
    found = planned(tmp_path, hosts, limits, expect={"mbr": True})
    assert [mbr_bps(leg) for leg in found.legs] == [1000, None, None, 2000, None, None]
    monkeypatch.setattr(shares, "MOST_USERS", 2)
    assert planned(tmp_path, hosts).legs[0].users is None
    with pytest.raises(BadInput, match=r"traces\.0\.sessions = 'web': its users have an MBR and are too many"):
        planned(tmp_path, hosts, limits)


def test_ipv6_of_a_trace_goes_in_no_session(tmp_path: Path) -> None:
    packets = [packet for packet in read_trace(LAB).packets if packet.data[23] == TCP][:4]
    six = bytes.fromhex("86dd") + bytes.fromhex("6000000000083a40") + bytes(15) + b"\x01" + bytes(15) + b"\x02"
    packets.append(Packet(packets[-1].time_ns + 1, packets[0].data[:12] + six + b"\x80\0\0\0\0\1\0\1"))
    path = tmp_path / "mixed.pcap"
    path.write_bytes(write_pcap(packets))
    found = planned(tmp_path, hosts_file(tmp_path), file=str(path))
    assert sum(leg.intended_packets or 0 for leg in found.legs) == 3 * 4
    assert any("1 of IPv6, and the sessions are of IPv4" in note for note in found.notes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"direction": None}, "sessions need a direction: up, down or both"),
        ({"users": {"first": "10.60.0.1"}}, "users follows from the sessions"),
        ({"gtpu": {}}, "gtpu follows from the sessions"),
        ({"from": "tx1"}, "from follows from the sessions"),
        ({"engine": "tcpreplay"}, "traces of sessions need engine xdp or tc, not tcpreplay"),
        ({"sessions": "nobody"}, "no such group; groups are web"),
        ({"mode": "capture"}, r"is not captured: set receive: \{mode: count\}"),
        (
            {"scale": 6},
            r"traces.0.sessions = 'web': the trace and its instances have 6 users, the group has 5 sessions",
        ),
        ({"to": "tx2"}, "traces.0.to = 'tx2': no such host of side n6"),
        ({"group": {**GROUP, "gnb": ["tx1", "tx2"]}}, r"at one gNB; the group's are at tx1, tx2 .*gnb: tx1"),
        ({"group": {**GROUP, "ue_addresses": "choose"}}, "user addresses that are set before the run; the UPF chooses"),
        ({"group": {**GROUP, "ue_addresses": "2001:db8::1/48"}}, "its users have no IPv4 address"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        planned(tmp_path, hosts_file(tmp_path), **changes)
    assert str(caught.value).startswith(str(tmp_path / "s.yaml"))


def test_users_that_move_are_no_traces(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    upf = {"groups": [GROUP], "handover": {"group": "web", "users_per_s": 1}}
    path.write_text(json.dumps({"name": "s", "upf": upf, "traces": [TRACE], "receive": {"mode": "count"}}))
    with pytest.raises(BadInput, match=r"its users move .upf\.handover.; users of a trace stay at one gNB"):
        scenario.load(path)


def test_a_capture_from_elsewhere_is_not_held_to_what_a_upf_changes(tmp_path: Path) -> None:
    frame = read_trace(LAB).packets[0].data
    match = Match.rest(frame[6:12].hex(":"), frame[:6].hex(":"))
    leg = Leg(0, "t", "tx1", "rx1", "trace", "xdp", match=match.to_data(), trace_file="leg-0.pcap")
    capture = tmp_path / "mirror.pcap"
    capture.write_bytes(write_pcap([Packet(1, frame)]))
    words = {None: "leg-0.pcap: there is no such file", "web": "no packet of a trace of .* that arrives as it was sent"}
    for sessions, message in words.items():
        traces = [{"name": "t", "sessions": sessions}]
        run = {**empty_document(), "scenario": {"traces": traces}, "legs": [leg.to_json()]}
        (tmp_path / "run.json").write_text(json.dumps(run))
        with pytest.raises(BadInput, match=message):
            trace_verify.elsewhere(tmp_path, capture)


def test_two_traces_have_not_the_same_users(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    traces = [TRACE, {**TRACE, "name": "other", "direction": "up"}]
    whole = {"name": "s", "upf": {"groups": [GROUP]}, "traces": traces, "receive": {"mode": "count"}}
    path.write_text(json.dumps(whole))
    with pytest.raises(BadInput, match=r"traces\.1\.sessions = 'web': the trace t has these users; each needs a group"):
        scenario.load(path)


def test_a_gnb_with_an_ipv6_address(tmp_path: Path) -> None:
    path = hosts_file(tmp_path)
    section = json.loads(path.read_text())
    for role in ("transmit", "receive"):
        host = section["all"]["children"][role]["hosts"].get("tx1")
        if host:
            host["ipv6"] = "2001:db8:92::2"
    path.write_text(json.dumps(section))
    scene = tmp_path / "s.yaml"
    upf = {"groups": [{**GROUP, "gnb": "six"}], "gnbs": {"six": "2001:db8:92::2"}}
    scene.write_text(json.dumps({"name": "s", "upf": upf, "traces": [TRACE], "receive": {"mode": "count"}}))
    with pytest.raises(BadInput, match=r"the tunnels of a trace need a gNB with an IPv4 address"):
        plan.plan(scenario.load(scene), scene, inventory.load(path))


def test_nodes_without_a_role_or_a_upf_without_a_mac(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="tx1 has no role 'receive', which this direction needs"):
        planned(tmp_path, hosts_file(tmp_path, one_way=True), direction="down")
    with pytest.raises(BadInput, match=r"upf\.n6_mac: is missing, and traces\.0 needs it"):
        planned(tmp_path, hosts_file(tmp_path, {**UPF, "n6_mac": ""}))


def test_teids_that_do_not_follow_one_another(tmp_path: Path) -> None:
    found = planned(tmp_path, hosts_file(tmp_path))
    with pytest.raises(BadInput, match=r"chose TEIDs that are not consecutive.*first_teid"):
        session_traces.as_they_stand(
            found.shares[0].prepared, found.trace_sessions[0], sessions_of(found, [7, 9, 8, 10, 11])
        )
