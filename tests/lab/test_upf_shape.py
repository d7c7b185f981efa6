"""The shape of a stream of sessions through the lab's own UPF: what is on the wire, and each user's counts."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pktswarm.lab.namespaces import network_of
from pktswarm.master.results.recount import recount
from running import cluster_of, wait_for
from upf_cluster import UpfCluster, ended, table
from wire import SO_RCVBUFFORCE

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces"),
]
GROUP = {"name": "users", "sessions": 100, "ue_addresses": "10.45.0.1/16", "qos": {"qfi": 9}}
UP = {"name": "up", "sessions": "users", "direction": "up", "size_bytes": 200, "rate_pps": 1000, "count_packets": 1000}
DOWN = {**UP, "name": "down", "direction": "down"}
TUNNELLED = 14 + 36 + 8
"""Where the user's packet begins in a frame up, with its PDU session container."""

cluster = cluster_of(lambda folder: UpfCluster(folder, 2, 2, switch="bridge"))
"""With two nodes in the data network."""


@contextmanager
def seen(cluster: UpfCluster, port: str) -> Iterator[Callable[[], list[bytes]]]:
    """What a port of the lab's switch sees, both ways; to be asked once all has passed."""
    with network_of(cluster.pids["switch"]):
        channel = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        channel.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
        channel.bind((port, 3))
    frames: list[bytes] = []
    over = threading.Event()

    def listen() -> None:
        while (ready := select.select([channel], [], [], 0.2)[0]) or not over.is_set():
            frames.extend(one.recv(4096) for one in ready)

    thread = threading.Thread(target=listen)

    def ask() -> list[bytes]:
        over.set()
        thread.join()
        return frames

    with channel:
        thread.start()
        try:
            yield ask
        finally:
            ask()


def run(cluster: UpfCluster, *streams: dict[str, Any], **more: Any) -> tuple[int, dict[str, Any]]:
    return ended(start(cluster, *streams, **more))


def start(cluster: UpfCluster, *streams: dict[str, Any], **more: Any) -> subprocess.Popen[str]:
    return cluster.launch({"upf": {"groups": [GROUP]}, "streams": streams, **more})


def of_users(frames: list[bytes], n3_ipv4: str) -> list[bytes]:
    """G-PDUs up: to UDP port 2152 of the UPF, with a container."""
    to = socket.inet_aton(n3_ipv4)
    return [one for one in frames if one[30:34] == to and one[36:38] == b"\x08\x68" and one[42:44] == b"\x34\xff"]


def number(data: bytes, at: int, size: int = 2) -> int:
    return int.from_bytes(data[at : at + size], "big")


def test_every_user_has_an_outer_source_port_of_his_own(cluster: UpfCluster) -> None:
    with seen(cluster, "n3-upf") as frames:
        status, told = run(cluster, {**UP, "outer_source_port": "per-user"})
        up = of_users(frames(), cluster.upf.n3_ipv4)
    assert (status, told["reason"]) == (0, "as expected")
    assert len(up) == 1000
    # User n of a gNB is every other one of the group: rows 0, 2, … are tx1's.
    ports = {(one[26:30], one[TUNNELLED + 12 : TUNNELLED + 16]): number(one, 34) for one in up}
    assert {(gnb[-1], user[-1]): port for (gnb, user), port in ports.items()} == {
        (11 + row % 2, row + 1): 49152 + row // 2 for row in range(100)
    }
    assert {one["received_packets"] for one in table(told, "users.csv")} == {"10"}


