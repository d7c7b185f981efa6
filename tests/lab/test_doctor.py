"""A cluster's health as the doctor sees it, one master at a time, and what a run refuses to send to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import forked
from failures import inside, wait_until
from forked import PKTSWARM
from pktswarm import lab
from run_cluster import network_of, pids_of
from running import cluster_of, wait_for, wait_until_sent

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

STREAM = "name: test\nstreams: [{{name: s, size_bytes: 128, rate_pps: 400, duration_s: {seconds}}}]\n"


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"doc{os.getpid()}"
        self.state = lab.up(self.name, 1, 1, folder)
        self.hosts = self.state.inventory
        for node in ("tx1", "rx1"):  # its guards' folders, apart from those of others on this machine
            assert lab.run_in(self.hosts, node, ["mount", "-t", "tmpfs", "tmpfs", "/var/tmp"]) == 0

    def doctor(self, hosts: Path | None = None, *options: str) -> tuple[int, dict[str, Any]]:
        command: list[str | Path] = [PKTSWARM, "doctor", "--json", "--hosts", hosts or self.hosts, *options]
        done = forked.run(command, timeout=60)
        return done.returncode, dict(json.loads(done.stdout))

    def start(self, seconds: float, *options: str) -> subprocess.Popen[str]:
        scenario = self.folder / "scenario.yaml"
        scenario.write_text(STREAM.format(seconds=seconds))
        command = [PKTSWARM, "run", scenario, "--hosts", self.hosts, "--results", self.folder / "results"]
        words = [*map(str, command), "--no-report", "--json", *options]
        return forked.popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def results(self) -> set[Path]:
        return set((self.folder / "results").glob("*"))

    def guards(self) -> list[Path]:
        """Their folders."""
        roots = [Path(f"/proc/{self.state.keeper.pids[node]}/root") for node in ("tx1", "rx1")]
        return [folder for root in roots for folder in root.glob("var/tmp/pktswarm-*")]

    def inside(self, node: str, *command: str) -> None:
        assert lab.run_in(self.hosts, node, list(command)) == 0


cluster = cluster_of(Cluster, stands=False)


def of(told: dict[str, Any], host: str, level: str) -> list[str]:
    return [one["what"] for one in told["hosts"][host]["findings"] if one["level"] == level]


def test_a_fresh_lab_is_well(cluster: Cluster) -> None:
    status, told = cluster.doctor()
    assert status == 0, told
    assert {name: one["reachable"] for name, one in told["hosts"].items()} == {"m0": True, "tx1": True, "rx1": True}
    tx1 = told["hosts"]["tx1"]["told"]
    assert told["hosts"]["m0"]["told"]["versions"].items() <= tx1["versions"].items()
    assert tx1["memory"]["rank_bytes"] + tx1["memory"]["guard_bytes"] < tx1["memory"]["available_bytes"]
    assert tx1["interface"]["driver"] == "veth" and tx1["senders"]["xdp"] == ""
    assert abs(told["hosts"]["tx1"]["offset_ns"]) <= told["hosts"]["tx1"]["offset_bound_ns"]  # one kernel's clock
    left = Path(f"/proc/{cluster.state.keeper.pids['tx1']}/root/var/tmp")
    assert list(left.iterdir()) == []


@contextmanager
def broken(cluster: Cluster) -> Iterator[int]:
    """A transmitter with an engine and a folder of a guard that is gone; a receiver without a link."""
    spool, pid_file = "/var/tmp/pktswarm-dead", "/var/tmp/pid"
    words = f"mkdir {spool}; cd {spool}; sleep 120 </dev/null >/dev/null 2>&1 & echo $! > {pid_file}"
    cluster.inside("tx1", "sh", "-c", words)
    cluster.inside("rx1", "ip", "link", "set", "eth1", "down")
    seen = Path(f"/proc/{cluster.state.keeper.pids['tx1']}/root{pid_file}")
    inner = seen.read_text().strip()
    try:
        yield int(inner)
    finally:
        cluster.inside("tx1", "kill", "-KILL", inner)
        cluster.inside("tx1", "rm", "-r", spool, pid_file)
        cluster.inside("rx1", "ip", "link", "set", "eth1", "up")


def test_leftovers_and_a_link_that_is_down_are_found(cluster: Cluster) -> None:
    with broken(cluster) as pid:
        status, told = cluster.doctor()
    assert status == 1
    assert of(told, "tx1", "wrong") == [f"process {pid} is an engine whose guard is gone: sleep 120"]
    assert any("/var/tmp/pktswarm-dead" in one["mend"] for one in told["hosts"]["tx1"]["findings"])
    assert of(told, "rx1", "wrong") == ["eth1 is down or has no link"]


# --- guards that cannot restore their node ------------------------------------------------------------------------


def tags_are_taken_out(cluster: Any) -> bool:
    """The setting of rx1 that the XDP counter changes for a run."""
    return "rx-vlan-offload: on" in inside(cluster, "rx1", "ethtool", "-k", "eth1")


def guards_of(cluster: Any, node: str) -> list[int]:
    pids = pids_of("-m pktswarm.nodes --role ", network_of(cluster, node))
    return [pid for pid in pids if Path(f"/proc/{pid}").stat().st_uid == 0 and os.getsid(pid) == pid]


@contextmanager
def guard_signalled(cluster: Any, number: signal.Signals) -> Iterator[subprocess.Popen[str]]:
    """A run whose receiver's guard gets a signal while it sends."""
    assert tags_are_taken_out(cluster)
    run = cluster.start(8)
    try:
        wait_for(run, "sending")
        (guard,) = guards_of(cluster, "rx1")
        os.kill(guard, number)
        yield run
    finally:
        run.kill()
        run.communicate()


