"""A run through the lab's own UPF: users both ways, counted by the nodes and by the UPF, churn beside them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import forked
from forked import PKTSWARM
from pktswarm.master.results.captures import captures_of
from pktswarm.master.results.recount import recount
from running import wait_for
from upf_cluster import USERS, UpfCluster, ended, table

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")


def test_every_user_both_ways_with_churn_beside(cluster: UpfCluster) -> None:
    before = cluster.forwarded()
    status, told = cluster.run(2)
    assert (status, told["reason"]) == (0, "as expected")
    # The lab's UPF has counts of its own.
    assert [now - then for now, then in zip(cluster.forwarded(), before, strict=True)] == [2000, 2000]
    users = table(told, "users.csv")
    counts = {(one["stream"], one["user"]): (one["sent_packets"], one["received_packets"]) for one in users}
    assert set(counts) == {(way, f"10.45.0.{number}") for way in ("up", "down") for number in range(1, 101)}
    assert set(counts.values()) == {("20", "20")}
    done = told["upf"]["operations"]
    assert done["establishment"]["accepted"] == 100
    assert done["churn: establishment"]["accepted"] == done["churn: deletion"]["accepted"] >= 90
    assert told["upf"]["groups"][0]["states"] == {"deleted": 100}
    # What each user's packets amount to by the UPF's own report: IP packets of 138 bytes up, 182 down.
    assert told["upf"]["groups"][0]["uplink_bytes"] == 2000 * (200 - 4 - 14 - 44)
    assert told["upf"]["groups"][0]["downlink_bytes"] == 2000 * (200 - 4 - 14)
    sessions = table(told, "sessions.csv")
    assert {one["state"] for one in sessions if one["group"] == "users"} == {"established"}
    assert cluster.tell(status={})["sessions"] == 0


def test_who_lost_what_is_told_user_by_user(cluster: UpfCluster) -> None:
    cluster.tell(faults={"uplink": {"drop": [7]}, "downlink": {"drop": [10], "wrong_teid": [4]}})
    status, told = cluster.run(1, users={**USERS, "gnb": "tx1"})
    cluster.tell(faults={})
    assert status == 1
    lost = {(one["stream"], one["user"]) for one in table(told, "users.csv") if one["lost_packets"] not in ("0", "")}
    # One gNB: packet n is the n-th user's, and the one that was dropped is not counted as sent on.
    assert lost == {("up", "10.45.0.8"), ("down", "10.45.0.11"), ("down", "10.45.0.5")}
    worst = told["users"]["worst"]
    assert [one["lost_packets"] for one in worst] == [1] * 3 + [0] * 7
    assert {one["user"] for one in worst[:3]} == {user for _, user in lost}
    assert [one["latency_mean_ns"] for one in worst[3:]] == sorted(one["latency_mean_ns"] for one in worst[3:])[::-1]
    failed = {verdict["text"] for verdict in told["verdicts"] if not verdict["holds"]}
    assert "down: 1 arrived as another user's, expected 0" in failed
    assert "up: 0 arrived as another user's, expected 0" not in failed


def test_captures_are_counted_again_as_the_run_counted(cluster: UpfCluster) -> None:
    status, told = cluster.run(1, mode="capture")
    assert (status, told["reason"]) == (0, "as expected")
    again = recount(Path(told["results"]))
    assert [(one.leg.stream, one.again.received, one.again.altered, one.agrees) for one in again.legs] == [
        (way, 500, 0, True) for way in ("up", "up", "down", "down")
    ]
    # N6 sees the users' packets, N3 sees them in their tunnels: what tshark reads there.
    users, teids = {f"10.45.0.{number}" for number in range(1, 101)}, {f"{number:#010x}" for number in range(1, 101)}
    assert seen(told, "rx1", "ip.src") == users
    assert seen(told, "tx1", "gtp.teid") | seen(told, "tx2", "gtp.teid") == teids
    assert seen(told, "tx1", "gtp.ext_hdr.pdu_ses_con.qos_flow_id") == {"9"}


def test_users_with_two_addresses_have_two_streams(cluster: UpfCluster) -> None:
    before = cluster.forwarded()
    dual = {**USERS, "ue_addresses": ["10.45.0.1/16", "2001:db8:45::1/48"]}
    status, told = cluster.run(1, mode="capture", users=dual, both=True)
    assert (status, told["reason"]) == (0, "as expected")
    assert [now - then for now, then in zip(cluster.forwarded(), before, strict=True)] == [2000, 2000]
    assert all(one.agrees and not one.again.altered for one in recount(Path(told["results"])).legs)
    counts = {(one["stream"], one["user"]): one["received_packets"] for one in table(told, "users.csv")}
    prefixes = [f"2001:db8:45{f':{number:x}' if number else ''}::1" for number in range(100)]
    assert {user for stream, user in counts if stream in ("up6", "down6")} == set(prefixes)
    assert len(counts) == 400 and set(counts.values()) == {"10"}
    assert seen(told, "rx1", "ipv6.src") == set(prefixes)
    assert told["upf"]["groups"][0]["uplink_bytes"] == 2000 * (200 - 4 - 14 - 44)
    assert [len(one["streams"]) for one in told["users"]["worst"]] == [4] * 10


def test_prefixes_that_the_upf_chooses(cluster: UpfCluster) -> None:
    users = {"name": "users", "sessions": 20, "ue_addresses": "choose", "pdn_type": "ipv6"}
    status, told = cluster.run(1, users=users)
    assert (status, told["reason"]) == (0, "as expected")
    assert {one["received_packets"] for one in table(told, "users.csv")} == {"50"}


def test_a_recount_finds_what_was_lost_and_what_came_in_another_tunnel(cluster: UpfCluster) -> None:
    cluster.tell(faults={"downlink": {"drop": [10], "wrong_teid": [4]}})
    _, told = cluster.run(1, mode="capture", users={**USERS, "gnb": "tx1"})
    cluster.tell(faults={})
    up, down = recount(Path(told["results"])).legs
    assert (up.again.received, up.agrees) == (1000, True)
    # The run counts by stamps: what came in a tunnel of nobody is received, and not as expected.
    assert (down.counted, down.again.received, down.again.altered, down.again.lost) == (999, 998, 1, 2)


def seen(told: dict[str, Any], node: str, field: str, shown: str = "") -> set[str]:
    """The values of a field in the captured frames of a node that are a stream's; `shown`: of another one's."""
    (capture,) = captures_of(Path(told["results"]), node)
    wrong = ["tshark", "-r", str(capture), "-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    wrong += ["-Y", "udp.checksum.status == 0 or ip.checksum.status == 0 or _ws.malformed"]
    assert subprocess.run(wrong, capture_output=True, text=True, check=True).stdout == ""
    of_users = "ip.src == 10.45.0.0/16 or ipv6.src == 2001:db8:45::/48"
    only = "udp.dstport == 2152" if field.startswith("gtp") else of_users
    command = ["tshark", "-r", str(capture), "-Y", only, "-T", "fields", "-e", shown or field]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def limited(cluster: UpfCluster, reason: str) -> dict[str, dict[str, Any]]:
    """The MBRs' report by direction, of 20 users with 220,800 bit/s up and 291,200 down: IP packets of 138 and 182
    bytes, 200 a second. `reason`: how the run ends."""
    qos = {"qfi": 9, "mbr_up_bps": 160_000, "mbr_down_bps": 10_000_000}
    users = {"name": "users", "sessions": 20, "ue_addresses": "10.45.0.1", "qos": qos}
    status, told = cluster.run(2, users=users, rate_pps=4000, expect={"mbr": True})
    assert (status, told["reason"]) == (int(reason != "as expected"), reason)
    return {one["direction"]: one for one in told["users"]["mbr"]}


@pytest.mark.alone  # a sender that waits for a processor catches up, which is a higher rate for a moment
def test_a_rate_that_the_upf_polices_is_within_the_mbr(cluster: UpfCluster) -> None:
    told = limited(cluster, "as expected")
    assert [told[way]["beyond"] for way in ("up", "down")] == [[], []]
    # The MBR at most (what comes late and bunched is policed harder), and what is sent where that is less.
    assert 0 < told["up"]["highest_bps"] < 1.02 * 160_000
    assert 0.98 * 291_200 < told["down"]["highest_bps"] < 1.02 * 291_200


def test_users_whom_the_upf_lets_exceed_their_mbr_are_told(cluster: UpfCluster) -> None:
    cluster.tell(faults={"n4": {"ignore_mbr_every": 10}})
    told = limited(cluster, "MBR of users, up: 2 of 20 users above, expected none")
    cluster.tell(faults={})
    assert {one["user"] for one in told["up"]["beyond"]} == {"10.45.0.10", "10.45.0.20"}
    assert [round(one["beyond"], 1) for one in told["up"]["beyond"]] == [0.4, 0.4]
    assert (told["up"]["users"], told["up"]["beyond_users"], told["down"]["beyond"]) == (20, 2, [])


def test_addresses_and_tunnels_that_the_upf_chooses(cluster: UpfCluster) -> None:
    status, told = cluster.run(1, users={"name": "users", "sessions": 20, "ue_addresses": "choose"})
    assert (status, told["reason"]) == (0, "as expected")
    assert {one["received_packets"] for one in table(told, "users.csv")} == {"50"}


def test_a_upf_that_falls_silent_ends_the_run(cluster: UpfCluster) -> None:
    process = cluster.start(30, t1_s=0.3)
    wait_for(process, "sending")
    cluster.tell(restart={"silent_s": 3})
    status, told = ended(process)
    assert status == 3
    assert told["reason"].startswith("N4: no response from the UPF for ")
    notes = [note for note in told["notes"] if note.startswith("the UPF") or " are lost" in note]
    assert notes[0].startswith("the UPF's last message on N4 came ") and len(notes) == 1 + 4
    # It came up again, and says on N3 that it knows none of the tunnels.
    assert any("Error Indications received: the UPF has no tunnel with TEID" in note for note in told["notes"])
    assert told["upf"]["groups"][0]["states"] == {"lost": 100}


def test_a_gnb_answers_the_upf(cluster: UpfCluster) -> None:
    """The UPF's kernel forgets where the gNB is, finds it again, and asks whether its path is alive."""
    process = cluster.start(60)
    wait_for(process, "sending")
    inside = ["nsenter", f"--net=/proc/{cluster.pids['dut']}/ns/net"]
    known = [*inside, "ip", "-j", "neighbour", "show", "dev", "n3"]
    gnb, mac = next(
        (one["dst"], one["lladdr"])
        for one in json.loads(subprocess.run(known, check=True, capture_output=True).stdout)
        if one["dst"].endswith(".11")
    )
    subprocess.run([*inside, "ip", "neighbour", "del", gnb, "dev", "n3"], check=True)
    try:
        subprocess.run([*inside, sys.executable, "-c", ECHO, gnb], check=True, timeout=30)
        again = json.loads(subprocess.run(known, check=True, capture_output=True).stdout)
        assert [one["lladdr"] for one in again if one["dst"] == gnb] == [mac]
    finally:
        restored = ["ip", "neighbour", "replace", gnb, "lladdr", mac, "dev", "n3", "nud", "permanent"]
        subprocess.run([*inside, *restored], check=True)
    process.send_signal(signal.SIGINT)
    _, told = ended(process)
    played = told["played"]["tx1"]["counts"]
    assert played["arp"] >= 1 and played["echo"] == 1 and set(told["played"]) == {"tx1", "tx2", "rx1"}


