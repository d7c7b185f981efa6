"""A cluster that stays up: one command after another uses its ranks, and what dies costs the next one a launch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from failures import everything_of_a_run, go_dark
from run_cluster import (
    LONG,
    PKTSWARM,
    TRANSMITTERS,
    Cluster,
    guard_of,
    left_in_the_end,
    network_of,
    parent_of,
    pids_of,
    rank_of,
    until,
)
from running import cluster_of, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

SHORT = "streams: [{name: s, from: tx1, to: rx2, rate_pps: 500, count_packets: 100}]\nreceive: {mode: count}\n"
ALL = "streams: [{name: s, rate_pps: 500, count_packets: 100}]\nreceive: {mode: count}\nexpect: {loss: 0}\n"
LOADED = "from pktswarm.master.cli.preloaded import main; main() "
DAEMON, RANK0 = "-m pktswarm.master.run.cluster_daemon", "-m pktswarm.master.run.rank0"


class Standing(Cluster):
    """A lab of two transmitters and two receivers, whose ranks stay up."""

    def order(self, *words: str) -> tuple[int, str]:
        command = [PKTSWARM, "cluster", *words, "--hosts", self.hosts]
        done = forked.run(command, timeout=90)
        return done.returncode, done.stdout + done.stderr

    def up(self, *options: str) -> None:
        status, output = self.order("up", "--no-preload", *options)
        assert status == 0, output

    def shown(self) -> dict[str, Any]:
        return dict(json.loads(self.order("status", "--json")[1]))

    def daemon(self) -> int:
        (pid,) = pids_of(DAEMON, network_of(self, "m0"))
        return pid

    def ranks(self) -> dict[str, int]:
        return {node: rank_of(self, node) for node in ("tx1", "tx2", "rx1", "rx2")}


cluster = cluster_of(lambda folder: Standing(folder, "c"), stands=False)


@pytest.fixture(autouse=True)
def nothing_left(cluster: Standing) -> Iterator[None]:
    yield
    cluster.order("down", "--now")
    assert left_in_the_end(cluster) == []


def test_commands_use_the_ranks_of_a_cluster_that_is_up_and_nodes_are_as_found(cluster: Standing) -> None:
    assert cluster.order("status")[0] == 1
    cluster.up()
    ranks = cluster.ranks()
    assert not cluster.in_var_tmp()
    for text, taking in ((SHORT, 2), (ALL, 4), (SHORT, 2)):
        document = cluster.run(cluster.scenario(text), 0)
        assert document["totals"][-1]["lost_packets"] == 0 and document["totals"][-1]["sent_packets"] == 100
        assert len(document["ranks"]) == taking
        assert cluster.ranks() == ranks
        assert not cluster.in_var_tmp()
        shown = subprocess.run(
            ["nsenter", f"--net=/proc/{cluster.state.keeper.pids['rx2']}/ns/net", "ip", "-d", "link", "show", "eth1"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert "xdp" not in shown, "no program stays on the interface"
    found = cluster.shown()
    assert (found["state"], found["uses"], len(found["ranks"])) == ("up", 4, 4)
    assert "already up" in cluster.order("up")[1]
    assert cluster.order("down")[0] == 0 and cluster.order("status")[0] == 1
    assert cluster.order("down") == (0, f"the cluster of {cluster.hosts} is not up\n")


def test_who_comes_while_it_is_in_use_is_refused_or_waits(cluster: Standing) -> None:
    cluster.up()
    process = cluster.start_and_send(cluster.scenario(LONG))
    assert cluster.shown()["state"] == "in use"
    short = cluster.folder / "short.yaml"
    short.write_text(f"name: short\n{SHORT}")
    refused = cluster.start(short)
    output = refused.communicate(timeout=90)[1]
    assert refused.returncode == 3 and "in use by" in output and "--wait" in output and str(process.pid) in output, (
        output
    )
    status, output = cluster.order("down")
    assert status == 3 and "in use by" in output and "--now" in output
    waits = cluster.start(short, "--wait")
    wait_for(waits, "waiting for the cluster")
    impatient = cluster.start(short, "--wait")
    wait_for(impatient, "waiting for the cluster")
    impatient.send_signal(signal.SIGINT)
    assert "interrupted" in impatient.communicate(timeout=20)[1] and impatient.returncode == 3
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    out, err = waits.communicate(timeout=90)
    assert waits.returncode == 0, out + err


@pytest.mark.parametrize("victim", ["rank", "frozen rank", "guard", "rank 0", "mpiexec"])
def test_what_dies_between_two_runs_is_started_anew_and_the_run_says_so(cluster: Standing, victim: str) -> None:
    cluster.up()
    ranks = cluster.ranks()
    network = network_of(cluster, "m0")
    victims = {
        "rank": lambda: ranks["tx2"],
        "frozen rank": lambda: ranks["tx2"],
        "guard": lambda: guard_of(ranks["rx1"]),
        "rank 0": lambda: rank_of(cluster, "m0", RANK0),
        "mpiexec": lambda: pids_of("mpiexec -launcher ssh", network)[0],
    }
    os.kill(victims[victim](), signal.SIGSTOP if victim == "frozen rank" else signal.SIGKILL)
    assert until(lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks.values())), "the others leave"
    document = cluster.run(cluster.scenario(ALL), 0)
    assert any("started anew" in note for note in document["notes"]), document["notes"]
    assert cluster.shown()["state"] == "up" and cluster.ranks() != ranks


@pytest.mark.waits
def test_a_guard_that_is_frozen_between_two_runs_costs_the_next_one_a_launch(cluster: Standing) -> None:
    """Nobody has missed it yet, and it is killed by its timer when the run has begun: the rank does not come up."""
    cluster.up()
    ranks = cluster.ranks()
    os.kill(guard_of(ranks["tx1"]), signal.SIGSTOP)
    document = cluster.run(cluster.scenario(ALL), 0)
    assert document["totals"][-1]["lost_packets"] == 0
    assert until(lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks.values())), "the others leave"
    assert len({*cluster.ranks().values()}) == len(ranks)


def test_a_node_that_was_rebooted_unseen_between_two_runs_costs_the_next_one_a_launch(cluster: Standing) -> None:
    """Nobody has missed its words yet: the run finds it gone when it begins."""
    cluster.up()
    ranks = cluster.ranks()
    go_dark(cluster, "tx1")
    for pid in everything_of_a_run(cluster, "tx1"):
        os.kill(pid, signal.SIGKILL)
    go_dark(cluster, "tx1", up=True)
    document = cluster.run(cluster.scenario(ALL), 0)
    assert document["totals"][-1]["lost_packets"] == 0
    assert until(lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks.values())), "the others leave"
    assert len({*cluster.ranks().values()}) == len(ranks)


def test_a_daemon_that_is_killed_takes_its_ranks_along_and_runs_go_on_without(cluster: Standing) -> None:
    cluster.up()
    os.kill(cluster.daemon(), signal.SIGKILL)
    assert left_in_the_end(cluster) == []
    cluster.run(cluster.scenario(ALL), 0)
    assert cluster.order("status")[0] == 1


def test_a_node_that_dies_in_a_run_costs_what_it_costs_without_a_cluster(cluster: Standing) -> None:
    cluster.up()
    process = cluster.start_and_send(cluster.scenario(LONG), "--json")
    os.kill(rank_of(cluster, "rx1"), signal.SIGKILL)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 3 and "rx1 (receive)" in json.loads(out)["doubts"][0], out + err
    document = cluster.run(cluster.scenario(ALL), 0)
    assert any("started anew: rx1 (receive)" in note for note in document["notes"]), document["notes"]


def test_a_command_line_that_is_killed_ends_its_run_and_the_cluster_stays(cluster: Standing) -> None:
    cluster.up()
    ranks = cluster.ranks()
    process = cluster.start_and_send(cluster.scenario(LONG))
    process.kill()
    process.communicate()
    document = cluster.run(cluster.scenario(ALL), 0, None, "--wait")
    assert document["totals"][-1]["lost_packets"] == 0 and cluster.ranks() == ranks, document["notes"]


def test_commands_are_done_by_copies_of_the_loaded_process(cluster: Standing) -> None:
    assert cluster.order("up")[0] == 0
    (loaded,) = pids_of(LOADED + str(cluster.hosts.resolve()))
    command = [
        PKTSWARM,
        "run",
        cluster.scenario(LONG),
        "--hosts",
        cluster.hosts,
        "--results",
        cluster.folder / "results",
    ]
    client = subprocess.Popen([*map(str, command), "--no-report"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    cluster.wait_until_sent()
    worker = int(str(cluster.shown()["holder"]).partition("process ")[2].split(")")[0])
    assert worker != client.pid and parent_of(worker) == loaded
    client.send_signal(signal.SIGINT)
    errors = client.communicate(timeout=90)[1]
    assert client.returncode == 3, errors
    totals = json.loads((cluster.results()[-1] / "run.json").read_text())["totals"][-1]
    assert totals["sent_packets"] == totals["received_packets"] > 0
    assert cluster.order("down")[0] == 0
    assert until(lambda: not Path(f"/proc/{loaded}").exists())


def test_down_now_ends_a_run_that_is_under_way(cluster: Standing) -> None:
    cluster.up()
    process = cluster.start_and_send(cluster.scenario(LONG), "--json")
    assert cluster.order("down", "--now")[0] == 0
    out, err = process.communicate(timeout=90)
    assert process.returncode == 3 and "taken down" in json.loads(out)["reason"], out + err


@pytest.mark.parametrize("reason", ["idle", "inventory", "SIGTERM"])
def test_it_ends_by_itself(cluster: Standing, reason: str) -> None:
    cluster.up("--idle", "1s" if reason == "idle" else "1h")
    away = cluster.hosts.with_suffix(".away")
    if reason == "inventory":
        cluster.hosts.rename(away)
    if reason == "SIGTERM":
        os.kill(cluster.daemon(), signal.SIGTERM)
    assert left_in_the_end(cluster) == []
    if reason == "inventory":
        away.rename(cluster.hosts)


def test_a_changed_inventory_costs_a_launch(cluster: Standing) -> None:
    cluster.up()
    before = cluster.hosts.read_text()
    try:
        cluster.hosts.write_text(before.replace("side: b", "side: a", 1))
        document = cluster.run(cluster.scenario(ALL), 0)
        assert any("has changed" in note for note in document["notes"]), document["notes"]
    finally:
        cluster.hosts.write_text(before)


def test_a_host_that_cannot_be_reached_is_named_and_nothing_stays(cluster: Standing) -> None:
    before = cluster.hosts.read_text()
    address = next(node.address for node in cluster.state.plan.nodes if node.name == "rx2")
    try:
        cluster.hosts.write_text(before.replace(address, address.rpartition(".")[0] + ".250"))
        status, output = cluster.order("up")
        assert status == 2 and "rx2" in output and "does not answer" in output, output
        assert cluster.order("status")[0] == 1
    finally:
        cluster.hosts.write_text(before)


def test_a_node_in_use_by_a_run_without_the_cluster_is_named(cluster: Standing) -> None:
    process = cluster.start_and_send(cluster.scenario(LONG))
    status, output = cluster.order("up")
    assert status == 3 and "in use by" in output, output
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert set(TRANSMITTERS) <= set(cluster.nodes())
