"""Through the lab's own UPF and back: what users send, the data network echoes, and their gNBs time by one clock."""

from __future__ import annotations

import os
from typing import Any

import pytest

from upf_cluster import UpfCluster, ended, table

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")
GROUP = {"name": "users", "sessions": 100, "ue_addresses": "10.45.0.1/16", "qos": {"qfi": 9}}
UP = {"name": "up", "sessions": "users", "direction": "up", "size_bytes": 200, "rate_pps": 2000, "count_packets": 4000}


def run(cluster: UpfCluster, *streams: dict[str, Any], **more: Any) -> tuple[int, dict[str, Any]]:
    return ended(cluster.launch({"upf": {"groups": [GROUP]}, "streams": streams, **more}))


def sums(rows: list[dict[str, Any]], stream: str) -> tuple[int, ...]:
    """Intended, sent, received, lost, duplicated, altered of all its rows."""
    names = ("intended", "sent", "received", "lost", "duplicated", "altered")
    return tuple(sum(row[f"{name}_packets"] for row in rows if row["stream"] == stream) for name in names)


@pytest.mark.parametrize("percent", [50, 100])
def test_sent_up_echoed_and_received_back(cluster: UpfCluster, percent: int) -> None:
    before = cluster.forwarded()
    status, told = run(cluster, {**UP, "echo": percent})
    assert (status, told["reason"]) == (0, "as expected")
    due = 40 * percent
    assert sums(told["rows"], "up") == (4000, 4000, 4000, 0, 0, 0)
    assert sums(told["rows"], "up-echo") == (due, due, due, 0, 0, 0)
    # The UPF's own counts.
    assert [now - then for now, then in zip(cluster.forwarded(), before, strict=True)] == [4000, due]
    back = [row for row in told["rows"] if row["stream"] == "up-echo"]
    assert {(row["from"], row["to"], row["engine"]) for row in back} == {("rx1", "tx1", "echo"), ("rx1", "tx2", "echo")}
    ups = {row["from"]: row for row in told["rows"] if row["stream"] == "up"}
    for row in back:
        assert (row["latency_by"], row["latency_bound_ns"]) == ("round trip", 0)
        # One way is a part of it, as far as the nodes' clocks are known.
        way = ups[row["to"]]
        assert row["latency_min_ns"] > max(0, way["latency_min_ns"] - way["latency_bound_ns"])
    users = table(told, "users.csv")
    each = {one["user"]: one for one in users if one["stream"] == "up-echo"}
    assert set(each) == {f"10.45.0.{number}" for number in range(1, 101)}
    assert {(one["sent_packets"], one["received_packets"]) for one in users if one["stream"] == "up"} == {("40", "40")}
    assert all(one["sent_packets"] == one["received_packets"] and one["latency_min_ns"] for one in each.values())
    assert sum(int(one["sent_packets"]) for one in each.values()) == due
    assert all(0.6 * due / 100 <= int(one["sent_packets"]) <= 1.4 * due / 100 for one in each.values())
    assert any(line.startswith("echo sends up-echo on rx1") for line in told["engines"])


def test_more_comes_back_than_went_up_beside_a_stream_down(cluster: UpfCluster) -> None:
    """Copies are echoes, not duplicates."""
    up = {**UP, "rate_pps": 1000, "count_packets": 2000, "echo": 250}
    down = {**UP, "name": "down", "direction": "down", "rate_pps": 1000, "count_packets": 2000}
    status, told = run(cluster, up, down)
    assert (status, told["reason"]) == (0, "as expected")
    assert sums(told["rows"], "up-echo") == (5000, 5000, 5000, 0, 0, 0)
    assert sums(told["rows"], "down") == (2000, 2000, 2000, 0, 0, 0)


def test_users_with_ipv6_have_their_packets_back(cluster: UpfCluster) -> None:
    """Beside those with IPv4: who has both addresses has a stream of each."""
    group = {**GROUP, "sessions": 20, "ue_addresses": ["10.45.0.1/16", "2001:db8:45::7/48"]}
    before = cluster.forwarded()
    streams = [{**UP, "name": name, "ip": name, "echo": percent} for name, percent in (("ipv6", 150), ("ipv4", 100))]
    status, told = run(cluster, *streams, upf={"groups": [group]})
    assert (status, told["reason"]) == (0, "as expected")
    assert sums(told["rows"], "ipv6-echo") == (6000, 6000, 6000, 0, 0, 0)
    assert sums(told["rows"], "ipv4-echo") == (4000, 4000, 4000, 0, 0, 0)
    assert [now - then for now, then in zip(cluster.forwarded(), before, strict=True)] == [8000, 10000]
    back = [row for row in told["rows"] if row["stream"] == "ipv6-echo"]
    assert {(row["engine"], row["latency_by"], row["latency_bound_ns"]) for row in back} == {("echo", "round trip", 0)}
    each = {one["user"]: one for one in table(told, "users.csv") if one["stream"] == "ipv6-echo"}
    assert set(each) == {f"2001:db8:45{f':{number:x}' if number else ''}::7" for number in range(20)}
    assert all(one["sent_packets"] == one["received_packets"] and one["latency_min_ns"] for one in each.values())
    assert sum(int(one["sent_packets"]) for one in each.values()) == 6000


def test_what_is_lost_on_the_way_is_told_apart_by_direction(cluster: UpfCluster) -> None:
    cluster.tell(faults={"uplink": {"drop": [3, 7]}, "downlink": {"drop": [20]}})
    status, told = run(cluster, {**UP, "echo": 100})
    cluster.tell(faults={})
    assert status == 1
    assert sums(told["rows"], "up") == (4000, 4000, 3998, 2, 0, 0)
    assert sums(told["rows"], "up-echo") == (3998, 3998, 3997, 1, 0, 0)
    failed = [verdict["text"] for verdict in told["verdicts"] if not verdict["holds"]]
    assert failed == ["up: lost 2, expected at most 0", "up-echo: lost 1, expected at most 0"]
