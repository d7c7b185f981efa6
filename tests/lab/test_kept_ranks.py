"""Several runs of one command with the same ranks: processes stay, nodes are restored after each, and what dies between
two runs costs a launch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import forked
from run_cluster import PKTSWARM, Cluster, guard_of, left_in_the_end, rank_of, until
from running import cluster_of, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

SHORT = "streams: [{name: s, rate_pps: 500, count_packets: 100}]\nreceive: {mode: count}\n"
ATTEMPTS, LOOKS, SETTLED, LOOK_S = 10, 20, 10, 0.05
EXPECT = "expect: {loss: 0, sent: intended}"


cluster = cluster_of(lambda folder: Cluster(folder, "k"), stands=False)


@pytest.fixture(autouse=True)
def nothing_left(cluster: Cluster) -> Iterator[None]:
    yield
    assert left_in_the_end(cluster) == []


class Repeated:
    """A repetition, stopped (SIGSTOP) between its first and second run while `between` looks or hurts."""

    def __init__(self, cluster: Cluster, runs: int) -> None:
        self.cluster, self.runs = cluster, runs
        self.before = set(cluster.results())
        self.scenario = cluster.scenario(SHORT + EXPECT)
        self.process = self._begun()

    def _begun(self) -> subprocess.Popen[str]:
        return self.cluster.start(self.scenario, "--repeat", str(self.runs), "--json")

    def pause_after_first(self) -> None:
        """A command that had ordered its second run when the signal came is left to its end, and another one begun."""
        for _ in range(ATTEMPTS):
            wait_for(self.process, "run 1 of")
            self.process.send_signal(signal.SIGSTOP)
            if self._is_between_runs():
                return
            self.finish()
            self.process = self._begun()
        raise AssertionError(f"the second run had begun in each of {ATTEMPTS} attempts")

    def _is_between_runs(self) -> bool:
        """A guard has a folder in a run, and the run cannot go on while its command is stopped."""
        looks: list[bool] = []
        while len(looks) < LOOKS:
            time.sleep(LOOK_S)
            looks.append(bool(self.cluster.in_var_tmp()))
        return not any(looks[-SETTLED:])

    def finish(self) -> Path:
        self.process.send_signal(signal.SIGCONT)
        out, err = self.process.communicate(timeout=90)
        assert self.process.returncode == 0, out + err
        return Path(json.loads(out)["results"])

    def ranks(self) -> dict[str, int]:
        return {node: rank_of(self.cluster, node) for node in ("tx1", "tx2", "rx1", "rx2")}


def counts(folder: Path) -> list[tuple[int, int]]:
    documents = [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/run.json"))]
    return [(one["totals"][-1]["sent_packets"], one["totals"][-1]["received_packets"]) for one in documents]


def programs(cluster: Cluster, node: str) -> list[str]:
    """XDP programs and queueing disciplines of a node's traffic interface."""
    enter = ["nsenter", f"--net=/proc/{cluster.state.keeper.pids[node]}/ns/net"]
    shown = subprocess.run([*enter, "ip", "-d", "link", "show", "eth1"], check=True, capture_output=True, text=True)
    return [line for line in shown.stdout.splitlines() if "xdp" in line]


def test_processes_stay_and_nodes_are_as_found_between_two_runs(cluster: Cluster) -> None:
    before = {node: programs(cluster, node) for node in ("tx1", "rx1")}
    work = Repeated(cluster, 3)
    work.pause_after_first()
    ranks = work.ranks()
    assert until(lambda: not [left for left in cluster.left_behind() if "/var/tmp/" in left]), "no guard's folder"
    assert {node: programs(cluster, node) for node in before} == before
    work.process.send_signal(signal.SIGCONT)
    wait_for(work.process, "run 2 of")
    assert work.ranks() == ranks
    assert counts(work.finish()) == [(100, 100)] * 3


@pytest.mark.parametrize("victim", ["rank", "guard", "rank 0"])
def test_what_dies_between_two_runs_costs_a_launch(cluster: Cluster, victim: str) -> None:
    work = Repeated(cluster, 2)
    work.pause_after_first()
    rank = rank_of(cluster, "tx2")
    if victim == "rank 0":
        pid = rank_of(cluster, "m0", "-m pktswarm.master.run.rank0")
    else:
        pid = rank if victim == "rank" else guard_of(rank)
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: not Path(f"/proc/{rank}").exists()), "the others leave"
    assert counts(work.finish()) == [(100, 100)] * 2


def test_a_command_line_that_is_killed_between_two_runs_leaves_nothing(cluster: Cluster) -> None:
    work = Repeated(cluster, 2)
    work.pause_after_first()
    work.process.kill()
    work.process.communicate()


def test_a_node_that_is_held_is_refused_to_others_between_two_runs(cluster: Cluster) -> None:
    work = Repeated(cluster, 2)
    work.pause_after_first()
    command = [
        PKTSWARM,
        "run",
        cluster.scenario(SHORT),
        "--hosts",
        cluster.hosts,
        "--results",
        cluster.folder / "other",
    ]
    refused = forked.run(command)
    assert refused.returncode == 3 and "in use by" in refused.stderr, refused.stderr
    assert counts(work.finish()) == [(100, 100)] * 2
