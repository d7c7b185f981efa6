"""The examples of docs/examples: their syntax, their pktswarm commands, and that they agree with each other."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from pktswarm.master.cli.app import app
from pktswarm.master.cluster import inventory

EXAMPLES = Path("docs/examples")
FILES = sorted(path for path in EXAMPLES.rglob("*") if path.is_file())
PACKAGES = Path("ansible/debian-packages.txt")
CALL = re.compile(r"(?:^|[;\s])(?:sudo )?\S*?/?bin/pktswarm\"? ([a-z][^;\n]*)")


def packages() -> list[str]:
    lines = (line.split("#")[0].split() for line in PACKAGES.read_text().splitlines())
    return sorted(words[0] for words in lines if words[1:] == ["run"])


def topology() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "containerlab/pktswarm.clab.yml").read_text())
    return found


@pytest.mark.parametrize("path", FILES, ids=str)
def test_an_example_is_yaml_and_named_in_the_documentation(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)
    assert f"]({path.relative_to('docs')})" in Path("docs/install.md").read_text()


def test_the_command_line_takes_every_call_of_the_examples() -> None:
    count = 0
    for path in FILES:
        for call in CALL.findall(path.read_text().replace("\\\n", " ")):
            words = shlex.split(re.sub(r" \$LAB$", " --transmit 1 --receive 1", call).replace("$", ""))
            command: Any = typer.main.get_command(app)
            name = "pktswarm"
            while hasattr(command, "commands"):
                name, command, words = f"{name} {words[0]}", command.commands[words[0]], words[1:]
            command.make_context(name, words)
            count += 1
    assert count == 4


def test_every_place_installs_the_debian_packages_of_bootstrap() -> None:
    page = re.search(r"sudo apt install (ca-certificates .*)", Path("docs/install.md").read_text())
    action = re.search(r"(?s)--no-install-recommends \\\n(.*?)\n +getent", (EXAMPLES / "github/action.yml").read_text())
    assert page and action
    assert sorted(page[1].split()) == sorted(action[1].replace("\\\n", " ").split()) == packages()


def test_the_inventory_of_containerlab_names_the_nodes_of_the_topology() -> None:
    nodes = topology()["topology"]["nodes"]
    hosts = inventory.load(EXAMPLES / "containerlab/hosts.yml")
    found = {host.name: host.address for host in (hosts.master, *hosts.hosts)}
    assert found == {name: node["mgmt-ipv4"] for name, node in nodes.items() if name != "dut"}


def test_every_traffic_interface_of_containerlab_is_linked_to_the_device() -> None:
    links = [link["endpoints"] for link in topology()["topology"]["links"]]
    hosts = inventory.load(EXAMPLES / "containerlab/hosts.yml").hosts
    assert [one for one, _ in links] == [f"{host.name}:{host.traffic_interface}" for host in hosts]
    device = topology()["topology"]["nodes"]["dut"]["exec"]
    assert all(f"ip link set {end.split(':')[1]} master br0" in device for _, end in links)
