"""A recorded trace through the lab's own UPF: in the tunnels of a group of sessions, beside another and a stream."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import forked
from forked import PKTSWARM
from pktswarm import lab
from pktswarm.master.results.read_document import read_run
from running import cluster_of
from upf_cluster import UpfCluster, table

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")
LAB = Path("configs/traces/lab.pcapng").resolve()
UP, DOWN = 419, 476
"""Packets of the recording from its user, and to it."""
WEB = {"name": "web", "sessions": 3, "ue_addresses": "10.45.0.1/16"}
CALLS = {"name": "calls", "sessions": 2, "ue_addresses": "10.46.0.1/16", "qos": {"qfi": 9}}
USERS = {"name": "users", "sessions": 10, "ue_addresses": "10.47.0.1/16"}


class Cluster(UpfCluster):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 1, 1, mtu=1600)

    def write(self, *traces: dict[str, Any], streams: tuple[dict[str, Any], ...] = ()) -> Path:
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
        return config

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [PKTSWARM, *words, "--hosts", self.hosts]
        return forked.run(command, timeout=180)

    def run_traces(
        self, *traces: dict[str, Any], streams: tuple[dict[str, Any], ...] = ()
    ) -> tuple[int, dict[str, Any]]:
        config = self.write(*traces, streams=streams)
        done = self.command("run", str(config), "--json", "--no-report", "--results", str(self.folder / "results"))
        assert done.stdout, done.stderr
        document = json.loads(done.stdout)
        read_run(Path(document["results"]))
        return done.returncode, document


cluster = cluster_of(Cluster)


def test_two_traces_and_a_steady_load_beside_one_another(cluster: Cluster) -> None:
    stamped = {"options": {"stamp": True}}
    traces = {"name": "one", "sessions": "web", "scale": 3, **stamped}, {"name": "two", "sessions": "calls", "scale": 2}
    steady = {"sessions": "users", "size_bytes": 200, "rate_pps": 500, "duration_s": 1}
    streams = tuple({"name": way, "direction": way, **steady} for way in ("up", "down"))
    before = cluster.forwarded()
    status, result = cluster.run_traces(*traces, streams=streams)
    assert (status, result["reason"]) == (0, "as expected")
    rows = {(one["stream"], one["from"]): int(one["received_packets"]) for one in result["rows"]}
    assert rows == {
        **{("one", "tx1"): 3 * UP, ("one", "rx1"): 3 * DOWN, ("two", "tx1"): 2 * UP, ("two", "rx1"): 2 * DOWN},
        **{("up", "tx1"): 500, ("down", "rx1"): 500},
    }
    # The lab's UPF has counts of its own.
    assert [now - then for now, then in zip(cluster.forwarded(), before, strict=True)] == [5 * UP + 500, 5 * DOWN + 500]
    users = {(one["stream"], one["from"], one["user"]): one["received_packets"] for one in table(result, "users.csv")}
    assert {users["one", "tx1", f"10.45.0.{number}"] for number in (1, 2, 3)} == {str(UP)}
    assert {users["two", "rx1", f"10.46.0.{number}"] for number in (1, 2)} == {str(DOWN)}


def test_what_the_upf_drops_is_lost_by_its_user(cluster: Cluster) -> None:
    cluster.tell(faults={"uplink": {"drop": [5, 6]}, "downlink": {"drop": [10]}})
    status, result = cluster.run_traces({"name": "one", "sessions": "web"})
    cluster.tell(faults={})
    assert status == 1
    lost = {one["from"]: one["lost_packets"] for one in result["rows"]}
    assert lost == {"tx1": 2, "rx1": 1}
    assert {(one["from"], one["user"], one["lost_packets"]) for one in table(result, "users.csv")} == {
        *[("tx1", "10.45.0.1", "2"), ("rx1", "10.45.0.1", "1")]
    }


def test_a_frame_that_grows_beyond_the_mtu_is_refused(cluster: Cluster) -> None:
    """An MTU of 1600 has room for 1500 and the tunnel; the trace's largest frames are of 1514 bytes."""
    lab.run_in(cluster.name, "tx1", ["ip", "link", "set", "eth1", "mtu", "1530"], cluster.folder)
    try:
        done = cluster.command("run", str(cluster.write({"name": "one", "sessions": "web"})))
    finally:
        lab.run_in(cluster.name, "tx1", ["ip", "link", "set", "eth1", "mtu", "1600"], cluster.folder)
    assert done.returncode == 2
    assert "longer than the MTU of tx1 eth1" in done.stderr
    assert cluster.tell(status={})["sessions"] == 0


def test_a_small_family_of_traces_and_a_steady_load(cluster: Cluster) -> None:
    steady = {"name": "up", "sessions": "users", "direction": "up", "size_bytes": 200}
    family = {
        "table": "small",
        "title": "a small one",
        "axes": [
            {"name": "rate", "values": [500]},
            {"name": "scale", "values": [1, 2]},
            {"name": "way", "values": ["both", "up"]},
        ],
        "skip": [{"scale": [2], "way": ["up"]}],
        "measures": ["loss_ratio", "peak_sent_packets", "peak_received_packets", "latency_p50_ms"],
        "scenario": {
            "samples_per_s": 20,
            "stop_after_s": "$seconds",
            "upf": {"groups": [{**WEB, "sessions": "$scale"}, USERS]},
            "traces": [
                {
                    **{"name": "one", "file": str(LAB), "sessions": "web", "direction": "$way", "scale": "$scale"},
                    "options": {"stamp": True},
                }
            ],
            "streams": [{**steady, "rate_pps": "$rate", "duration_s": "$seconds"}],
            "receive": {"mode": "count"},
        },
        "reference": {"source": "somebody", "figures": {"500": {"1": [[0, None, 7, 1], [0, 1, 1, 1]]}}},
    }
    path, out = cluster.folder / "family.yaml", cluster.folder / "points"
    path.write_text(json.dumps(family))
    words = ("table", str(path), "--out", str(out), "--seconds", "1")
    done = cluster.command(*words, "--json")
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["points"]
    assert [one["labels"] for one in points] == [["500", "1", "both"], ["500", "1", "up"], ["500", "2", "both"]]
    for one in points:
        # Between two clocks, so by their bound below 0 on a busy machine.
        assert one["measured"]["loss_ratio"] == 0 and one["measured"]["latency_p50_ms"] > -1
        assert one["measured"]["peak_sent_packets"] > 0 and one["measured"]["peak_received_packets"] > 0
    runs = sorted((out / "runs").iterdir())
    assert len(runs) == 3 and not any(list((run / "sent").glob("*")) for run in runs)
    again = cluster.command(*words)
    assert again.returncode == 0 and "in brackets: somebody" in again.stdout
    assert sorted((out / "runs").iterdir()) == runs, "nothing was measured again"
