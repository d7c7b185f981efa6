import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pktswarm import lab
from pktswarm.lab import links, record_file, ssh
from pktswarm.lab.birth import started_ticks
from pktswarm.lab.plan import plan, rate_bps
from pktswarm.lab.record_file import Keeper
from pktswarm.master.cluster import inventory
from pktswarm.traffic import VERSION
from pktswarm.traffic.errors import BadInput, PktswarmError


def keeper(pid: int, started: int, name: str = "default") -> Keeper:
    return Keeper(name, pid, started, pid, {"m0": pid, "switch": pid})


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_default_lab_is_one_master_and_three_nodes_of_each_kind() -> None:
    the_plan = plan()
    assert [node.name for node in the_plan.nodes] == ["m0", "tx1", "tx2", "tx3", "rx1", "rx2", "rx3"]
    assert {node.side for node in the_plan.nodes} == {"", "a", "b"}
    assert the_plan.nodes[0].address == "10.91.0.1"
    assert the_plan.nodes[1].mac == "02:92:00:00:00:0b"


def test_no_two_nodes_share_an_address_even_in_the_largest_lab() -> None:
    the_plan = plan("large", 120, 120)
    assert (the_plan.transmit, the_plan.receive) == (120, 120)
    for values in (
        [n.address for n in the_plan.nodes],
        [n.mac for n in the_plan.nodes[1:]],
        [n.ipv4 for n in the_plan.nodes[1:]],
        [n.mac for n in the_plan.nodes[1:]] + [n.control_mac for n in the_plan.nodes],
    ):
        assert len(set(values)) == len(values)
    assert all(0 < int(node.address.rsplit(".", 1)[1]) < 255 for node in the_plan.nodes)


def test_another_name_gets_subnets_of_its_own() -> None:
    assert plan("other").nodes[0].address != plan("default").nodes[0].address


