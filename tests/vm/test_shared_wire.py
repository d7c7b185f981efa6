"""Control and test on one wire, on two VLANs: the wiring of a board with one Ethernet port.

The lab's control network is that wire: each node has its test interface on it, as VLAN 20, made as provisioning does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pktswarm import lab

PKTSWARM = Path(sys.executable).with_name("pktswarm")
NODES, WIRE, VLAN = ("tx1", "rx1"), "ctl0", "ctl0.20"
PATIENCE = "20"
STREAM = (
    "name: shared\nstreams: [{name: s, size_bytes: 128%s, count_packets: 2000}]\nreceive: {mode: count, drain_s: 2}\n"
)


def inside(hosts: Path, node: str, *command: str) -> None:
    assert lab.run_in(hosts, node, list(command)) == 0


def tuned(hosts: Path, folder: Path, what: str) -> None:
    for node in NODES:
        own = folder / node
        own.mkdir(exist_ok=True)
        (own / "tune.json").write_text(json.dumps({"interface": VLAN, "shared_kernel": "the lab's"}))
        inside(hosts, node, sys.executable, "-P", "-m", "pktswarm.nodes.tune", what, str(own))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hosts")
    subprocess.run(["modprobe", "8021q"], check=True, timeout=60)
    state = lab.up("wire", 1, 1, folder)
    try:
        tuned(state.inventory, folder, "apply")
        for node in NODES:
            inside(state.inventory, node, "ethtool", "-K", WIRE, "gro", "on")
        yield on_the_wire(state.inventory, folder / "one-wire.yml")
        tuned(state.inventory, folder, "undo")
        for node in NODES:
            inside(state.inventory, node, "sh", "-c", f"! test -e /sys/class/net/{VLAN}")
    finally:
        lab.down("wire", folder)


def on_the_wire(hosts: Path, path: Path, **limit: object) -> Path:
    """The inventory of `hosts` with the test interfaces on the control wire."""
    document = yaml.safe_load(hosts.read_text())
    for group in ("transmit", "receive"):
        for variables in document["all"]["children"][group]["hosts"].values():
            variables |= {"traffic_interface": VLAN, **limit}
            variables.pop("mac", None)
    path.write_text(yaml.safe_dump(document))
    return path


def command(hosts: Path, folder: Path, rate: str) -> list[str]:
    scenario = folder / "scenario.yaml"
    scenario.write_text(STREAM % rate)
    words = [PKTSWARM, "run", scenario, "--hosts", hosts, "--json", "--no-report", "--results", folder]
    return [*map(str, words), "--patience", PATIENCE]


def merges(hosts: Path, folder: Path, node: str) -> bool:
    """Whether GRO of the wire is on."""
    shown = folder / f"{node}-offloads"
    inside(hosts, node, "sh", "-c", f"ethtool -k {WIRE} > {shown}")
    return "generic-receive-offload: on" in shown.read_text()


def test_every_packet_arrives_beside_the_control_connection(hosts: Path, tmp_path: Path) -> None:
    run = subprocess.Popen(command(hosts, tmp_path, ", rate_pps: 500"), stdout=subprocess.PIPE, text=True)
    off = False
    while run.poll() is None:
        off = off or not merges(hosts, tmp_path, "rx1")
        time.sleep(0.2)
    assert run.stdout is not None
    document: dict[str, Any] = json.loads(run.stdout.read())
    assert run.returncode == 0, document
    (row,) = document["rows"]
    assert (row["engine"], row["received_packets"], row["lost_packets"]) == ("tc", 2000, 0)
    # Frames are merged on the wire before its VLAN has them; the setting is the wire's own again afterwards.
    assert off and merges(hosts, tmp_path, "rx1")
    notes = [note for note in document["notes"] if "carries the connection to the master too" in note]
    load_mbps = 500 * 8 * (128 + 4 + 20) / 1e6
    assert [f"{node} {does}s up to {load_mbps:g} Mbit/s" in note for node, does, note in zip(
        NODES, ("send", "receive"), notes, strict=True)] == [True, True]  # fmt: skip


def test_a_load_that_could_starve_it_is_refused(hosts: Path, tmp_path: Path) -> None:
    limited = on_the_wire(hosts, tmp_path / "hosts.yml", pktswarm_shared_wire_limit="1M")
    words = command(limited, tmp_path, ", rate_pps: 900")
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"tx1: traffic_interface = '{VLAN}': sends 1.0944 Mbit/s on {WIRE}" in done.stderr
    assert not list(tmp_path.glob("*-shared"))


def test_the_doctor_names_the_wire(hosts: Path) -> None:
    words = [PKTSWARM, "doctor", "--hosts", hosts, "--json", "--patience", PATIENCE]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=600, check=False)
    health = json.loads(done.stdout)["hosts"]
    for node in NODES:
        found = [one["what"] for one in health[node]["findings"]]
        assert f"{VLAN} shares {WIRE} with the connection to the master" in found
