"""Flows through routers: gateways and who asks for them, frames behind them, and who answers for which addresses."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.plan import explain, gateways, plan, resolve, routed
from pktswarm.master.plan.plan import Plan
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.run.gateways import Gateways
from pktswarm.master.scenario import scenario
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.frames.address_set import AddressSet
from pktswarm.traffic.leg import Gateway
from pktswarm.traffic.protocol import rank0_orders
from pktswarm.traffic.protocol.neighbours import Question
from pktswarm.traffic.protocol.rank0_events import Lost
from pktswarm.traffic.protocol.rank_events import NeighboursFound
from pktswarm.traffic.replay.ends import Ends

HOSTS = """
all:
  vars: {pktswarm_under_test: [0.0.0.0/0, "::/0"]}
  children:
    master: {hosts: {m0: {}}}
    transmit:
      vars: {traffic_interface: eth1}
      hosts:
        tx1: {ipv4: 10.1.0.11, ipv6: "2001:db8:1::11", pktswarm_gateway: [10.1.0.1, "2001:db8:1::1"]}
        tx2: {ipv4: 10.1.0.12, pktswarm_gateway: 10.1.0.1}
        tx3: {ipv4: 10.1.0.13}
    receive:
      vars: {traffic_interface: eth1}
      hosts:
        rx1: {ipv4: 10.2.0.21, pktswarm_gateway: 10.2.0.1}
        rx2: {ipv4: 10.2.0.22, pktswarm_gateway: 10.2.0.1}
