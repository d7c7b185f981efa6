"""Sessions of the lab's own UPF: two programs that share nothing but the specification."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import forked
from forked import PKTSWARM
from pktswarm import lab
from running import cluster_of

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces"),
    pytest.mark.skipif(not hasattr(lab, "order_upf"), reason="the lab has no UPF of its own"),
]
GNBS = {"one": "10.92.0.11", "two": "10.92.0.12"}
SECTION = {"n4": "192.0.2.2", "node_id": "smf.example.org", "t1_s": 5, "gnbs": GNBS}


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.name, self.folder = f"upn{os.getpid()}", folder
        lab.up(self.name, 1, 1, folder, dut="upf")

    def tell(self, **order: Any) -> Any:
        return lab.order_upf(self.name, order, self.folder)

    def start(self, hold_s: float, *groups: dict[str, Any], **changes: Any) -> subprocess.Popen[str]:
        config = self.folder / "n4.yaml"
        config.write_text(json.dumps({"upf": {**SECTION, "groups": groups, **changes}}))
        command = [PKTSWARM, "sessions", config, "--json", "--hold", hold_s]
        hosts = ["--hosts", self.folder / f"lab-{self.name}.yml", "--results", self.folder / "results"]
        return forked.popen([*command, *hosts], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def sessions(self, hold_s: float, *groups: dict[str, Any], **changes: Any) -> tuple[int, dict[str, Any]]:
        with self.start(hold_s, *groups, **changes) as process:
            output, words = process.communicate(timeout=120)
        assert output, words
        return process.returncode, json.loads(output)

    def standing(self) -> int:
        return int(self.tell(status={})["sessions"])


cluster = cluster_of(Cluster)


BASE = {"name": "base", "sessions": 100, "ue_addresses": ["10.45.0.1/16", "2001:db8::1/48"], "qos": {"qfi": 5}}
CHOSEN = {"name": "chosen", "sessions": 50, "ue_addresses": "choose", "pdn_type": "ipv4v6", "usage": {}}
COMING = {"name": "coming", "sessions": 200, "ue_addresses": "10.46.0.1/16"}


def test_all_kinds_of_groups_with_churn_and_handover_beside_them(cluster: Cluster) -> None:
    churn = {"group": "coming", "sessions_per_s": 50, "lifetime_s": 0.5}
    handover = {"group": "base", "users_per_s": 50}
    status, told = cluster.sessions(2, BASE, CHOSEN, COMING, churn=churn, handover=handover)
    assert status == 0, told
    done = told["operations"]
    assert done["establishment"]["accepted"] == 150
    assert done["churn: establishment"]["accepted"] == done["churn: deletion"]["accepted"] > 0
    assert done["handover"]["accepted"] > 0
    assert [group["states"] for group in told["groups"][:2]] == [{"deleted": 100}, {"deleted": 50}]
    # It chose both, and tells what passed: nothing did.
    assert told["groups"][1]["first"]["ue_v4"] and told["groups"][1]["first"]["ue_v6"]
    assert (told["groups"][1]["usage_reports"], told["groups"][1]["uplink_bytes"]) == (50, 0)
    assert cluster.standing() == 0


def test_what_the_upf_refuses_is_told_in_words(cluster: Cluster) -> None:
    cluster.tell(faults={"n4": {"refuse_every": 10, "cause": 75}})
    try:
        status, told = cluster.sessions(0, BASE)
    finally:
        cluster.tell(faults={})
    assert status == 3
    assert told["operations"]["establishment"]["accepted"] == 90
    (words, count), *more = told["operations"]["establishment"]["failures"].items()
    assert (count, more) == (10, [])
    assert words.startswith("group base: no resources available (75)")
    assert cluster.standing() == 0


def test_what_is_lost_on_the_way_is_sent_again(cluster: Cluster) -> None:
    cluster.tell(faults={"n4": {"lose_request_every": 7, "lose_answer_every": 5}})
    try:
        status, told = cluster.sessions(0, BASE, t1_s=0.3, n1=20)
    finally:
        cluster.tell(faults={})
    assert status == 0, told
    assert told["operations"]["establishment"]["accepted"] == told["operations"]["deletion"]["accepted"] == 100
    assert told["datagrams"]["repeated"] > 0
    assert cluster.standing() == 0


def test_a_restart_is_seen_by_the_recovery_time_stamp(cluster: Cluster) -> None:
    with cluster.start(60, BASE, heartbeat_s=0.3) as process:
        deadline = time.monotonic() + 30
        while cluster.standing() < 100 and time.monotonic() < deadline:
            time.sleep(0.1)
        cluster.tell(restart={"silent_s": 0.1})
        output, _ = process.communicate(timeout=60)
    told = json.loads(output)
    assert process.returncode == 3
    assert [event["kind"] for event in told["events"]] == ["associated", "restarted"]
    assert told["groups"][0]["states"] == {"lost": 100}
    assert cluster.standing() == 0


def test_all_of_it_over_ipv6(cluster: Cluster) -> None:
    """N4 too: requests, heartbeats both ways, churn and handover."""
    n4 = {"n4": "2001:db8:94::2", "node_id": None, "heartbeat_s": 0.5}
    gnbs = {"one": "2001:db8:92::11", "two": "2001:db8:92::12"}
    churn = {"group": "coming", "sessions_per_s": 50, "lifetime_s": 0.5}
    handover = {"group": "base", "users_per_s": 40}
    status, told = cluster.sessions(6, BASE, CHOSEN, COMING, churn=churn, handover=handover, gnbs=gnbs, **n4)
    assert status == 0
    assert told["upf"]["node_id"] == "192.0.2.2"
    done = told["operations"]
    assert all(one["failed"] == 0 for one in done.values())
    assert done["establishment"]["accepted"] == done["deletion"]["accepted"] == 150
    assert told["heartbeats"]["requested"] == told["heartbeats"]["accepted"] > 5
    assert told["heartbeats_answered"] >= 1
    assert cluster.standing() == 0
