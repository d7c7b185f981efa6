"""Nodes without MPI beside others: runs, captures, deaths, and a cluster that stays up. mpi4py is hidden from them."""

from __future__ import annotations

import json
import os
import signal
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from forked import PKTSWARM
from pktswarm import lab
from run_cluster import LONG, Cluster, assert_nothing_left, network_of, pids_of, rank_of
from running import cluster_of, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

CONFIGS = Path("configs").resolve()
WITHOUT = ("tx2", "rx1")
TRACE = f"traces: [{{name: t, file: {CONFIGS}/traces/lab.pcapng, timing: top}}]"
STREAM = "streams: [{name: s, size_bytes: 128, rate_pps: 500, count_packets: 400, per: node}]"


class Mixed(Cluster):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "w")
        hidden = Path(sysconfig.get_path("platlib"), "mpi4py")
        for node in WITHOUT:
            hide = f"mount -t tmpfs tmpfs {hidden} && echo 'raise ImportError(\"hidden\")' >{hidden}/__init__.py"
            assert lab.run_in(self.hosts, node, ["sh", "-c", hide]) == 0
        self.mixed = self.inventory(without_mpi(*WITHOUT)).rename(folder / "mixed.yml")


def without_mpi(*nodes: str) -> Any:
    def change(everything: dict[str, Any]) -> None:
        for group in ("transmit", "receive"):
            for name, host in everything["children"][group]["hosts"].items():
                host |= {"pktswarm_mpi": "none"} if name in nodes else {}

    return change


cluster = cluster_of(Mixed, stands=False)


@pytest.fixture(autouse=True)
def nothing_left(cluster: Mixed) -> Iterator[None]:
    yield
    assert_nothing_left(cluster)


def counts(document: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {row["from"]: (row["sent_packets"], row["received_packets"]) for row in document["rows"]}


@pytest.mark.parametrize("mode", ["count", "capture"])
def test_a_run_is_exact(cluster: Mixed, mode: str) -> None:
    """A trace goes to the nodes, and captures come from them; the bound of the clocks is that of one kernel."""
    text = f"{STREAM}\n{TRACE}\nreceive: {{mode: {mode}}}"
    document = cluster.run(cluster.scenario(text), 0, cluster.mixed)
    assert document["doubts"] == [] and {row["from"] for row in document["rows"]} == {"tx1", "tx2"}
    for row in document["rows"]:
        assert row["intended_packets"] == row["sent_packets"] == row["received_packets"] > 0
    if mode == "capture":
        assert sorted(path.name.split(".")[0] for path in Path(document["results"]).glob("**/rx*.pcap*"))
    if mode == "count":
        assert {row["latency_bound_ns"] for row in document["rows"] if row["stream"] == "s"} == {0}


def test_a_node_without_mpi_needs_none_and_one_with_it_does(cluster: Mixed) -> None:
    """With the lab's own inventory mpi4py is missing on these nodes, and the run is refused."""
    refused = cluster.run(cluster.scenario(STREAM), 2)
    assert "rx1" in refused["error"] or "tx2" in refused["error"], refused


def test_all_nodes_can_be_without_it(cluster: Mixed) -> None:
    hosts = cluster.inventory(without_mpi("tx1", "tx2", "rx1", "rx2"))
    document = cluster.run(cluster.scenario(STREAM), 0, hosts)
    assert counts(document) == {"tx1": (400, 400), "tx2": (400, 400)}


def test_a_killed_rank_costs_its_own_counts_and_nothing_else(cluster: Mixed) -> None:
    process = cluster.start(cluster.scenario(STREAM.replace("400,", "1500,")), "--json", hosts=cluster.mixed)
    wait_for(process, "sending")
    cluster.wait_until_sent()
    os.kill(rank_of(cluster, "tx2"), signal.SIGKILL)
    out, _ = process.communicate(timeout=90)
    assert process.returncode == 3 and "tx2 (transmit)" in out and '"sent_packets": 1500' in out, out


def test_a_lost_connection_ends_the_sending_there(cluster: Mixed) -> None:
    process = cluster.start(cluster.scenario(STREAM.replace("400,", "1500,")), "--json", hosts=cluster.mixed)
    wait_for(process, "sending")
    cluster.wait_until_sent()
    connection, *_ = pids_of("--host tx2 ", network_of(cluster, "m0"))
    os.kill(connection, signal.SIGKILL)
    out, _ = process.communicate(timeout=90)
    assert process.returncode == 3 and "tx2 (transmit)" in out and '"sent_packets": 1500' in out, out


def test_ctrl_c_is_obeyed(cluster: Mixed) -> None:
    process = cluster.start(cluster.scenario(LONG), "--json", hosts=cluster.mixed)
    wait_for(process, "sending")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3 and '"lost_packets": 0' in out, out


def test_a_killed_command_line_leaves_nothing(cluster: Mixed) -> None:
    process = cluster.start(cluster.scenario(LONG), hosts=cluster.mixed)
    wait_for(process, "sending")
    process.kill()
    process.communicate()


@pytest.mark.waits
def test_a_host_that_does_not_answer_is_named(cluster: Mixed) -> None:
    def change(everything: dict[str, Any]) -> None:
        without_mpi("tx2")(everything)
        everything["children"]["transmit"]["hosts"]["tx2"]["ansible_host"] = "10.91.255.254"

    refused = cluster.run(cluster.scenario(STREAM), 2, cluster.inventory(change))
    assert "tx2" in refused["error"] and "10.91.255.254" in refused["error"], refused


def test_a_cluster_stays_up(cluster: Mixed) -> None:
    hosts = cluster.mixed
    forked.run([PKTSWARM, "cluster", "up", "--hosts", hosts], check=True, timeout=90)
    try:
        for _ in range(2):
            document = cluster.run(cluster.scenario(STREAM), 0, hosts)
            assert counts(document) == {"tx1": (400, 400), "tx2": (400, 400)}
            assert not [note for note in document["notes"] if "launched ranks" in note], document["notes"]
    finally:
        forked.run([PKTSWARM, "cluster", "down", "--hosts", hosts], check=True, timeout=90)


def test_doctor_asks_for_no_mpi_there(cluster: Mixed) -> None:
    done = forked.run([PKTSWARM, "doctor", "--hosts", cluster.mixed, "--json"])
    hosts = json.loads(done.stdout)["hosts"]
    for node in WITHOUT:
        assert hosts[node]["reachable"] and "hidden" in hosts[node]["told"]["versions"]["mpi_missing"]
        assert [finding for finding in hosts[node]["findings"] if "MPI" in finding["what"]] == []
