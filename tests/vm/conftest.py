"""These tests run inside the virtual machine: `./bootstrap test --vm` boots it once for all of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pktswarm.lab.vm import pair_macs
from pktswarm.nodes.senders.pktgen_module import missing
from wires import RX_MAC, TX_MAC, Wire, ip, namespaces


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing() or ("" if os.geteuid() == 0 else "needs root")
    for item in items:
        if reason and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"runs in the virtual machine: ./bootstrap test --vm ({reason})"))


@pytest.fixture(scope="session", autouse=True)
def module() -> Iterator[None]:
    """Loaded once: without this each sender would load it and unload it again."""
    loaded = Path("/sys/module/pktgen").exists()
    subprocess.run(["modprobe", "pktgen"], check=True, timeout=60)
    yield
    if not loaded:
        subprocess.run(["modprobe", "--remove", "pktgen"], check=True, timeout=60)


@pytest.fixture(scope="session")
def wire() -> Iterator[Wire]:
    """Two namespaces joined by a veth pair."""
    made = Wire("pgtx", "pgrx", "t0", "r0")
    try:
        namespaces(made.tx, made.rx)
        ip("-n", made.tx, "link", "add", "t0", "address", TX_MAC, "type", "veth")  # its peer is moved and named below
        peer = json.loads(ip("-n", made.tx, "-j", "link", "show", "type", "veth"))
        other = next(link["ifname"] for link in peer if link["ifname"] != "t0")
        ip("-n", made.tx, "link", "set", other, "netns", made.rx, "name", "r0", "address", RX_MAC)
        # A checksum left to the receiver's hardware would be captured unfinished.
        subprocess.run(["ip", "netns", "exec", made.tx, "ethtool", "-K", "t0", "tx", "off"], check=True, timeout=30)
        ip("-n", made.tx, "link", "set", "t0", "up")
        ip("-n", made.rx, "link", "set", "r0", "up")
        yield made
    finally:
        for name in (made.tx, made.rx):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.fixture(scope="session")
def virtio() -> Iterator[Wire]:
    """Two namespaces that each hold one of the machine's two connected virtio interfaces."""
    made = Wire("vgtx", "vgrx", "v0", "v1")
    links = {link["address"]: link["ifname"] for link in json.loads(ip("-j", "link", "show"))}
    macs = pair_macs("virtio-net-pci")
    if not set(macs) <= set(links):
        pytest.skip("needs the pair of virtio interfaces: ./bootstrap test --vm")
    try:
        namespaces(made.tx, made.rx)
        for mac, namespace, name in zip(macs, (made.tx, made.rx), ("v0", "v1"), strict=True):
            ip("link", "set", links[mac], "netns", namespace, "name", name)
            ip("-n", namespace, "link", "set", name, "up")
        yield made
    finally:
        for name in (made.tx, made.rx):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
