"""Packets longer than the MTU through the lab's UPF, whose host's kernel puts a tunnel's fragments together."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from upf_cluster import UpfCluster, rows_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")
USERS = {"name": "users", "sessions": 20, "ue_addresses": "10.45.0.1/16", "qos": {"qfi": 9}, "usage": {}}


def run(cluster: UpfCluster, *streams: dict[str, Any], **more: Any) -> tuple[int, dict[str, Any], str]:
    """Status, what was told, and what was said."""
    common = {"sessions": "users", "rate_pps": 200, "duration_s": 1}
    made = [{**common, "name": f"s{number}", **one} for number, one in enumerate(streams)]
    with cluster.launch({"upf": {"groups": [USERS]}, "streams": made, **more}) as process:
        output, said = process.communicate(timeout=120)
    return process.returncode, json.loads(output) if output else {}, said


def total(told: dict[str, Any], stream: str, name: str) -> int:
    return sum(row[name] for row in rows_of(told, stream))


@pytest.mark.parametrize(("engine", "sends"), [("auto", "xdp"), ("tc", "tc")])
def test_fragments_of_the_tunnel_are_whole_packets_behind_the_upf(cluster: UpfCluster, engine: str, sends: str) -> None:
    before = cluster.totals()
    stream = {"direction": "up", "size_bytes": 1540, "oversize": "outer", "engine": engine}
    status, told, said = run(cluster, stream)
    assert (status, told["reason"]) == (0, "as expected"), said
    assert {row["engine"] for row in rows_of(told, "s0")} == {sends}
    now = cluster.totals()
    # The UPF's host put two fragments together for each packet.
    assert now["fragment"] - before["fragment"] == 400
    assert now["forwarded_uplink"] - before["forwarded_uplink"] == 200
    assert [total(told, "s0", f"{way}_packets") for way in ("sent", "received", "altered")] == [200, 200, 0]
    assert total(told, "s0", "sent_frames") == 400
    assert {row["received_frames"] for row in rows_of(told, "s0")} == {None}
    assert total(told, "s0", "sent_bytes") == 200 * 1540
    assert told["upf"]["groups"][0]["uplink_bytes"] == 200 * (1540 - 4 - 14 - 44)


def test_fragments_of_users_packets_go_through_both_ways(cluster: UpfCluster) -> None:
    before = cluster.totals()
    up = {"direction": "up", "size_bytes": 3000, "oversize": "inner"}
    down = {"direction": "down", "size_bytes": {"1000": 1, "1518": 1, "3372": 2}, "oversize": "inner"}
    status, told, said = run(cluster, up, down)
    assert (status, told["reason"]) == (0, "as expected"), said
    now = cluster.totals()
    for stream in ("s0", "s1"):
        sent, received = (total(told, stream, f"{way}_packets") for way in ("sent", "received"))
        frames, came = (total(told, stream, f"{way}_frames") for way in ("sent", "received"))
        assert (sent, received, total(told, stream, "altered_packets")) == (200, 200, 0)
        assert frames == came
        way = "forwarded_uplink" if stream == "s0" else "forwarded_downlink"
        assert now[way] - before[way] == frames > sent
    assert total(told, "s0", "sent_frames") == 600
    assert total(told, "s0", "received_bytes") == 200 * (3000 - 44)
    # Each user's packets, whole.
    assert all(one["lost_packets"] == 0 for one in told["users"]["worst"])


def test_a_packet_that_lacks_a_fragment_is_lost(cluster: UpfCluster) -> None:
    # Of one gNB: frames 2 n and 2 n + 1 at the UPF are packet n's.
    cluster.tell(faults={"uplink": {"drop": [1, 5, 6, 30]}})
    one = {"upf": {"groups": [{**USERS, "gnb": "tx1"}]}}
    status, told, said = run(cluster, {"direction": "up", "size_bytes": 2000, "oversize": "inner"}, **one)
    cluster.tell(faults={})
    assert status == 1, said
    assert total(told, "s0", "lost_packets") == 4
    assert "rx1: 4 packets with missing fragments" in told["notes"]


def test_a_longer_packet_is_refused_where_nothing_is_said(cluster: UpfCluster) -> None:
    status, told, said = run(cluster, {"direction": "up", "size_bytes": 1540})
    assert (status, told) == (2, {})
    assert "a frame of 's0' is longer than its MTU of 1500 bytes allows" in said
    assert "size_bytes up to 1518, or oversize: inner or outer" in said


def test_an_mtu_that_the_interface_has_not(cluster: UpfCluster) -> None:
    stream = {"direction": "up", "size_bytes": 1540, "oversize": "outer", "mtu_bytes": 2000}
    status, told, said = run(cluster, stream)
    assert (status, told) == (2, {})
    assert "streams.0.mtu_bytes" in said and "more than the MTU of tx1's eth1" in said and "up to 1500" in said
