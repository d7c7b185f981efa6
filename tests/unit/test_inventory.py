"""The inventory: what is read from Ansible's YAML, and one message for each thing that is wrong with it."""

from pathlib import Path

import pytest

from pktswarm.master.cluster import inventory, ssh
from pktswarm.traffic.errors import BadInput

GOOD = """
all:
  vars: {pktswarm_python: /opt/pktswarm/bin/python}
  children:
    master: {hosts: {m0: {ansible_host: 10.0.0.1, control_interface: ctl0}}}
    transmit:
      vars: {traffic_interface: eth1, side: a}
      hosts:
        tx1: {ansible_host: 10.0.0.11, mac: "02:00:00:00:00:11", ipv4: 10.1.0.11}
        both: {ansible_host: 10.0.0.12}
    receive:
      hosts:
        rx1: {ansible_host: 10.0.0.21, traffic_interface: eth2, side: b}
        both: {traffic_interface: eth1}
"""


def load(tmp_path: Path, text: str) -> inventory.Inventory:
    path = tmp_path / "hosts.yml"
    path.write_text(text)
    return inventory.load(path)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, text)
    assert str(tmp_path / "hosts.yml") in str(caught.value)
    return str(caught.value)


def test_groups_become_roles_and_group_variables_apply(tmp_path: Path) -> None:
    read = load(tmp_path, GOOD)
    assert read.master.address == "10.0.0.1"
    assert [host.name for host in read.with_role("transmit")] == ["tx1", "both"]
    assert [host.name for host in read.with_role("receive")] == ["both", "rx1"]
    tx1 = read.host("tx1")
    assert (tx1.traffic_interface, tx1.side, tx1.mac, tx1.python) == (
        "eth1",
        "a",
        "02:00:00:00:00:11",
        "/opt/pktswarm/bin/python",
    )


def test_a_host_in_two_groups_stands_once_with_both_roles(tmp_path: Path) -> None:
    read = load(tmp_path, GOOD)
    assert read.host("both").roles == ("transmit", "receive")
    assert read.host("both").address == "10.0.0.12"


# Not those of labs that are up, which come and go.
@pytest.mark.parametrize("path", sorted(set(Path("hosts").glob("*.yml")) - set(Path("hosts").glob("lab-*"))), ids=str)
def test_every_inventory_that_ships_loads(path: Path) -> None:
    assert inventory.load(path).hosts


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rx1: {ansible_host: 10.0.0.21", "both: {ansible_host: 10.0.0.21", ["'both' is given twice"]),
        ("ansible_host: 10.0.0.21", "ansible_host: 10.0.0.11", ["rx1 and tx1 have the same ansible_host", "10.0.0.11"]),
        ("traffic_interface: eth2, side: b", "side: b", ["all.children.receive.hosts.rx1.traffic_interface"]),
        ("side: b", "side: c", ["rx1.side", "'c'", "a, b, n3, n6"]),
        ("traffic_interface: eth2", "traffic_interface: averyveryverylongname", ["averyveryverylongname", "15"]),
        ("traffic_interface: eth2", "traffic_interface: -oProxy", ["-oProxy"]),
        ("ansible_host: 10.0.0.21", "ansible_host: -oProxyCommand=x", ["-oProxyCommand=x"]),
        (
            "traffic_interface: eth2",
            "traffic_interface: e0, control_interface: e0",
            ["rx1.traffic_interface", "control"],
        ),
        ("side: b", "pktswarm_clock: ntp", ["rx1.pktswarm_clock", "'ntp'", "chrony, ptp"]),
        ("side: b", "pktswarm_clock: ptp", ["rx1.control_interface", "is missing", "the interface for PTP"]),
        ('mac: "02:00:00:00:00:11"', "mac: zz", ["tx1.mac", "'zz'", "02:00:00:00:00:01"]),
        ("ipv4: 10.1.0.11", "ipv6: 10.1.0.11", ["tx1.ipv6", "10.1.0.11", "like 2001:db8::1"]),
        ("ipv4: 10.1.0.11", "ipv4: 10.1.0.256", ["tx1.ipv4", "10.1.0.256", "like 10.0.0.1"]),
        (
            "ansible_host: 10.0.0.21",
            "ansible_host: 'fd00::21'",
            ["rx1.ansible_host", "fd00::21", "mpiexec takes no other"],
        ),
        ("vars: {pktswarm_python: /opt/pktswarm/bin/python}", "vars: [a]", ["all.vars = ['a']", "must be a mapping"]),
        ("vars: {traffic_interface: eth1, side: a}", "vars: [a]", ["all.children.transmit.vars", "must be a mapping"]),
        (
            "{pktswarm_python: /",
            "{pktswarm_upf: [1], pktswarm_python: /",
            ["all.vars.pktswarm_upf", "must be a mapping"],
        ),
        (
            "{pktswarm_python: /",
            "{pktswarm_upf: {n3_ipv4: 10.92.0.1/24}, pktswarm_python: /",
            ["all.vars.pktswarm_upf.n3_ipv4", "10.92.0.1/24", "like 10.0.0.1"],
        ),
        ("{pktswarm_python: /", "{pktswarm_upf: {n3_ipv6: 7}, pktswarm_python: /", ["pktswarm_upf.n3_ipv6", "'7'"]),
        ("m0: {", "m1: {}, m0: {", ["exactly one master", "m1, m0"]),
        ("    transmit:", "    transmitters:", ["all.children.transmit.hosts", "at least one host"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in GOOD
    message = refused(tmp_path, GOOD.replace(old, new, 1))
    for word in words:
        assert word in message


def test_children_that_are_a_list_are_named(tmp_path: Path) -> None:
    assert "all.children = ['master']: must be a mapping" in refused(tmp_path, "all: {children: [master]}\n")


def test_a_host_may_have_what_another_has_and_more(tmp_path: Path) -> None:
    text = GOOD.replace("rx1: {ansible_host: 10.0.0.21,", "rx1: &rx {ansible_host: 10.0.0.21,")
    read = load(tmp_path, text + "        rx2: {<<: *rx, ansible_host: 10.0.0.22}\n")
    assert (read.host("rx2").address, read.host("rx2").traffic_interface) == ("10.0.0.22", "eth2")


def test_an_ssh_configuration_may_be_in_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    read = load(tmp_path, GOOD.replace("{pktswarm_python", "{pktswarm_ssh_config: ~/cluster, pktswarm_python"))
    assert ssh.options(read)[:2] == ["-F", "/home/ann/cluster"]


def test_an_empty_group_is_named(tmp_path: Path) -> None:
    text = GOOD.split("    receive:")[0] + "    receive: {hosts: {}}\n"
    assert "all.children.receive.hosts" in refused(tmp_path, text)


def test_no_yaml_is_told_with_its_line(tmp_path: Path) -> None:
    assert "hosts.yml:2" in refused(tmp_path, "all: {\n children: [}\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.yml: there is no such file"):
        inventory.load(tmp_path / "nowhere.yml")
