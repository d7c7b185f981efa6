"""What makes an emulated machine a node of a lab. The machine itself: tests/bare/arm.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pktswarm.lab import emulated
from pktswarm.lab.api import LabState
from pktswarm.lab.plan import plan
from pktswarm.lab.record_file import Keeper
from pktswarm.traffic.errors import PktswarmError


@pytest.fixture
def state(tmp_path: Path) -> LabState:
    return LabState("one", tmp_path / "lab-one.yml", Keeper("one", 1, 1, 1, {"m0": 1, "rx1": 1}), plan("one", 1, 1))


def test_the_machine_gets_the_nodes_names_addresses_and_keys(state: LabState, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    for name in ("host_key", "authorized_keys"):
        (keys / name).write_text(name)
    node = next(one for one in state.plan.nodes if one.name == "rx1")
    files = emulated.files_of(node, state, keys, tmp_path / "files") / "node"
    network = files / "etc/systemd/network"
    by_usb = f"40{node.control_mac[2:]}"
    link = f"MACAddress={node.control_mac} {by_usb}\n[Link]\nName=ctl0\nMACAddress={node.control_mac}\n"
    assert link in (network / "10-ctl0.link").read_text()
    assert (
        f"MACAddress={node.mac} 40{node.mac[2:]}\n[Link]\nName=eth1\nMACAddress={node.mac}\n"
        in (network / "10-eth1.link").read_text()
    )
    assert f"Address={node.address}/24" in (network / "10-ctl0.network").read_text()
    assert "Address=" not in (network / "10-eth1.network").read_text(), "it is for the frames"
    assert (files / "etc/hostname").read_text() == "rx1\n"
    assert f"{state.plan.nodes[0].address} m0\n" in (files / "etc/hosts").read_text()
    for path, words in (("etc/ssh/lab_host_key", "host_key"), ("root/.ssh/authorized_keys", "authorized_keys")):
        assert (files / path).read_text() == words and (files / path).stat().st_mode & 0o077 == 0
    assert (files / "root/.ssh").stat().st_mode & 0o077 == 0


def test_what_is_not_installed_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "cpio" else f"/usr/bin/{name}")
    with pytest.raises(PktswarmError, match=r"apt install cpio$"):
        emulated.make_machine(emulated.ARMHF)
