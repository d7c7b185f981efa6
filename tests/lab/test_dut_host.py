"""What the device's host drops is read from its kernel, in a lab and over SSH, and stands beside the loss."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import forked
from forked import PKTSWARM
from pktswarm import lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

SINK = """
import os, socket, time
sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel takes its least instead
sink.bind((os.environ["N3_IPV4"], 2152))
count = 0
while True:
    sink.recv(2000)
    count += 1
    open("read.txt", "w").write(str(count))
    time.sleep(0.005)
"""
"""A device under test that takes 200 datagrams a second at most, and passes none on."""
SENT = 2000


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"dh{os.getpid()}"
        self.state = lab.up(self.name, 1, 1, folder, dut="exec", command=[sys.executable, "-c", SINK])

    def udp(self, name: str) -> int:
        """A counter of the device's host, by the kernel."""
        shown = Path(f"/proc/{self.state.keeper.pids['dut']}/net/snmp").read_text()
        names, values = (line.split() for line in shown.splitlines() if line.startswith("Udp:"))
        return int(values[names.index(name)])

    def scenario(self, port: int, packets: int = SENT) -> Path:
        upf = self.state.plan.upf
        assert upf is not None
        headers = [
            {"ethernet": {"dst": upf.n3_mac}},
            {"ipv4": {"dst": upf.n3_ipv4}},
            {"udp": {"src": 2152, "dst": port}},
        ]
        stream = {"name": "s", "headers": headers, "size_bytes": 200, "rate_pps": 2000, "count_packets": packets}
        stream |= {"from": "tx1", "to": "rx1"}
        path = self.folder / "scenario.yaml"
        path.write_text(json.dumps({"name": "drops", "streams": [stream], "expect": {"loss": 0}}))
        return path

    def run(self, port: int = 2152, hosts: Path | None = None, *options: str) -> tuple[int, str]:
        command = [PKTSWARM, "run", self.scenario(port), "--hosts", hosts or self.state.inventory, "--no-report"]
        command += ["--results", self.folder / "results", *options]
        done = forked.run(command, timeout=120)
        assert done.stdout, done.stderr
        return done.returncode, done.stdout

    def document(self, port: int = 2152, hosts: Path | None = None) -> dict[str, Any]:
        status, printed = self.run(port, hosts, "--json")
        document: dict[str, Any] = json.loads(printed)
        assert status == 1, document["reason"]
        return document

    def read_by_the_device(self) -> int:
        """Once it has read all that waited for it."""
        path, count, again = self.folder / "read.txt", "0", ""
        while count != again:
            again = count
            time.sleep(0.5)
            count = path.read_text() if path.exists() else "0"
        return int(count)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # where the device writes
        made = Cluster(folder)
    try:
        yield made
    finally:
        lab.down(made.name, folder)


def test_what_the_receive_buffer_did_not_take_stands_beside_the_loss(cluster: Cluster) -> None:
    """Every packet was read by the device or dropped by its host: none is counted twice, and none is forgotten."""
    before, read = cluster.udp("RcvbufErrors"), cluster.read_by_the_device()
    document = cluster.document()
    dropped = cluster.udp("RcvbufErrors") - before
    host = document["dut_host"]
    assert dropped > SENT / 4
    assert dropped + cluster.read_by_the_device() - read == SENT
    assert host["reasons"]["receive buffer"] == host["dropped_packets"] == dropped
    assert host["udp_ports"] == {"2152": dropped}
    assert {one["tx_dropped"] for one in host["interfaces"].values()} == {0}
    line = f"{SENT:,} lost, of which the UPF's host dropped {dropped:,} (receive buffer of UDP port 2152)"
    assert host["words"].startswith(line)
    assert document["verdicts"][0]["note"] == host["words"]
    written = json.loads((Path(document["results"]) / "run.json").read_text())
    assert written["dut_host"] == host


def test_the_terminal_has_the_line(cluster: Cluster) -> None:
    before = cluster.udp("RcvbufErrors")
    status, printed = cluster.run()
    dropped = cluster.udp("RcvbufErrors") - before
    assert status == 1 and dropped > SENT / 4
    line = f"{SENT:,} lost, of which the UPF's host dropped {dropped:,} (receive buffer of UDP port 2152)"
    assert line in " ".join(printed.split())


def test_datagrams_for_a_port_that_nobody_reads_are_told_as_such(cluster: Cluster) -> None:
    document = cluster.document(port=2153)
    assert document["dut_host"]["reasons"]["no socket at the UDP port"] == SENT
    assert document["dut_host"]["words"] == (
        f"{SENT:,} lost, of which the UPF's host dropped {SENT:,} (no socket at the UDP port)"
    )


def inventory(cluster: Cluster, **dut: Any) -> Path:
    """The lab's, with an entry for the device's host."""
    data = yaml.safe_load(cluster.state.inventory.read_text())
    data["all"]["vars"]["pktswarm_dut"] = dut
    path = cluster.folder / "over-ssh.yml"
    path.write_text(yaml.safe_dump(data))
    return path


def test_over_ssh_the_counters_of_the_host_in_the_inventory_are_read(cluster: Cluster) -> None:
    """Here a node is in its place: it has an sshd, and drops nothing."""
    rx1 = next(node for node in cluster.state.plan.nodes if node.name == "rx1")
    document = cluster.document(hosts=inventory(cluster, ssh=rx1.address, interfaces=["eth1"]))
    host = document["dut_host"]
    assert host["host"] == rx1.address and host["problem"] == ""
    assert list(host["interfaces"]) == ["eth1"] and host["interfaces"]["eth1"]["rx_missed"] == 0
    assert host["reasons"]["receive buffer"] == 0
    assert host["words"].startswith(f"{SENT:,} lost; the UPF's host counted no drop")


def test_a_host_that_cannot_be_read_is_a_note_and_the_run_is_what_it_was(cluster: Cluster) -> None:
    document = cluster.document(hosts=inventory(cluster, ssh="127.0.0.1"))
    assert document["dut_host"]["dropped_packets"] is None and document["dut_host"]["words"] == ""
    assert document["status"] == 1 and document["doubts"] == []
    (note,) = [note for note in document["notes"] if "the UPF's host" in note]
    assert note.startswith("the UPF's host 127.0.0.1: drops not counted, before packets were sent: ")
