"""A recorded trace through the lab's own UPF: in the tunnels of a group of sessions, beside another and a stream."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import cluster_of

import lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")
LAB = Path("configs/traces/lab.pcapng").resolve()
UP, DOWN = 419, 476
"""Packets of the recording from its user, and to it."""
WEB = {"name": "web", "sessions": 3, "ue_addresses": "10.45.0.1/16"}
CALLS = {"name": "calls", "sessions": 2, "ue_addresses": "10.46.0.1/16", "qos": {"qfi": 9}}
USERS = {"name": "users", "sessions": 10, "ue_addresses": "10.47.0.1/16"}


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.name, self.folder = f"upt{os.getpid()}", folder
        self.hosts = lab.up(self.name, 1, 1, folder, mtu=1600, dut="upf").inventory

    def tell(self, **order: Any) -> Any:
        return lab.tell_upf(self.name, order, self.folder)

    def run(self, *traces: dict[str, Any], streams: tuple[dict[str, Any], ...] = ()) -> tuple[int, dict[str, Any]]:
        common = {"file": str(LAB), "direction": "both", "timing": {"multiplier": 3}}
        scenario = {
            "name": "t",
            "upf": {"groups": [WEB, CALLS, USERS]},
            "traces": [{**common, **trace} for trace in traces],
            "streams": streams,
            "receive": {"mode": "count"},
            "expect": {"loss": 0, "sent": "intended"},
        }
        config = self.folder / "run.yaml"
        config.write_text(json.dumps(scenario))
        command = [sys.executable, "-m", "master.cli", "run", str(config), "--json", "--hosts", str(self.hosts)]
        command += ["--results", str(self.folder / "results")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


cluster = cluster_of(Cluster)


def table(told: dict[str, Any], name: str) -> list[dict[str, str]]:
    with (Path(told["results"]) / name).open() as file:
        return list(csv.DictReader(file))


def test_two_traces_and_a_steady_load_beside_one_another(cluster: Cluster) -> None:
    stamped = {"options": {"stamp": True}}
    traces = {"name": "one", "sessions": "web", "scale": 3, **stamped}, {"name": "two", "sessions": "calls", "scale": 2}
    steady = {"sessions": "users", "size_bytes": 200, "rate_pps": 500, "duration_s": 1}
    streams = tuple({"name": way, "direction": way, **steady} for way in ("up", "down"))
    status, told = cluster.run(*traces, streams=streams)
    assert (status, told["reason"]) == (0, "as expected")
    rows = {(one["stream"], one["from"]): int(one["received_packets"]) for one in told["rows"]}
    assert rows == {
        **{("one", "tx1"): 3 * UP, ("one", "rx1"): 3 * DOWN, ("two", "tx1"): 2 * UP, ("two", "rx1"): 2 * DOWN},
        **{("up", "tx1"): 500, ("down", "rx1"): 500},
    }
    # The lab's UPF has counts of its own.
    totals = cluster.tell(status={})["totals"]
    assert [totals["forwarded_uplink"], totals["forwarded_downlink"]] == [5 * UP + 500, 5 * DOWN + 500]
    users = {(one["stream"], one["from"], one["user"]): one["received_packets"] for one in table(told, "users.csv")}
    assert {users["one", "tx1", f"10.45.0.{number}"] for number in (1, 2, 3)} == {str(UP)}
    assert {users["two", "rx1", f"10.46.0.{number}"] for number in (1, 2)} == {str(DOWN)}


def test_what_the_upf_drops_is_lost_by_its_user(cluster: Cluster) -> None:
    cluster.tell(faults={"uplink": {"drop": [5, 6]}, "downlink": {"drop": [10]}})
    status, told = cluster.run({"name": "one", "sessions": "web"})
    cluster.tell(faults={})
    assert status == 1
    lost = {one["from"]: one["lost_packets"] for one in told["rows"]}
    assert lost == {"tx1": 2, "rx1": 1}
    assert {(one["from"], one["user"], one["lost_packets"]) for one in table(told, "users.csv")} == {
        *[("tx1", "10.45.0.1", "2"), ("rx1", "10.45.0.1", "1")]
    }


def test_a_frame_that_grows_beyond_the_mtu_is_refused(cluster: Cluster) -> None:
    """An MTU of 1600 has room for 1500 and the tunnel; the trace's largest frames are of 1514 bytes."""
    lab.run_in(cluster.name, "tx1", ["ip", "link", "set", "eth1", "mtu", "1530"], cluster.folder)
    try:
        config = cluster.folder / "run.yaml"
        scenario = json.loads(config.read_text()) | {"streams": []}
        config.write_text(json.dumps(scenario))
        command = [sys.executable, "-m", "master.cli", "run", str(config), "--hosts", str(cluster.hosts)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        lab.run_in(cluster.name, "tx1", ["ip", "link", "set", "eth1", "mtu", "1600"], cluster.folder)
    assert done.returncode == 2
    assert "longer than the MTU of tx1 eth1" in done.stderr
    assert cluster.tell(status={})["sessions"] == 0
