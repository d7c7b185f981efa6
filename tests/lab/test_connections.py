"""Real connections in whole runs: beside streams and traces, through a bottleneck, interrupted, with a guard killed."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import forked
from forked import PKTSWARM
from pktswarm import lab
from pktswarm.master.results.read_document import read_run
from running import cluster_of, lie_down, qdisc_drops, stand_again, wait_for, wait_until_sent

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

CONFIGS = Path("configs").resolve()
NODES = ("tx1", "tx2", "rx1", "rx2")
BOTTLENECK_BPS = 20_000_000
QUEUE_BYTES = 500_000
"""Room for all of the trace, so that only what is meant to lose does."""


class Cluster:
    """A lab of two transmitters and two receivers with a bottleneck between them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"c{os.getpid()}"
        self.state = lab.up(self.name, 2, 2, folder, bottleneck_bps=BOTTLENECK_BPS, queue_bytes=QUEUE_BYTES)
        self.hosts = self.state.inventory

    def start(self, text: str, hosts: Path | None = None) -> subprocess.Popen[str]:
        path = self.folder / "scenario.yaml"
        path.write_text(f"name: test\n{text}\n")
        if hosts is None:
            stand_again(self)
        else:
            lie_down(self)
        command = [PKTSWARM, "run", path, "--hosts", hosts or self.hosts, "--results", self.folder / "results"]
        return forked.popen([*command, "--json", "--no-report"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, text: str, status: int, hosts: Path | None = None) -> dict[str, Any]:
        process = self.start(text, hosts)
        out, err = process.communicate(timeout=90)
        document = dict(json.loads(out)) if out else {"error": err.strip().splitlines()[-1]}
        told = {key: document.get(key) for key in ("reason", "doubts", "totals")}
        assert process.returncode == status, (told, err)
        if "rows" in document:
            read_run(Path(document["results"]))
        return document

    def on(self, node: str, *command: str) -> str:
        pid = self.state.keeper.pids[node]
        words = ["nsenter", f"--net=/proc/{pid}/ns/net", *command]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def addresses(self) -> list[dict[str, Any]]:
        """Of all traffic interfaces."""
        shown = [json.loads(self.on(node, "ip", "-json", "-4", "addr", "show", "eth1")) for node in NODES]
        return [one for links in shown for link in links if link for one in link["addr_info"]]

    def drops(self, port: str) -> int:
        return qdisc_drops(self.state.keeper.pids["dut"], port)

    def icmp_sent(self, node: str) -> int:
        pid = self.state.keeper.pids[node]
        lines = [line.split() for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if "Icmp: " in line]
        return int(dict(zip(*lines, strict=True))["OutMsgs"])


cluster = cluster_of(Cluster)


MIX = f"""
streams: [{{name: small, engine: xdp, size_bytes: 64, rate_pps: 2000, duration_s: 1.5, from: tx1, to: rx1}}]
traces: [{{name: recorded, file: {CONFIGS}/traces/lab.pcapng, from: tx1, to: rx1}}]
connections:
  - {{name: t, from: tx1, to: rx1, direction: both, connections: 2, block_bytes: 9140, period_s: 0.028, blocks: 40}}
  - {{name: u, from: tx1, to: rx1, protocol: udp, direction: both, block_bytes: 9140, period_s: 0.028, blocks: 40}}
expect: {{loss: 0, sent: intended, received: {{t: 80, u: 40}}}}
"""


def test_connections_streams_and_a_trace_between_two_hosts_do_not_disturb_each_other(cluster: Cluster) -> None:
    before = cluster.icmp_sent("rx1")
    document = cluster.run(MIX + "receive: {mode: capture}", 0)
    assert document["doubts"] == [] and cluster.addresses() == []
    assert [total["received_packets"] for total in document["totals"]] == [3000, 895, 3895]
    rows = list(csv.DictReader((Path(document["results"]) / "connections.csv").open()))
    assert {(row["connections"], row["from"], row["to"]) for row in rows} == {
        (name, *ends) for name in ("t", "u") for ends in (("tx1", "rx1"), ("rx1", "tx1"))
    }
    for row in rows:
        assert int(row["received_blocks"]) == int(row["sent_blocks"]) == int(row["intended_blocks"])
        assert row["sent_bytes"] == row["received_bytes"] != ""
        # One kernel's clock; datagrams arrive by its UTC, which takes a reading.
        assert (int(row["delay_bound_ns"]) == 0) == (row["protocol"] == "tcp") and row["jitter_sd_ns"] != ""
        # A delay may be below zero by no more than the clocks may be off.
        assert int(row["delay_min_ns"]) > -int(row["delay_bound_ns"])
        assert (row["retransmitted_segments"] != "") == (row["protocol"] == "tcp")
    # The streams go to another address than the connections: the kernel that has these answers none of them.
    assert cluster.icmp_sent("rx1") == before
    again = forked.run([PKTSWARM, "recount", document["results"]])
    assert again.returncode == 0, again.stdout


def test_what_the_bottleneck_drops_of_udp_is_what_is_lost(cluster: Cluster) -> None:
    before = cluster.drops("to-b")
    blocks = "block_bytes: 54840, period_s: 0.014, blocks: 100"
    text = f"connections: [{{name: u, from: tx1, to: rx1, protocol: udp, {blocks}}}]"
    (row,) = cluster.run(text, 0)["connections"]
    assert row["sent_datagrams"] == 100 * 38
    assert row["lost_datagrams"] == cluster.drops("to-b") - before > 0
    assert row["goodput_bps"] < BOTTLENECK_BPS


def test_tcp_retransmits_what_the_bottleneck_drops(cluster: Cluster) -> None:
    before = cluster.drops("to-b")
    text = "connections: [{name: t, from: tx1, to: rx1, block_bytes: 65536, duration_s: 1, congestion: reno}]"
    (row,) = cluster.run(text, 0)["connections"]
    assert row["sent_bytes"] == row["received_bytes"] > 0
    assert row["retransmitted_segments"] >= cluster.drops("to-b") - before > 0
    assert row["goodput_bps"] < BOTTLENECK_BPS
    assert row["congestion"] == "reno" and row["role"] == "target"


def test_a_host_with_both_roles_has_an_address_for_each(cluster: Cluster) -> None:
    document = yaml.safe_load(cluster.hosts.read_text())
    children = document["all"]["children"]
    children["transmit"]["hosts"]["rx1"] = children["receive"]["hosts"]["rx1"]
    children["receive"]["hosts"]["tx1"] = children["transmit"]["hosts"]["tx1"]
    hosts = cluster.folder / "both.yml"
    hosts.write_text(yaml.safe_dump(document))
    each = "block_bytes: 9140, period_s: 0.014, blocks: 30"
    text = (
        f"traces: [{{name: recorded, file: {CONFIGS}/traces/lab.pcapng, from: tx1, to: rx1, timing: top}}]\n"
        f"connections: [{{name: there, from: tx1, to: rx1, {each}}}, {{name: back, from: rx1, to: tx1, {each}}}]\n"
        "expect: {received: {there: 30, back: 30, recorded: 895}}"
    )
    document = cluster.run(text, 0, hosts)
    assert document["doubts"] == [] and cluster.addresses() == []


def test_unmet_expectations_of_connections_end_with_1(cluster: Cluster) -> None:
    text = "connections: [{name: t, from: tx1, to: rx1, block_bytes: 100, period_s: 0.01, blocks: 5}]"
    document = cluster.run(text + "\nexpect: {received: {t: 6}}", 1)
    assert document["reason"] == "t from tx1 to rx1: received 5 blocks, expected 6"


def test_a_congestion_control_that_a_node_lacks_is_bad_input(cluster: Cluster) -> None:
    results = sorted((cluster.folder / "results").glob("*"))
    text = "connections: [{name: t, from: tx1, to: rx1, block_bytes: 100, blocks: 5, congestion: nosuch}]"
    assert "congestion = 'nosuch'" in cluster.run(text, 2)["error"]
    assert sorted((cluster.folder / "results").glob("*")) == results
    assert cluster.addresses() == []


LONG = "connections: [{name: t, direction: both, connections: 3, block_bytes: 9140, period_s: 0.05, duration_s: 20}]"


def test_ctrl_c_counts_and_leaves_no_address(cluster: Cluster) -> None:
    process = cluster.start(LONG)
    wait_for(process, "sending")
    wait_until_sent((cluster.state.keeper.pids[node] for node in NODES), 60)
    assert len(cluster.addresses()) == len(NODES)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=40)
    document = json.loads(out)
    assert process.returncode == 3 and document["reason"] == "stopped by the user"
    assert all(row["sent_bytes"] == row["received_bytes"] > 0 for row in document["connections"])
    assert cluster.addresses() == []


