"""Test traffic on the wire of the control connection: which wire it is, and how much it may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.cluster import inventory, wire_limit
from pktswarm.master.cluster.node import NodeState
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.cluster.wire_limit import WireLimit
from pktswarm.master.plan import plan as plans
from pktswarm.master.plan import shared_wires
from pktswarm.master.plan.allowlist import Allow
from pktswarm.master.scenario import scenario
from pktswarm.nodes import interface, vlan, wires
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.protocol.task import Role
from run_events import node_report

HOSTS = """
all:
  children:
    master: {hosts: {m0: {ansible_host: 10.9.0.1}}}
    transmit: {hosts: {tx1: {ansible_host: 10.9.0.11, traffic_interface: eth0.20, side: a, ipv4: 10.0.0.11%s}}}
    receive: {hosts: {rx1: {ansible_host: 10.9.0.21, traffic_interface: eth0.20, side: b, ipv4: 10.0.0.21%s}}}
"""


# --- the node: which wire ------------------------------------------------------------------------------------------


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """eth0 and eth1 are cards; eth0.10 and eth0.20 are VLANs on eth0, br0 is a bridge with eth1. Name → number."""
    below: dict[str, tuple[str, ...]] = {"eth0": (), "eth1": (), "eth0.10": ("eth0",), "eth0.20": ("eth0",)}
    below["br0"] = ("eth1",)
    for name, lower in below.items():
        (tmp_path / name).mkdir()
        for one in lower:
            (tmp_path / name / f"lower_{one}").symlink_to(tmp_path / one)
    numbers = {name: number for number, name in enumerate(["lo", *below], 1)}
    monkeypatch.setattr(interface, "SYS_NET", tmp_path)
    monkeypatch.setattr("socket.if_nameindex", lambda: [(number, name) for name, number in numbers.items()])
    return numbers


@pytest.mark.parametrize(
    ("traffic", "control", "carries", "shared"),
    [
        ("eth0.20", "eth0", False, "eth0"),
        ("eth0.20", "eth0.10", False, "eth0"),
        ("eth0.20", "eth0.20", True, ""),
        ("eth0", "eth0", True, ""),
        ("eth0", "eth0.10", True, ""),  # the test would see the control VLAN's frames
        ("eth1", "br0", True, ""),
        ("eth1", "eth0.10", False, ""),
        ("eth0.20", "br0", False, ""),
        ("eth0", "lo", False, ""),
    ],
)
def test_the_wire_that_test_and_control_share(
    sysfs: dict[str, int], traffic: str, control: str, carries: bool, shared: str
) -> None:
    assert wires.carries(traffic, {sysfs[control]}) is carries
    assert wires.shared(traffic, {sysfs[control]}) == shared


def test_a_vlan_has_its_port_below_it(sysfs: dict[str, int]) -> None:
    assert wires.below("eth0.20") == ["eth0"] and wires.below("eth0") == []
    assert wires.names([sysfs["eth1"], sysfs["lo"], 99]) == ["eth1"]


@pytest.mark.parametrize(
    ("name", "found"),
    [("eth0.20", ("eth0", 20)), ("br-a.4094", ("br-a", 4094)), ("eth0", None), ("eth0.0", None), ("eth0.4095", None)],
)
def test_the_name_of_a_vlan(name: str, found: tuple[str, int] | None) -> None:
    assert vlan.of_name(name) == found


# --- the master: how much -----------------------------------------------------------------------------------------


def state(host: inventory.Host, role: Role, shared: str = "eth0", speed_mbps: int | None = 1000) -> NodeState:
    report = node_report(interface={"name": "eth0.20", "exists": True, "shared_wire": shared, "speed_mbps": speed_mbps})
    return NodeState(Rank(1, host, role), report)


def planned(
    tmp_path: Path, stream: str, limit: str = "", shared: str = "eth0", speed_mbps: int | None = 1000, **allow: bool
) -> list[str]:
    hosts, file = tmp_path / "hosts.yml", tmp_path / "s.yaml"
    hosts.write_text(HOSTS % (limit, limit))
    file.write_text(f"name: s\n{stream}\n")
    read = inventory.load(hosts)
    made = plans.plan(scenario.load(file), file, read)
    roles: list[tuple[str, Role]] = [("tx1", "transmit"), ("rx1", "receive")]
    nodes = [state(read.host(name), role, shared, speed_mbps) for name, role in roles]
    return list(shared_wires.checked(made, nodes, Allow(**allow)).notes)


def test_the_load_is_that_of_layer_1_with_the_vlan_tag(tmp_path: Path) -> None:
    of = "streams: [{name: a, size_bytes: 128, rate_pps: %d, count_packets: 9}]"
    # 128 bytes with FCS, 4 of the tag, 20 of preamble and gap: 1216 bits.
    notes = planned(tmp_path, of % 600_000)
    assert notes[0].startswith("tx1 sends up to 729.6 Mbit/s of the 800 Mbit/s that test traffic may take on eth0")
    assert notes[1].startswith("rx1 receives up to 729.6 Mbit/s of the 800 Mbit/s")
    with pytest.raises(BadInput, match=r"tx1: traffic_interface = 'eth0.20': sends 851.2 Mbit/s on eth0, which .*80"):
        planned(tmp_path, of % 700_000)
    assert planned(tmp_path, of % 700_000, ", pktswarm_shared_wire_limit: 90 %")
    assert planned(tmp_path, of % 700_000, control_interface=True) == []
    assert planned(tmp_path, of % 700_000, shared="") == []


def test_the_loads_of_streams_add_up(tmp_path: Path) -> None:
    two = "streams: [{name: a, rate_pps: 40000, size_bytes: 1000, count_packets: 9}"
    two += ", {name: b, rate_pps: 60000, size_bytes: 1000, count_packets: 9}]"
    with pytest.raises(BadInput, match=r"sends 819.2 Mbit/s on eth0"):
        planned(tmp_path, two)


@pytest.mark.parametrize(
    "stream",
    [
        "streams: [{name: a, size_bytes: 128, count_packets: 9}]",
        "connections: [{name: a, protocol: tcp, block_bytes: 1000, period_s: 0.1, duration_s: 1}]",
    ],
)
def test_an_unknown_load_is_refused(tmp_path: Path, stream: str) -> None:
    with pytest.raises(BadInput, match=r"the rate of 'a' is not known before the run.*on eth0 too.*--allow-control"):
        planned(tmp_path, stream)
    assert planned(tmp_path, stream, shared="") == []


def test_a_wire_of_unknown_speed_needs_a_bit_rate(tmp_path: Path) -> None:
    stream = "streams: [{name: a, size_bytes: 128, rate_pps: 1000, count_packets: 9}]"
    with pytest.raises(BadInput, match=r"the speed of eth0 is unknown.*pktswarm_shared_wire_limit: a bit rate"):
        planned(tmp_path, stream, speed_mbps=None)
    (sends, _) = planned(tmp_path, stream, ", pktswarm_shared_wire_limit: 2M", speed_mbps=None)
    assert "1.216 Mbit/s of the 2 Mbit/s" in sends


@pytest.mark.parametrize(
    ("value", "limit"), [(None, WireLimit(0.8)), ("50 %", WireLimit(0.5)), ("100M", WireLimit(rate_bps=1e8))]
)
def test_the_limit_as_the_inventory_has_it(value: Any, limit: WireLimit) -> None:
    assert wire_limit.parse("hosts.yml", "k", value) == limit


@pytest.mark.parametrize("value", ["0 %", "100 %", "-1 %", "much", 0, -5, "5 MB", [1]])
def test_a_limit_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(BadInput, match=r"hosts\.yml: k = .*allowed: a percentage of more than 0 and less than 100 %"):
        wire_limit.parse("hosts.yml", "k", value)
