"""A probe of the lab's own UPF: packets each way, faults that it has to see, a profile that runs take."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from forked import PKTSWARM
from pktswarm.lab import api
from running import lie_down, stand_again, wait_until_sent
from upf_cluster import UpfCluster, ended

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")


@pytest.fixture(scope="module", autouse=True)
def without_standing_ranks(cluster: UpfCluster) -> Iterator[None]:
    """A probe starts processes of its own on the nodes."""
    lie_down(cluster)
    yield
    stand_again(cluster)


def run_probe(cluster: UpfCluster, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    command = [PKTSWARM, "upf", "probe", "--hosts", cluster.hosts, "--json"]
    done = forked.run([*command, "--results", folder, *options], timeout=120)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def row(told: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in told["rows"] if one["name"] == name)


def state(told: dict[str, Any], name: str, way: str) -> str:
    return str(row(told, name)[way]["state"])


def interfaces(cluster: UpfCluster, node: str) -> str:
    """What a run or a probe might have left there."""
    show = "ip -d link show eth1; ip address show dev eth1; ip maddress show dev eth1; ip neighbour show dev eth1"
    pid = str(cluster.pids[node])
    return subprocess.run(
        ["nsenter", "-t", pid, "-n", "sh", "-c", show], capture_output=True, text=True, check=True
    ).stdout


def test_what_the_labs_upf_can_do(cluster: UpfCluster, tmp_path: Path) -> None:
    before = [interfaces(cluster, node) for node in ("tx1", "rx1")]
    profile = tmp_path / "own.upf.yml"
    status, told = run_probe(cluster, tmp_path, "--profile", str(profile))
    assert status == 0 and told["problem"] == "" and told["left_sessions"] == 0
    assert told["features"] == ["FTUP", "EMPU", "UEIP", "MNOP"]
    # What docs/lab.md says that it cannot do; a second FAR's gate is its work.
    limits = {"predefined rule", "URR, volume", "URR, time", "inactivity report"}
    troubles = {
        (one["name"], way)
        for one in told["rows"]
        for way in ("n4", "up", "down")
        if one[way] and one[way]["state"] != "works"
    }
    assert troubles == {(name, "n4") for name in limits}
    assert row(told, "largest packet")["up"]["words"] == "1464 bytes, as much as the sender's MTU allows"
    assert row(told, "largest packet")["down"]["words"] == "1464 bytes; 1465 bytes are lost"
    assert row(told, "PDU session container")["down"]["words"] == "added"
    assert row(told, "Query URR")["n4"]["words"] == "uplink 47 bytes, downlink 47 bytes, total 94 bytes"
    assert "release: 16" in profile.read_text()
    assert told["seconds"] < 60
    assert cluster.tell(status={})["sessions"] == 0
    assert [interfaces(cluster, node) for node in ("tx1", "rx1")] == before


def test_packets_that_come_wrong_or_not_at_all_are_seen(cluster: UpfCluster, tmp_path: Path) -> None:
    """The first session is tried with three packets each way: all of them are dropped, or have another TEID."""
    cluster.tell(faults={"uplink": {"drop": [0, 1, 2]}, "downlink": {"wrong_teid": [0]}})
    status, told = run_probe(cluster, tmp_path, "--no-profile")
    cluster.tell(faults={})
    first = row(told, "Apply Action, two octets")
    assert first["up"] == {"state": "no answer", "words": "no packet received by the data network"}
    assert first["down"]["state"] == "wrong" and first["down"]["words"].startswith("TEID 0xf")
    assert state(told, "Apply Action, one octet", "up") == "works"
    assert status == 0  # by the second form
    assert told["profile"] is None


@pytest.mark.waits
def test_end_markers_that_do_not_come_are_not_asked_for_from_then_on(cluster: UpfCluster, tmp_path: Path) -> None:
    profile = cluster.hosts.with_suffix(".upf.yml")
    cluster.tell(faults={"n4": {"no_end_marker_every": 1}})
    try:
        _, told = run_probe(cluster, tmp_path)
        assert row(told, "Update FAR with end marker (SNDEM)")["n4"]["words"] == "accepted, but no end marker received"
        assert told["profile"] == str(profile)
        users = {"name": "users", "sessions": 20, "ue_addresses": "10.45.0.1/16"}
        streams = [{"name": "down", "sessions": "users", "direction": "down", "size_bytes": 200, "rate_pps": 500}]
        section = {"groups": [users], "handover": {"group": "users", "users_per_s": 10}}
        scenario = {"upf": section, "streams": [{**streams[0], "duration_s": 1}]}
        status, told = ended(cluster.launch(scenario))
        assert (status, told["reason"]) == (0, "as expected")
        assert any(str(profile) in note and "no end markers" in note for note in told["notes"])
        # Asked for by the scenario itself, they are the UPF's to send.
        section["handover"] = {"group": "users", "users_per_s": 10, "end_marker": True}
        status, told = ended(cluster.launch(scenario))
        assert status == 1 and "end markers of the UPF" in told["reason"]
    finally:
        cluster.tell(faults={})
        profile.unlink(missing_ok=True)


def test_a_node_that_a_run_holds_is_not_taken(cluster: UpfCluster, tmp_path: Path) -> None:
    """Neither way: each says who has it."""
    run = cluster.start(4)
    wait_until_sent([cluster.pids["tx1"]])
    command = [PKTSWARM, "upf", "probe", "--hosts", cluster.hosts]
    done = forked.run([*command, "--results", tmp_path], timeout=60)
    assert done.returncode in (2, 3) and done.stdout == ""
    assert "cannot bind UDP port 8805 of" in done.stderr
    status, told = ended(run)
    assert (status, told["reason"]) == (0, "as expected")


def test_the_profile_of_a_lab_goes_with_it(tmp_path: Path) -> None:
    name = f"upp{os.getpid()}"
    inventory = api.up(name, 1, 1, tmp_path, dut="upf").inventory
    profile = inventory.with_suffix(".upf.yml")
    profile.write_text("release: 16\n")
    api.down(name, tmp_path)
    assert not profile.exists() and not inventory.exists()


def test_inventories_without_ends_are_refused(tmp_path: Path) -> None:
    inventory = tmp_path / "shelf.yml"
    inventory.write_text(
        "all: {vars: {pktswarm_upf: {n4_ipv4: 127.0.0.9, n3_ipv4: 10.92.0.1}}, children: {master: {hosts: {m: "
        "{control_interface: lo}}}, transmit: {hosts: {t: {traffic_interface: eth1, side: n3, ipv4: 10.92.0.11, "
        "mac: '02:00:00:00:00:01'}}}, receive: {hosts: {r: {traffic_interface: "
        "eth1, side: n3, ipv4: 10.92.0.12, mac: '02:00:00:00:00:02'}}}}}\n"
    )
    command = [PKTSWARM, "upf", "probe", "--hosts", inventory]
    done = forked.run(command, timeout=60)
    assert done.returncode == 2
    assert "no host of side n6 (allowed: a host on n3 and one on n6, or --n4-only)" in done.stderr