@pytest.mark.parametrize("phase", ["arming the receivers", "preparing the transmitters", "gathering", "restoring"])
def test_ctrl_c_in_any_phase_leaves_no_address(cluster: Cluster, phase: str) -> None:
    short = phase in ("gathering", "restoring")
    process = cluster.start(LONG.replace("duration_s: 20", "duration_s: 0.3") if short else LONG)
    wait_for(process, phase)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=40)
    # Too late to stop anything: then it is an ordinary end.
    assert process.returncode == 3 or (short and process.returncode == 0)
    assert cluster.addresses() == []


def spool_of(cluster: Cluster, node: str) -> Path:
    """Where the guard of a node works, by the file that its connections' process was given."""
    net = Path(f"/proc/{cluster.state.keeper.pids[node]}/ns/net").stat().st_ino
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"pktswarm.nodes.connections.program" in words and (entry / "ns/net").stat().st_ino == net:
                return Path(words[-2].decode()).parent
        except OSError:
            continue
    raise AssertionError(f"no connections on {node}")


def guards_of(cluster: Cluster, node: str) -> list[int]:
    """Root's processes among the ranks of a node."""
    net = Path(f"/proc/{cluster.state.keeper.pids[node]}/ns/net").stat().st_ino
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            inside = b"nodes\0--role" in words and (entry / "ns/net").stat().st_ino == net
            if inside and entry.stat().st_uid == 0 and (entry / "exe").resolve().name.startswith("python"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.waits
def test_a_killed_guard_costs_its_own_counts_and_its_address_has_an_end(cluster: Cluster) -> None:
    process = cluster.start(LONG)
    wait_for(process, "sending")
    wait_until_sent((cluster.state.keeper.pids[node] for node in NODES), 60)
    (guard,), spool = guards_of(cluster, "rx1"), spool_of(cluster, "rx1")
    os.kill(guard, signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    shutil.rmtree(spool)  # nobody else can
    document = json.loads(out)
    assert process.returncode == 3
    assert any("guard is gone" in doubt for doubt in document["doubts"])
    assert all(row.get("received_bytes") is None for row in document["connections"] if row["to"] == "rx1")
    (left,) = cluster.addresses()  # the others' guards have removed theirs
    assert left["local"].startswith("198.19.") and left["valid_life_time"] < 200
    cluster.on("rx1", "ip", "addr", "del", f"{left['local']}/16", "dev", "eth1")


def test_an_interrupted_table_keeps_its_points_and_goes_on(cluster: Cluster) -> None:
    out = cluster.folder / "netspec"
    command = [PKTSWARM, "table", "netspec", "--hosts", cluster.hosts, "--out", out, "--seconds", "0.5"]

    def until(words: str) -> list[str]:
        """Its progress up to these words; then Ctrl-C."""
        process = forked.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if words in line:
                process.send_signal(signal.SIGINT)
        process.stderr.close()
        assert process.wait(40) == 3
        return lines

    assert "interrupted" in until("1 of 72")[-1]
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("tcp-*.json")}
    assert list(kept) == ["tcp-25-t05.json"]
    until("2 of 72")
    assert {path.name for path in out.glob("tcp-*.json")} == {"tcp-25-t05.json", "tcp-25-t10.json"}
    assert (out / "tcp-25-t05.json").stat().st_mtime_ns == kept["tcp-25-t05.json"]
    measured = json.loads((out / "tcp-25-t10.json").read_text())["measured"]
    assert measured["target_mbps"] == 10.45 and measured["goodput_mbps"] > 0 and measured["jitter_sd_ms"] > 0
    assert cluster.addresses() == []
