"""A run through the lab's own UPF whose gNBs, and whose N3, have IPv6 addresses.

The UPF drops what comes over IPv6 without a right UDP checksum: nothing is lost only if each one is right.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pktswarm.master.results.recount import recount
from running import wait_for
from test_upf_run import seen
from upf_cluster import USERS, UpfCluster, table

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")
DUAL = {**USERS, "ue_addresses": ["10.45.0.1/16", "2001:db8:45::1/48"]}


def test_every_user_both_ways_over_ipv6(cluster: UpfCluster) -> None:
    """Users with both addresses: IPv4 and IPv6 in tunnels over IPv6, with churn beside."""
    before = cluster.tell(status={})["totals"]
    status, told = cluster.run(2, users=DUAL, both=True, n3_ip="ipv6")
    assert (status, told["reason"]) == (0, "as expected")
    after = cluster.tell(status={})["totals"]
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert grown == {"forwarded_uplink": 4000, "forwarded_downlink": 4000}
    users = table(told, "users.csv")
    assert len(users) == 400 and {(one["sent_packets"], one["received_packets"]) for one in users} == {("20", "20")}
    done = told["upf"]["operations"]
    assert done["churn: establishment"]["accepted"] == done["churn: deletion"]["accepted"] >= 90
    # IP packets of 200 - 4 - 14 bytes, up less a tunnel of 64.
    assert told["upf"]["groups"][0]["uplink_bytes"] == 4000 * (200 - 4 - 14 - 64)
    assert told["upf"]["groups"][0]["downlink_bytes"] == 4000 * (200 - 4 - 14)
    sessions = table(told, "sessions.csv")
    assert {one["upf"] for one in sessions if one["group"] == "users"} == {cluster.upf.n3_ipv6}


def test_captures_are_counted_again_as_the_run_counted(cluster: UpfCluster) -> None:
    status, told = cluster.run(1, mode="capture", users=DUAL, both=True, n3_ip="ipv6")
    assert (status, told["reason"]) == (0, "as expected")
    again = recount(Path(told["results"]))
    assert [(one.leg.stream, one.again.received, one.again.altered, one.agrees) for one in again.legs] == [
        (way, 500, 0, True) for way in ("up", "up", "down", "down", "up6", "up6", "down6", "down6")
    ]
    # In what tshark reads all checksums are right: of the tunnels, which are the UPF's, and of the users' packets.
    teids = {f"{number:#010x}" for number in range(1, 101)}
    assert seen(told, "tx1", "gtp.teid") | seen(told, "tx2", "gtp.teid") == teids
    outer = {addresses.split(",")[0] for addresses in seen(told, "tx1", "gtp.teid", "ipv6.src")}
    assert outer == {cluster.upf.n3_ipv6}


def test_a_packet_in_another_users_tunnel_is_told(cluster: UpfCluster) -> None:
    cluster.tell(faults={"uplink": {"drop": [7]}, "downlink": {"wrong_teid": [4]}})
    status, told = cluster.run(1, users={**USERS, "gnb": "tx1"}, n3_ip="ipv6")
    cluster.tell(faults={})
    assert status == 1
    lost = {(one["stream"], one["user"]) for one in table(told, "users.csv") if one["lost_packets"] not in ("0", "")}
    assert lost == {("up", "10.45.0.8"), ("down", "10.45.0.5")}
    assert "down: 1 arrived as another user's, expected 0" in {one["text"] for one in told["verdicts"]}


def test_a_gnb_answers_the_upf(cluster: UpfCluster) -> None:
    """The UPF's kernel forgets where the gNB is, discovers it again, and asks whether its path is alive."""
    process = cluster.start(60, n3_ip="ipv6")
    wait_for(process, "sending")
    inside = ["nsenter", f"--net=/proc/{cluster.pids['dut']}/ns/net"]
    known = [*inside, "ip", "-6", "-j", "neighbour", "show", "dev", "n3"]
    gnb, mac = next(
        (one["dst"], one["lladdr"])
        for one in json.loads(subprocess.run(known, check=True, capture_output=True).stdout)
        if one["dst"].endswith("::b")
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
        output, _ = process.communicate(timeout=120)
    played = json.loads(output)["played"]["tx1"]["counts"]
    assert played["neighbour"] >= 1 and played["echo"] == 1


ECHO = """
import socket, sys
one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
one.settimeout(20)
one.sendto(bytes.fromhex("320100040000000012340000"), (sys.argv[1], 2152))
answer, sender = one.recvfrom(100)
assert (answer.hex(), sender[:2]) == ("320200060000000012340000" + "0e00", (sys.argv[1], 2152)), (answer.hex(), sender)
"""
