"""Users that move from gNB to gNB while they are sent to, by the lab's UPF: every packet is found at one of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from typing import Any

import pytest

import forked
from forked import PKTSWARM
from running import cluster_of, wait_for
from upf_cluster import UpfCluster, ended, rows_of, table

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")
USERS = {"name": "users", "sessions": 30, "ue_addresses": "10.45.0.1/16", "qos": {"qfi": 9}, "usage": {}}
STAYING = {"name": "staying", "sessions": 30, "ue_addresses": "10.46.0.1/16"}
PACKETS = 3000


def start(
    cluster: UpfCluster, users_per_s: float, streams: list[dict[str, Any]], **section: Any
) -> subprocess.Popen[str]:
    shape = {"sessions": "users", "size_bytes": 200, "rate_pps": 1500, "count_packets": PACKETS}
    upf = {"groups": [USERS, STAYING], "handover": {"group": "users", "users_per_s": users_per_s}, **section}
    return cluster.launch({"upf": upf, "streams": [{**shape, "name": one["direction"], **one} for one in streams]})


def run(
    cluster: UpfCluster, users_per_s: float, *streams: dict[str, Any], **section: Any
) -> tuple[int, dict[str, Any]]:
    return ended(start(cluster, users_per_s, [*streams], **section))


cluster = cluster_of(lambda folder: UpfCluster(folder, 3, 2))


def test_every_packet_of_users_that_move_is_found_at_one_gnb_or_another(cluster: UpfCluster) -> None:
    marked = cluster.tell(status={})["end_markers_sent"]
    status, told = run(cluster, 20, {"direction": "up"}, {"direction": "down"}, {"name": "still", **TO_STAYING})
    assert (status, told["reason"]) == (0, "as expected")
    moves = told["handover"]
    done = told["upf"]["operations"]["handover"]
    assert 30 <= moves["accepted"] == moves["requested"] == moves["intended"] == done["response"]["count"]
    assert moves["users"] == {"moved": 30, "failed": 0, "stayed": 0}
    assert moves["end_markers"] == {"asked": moves["accepted"], "came": moves["accepted"], "others": 0} | NONE_LEFT_OUT
    assert cluster.tell(status={})["end_markers_sent"] - marked == moves["accepted"]
    nothing = {"users": 30, "lost_packets": 0, "sent_packets": PACKETS}
    assert [moves["lost"][way]["moved"] for way in ("up", "down")] == [nothing, nothing]
    # Each gNB's users came to several: the parts add up, and only those of users that move are in parts.
    for row in rows_of(told, "down"):
        parts = [one["received_packets"] for one in row["each"]]
        assert sum(parts) == row["received_packets"] == row["sent_packets"] == PACKETS // 3 and min(parts) > 0
        assert [one["to"] for one in row["each"]] == row["to"].split("+")
        assert row["latency_min_ns"] <= row["latency_p50_ns"] <= row["latency_p99_ns"] <= row["latency_max_ns"]
    assert not any("each" in row for stream in ("up", "still") for row in rows_of(told, stream))
    users = table(told, "users.csv")
    assert {one["received_packets"] for one in users} == {"100"}
    of_group = [int(one["handovers"]) for one in users if one["stream"] == "down"]
    assert (len(of_group), sum(of_group), min(of_group)) == (30, moves["accepted"], moves["accepted"] // 30)
    assert {one["handovers"] for one in users if one["stream"] == "still"} == {""}
    # By the UPF's own report: IP packets of 138 bytes up, 182 down.
    group = told["upf"]["groups"][0]
    assert (group["uplink_bytes"], group["downlink_bytes"]) == (PACKETS * 138, PACKETS * 182)
    assert any(note.startswith("up: users that move continue to send from their first gNB") for note in told["notes"])


TO_STAYING = {"sessions": "staying", "direction": "down"}
NONE_LEFT_OUT = {"not_looked_for": 0}


def test_what_users_lose_while_they_move_is_told_beside_those_that_stay(cluster: UpfCluster) -> None:
    """8 users a second in two seconds: some of 30 stay. Of one gNB's node packet n is the n-th user's, so the drops are
    of known users: the first ones, who move, and the last one, who does not."""
    where = {**USERS, "gnb": "tx1"}
    cluster.tell(faults={"downlink": {"drop": [0, 1, 30, 59]}})
    try:
        status, told = run(cluster, 8, {"direction": "down", "from": "rx1"}, groups=[where])
    finally:
        cluster.tell(faults={})
    assert status == 1
    lost = {one["user"]: int(one["lost_packets"]) for one in table(told, "users.csv") if one["lost_packets"] != "0"}
    assert lost == {"10.45.0.1": 2, "10.45.0.2": 1, "10.45.0.30": 1}
    moved = {one["user"] for one in table(told, "users.csv") if one["handovers"] != "0"}
    assert 10 <= len(moved) < 30
    each = told["handover"]["lost"]["down"]
    of_moved = sum(count for user, count in lost.items() if user in moved)
    assert each["moved"]["lost_packets"] == of_moved and each["stayed"]["lost_packets"] == 4 - of_moved > 0
    assert each["moved"]["users"] == len(moved) and each["stayed"]["users"] == 30 - len(moved)
    assert sum(one["sent_packets"] for one in each.values()) == PACKETS
    (row,) = rows_of(told, "down")
    assert (row["lost_packets"], row["duplicated_packets"]) == (4, 0)


def test_what_came_in_another_users_tunnel_is_told_where_users_move_too(cluster: UpfCluster) -> None:
    cluster.tell(faults={"downlink": {"wrong_teid": [100]}})
    try:
        status, told = run(cluster, 20, {"direction": "down"})
    finally:
        cluster.tell(faults={})
    failed = [verdict["text"] for verdict in told["verdicts"] if not verdict["holds"]]
    assert (status, failed) == (1, ["down: 1 arrived as another user's, expected 0"])


def test_end_markers_that_do_not_come_and_moves_that_fail_are_told(cluster: UpfCluster) -> None:
    process = start(cluster, 20, [{"direction": "down"}], t1_s=1, n1=1)
    wait_for(process, "sending")
    cluster.tell(faults={"n4": {"no_end_marker_every": 5, "lose_request_every": 7}})
    try:
        status, told = ended(process)
    finally:
        cluster.tell(faults={})
    moves = told["handover"]
    failures = sum(moves["failures"].values())
    assert status == 3 and moves["accepted"] + failures == moves["requested"] and failures > 0
    assert set(moves["failures"]) == {"group users: no answer (sent once)"}
    markers = moves["end_markers"]
    assert markers["asked"] == moves["accepted"] and 0 < markers["asked"] - markers["came"] <= markers["asked"] / 4
    # What was not done has no effect: nobody lost anything.
    assert sum(row["lost_packets"] for row in rows_of(told, "down")) == 0


def test_the_end_markers_are_what_tshark_reads(cluster: UpfCluster) -> None:
    """At the first gNB, where nothing else of GTP-U passes the counting program."""
    capture = cluster.folder / "n3.pcap"
    inside = ["nsenter", f"--net=/proc/{cluster.pids['tx1']}/ns/net"]
    command = [*inside, "tshark", "-i", "eth1", "-f", "udp port 2152", "-w", str(capture)]
    sniffer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(sniffer, "Capturing on")
        _, told = run(cluster, 20, {"direction": "down"})
    finally:
        sniffer.terminate()
        sniffer.wait(20)
    fields = ["ip.src", "gtp.message", "gtp.flags", "gtp.length", "gtp.teid"]
    wanted = [word for field in fields for word in ("-e", field)]
    read = ["tshark", "-r", str(capture), "-Y", "gtp and not _ws.malformed", "-T", "fields", *wanted]
    done = subprocess.run(read, capture_output=True, text=True, check=True)
    messages = Counter(tuple(line.split("\t")) for line in done.stdout.splitlines())
    assert {message[:4] for message in messages} == {(cluster.upf.n3_ipv4, "0xfe", "0x30", "0")}
    assert messages.total() == told["played"]["tx1"]["counts"]["end_marker"] > 0
    assert {int(message[4], 0) for message in messages} <= set(range(1, 31))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"receive": {"mode": "capture"}}, "its users move (upf.handover) and are not captured"),
        ({"upf": {"gnbs": {"a": "10.99.0.1", "b": "10.99.0.2"}}}, "upf.gnbs.a = '10.99.0.1': streams.0 needs a node"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    cluster: UpfCluster, changes: dict[str, dict[str, Any]], words: str
) -> None:
    stream = {"name": "down", "sessions": "users", "direction": "down", "size_bytes": 200, "rate_pps": 10}
    upf = {"groups": [USERS], "handover": {"group": "users", "users_per_s": 1}, **changes.get("upf", {})}
    scenario = {"name": "t", "upf": upf, "streams": [{**stream, "duration_s": 1}], "receive": {"mode": "count"}}
    config = cluster.folder / "bad.yaml"
    config.write_text(json.dumps({**scenario, **{name: one for name, one in changes.items() if name != "upf"}}))
    command = [PKTSWARM, "run", config, "--hosts", cluster.hosts]
    results = cluster.folder / "none"
    done = forked.run([*command, "--results", results], timeout=60)
    assert (done.returncode, done.stdout, results.exists()) == (2, "", False)
    assert words in done.stderr and len(done.stderr.splitlines()) == 1
    assert cluster.tell(status={})["sessions"] == 0
