"""Traces through a whole lab: both directions, tunnels, instances, real captures; every packet verified."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

CONFIGS = Path("configs").resolve()
HERE = Path(__file__).resolve()
REAL_TRACES = next((p for up in HERE.parents if (p := up / "shared" / "traces").is_dir()), HERE.parents[3] / "shared")
REAL = sorted(path.name for path in REAL_TRACES.glob("*.pcap*")) or ["none"]
PKTSWARM = Path(sys.executable).with_name("pktswarm")


class Cluster:
    """Two hosts that both send and receive."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"y{os.getpid()}"
        self.hosts = lab.up(self.name, 1, 1, folder, both_roles=True).inventory

    def run(self, scenario: Path, status: int | None = 0) -> dict[str, Any]:
        command = [PKTSWARM, "run", scenario, "--hosts", self.hosts, "--results", self.folder / "results", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        document = json.loads(done.stdout or "{}")
        words = [document.get(key) for key in ("reason", "verdicts", "doubts", "verified")]
        assert done.returncode == (document.get("status") if status is None else status), f"{words}{done.stderr}"
        return dict(document)

    def trace(self, keys: str, status: int | None = 0) -> dict[str, Any]:
        path = self.folder / "scenario.yaml"
        expect = "expect: {loss: 0, sent: intended}"
        path.write_text(f"name: test\ntraces: [{{name: t, from: tx1, to: rx1, verify: true, {keys}}}]\n{expect}\n")
        return self.run(path, status)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("replay"))
    try:
        yield made
    finally:
        lab.down(made.name, made.folder)


def all_as_intended(document: dict[str, Any], packets: int, reordered: int = 0) -> None:
    results = document["verified"]
    assert sum(one["intended"] for one in results) == packets
    for one in results:
        assert one["as_intended"] == one["intended"] == one["captured"]
        assert one["altered"] == one["lost"] == one["duplicated"] == 0
        assert one["reordered"] <= reordered
        assert one["error_p50_ns"] is not None
    again = subprocess.run([PKTSWARM, "recount", document["results"]], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout


@pytest.mark.parametrize(("name", "packets"), [("udp", 20), ("tcp", 40)])
def test_the_traces_of_the_thesis_both_ways(cluster: Cluster, name: str, packets: int) -> None:
    document = cluster.run(CONFIGS / f"ericload-{name}.yaml")
    all_as_intended(document, packets)
    assert {(row["from"], row["to"]) for row in document["rows"]} == {("tx1", "rx1"), ("rx1", "tx1")}


@pytest.mark.parametrize("engine", ["xdp", "tcpreplay"])
def test_instances_at_random_and_passes(cluster: Cluster, engine: str) -> None:
    pools = "users: {first: 10.60.0.1}, servers: {first: 10.70.0.1}"
    keys = f"engine: {engine}, scale: {{instances: 3, start: random}}, repeat: 2, speed: 4, {pools}"
    # Linux may carry packets of one socket over two processors, where one overtakes the other now and then.
    status, reordered = (0, 0) if engine == "xdp" else (None, 5)
    document = cluster.trace(f"file: {CONFIGS}/traces/lab.pcapng, {keys}", status)
    all_as_intended(document, 895 * 6, reordered)
    assert [(row["intended_packets"], row["received_packets"]) for row in document["rows"]] == [(5370, 5370)]


@pytest.mark.parametrize("stamp", ["false", "true"])
@pytest.mark.parametrize("name", REAL)
def test_every_packet_of_a_real_capture_is_accounted_for(cluster: Cluster, name: str, stamp: str) -> None:
    path = REAL_TRACES / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    pools = "users: {first: 10.60.0.1}, servers: {first: 10.70.0.1}"
    keys = f"{pools}, direction: both, gtpu: {{teid: 1}}, oversize: cut, longest_gap_s: 0.05, speed: 5"
    keys += f", engine: xdp, options: {{stamp: {stamp}}}"
    # A capture does not keep the tags of a trace that has some, but one tag for all.
    keys += ", vlan: 7" if name == "ipv6_in_gtp.pcap" else ""
    document = cluster.trace(f"file: {path}, {keys}")
    all_as_intended(document, sum(row["sent_packets"] for row in document["rows"]))
    # netsniff-ng receives tagged frames from a veth, and it reads no stamps.
    if stamp == "true" and "vlan" not in keys:
        by_number(document["rows"])


def by_number(rows: list[dict[str, Any]]) -> None:
    """Nothing lost, doubled or changed, neither of the stamped frames nor of the others."""
    names = ("lost", "duplicated", "reordered", "altered")
    assert all([row[f"{name}_packets"] for name in names] == [0, 0, 0, 0] for row in rows)
    assert all(row["unstamped_sent_packets"] == row["unstamped_received_packets"] for row in rows)
    assert sum(row["unstamped_sent_packets"] for row in rows) < sum(row["sent_packets"] for row in rows)