ECHO = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(20)
one.sendto(bytes.fromhex("320100040000000012340000"), (sys.argv[1], 2152))
answer, sender = one.recvfrom(100)
assert (answer.hex(), sender) == ("320200060000000012340000" + "0e00", (sys.argv[1], 2152)), (answer.hex(), sender)
"""


def test_a_family_of_runs_is_a_table(cluster: UpfCluster) -> None:
    stream = {"name": "up", "sessions": "users", "direction": "up", "size_bytes": 200, "rate_pps": "$rate"}
    family = {
        "table": "small",
        "title": "two rates",
        "axes": [
            {"name": "way", "values": ["up"]},
            {"name": "rate", "values": [500, 1000]},
            {"name": "users", "values": [10]},
        ],
        "measures": ["loss_ratio", "sent_mpps", "latency_p50_ms"],
        "scenario": {
            "upf": {"groups": [{"name": "users", "sessions": "$users", "ue_addresses": "10.45.0.1/16"}]},
            "streams": [{**stream, "duration_s": "$seconds"}],
            "receive": {"mode": "count"},
        },
        "reference": {"source": "somebody", "figures": {"up": {"500": [[0.25, 1, 1]]}}},
    }
    (cluster.folder / "family.yaml").write_text(json.dumps(family))
    out = cluster.folder / "table"
    command = [PKTSWARM, "table", cluster.folder / "family.yaml", "--seconds", 1]
    command += ["--hosts", cluster.hosts, "--out", out]
    done = forked.run(command, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0.0000 (0.25)" in done.stdout and "in brackets: somebody" in done.stdout
    assert "2 of 2: up, 1000, 10" in done.stderr
    told = json.loads((out / "small.json").read_text())
    for point, rate_pps in zip(told["points"], (500, 1000), strict=True):
        assert point["measured"]["loss_ratio"] == 0 and point["measured"]["latency_p50_ms"] is not None
        assert abs(point["measured"]["sent_mpps"] * 1e6 - rate_pps) < 0.1 * rate_pps
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("up-*.json")}
    assert set(kept) == {"up-500-10.json", "up-1000-10.json"}
    assert forked.run([*command, "--json"], timeout=60).returncode == 0
    assert {path.name: path.stat().st_mtime_ns for path in out.glob("up-*.json")} == kept, "nothing is run again"


def test_ctrl_c_deletes_the_sessions(cluster: UpfCluster) -> None:
    process = cluster.start(30, t1_s=2)
    wait_for(process, "sending")
    process.send_signal(signal.SIGINT)
    status, told = ended(process)
    assert (status, told["reason"]) == (3, "stopped by the user")
    assert told["upf"]["groups"][0]["states"] == {"deleted": 100}
    assert cluster.tell(status={})["sessions"] == 0


def test_a_second_master_does_not_reach_the_upf(cluster: UpfCluster) -> None:
    """From the same address it could not: the first has its port. It is told who has the nodes, and not that."""
    first = cluster.start(30)
    try:
        wait_for(first, "sending")
        with cluster.start(1) as second:
            output, words = second.communicate(timeout=60)
        assert (second.returncode, output) == (3, "") and "in use by" in words and "nothing was sent" in words
    finally:
        first.send_signal(signal.SIGINT)
        status, told = ended(first)
    assert (status, told["reason"]) == (3, "stopped by the user")
    assert told["upf"]["groups"][0]["states"] == {"deleted": 100}


def test_what_ends_a_run_that_sets_up_sessions_deletes_them(cluster: UpfCluster) -> None:
    cluster.tell(faults={"n4": {"delay_ms": 100}})
    with cluster.start(1, users={**USERS, "sessions": 5000}) as process:
        for _ in range(200):
            if cluster.tell(status={})["sessions"]:
                break
            time.sleep(0.05)
        process.terminate()
        output, words = process.communicate(timeout=60)
    cluster.tell(faults={})
    assert (process.returncode, output) == (3, "") and "pktswarm: interrupted" in words
    assert cluster.tell(status={})["associations"] == cluster.tell(status={})["sessions"] == 0


def test_a_session_that_is_refused_is_told_and_nothing_is_sent(cluster: UpfCluster) -> None:
    folders = set((cluster.folder / "results").glob("*"))
    cluster.tell(faults={"n4": {"refuse_every": 50, "cause": 75}})
    with cluster.start(1) as process:
        output, words = process.communicate(timeout=60)
    cluster.tell(faults={})
    assert (process.returncode, output) == (3, "")
    assert "2 of 100 sessions not established: establishment: 2 x group users: no resources available (75)" in words
    assert set((cluster.folder / "results").glob("*")) == folders
    assert cluster.tell(status={})["sessions"] == 0