"""
ROUTER = "02:00:00:00:ff:01"
RECORDED = Path("configs/traces/lab.pcapng").resolve()
IPV6 = '{ethernet: {}}, {ipv6: {src: "2001:db8:1::50", dst: "2001:db8:2::50"}}, {udp: {src: 5, dst: 5}}'


def planned(tmp_path: Path, text: str, hosts: str = HOSTS) -> tuple[scenario.Scenario, Plan, inventory.Inventory]:
    path, inventory_path = tmp_path / "test.yaml", tmp_path / "hosts.yml"
    inventory_path.write_text(hosts)
    path.write_text("name: test\n" + text)
    read = inventory.load(inventory_path)
    loaded = scenario.load(path)
    return loaded, plan.plan(loaded, path, read), read


def stream(more: str, ends: str = "from: tx1, to: rx1") -> str:
    return f"streams: [{{name: s, {ends}, rate_pps: 10, count_packets: 10, size_bytes: 128{more and ', ' + more}}}]"


def of_node(number: int) -> dict[str, Any]:
    known = {"name": "eth1", "exists": True, "carrier": True, "mtu": 1500, "mac": f"02:00:00:00:00:{number:02x}"}
    senders = {"xdp": "", "pktgen": "", "trafgen": "", "tcpreplay": ""}
    return {"interface": {**known, "ipv4": ""}, "senders": senders, "receivers": {"netsniff-ng": "", "xdp": ""}}


def resolved(tmp_path: Path, text: str, hosts: str = HOSTS, answers: bool = True) -> Resolved:
    loaded, made, read = planned(tmp_path, text, hosts)
    known = {host.name: host for host in read.hosts}
    reports = {host.name: of_node(number) for number, host in enumerate(read.hosts, start=1)}
    asked = gateways.questions_of(made.legs, resolve.with_addresses(known, reports))
    macs = {host: {one.address: ROUTER for one in questions if answers} for host, questions in asked.items()}
    return resolve.resolve(loaded, made, known, reports, macs=macs)


def refused(tmp_path: Path, text: str, hosts: str = HOSTS) -> str:
    with pytest.raises(BadInput) as caught:
        resolved(tmp_path, text, hosts)
    return str(caught.value)


CHOSEN = {
    "the host's": ("", "10.1.0.1"),
    "the host's of IPv6": (f"headers: [{IPV6}]", "2001:db8:1::1"),
    "the stream's": ("gateway: 10.1.0.254", "10.1.0.254"),
    "the stream's of its version": (f"gateway: [10.1.0.254, 'fe80::1'], headers: [{IPV6}]", "fe80::1"),
    "none": ("gateway: none", None),
    "a MAC address of the scenario": (f"headers: [{{ethernet: {{dst: '{ROUTER}'}}}}, {{ipv4: {{}}}}]", None),
    "not IP": ("headers: [{ethernet: {}}, {raw: {hex: '0102'}}]", None),
}


@pytest.mark.parametrize("what", CHOSEN)
def test_the_gateway_of_a_stream(tmp_path: Path, what: str) -> None:
    text, expected = CHOSEN[what]
    (leg,) = planned(tmp_path, stream(text))[1].legs
    assert (leg.gateway.address if leg.gateway else None) == expected


def test_check_names_the_gateway(tmp_path: Path) -> None:
    planned(tmp_path, stream(""))
    assert "s: tx1 → rx1 through 10.1.0.1, " in explain.explain(tmp_path / "test.yaml", tmp_path / "hosts.yml")


REFUSED = {
    "no IPv6": (f"headers: [{IPV6}], gateway: 10.1.0.9", "", r"streams\.0\.gateway.*no IPv6 address.*gateway: none"),
    "no IPv6 of the host": (f"headers: [{IPV6}]", "from: tx2, to: rx1", r"^tx2: pktswarm_gateway = '10.1.0.1'.*IPv6"),
    "not IP": (
        "headers: [{ethernet: {}}, {raw: {hex: '0102'}}], gateway: 10.1.0.9",
        "",
        "has no IP packets.*leave it out",
    ),
    "two": (
        "headers: [{ethernet: {dst: '02:00:00:00:00:99'}}, {ipv4: {}}], gateway: 10.1.0.9",
        "",
        "has a destination MAC address too; give one",
    ),
    "a tag": ("headers: [{ethernet: {}}, {vlan: {id: 5}}, {ipv4: {}}]", "", r"have a vlan header.*gateway: none"),
    "its last hop": ("headers: [{ethernet: {}}, {ipv4: {ttl: 1}}, {udp: {src: 5, dst: 5}}]", "", "ttl = 1.*2 to 255"),
    "an address of another": (
        "headers: [{ethernet: {}}, {ipv4: {dst: {increment: [10.2.0.20, 10.2.0.30]}}}, {udp: {src: 5, dst: 5}}]",
        "",
        r"10\.2\.0\.22 would be played by rx1 and rx2, and a router delivers to one of them",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_gateway_can_forward_is_refused(tmp_path: Path, what: str) -> None:
    text, ends, message = REFUSED[what]
    other = ", {name: other, from: tx2, to: rx2, rate_pps: 10, count_packets: 5, gateway: 10.1.0.1}]"
    with pytest.raises(BadInput, match=message):
        resolved(tmp_path, stream(text, ends or "from: tx1, to: rx1")[:-1] + other)


@pytest.mark.parametrize("text", ["10.1.0.300", "[10.1.0.1, 10.1.0.2]", "7", "[]", "224.0.0.1", '"::"', "127.0.0.1"])
def test_what_is_no_gateway_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"test\.yaml:2: streams\.0\.gateway.*must be an IPv4 address, an IPv6 address"):
        planned(tmp_path, stream(f"gateway: {text}"))
    hosts = HOSTS.replace("tx3: {ipv4: 10.1.0.13}", f"tx3: {{pktswarm_gateway: {text}}}")
    with pytest.raises(BadInput, match=r"hosts\.yml: .*tx3\.pktswarm_gateway = .*not a gateway.*an IPv4 address"):
        planned(tmp_path, stream(""), hosts)


def test_flows_that_are_never_routed_are_refused(tmp_path: Path) -> None:
    connections = "connections: [{name: c, from: tx1, to: rx1, protocol: tcp, block_bytes: 100, blocks: 3}]"
    assert "is connections, which cannot be sent through a gateway" in refused(tmp_path, connections)
    interactive = f"traces: [{{name: t, from: tx1, to: rx1, file: {RECORDED}, interactive: true}}]"
    assert "an interactive trace, which cannot be sent through a gateway" in refused(tmp_path, interactive)


def test_a_gateway_of_sessions_is_refused(tmp_path: Path) -> None:
    text = "{name: s, sessions: g, direction: up, to: rx1, count_packets: 5, gateway: 10.0.0.1}"
    with pytest.raises(BadInput, match="gateway follows from the sessions; leave it out"):
        planned(tmp_path, f"streams: [{text}]\nupf: {{groups: [{{name: g, sessions: 1}}], gnbs: {{g1: 10.0.0.9}}}}")


def test_a_stream_is_sent_to_the_router_and_expected_from_it(tmp_path: Path) -> None:
    made = resolved(tmp_path, stream("expect: {dscp: 8}"))
    (leg,) = made.legs
    assert leg.frame["headers"][0]["ethernet"] == {"src": "02:00:00:00:00:01", "dst": ROUTER}
    assert leg.gateway == Gateway("10.1.0.1", ROUTER, "10.1.0.11", "02:00:00:00:00:04")
    assert leg.expect == {"dst_mac": "02:00:00:00:00:04", "src_mac": None, "ttl": 63, "dscp": 8}
    match = Match.from_data(leg.match)
    assert match.mask[:12] == b"\xff" * 6 + bytes(6) and match.value[:6].hex(":") == "02:00:00:00:00:04"
    assert "tx1: gateway 10.1.0.1 has 02:00:00:00:ff:01, asked from 10.1.0.11" in made.notes


def test_a_scenario_expects_more_routers_than_one(tmp_path: Path) -> None:
    (leg,) = resolved(tmp_path, stream("expect: {ttl: 60}")).legs
    assert leg.expect["ttl"] == 60
    varying = "headers: [{ethernet: {}}, {ipv4: {ttl: {increment: [10, 20]}}}, {udp: {src: 5, dst: 5}}]"
    (leg,) = resolved(tmp_path, stream(varying)).legs
    assert leg.expect["ttl"] is None
    inner = "{ipv6: {src: 'fd00::1', dst: 'fd00::2'}}, {ipv4: {src: 10.5.0.1, dst: 10.5.0.2}}, {udp: {src: 5, dst: 5}}"
    (leg,) = resolved(tmp_path, stream(f"headers: [{{ethernet: {{}}}}, {inner}]")).legs
    assert "ttl" not in leg.expect, "that of the innermost header, which is payload to a router"


def test_each_node_answers_for_what_it_plays_and_asks_its_router(tmp_path: Path) -> None:
    ends = "{ipv4: {src: {increment: [10.7.0.0, 10.7.3.255]}, dst: {increment: [10.8.0.1, 10.8.0.9]}}}"
    made = resolved(tmp_path, stream(f"headers: [{{ethernet: {{}}}}, {ends}, {{udp: {{src: 5, dst: 5}}}}]"))
    send, receive = made.sends["tx1"], made.receives["rx1"]
    assert send.proxy_addresses == ["10.1.0.11", "10.7.0.0-10.7.3.255", "2001:db8:1::11", "fe80::ff:fe00:1"]
    assert (send.mac, send.neighbours) == ("02:00:00:00:00:01", ["10.1.0.1", "2001:db8:1::1"])
    assert receive.proxy_addresses == ["10.2.0.21", "10.8.0.1-10.8.0.9", "fe80::ff:fe00:4"]
    assert receive.neighbours == ["10.2.0.1"]


def test_one_node_answers_for_a_source_address_of_several_and_none_for_the_router_s(tmp_path: Path) -> None:
    ends = "{ipv4: {src: {increment: [10.1.0.1, 10.1.0.12]}}}"
    streams = [
        f"{{name: s{n}, from: tx{n}, to: rx1, rate_pps: 5, count_packets: 5, headers: [{{ethernet: {{}}}}, {ends}, "
        f"{{udp: {{src: {n}, dst: {n}}}}}], gateway: 10.1.0.1}}"
        for n in (1, 2, 3)
    ]
    sends = resolved(tmp_path, f"streams: [{', '.join(streams)}]").sends
    found = [AddressSet.parse(sends[name].proxy_addresses) for name in ("tx1", "tx2", "tx3")]
    for value, owner in {1: None, 2: 0, 10: 0, 11: 0, 12: 1, 13: 2}.items():
        address = bytes([10, 1, 0, value])
        assert [number for number, own in enumerate(found) if address in own] == ([] if owner is None else [owner])


def test_without_a_gateway_nothing_is_answered_or_asked(tmp_path: Path) -> None:
    made = resolved(tmp_path, stream("gateway: none"))
    for task in (made.sends["tx1"], made.receives["rx1"]):
        assert (task.proxy_addresses, task.neighbours) == ([], [])
    assert made.legs[0].expect == {} and made.legs[0].gateway is None


def test_a_gateway_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        resolved(tmp_path, stream(""), answers=False)
    assert str(caught.value) == (
        "tx1: gateway = '10.1.0.1': no answer by ARP from the gateway of 's' on eth1 "
        "(allowed: a router there that answers 10.1.0.11)"
    )
    with pytest.raises(BadInput, match="no answer by neighbour discovery from the gateway of 's' on eth1"):
        resolved(tmp_path, stream(f"headers: [{IPV6}]"), answers=False)


def test_an_address_that_a_stream_plays_asks_for_a_gateway_of_its_subnet(tmp_path: Path) -> None:
    ends = "{ipv4: {src: {increment: [10.7.0.10, 10.7.0.90]}}}, {udp: {src: 5, dst: 5}}"
    (leg,) = resolved(tmp_path, stream(f"gateway: 10.7.0.1, headers: [{{ethernet: {{}}}}, {ends}]")).legs
    assert leg.gateway is not None and leg.gateway.asked_from == "10.7.0.10"


def test_users_of_a_source_go_through_the_gateway(tmp_path: Path) -> None:
    text = "sources: [{name: s, from: tx1, to: rx1, source: voip, users: 3, duration_s: 2, gateway: 10.1.0.254}]"
    made = resolved(tmp_path, text)
    assert {leg.gateway and leg.gateway.address for leg in made.legs} == {"10.1.0.254"}
    assert {leg.frame["headers"][0]["ethernet"]["dst"] for leg in made.legs} == {ROUTER}


def test_the_address_nearest_to_the_gateway_asks() -> None:
    host = Host("tx1", "", (), mac="02:00:00:00:00:11", ipv4="10.1.0.11", ipv6="2001:db8:1::11")
    asked = {"10.1.0.1": "10.1.0.11", "2001:db8:1::1": "2001:db8:1::11", "fe80::1": "fe80::ff:fe00:11"}
    assert {one: gateways.asking_address(one, host) for one in asked} == asked
    with pytest.raises(BadInput, match="no IPv6 address known, from which the gateway 2001:db8::1 is asked"):
        gateways.asking_address("2001:db8::1", Host("tx1", "", (), mac="02:00:00:00:00:11", ipv4="10.1.0.11"))


# --- traces -----------------------------------------------------------------------------------------------------------


def udp(source: str, target: str, number: int) -> Packet:
    ends = b"".join(bytes(map(int, one.split("."))) for one in (source, target))
    ip = b"\x45\0\0\x40" + bytes(4) + b"\x40\x11\0\0" + ends
    return Packet(number * 1000, bytes(12) + b"\x08\0" + ip + b"\x10\0\0\x35\0\x2c\0\0" + bytes(36))


def trace() -> bytes:
    pairs = [("10.99.0.1", "10.99.1.1"), ("10.99.0.2", "10.99.1.1"), ("10.99.0.3", "10.99.1.2")]
    there = [udp(*pair, number) for number, pair in enumerate(pairs)]
    return write_pcap(there + [udp(*pair[::-1], number + 10) for number, pair in enumerate(pairs)])


def test_a_trace_plays_its_pools_at_the_node_that_sends_them(tmp_path: Path) -> None:
    (tmp_path / "t.pcap").write_bytes(trace())
    pools = "users: {first: 10.50.0.0}, servers: {first: 10.60.0.0}, scale: {instances: 3}"
    text = f"traces: [{{name: t, from: tx1, to: rx1, file: t.pcap, direction: up, {pools}}}]"
    made = resolved(tmp_path, text)
    assert "10.50.0.0-10.50.0.8" in made.sends["tx1"].proxy_addresses
    assert "10.60.0.0-10.60.0.5" in made.receives["rx1"].proxy_addresses
    match = Match.from_data(made.legs[0].match)
    frame = bytes.fromhex("020000000004" + "0293000000aa" + "0800") + bytes(12) + bytes([10, 50, 0, 8, 10, 60, 0, 1])
    assert match.kind == "rest" and match.matches(frame) and all(leg.gateway for leg in made.legs)
    assert not match.matches(frame[:26] + bytes([10, 2, 0, 1]) + frame[30:])


def test_ipv6_packets_of_a_trace_are_played_with_their_prefix(tmp_path: Path) -> None:
    source, target = bytes.fromhex("20010db8" + "00" * 11 + "01"), bytes.fromhex("20010db8" + "00" * 11 + "02")
    ip = b"\x60\0\0\0\0\x14\x11\x40" + source + target + b"\x10\0\0\x35\0\x14\0\0" + bytes(12)
    six = Packet(9_000_000, bytes(12) + b"\x86\xdd" + ip)
    (tmp_path / "t.pcap").write_bytes(write_pcap([udp("10.99.0.1", "10.99.1.1", 0), six]))
    pools = "users: {first: 10.50.0.0, ipv6: '2001:db8:5::'}, servers: {first: 10.60.0.0}, scale: {instances: 2}"
    made = resolved(tmp_path, f"traces: [{{name: t, from: tx1, to: rx1, file: t.pcap, direction: up, {pools}}}]")
    users = AddressSet.parse(made.sends["tx1"].proxy_addresses)
    servers = AddressSet.parse(made.receives["rx1"].proxy_addresses)
    wanted = {"10.50.0.0": users, "10.50.0.2": users, "2001:db8:5::a32:1": users, "2001:db8:5::a32:3": users}
    wanted |= {"10.60.0.2": servers, "fd00::a3c:1": servers, "fd00::a3c:3": servers}
    assert [text for text, own in wanted.items() if ip_address(text).packed not in own] == []
    for text in ("10.50.0.1", "2001:db8:5::a32:0", "fd00::a32:1"):
        assert ip_address(text).packed not in users
    assert Match.from_data(made.legs[0].match).mask == b"\xff" * 6, "no address is common to both IP versions"


def test_a_tunnel_of_a_trace_is_between_its_ends_in_every_instance(tmp_path: Path) -> None:
    (tmp_path / "t.pcap").write_bytes(trace())
    pools = "users: {first: 10.50.0.0}, scale: {instances: 3}, gtpu: {outer: {dst: 10.60.0.9}}"
    made = resolved(tmp_path, f"traces: [{{name: t, from: tx1, to: rx1, file: t.pcap, direction: up, {pools}}}]")
    assert made.sends["tx1"].proxy_addresses == ["10.1.0.11", "2001:db8:1::11", "fe80::ff:fe00:1"]
    assert made.receives["rx1"].proxy_addresses == ["10.2.0.21", "10.60.0.9", "fe80::ff:fe00:4"]


def test_both_directions_go_to_the_router_of_their_side(tmp_path: Path) -> None:
    (tmp_path / "t.pcap").write_bytes(trace())
    hosts = HOSTS.replace("tx2: {ipv4: 10.1.0.12, ", "rx1: {}\n        tx2: {ipv4: 10.1.0.12, ") + "        tx1: {}\n"
    text = "traces: [{name: t, from: tx1, to: rx1, file: t.pcap, direction: both, gateway: 10.1.0.254}]"
    up, down = resolved(tmp_path, text, hosts).legs
    assert [(leg.source, leg.gateway and leg.gateway.address) for leg in (up, down)] == [
        ("tx1", "10.1.0.254"),
        ("rx1", "10.2.0.1"),
    ]
    hosts = hosts.replace("rx1: {ipv4: 10.2.0.21, pktswarm_gateway: 10.2.0.1}", "rx1: {ipv4: 10.2.0.21}")
    with pytest.raises(BadInput, match=r"rx1: pktswarm_gateway: rx1 sends the other direction of 't'.*has no gateway"):
        resolved(tmp_path, text, hosts)


def test_a_match_by_addresses_is_as_wide_as_its_addresses() -> None:
    six = AddressSet.parse(["2001:db8::10-2001:db8::1f"])
    match = Match.of_ends("02:00:00:00:00:04", six, AddressSet.parse(["2001:db8:1::1"]))
    assert (
        match.mask[14:22] == bytes(8)
        and match.mask[22:38] == b"\xff" * 15 + b"\xf0"
        and match.mask[38:] == b"\xff" * 16
    )
    both = Match.of_ends("02:00:00:00:00:04", six | AddressSet.parse(["10.0.0.1"]), six)
    assert (both.mask, both.value.hex(":")) == (b"\xff" * 6, "02:00:00:00:00:04")


def test_a_destination_at_two_hosts_is_found_behind_a_wide_range() -> None:
    hosts = {name: Host(name, "", (), ipv4=f"10.2.0.{place}") for place, name in enumerate(("a", "b", "c"), 1)}
    played = routed.Played()
    leg = Gateway("10.1.0.1")
    for name, text in {"a": "10.9.0.0/16", "b": "10.9.5.5", "c": "10.10.0.0"}.items():
        played.targets[name] = AddressSet.parse([text])
    assert leg.mac == ""
    with pytest.raises(BadInput, match=r"b: headers: dst = '10.9.5.5'.*would be played by a and b"):
        played.by_host(hosts)
    played.targets["b"] = AddressSet.parse(["10.10.0.1"])
    assert played.by_host(hosts)["c"] == ["10.2.0.3", "10.10.0.0"]
    assert Ends() == Ends(AddressSet(), AddressSet())


# --- asking -----------------------------------------------------------------------------------------------------------


def test_one_rank_of_each_host_asks_and_the_last_answer_ends_the_waiting() -> None:
    host, other = Host("tx1", "", ("transmit", "receive")), Host("tx2", "", ("transmit",))
    ranks = [Rank(1, host, "transmit"), Rank(2, other, "transmit"), Rank(3, host, "receive")]
    question = Question("10.1.0.1", "10.1.0.11")
    one = Gateways()
    orders = one.ask({"tx1": [question], "tx2": [question]}, ranks)
    assert sorted(orders, key=lambda order: order.rank) == [
        rank0_orders.FindNeighbours(1, [question]),
        rank0_orders.FindNeighbours(2, [question]),
    ]
    assert one.waiting and not one.take(NeighboursFound({"10.1.0.1": ROUTER}, rank=1))
    assert not one.take(NeighboursFound({}, rank=3)) and one.take(Lost(2, "gone", 0.0, 0))
    assert one.macs == {"tx1": {"10.1.0.1": ROUTER}} and not one.waiting
    assert Gateways().ask({}, ranks) == []


def test_a_host_that_was_lost_meanwhile_is_named(tmp_path: Path) -> None:
    _, made, read = planned(tmp_path, stream(""))
    with pytest.raises(PktswarmError, match=r"tx1: was lost before its gateway 10\.1\.0\.1 had"):
        gateways.with_macs(made.legs, {host.name: host for host in read.hosts}, {})