def test_what_a_killed_guard_left_changed_is_found_and_mended(cluster: Cluster) -> None:
    with guard_signalled(cluster, signal.SIGKILL) as run:
        assert run.wait(60) == 3
    assert not tags_are_taken_out(cluster)
    status, told = cluster.doctor()
    assert status == 1
    assert of(told, "rx1", "wrong") == ["left changed by a guard that was killed: rxvlan of eth1 (was on)"]
    assert not tags_are_taken_out(cluster), "the doctor changes nothing if not asked to"
    status, told = cluster.doctor(None, "--mend")
    assert status == 0
    mended = "rxvlan of eth1 (was on) was restored: a killed guard had changed it"
    assert told["hosts"]["rx1"]["told"]["mended"] == [mended] and mended in of(told, "rx1", "note")
    assert tags_are_taken_out(cluster) and not cluster.guards()
    status, told = cluster.doctor(None, "--mend")
    assert status == 0 and told["hosts"]["rx1"]["told"]["mended"] == [], "once is enough"


def test_the_next_run_puts_it_back_first_and_says_so(cluster: Cluster) -> None:
    with guard_signalled(cluster, signal.SIGKILL) as run:
        assert run.wait(60) == 3
    assert not tags_are_taken_out(cluster)
    following = cluster.start(1)
    out, words = following.communicate(timeout=60)
    assert following.returncode == 0, words
    assert "rx1: rxvlan of eth1 (was on) was restored: a killed guard had changed it" in json.loads(out)["notes"]
    assert tags_are_taken_out(cluster) and not cluster.guards()


def test_what_was_set_since_is_not_put_back(cluster: Cluster) -> None:
    with guard_signalled(cluster, signal.SIGKILL) as run:
        assert run.wait(60) == 3
    cluster.inside("rx1", "ethtool", "-K", "eth1", "rx-vlan-offload", "on")
    status, told = cluster.doctor(None, "--mend")
    assert status == 0 and told["hosts"]["rx1"]["told"]["mended"] == []
    assert tags_are_taken_out(cluster) and not cluster.guards()


@pytest.mark.waits
def test_a_frozen_guard_is_ended_and_lets_go_of_the_node(cluster: Cluster) -> None:
    """By the kernel's timer: nobody else can tell that it will not go on."""
    with guard_signalled(cluster, signal.SIGSTOP) as run:
        assert "xdp" in inside(cluster, "rx1", "ip", "link", "show", "eth1")
        assert run.wait(60) == 3
        assert wait_until(lambda: not guards_of(cluster, "rx1"), 30)
    assert "xdp" not in inside(cluster, "rx1", "ip", "link", "show", "eth1")
    status, told = cluster.doctor(None, "--mend")
    assert status == 0 and len(told["hosts"]["rx1"]["told"]["mended"]) == 1
    assert tags_are_taken_out(cluster) and not cluster.guards()


def test_a_host_that_is_not_there_is_3_and_the_others_are_told_of(cluster: Cluster) -> None:
    document = yaml.safe_load(cluster.hosts.read_text())
    document["all"]["children"]["receive"]["hosts"]["rx1"]["ansible_host"] = "10.91.0.250"
    changed = cluster.folder / "changed.yml"
    changed.write_text(yaml.safe_dump(document))
    status, told = cluster.doctor(changed)
    assert status == 3 and not told["hosts"]["rx1"]["reachable"] and told["hosts"]["tx1"]["reachable"]
    assert any("does not answer over SSH" in what or "host key" in what for what in of(told, "rx1", "unreachable"))


def test_the_second_master_is_refused_until_the_first_is_killed(cluster: Cluster) -> None:
    """One run is watched, refuses another, and is killed; the next has the nodes without waiting for anybody."""
    first = cluster.start(90)  # on a busy machine the others take long to be told; it is killed
    try:
        wait_for(first, "sending")
        wait_until_sent([cluster.state.keeper.pids["tx1"]])
        results = cluster.results()
        second = cluster.start(1)
        _, words = second.communicate(timeout=60)
        assert second.returncode == 3, words
        assert "in use by root@m0 since 20" in words and "nothing was sent" in words
        assert cluster.results() == results
        _, told = cluster.doctor()
        assert any("in use by root@m0" in what for what in of(told, "tx1", "wrong"))
        assert first.poll() is None, "the first was to go on meanwhile"
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    # The next waits 3 s for the guards of one that was killed: enough, unless this machine is busy.
    assert wait_until(lambda: not cluster.guards(), 30)
    third = cluster.start(1)
    _, words = third.communicate(timeout=60)
    assert third.returncode == 0, words


def test_no_run_sends_where_the_default_route_goes_unless_told_to(cluster: Cluster) -> None:
    cluster.inside("tx1", "ip", "route", "add", "default", "dev", "eth1")
    try:
        results = cluster.results()
        refused = cluster.start(1)
        _, words = refused.communicate(timeout=60)
        assert refused.returncode == 2, words
        assert "tx1: traffic_interface = 'eth1': carries the node's default route" in words
        assert "--allow-control-interface" in words and cluster.results() == results
        status, told = cluster.doctor()
        assert status == 1 and any("the node's default route" in what for what in of(told, "tx1", "wrong"))
        allowed = cluster.start(1, "--allow-control-interface")
        _, words = allowed.communicate(timeout=60)
        assert allowed.returncode == 0, words
    finally:
        cluster.inside("tx1", "ip", "route", "del", "default", "dev", "eth1")