@pytest.mark.parametrize("name", ["", "Lab", "a_b", "x" * 21, "../x", "a b"])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"name = .*1 to 20 of a-z, 0-9 and -"):
        plan(name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transmit": 0}, "transmit = 0.*1 to 120"),
        ({"receive": 121}, "receive = 121.*1 to 120"),
        ({"mtu": 100}, "mtu = 100.*576 to 9000"),
        ({"bottleneck_bps": 1000}, "bottleneck = 1000.*64000 to"),
        ({"bottleneck_bps": 10**6, "queue_bytes": 100}, "bottleneck-queue = 100.*1518 to"),
        ({"queue_bytes": 5000}, "there is no bottleneck"),
        ({"dut": "hub"}, "dut = 'hub'.*switch, router, upf, exec"),
        ({"dut": "exec"}, "dut = 'exec'.*a command after -- is needed with exec"),
        ({"dut": "upf", "command": ["x"]}, "a command after -- is needed with exec, and only there"),
        ({"dut": "upf", "bottleneck_bps": 10**6}, "bottleneck = 1000000.*--dut switch"),
        ({"routes": ["10.60.0.0/16=rx1"]}, "route = '10.60.0.0/16=rx1'.*--dut router, upf or exec"),
        ({"dut": "upf", "routes": ["10.60.0.1/16=rx1"]}, "route = '10.60.0.1/16=rx1'.*e.g. 10.60.0.0/16=rx2"),
        ({"dut": "upf", "routes": ["10.60.0.0/16=rx9"]}, "route = .*rx9.*no such node.*tx1, tx2, tx3, rx1"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        plan(**arguments)


@pytest.mark.parametrize(
    ("text", "bps"), [("64kbit", 64_000), ("2.5Mbit", 2_500_000), ("1gbit", 10**9), ("70000bit", 70_000)]
)
def test_rates_are_written_as_tc_has_them(text: str, bps: int) -> None:
    assert rate_bps(text) == bps


@pytest.mark.parametrize("text", ["100", "mbit", "-1mbit", "100mbps"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(
        BadInput, match=r"bottleneck.*(not a bit rate|without a unit|out of range|ambiguous unit).*allowed: "
    ):
        rate_bps(text)


def test_a_bottleneck_queues_a_fiftieth_of_a_second_and_stands_in_the_inventory(tmp_path: Path) -> None:
    the_plan = plan(bottleneck_bps=80_000_000)
    assert the_plan.bottleneck is not None and the_plan.bottleneck.queue_bytes == 200_000
    path = record_file.path_of("default", tmp_path)
    record_file.write(path, the_plan, keeper(4, 5))
    read = inventory.load(path)
    assert read.variables["pktswarm_bottleneck"] == {"rate_bps": 80_000_000, "queue_bytes": 200_000}
    assert read.dut is not None and (read.dut.name, read.dut.version) == ("switch of the lab", VERSION)
    settings = {"kind": "switch", "mtu_bytes": 1500, "bottleneck_bps": 80_000_000, "queue_bytes": 200_000}
    settings["forwards_by"] = "bridge"
    assert read.dut.settings == settings
    assert plan().bottleneck is None


def test_a_upf_stands_between_two_networks_of_its_own(tmp_path: Path) -> None:
    the_plan = plan(transmit=2, receive=2, dut="upf", routes=["10.60.0.0/16=rx2"])
    upf = the_plan.upf
    assert upf is not None
    assert [(node.side, node.ipv4) for node in the_plan.nodes[1:]] == [
        ("n3", "10.92.0.11"),
        ("n3", "10.92.0.12"),
        ("n6", "10.93.0.131"),
        ("n6", "10.93.0.132"),
    ]
    assert (upf.n3_ipv4, upf.n6_ipv4, upf.n3_ipv6) == ("10.92.0.1", "10.93.0.1", "2001:db8:92::1")
    assert [node.ipv6 for node in the_plan.nodes[2:4]] == ["2001:db8:92::c", "2001:db8:93::83"]
    assert len({upf.n3_mac, upf.n6_mac, *(node.mac for node in the_plan.nodes)}) == 2 + 5
    assert plan(the_plan.name, **the_plan.arguments()) == the_plan
    path = record_file.path_of("default", tmp_path)
    record_file.write(path, the_plan, keeper(4, 5))
    read = inventory.load(path)
    assert read.variables["pktswarm_upf"]["n4_ipv4"] == upf.n4_ipv4
    assert read.dut is not None and read.dut.settings == {"kind": "upf", "mtu_bytes": 1500}
    assert read.host("tx2").ipv6 == "2001:db8:92::c"
    assert [host.side for host in read.with_role("receive")] == ["n6", "n6"]


def test_a_program_as_upf_is_described_by_its_command(tmp_path: Path) -> None:
    path = record_file.path_of("default", tmp_path)
    record_file.write(path, plan("x", 1, 1, dut="exec", command=["upf", "-c", "a\nb" * 200]), keeper(4, 5))
    read = inventory.load(path).dut
    assert read is not None and str(read.settings["command"]).startswith("upf -c 'a ba b") and not read.version


def test_a_router_stands_between_two_networks_and_is_the_gateway_of_its_nodes(tmp_path: Path) -> None:
    the_plan = plan(transmit=1, receive=1, dut="router", routes=["10.60.0.0/16=rx1", "2001:db8:60::/48=tx1"])
    router = the_plan.router
    assert router is not None and the_plan.upf is None
    assert [(node.side, node.ipv4, node.ipv6) for node in the_plan.nodes[1:]] == [
        ("a", "10.92.0.11", "2001:db8:92::b"),
        ("b", "10.93.0.131", "2001:db8:93::83"),
    ]
    assert len({*router.mac.values(), *(node.mac for node in the_plan.nodes)}) == 2 + 3
    assert [route.node for route in router.routes] == ["rx1", "tx1"]
    path = record_file.path_of("default", tmp_path)
    record_file.write(path, the_plan, keeper(4, 5))
    read = inventory.load(path)
    assert read.host("tx1").gateways == (router.ipv4["a"], router.ipv6["a"]) == ("10.92.0.1", "2001:db8:92::1")
    assert read.host("rx1").gateways == ("10.93.0.1", "2001:db8:93::1")
    assert read.dut is not None and read.dut.name == "router of the lab"
    assert read.dut.settings == {"kind": "router", "mtu_bytes": 1500}


def test_a_plan_is_made_again_from_its_arguments() -> None:
    for the_plan in (
        plan("x", 1, 2, 9000, 10**6, 20_000),
        plan("x", 1, 1, dut="exec", command=["sleep", "9"]),
        plan("x", 1, 1, dut="router", bottleneck_bps=10**6, routes=["10.60.0.0/16=rx1"]),
    ):
        assert plan(the_plan.name, **json.loads(json.dumps(the_plan.arguments()))) == the_plan


def test_the_inventory_is_one_that_the_planner_reads(tmp_path: Path) -> None:
    path = record_file.path_of("default", tmp_path / "hosts")
    the_plan = plan(transmit=1, receive=2)
    record_file.write(path, the_plan, keeper(4, 5))
    read = inventory.load(path)
    assert read.master.address == "10.91.0.1"
    assert [host.name for host in read.with_role("receive")] == ["rx1", "rx2"]
    sender = read.host("tx1")
    node = the_plan.nodes[1]
    assert (sender.mac, sender.ipv4, sender.side) == (node.mac, node.ipv4, "a")
    assert (sender.traffic_interface, sender.control_interface) == ("eth1", "ctl0")
    assert read.variables["pktswarm_ssh_config"] == "/run/pktswarm-lab/ssh_config"
    assert record_file.read(path) == keeper(4, 5)
    assert [entry.name for entry in path.parent.iterdir()] == ["lab-default.yml"]


@pytest.mark.parametrize("text", ["", "- 1", "all: {vars: {}}", "all: {vars: {pktswarm_lab: {name: x}}}", "a: [", "\0"])
def test_a_file_that_is_no_lab_is_refused(tmp_path: Path, text: str) -> None:
    path = record_file.path_of("default", tmp_path)
    path.write_text(text)
    with pytest.raises(BadInput, match="is not the inventory of a lab"):
        lab.status("default", tmp_path)


def test_status_tells_why_a_lab_is_not_up(tmp_path: Path) -> None:
    assert lab.status("default", tmp_path)["why"] == "it was not brought up"
    own_start = started_ticks(os.getpid())
    assert own_start is not None
    # This process lives, but began at another time: its number was used again.
    record_file.write(record_file.path_of("default", tmp_path), plan(), keeper(os.getpid(), own_start + 1))
    answer = lab.status("default", tmp_path)
    assert (answer["up"], answer["why"]) == (False, f"its keeper, process {os.getpid()}, is gone")
    assert lab.names(tmp_path) == []


def test_a_living_keeper_is_up_and_cannot_be_brought_up_again(tmp_path: Path, as_root: None) -> None:
    own_start = started_ticks(os.getpid())
    assert own_start is not None
    record_file.write(record_file.path_of("default", tmp_path), plan(), keeper(os.getpid(), own_start))
    assert lab.status("default", tmp_path)["up"] is True
    assert lab.names(tmp_path) == ["default"]
    with pytest.raises(BadInput, match="lab default is up already"):
        lab.up(hosts_dir=tmp_path)


def test_down_of_a_stale_lab_only_removes_the_file(tmp_path: Path, as_root: None) -> None:
    path = record_file.path_of("default", tmp_path)
    record_file.write(path, plan(), keeper(os.getpid(), 1))
    lab.down("default", tmp_path)
    assert not path.exists()
    with pytest.raises(BadInput, match="there is no lab default"):
        lab.down("default", tmp_path)


def test_a_lab_that_is_not_up_cannot_be_entered(tmp_path: Path, as_root: None) -> None:
    with pytest.raises(BadInput, match="lab default is not up"):
        lab.enter("default", hosts_dir=tmp_path)
    with pytest.raises(BadInput, match="lab default is not up"):
        lab.run_in("default", "tx1", ["true"], tmp_path)


def test_without_root_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for call in (lambda: lab.up(hosts_dir=tmp_path), lambda: lab.down("default", tmp_path)):
        with pytest.raises(BadInput, match=r"needs root.*sudo"):
            call()


def test_missing_tools_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_root: None
) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool, path=None: None)
    with pytest.raises(
        BadInput, match=r"sshd, ssh, ssh-keygen not installed .apt install openssh-client openssh-server"
    ):
        lab.up(hosts_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_master_knows_every_host_key_by_name_and_address(tmp_path: Path) -> None:
    the_plan = plan(transmit=1, receive=1)
    ssh.write_client_files(tmp_path, the_plan, {"m0": "key M", "tx1": "key T", "rx1": "key R"})
    assert (tmp_path / "known_hosts").read_text().splitlines()[1] == "tx1,10.91.0.11 key T"
    assert "StrictHostKeyChecking yes" in (tmp_path / "ssh_config").read_text()


class StubbornCard:
    """A card whose offloads cannot be switched off, which the kernel does not call an error."""

    def __init__(self, interface: str) -> None:
        self.interface = interface

    def get_features(self) -> "StubbornCard":
        return self

    def keys(self) -> list[str]:
        return ["tx-tcp-segmentation", "tx-udp-segmentation", "highdma"]

    def is_active(self, name: str) -> bool:
        return name != "tx-udp-segmentation"

    def set_value(self, name: str, value: bool) -> None:
        assert name == "tx-tcp-segmentation" and value is False

    def set_features(self, features: "StubbornCard") -> None: ...

    def close(self) -> None: ...


def test_an_offload_that_stays_on_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "IoctlEthtool", StubbornCard)
    with pytest.raises(PktswarmError, match=r"eth1: these offloads cannot be switched off: tx-tcp-segmentation$"):
        links.switch_offloads_off("eth1")


def test_addresses_are_read_back_as_text(tmp_path: Path) -> None:
    """A MAC such as 02:92:00:00:00:0b must not become a number in base 60 when YAML is read."""
    path = record_file.path_of("default", tmp_path)
    record_file.write(path, plan(transmit=20, receive=1), keeper(1, 2))
    hosts = yaml.safe_load(path.read_text())["all"]["children"]["transmit"]["hosts"]
    assert all(isinstance(host["mac"], str) for host in hosts.values())