def test_users_take_turns_of_several_packets(cluster: UpfCluster) -> None:
    """Two gNBs share the stream, and neither's share is whole rounds of its users."""
    sessions, count = 7, 1000
    streams = [{**one, "count_packets": count, "interleave": 3} for one in (UP, DOWN)]
    with seen(cluster, "n3-upf") as frames:
        status, told = run(cluster, *streams, upf={"groups": [{**GROUP, "sessions": sessions}]})
        up = of_users(frames(), cluster.upf.n3_ipv4)
    assert (status, told["reason"]) == (0, "as expected")
    users = table(told, "users.csv")
    assert all(one["sent_packets"] == one["received_packets"] for one in users)
    sent = {(one["stream"], one["user"]): int(one["sent_packets"]) for one in users}
    expected: dict[tuple[str, str], int] = {}
    for gnb in (0, 1):
        own = [f"10.45.0.{row + 1}" for row in range(gnb, sessions, 2)]
        share = sum(
            int(row["sent_packets"]) for row in told["rows"] if row["stream"] == "up" and row["from"] == f"tx{gnb + 1}"
        )
        order = [own[index // 3 % len(own)] for index in range(share)]
        seen_here = [socket.inet_ntoa(one[TUNNELLED + 12 : TUNNELLED + 16]) for one in up if one[29] == 11 + gnb]
        assert seen_here == order
        expected |= {(way, user): order.count(user) for way in ("up", "down") for user in own}
    assert sent == expected and sum(sent.values()) == 2 * count


def test_each_user_has_several_flows(cluster: UpfCluster) -> None:
    upf = {"groups": [{**GROUP, "flows_per_user": 4}]}
    with seen(cluster, "n6-upf") as frames:
        status, told = run(cluster, UP, DOWN, upf=upf, receive={"mode": "capture"})
        plain = [one for one in frames() if one[12:14] == b"\x08\0" and one[23] == 17 and len(one) in (152, 196)]
    assert (status, told["reason"]) == (0, "as expected")
    for user, server, size in ((26, 30, 152), (30, 26, 196)):
        ports: dict[bytes, list[int]] = {}
        for one in plain:
            if len(one) == size:
                ports.setdefault(one[user : user + 4], []).append(number(one, 34 if user < server else 36))
                assert number(one, 36 if user < server else 34) == (5001 if user < server else 5002)
        assert list(map(len, ports.values())) == [10] * 100
        assert all(own == [49152 + turn % 4 for turn in range(10)] for own in ports.values())
    assert {one["received_packets"] for one in table(told, "users.csv")} == {"10"}
    legs = recount(Path(told["results"])).legs
    assert [(one.again.received, one.again.altered, one.agrees) for one in legs] == [(500, 0, True)] * 4


def test_users_talk_to_a_pool_of_servers(cluster: UpfCluster) -> None:
    """On N6 itself: the UPF knows them from the first packet on, since they asked for it. rx1, rx2 play half each."""
    first = f"{cluster.nodes['rx1'].ipv4.rpartition('.')[0]}.200"
    upf = {"groups": [GROUP], "servers": {"first": first, "count": 10}}
    with seen(cluster, "n6-upf") as frames:
        status, told = run(cluster, UP, DOWN, upf=upf)
        plain = [one for one in frames() if one[12:14] == b"\x08\0" and one[23] == 17 and len(one) in (152, 196)]
    assert (status, told["reason"]) == (0, "as expected")
    up = {(socket.inet_ntoa(one[26:30]), one[33], one[:6]) for one in plain if len(one) == 152}
    down = {(socket.inet_ntoa(one[30:34]), one[29], one[6:12]) for one in plain if len(one) == 196}
    macs = [bytes.fromhex(cluster.nodes[name].mac.replace(":", "")) for name in ("rx1", "rx2")]
    # Row r of the group is at gNB r modulo 2, its user r // 2, who talks to one of five.
    expected = {(f"10.45.0.{row + 1}", 200 + row % 2 * 5 + row // 2 % 5, macs[row % 2]) for row in range(100)}
    assert up == down == expected
    assert {one["received_packets"] for one in table(told, "users.csv")} == {"10"}


def test_a_server_of_the_pool_is_found_and_echoes(cluster: UpfCluster) -> None:
    """The UPF's kernel has forgotten one of them, asks, and is answered."""
    first = f"{cluster.nodes['rx1'].ipv4.rpartition('.')[0]}.200"
    upf = {"groups": [{**GROUP, "flows_per_user": 2}], "servers": {"first": first, "count": 10}}
    status, told = run(cluster, {**UP, "echo": 100}, upf=upf)
    assert (status, told["reason"]) == (0, "as expected")
    users = table(told, "users.csv")
    assert {(one["stream"], one["received_packets"]) for one in users} == {("up", "10"), ("up-echo", "10")}
    steady = {key: value for key, value in UP.items() if key != "count_packets"}
    process = start(cluster, {**steady, "duration_s": 60}, upf=upf)
    try:
        wait_for(process, "sending")
        wait_until_known(cluster, first)
        subprocess.run([*neighbour(cluster, "del"), first], check=True)
        wait_until_known(cluster, first)
    finally:
        process.send_signal(signal.SIGINT)
        _, told = ended(process)
    assert sum(told["played"][name]["counts"].get("arp", 0) for name in ("rx1", "rx2")) >= 1


def neighbour(cluster: UpfCluster, what: str) -> list[str]:
    """Of the UPF's kernel on N6; the address is to follow."""
    return ["nsenter", f"--net=/proc/{cluster.pids['dut']}/ns/net", "ip", "neighbour", what, "dev", "n6"]


def wait_until_known(cluster: UpfCluster, address: str) -> None:
    deadline = time.monotonic() + 20
    while b"lladdr" not in subprocess.check_output([*neighbour(cluster, "show"), address]):
        assert time.monotonic() < deadline, f"{address} is not found"
        time.sleep(0.05)


def test_ipv6_users_talk_to_ipv6_servers(cluster: UpfCluster) -> None:
    """Beyond rx1, by the lab's default route."""
    group = {**GROUP, "ue_addresses": ["10.45.0.1/16", "2001:db8:45::1/48"]}
    upf = {"groups": [group], "servers": {"first": ["10.60.0.1", "2001:db8:60::1"], "count": 8}}
    streams = [{**UP, "name": "up4", "to": "rx1"}, {**UP, "name": "up6", "ip": "ipv6", "to": "rx1"}]
    streams += [{**DOWN, "name": "down6", "ip": "ipv6", "from": "rx1"}]
    status, told = run(cluster, *streams, upf=upf)
    assert (status, told["reason"]) == (0, "as expected")
    assert {one["received_packets"] for one in table(told, "users.csv")} == {"10"}


def test_turns_and_the_echo(cluster: UpfCluster) -> None:
    upf = {"groups": [{**GROUP, "flows_per_user": 3}]}
    status, told = run(cluster, {**UP, "interleave": 10, "echo": 100, "burst": 10}, upf=upf)
    assert (status, told["reason"]) == (0, "as expected")
    users = table(told, "users.csv")
    assert {(one["stream"], one["received_packets"]) for one in users} == {("up", "10"), ("up-echo", "10")}
