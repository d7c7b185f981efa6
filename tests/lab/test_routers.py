"""Runs through the lab's router: the kernel forwards, and FRR where it is installed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import forked
from pktswarm import lab
from pktswarm.master.results.recount import recount
from pktswarm.master.results.trace_verify import elsewhere
from run_cluster import PKTSWARM, Cluster, network_of, out_of_a_run, pids_of
from running import cluster_of, sent_packets, wait_for, wait_until_sent

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")
ROUTES = ["10.50.0.0/16=tx1", "10.60.0.0/16=rx1", "2001:db8:60::/48=rx2"]
TRACE = Path("configs/traces/lab.pcapng").resolve()
FRR = Path("/usr/lib/frr")
FRR_ROUTE = "10.70.0.0/16"


class RoutedCluster(Cluster):
    """Two nodes with both roles on each side of the router."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "o", dut="router", both_roles=True, routes=ROUTES, switch="bridge")

    def on_router(self, *command: str) -> str:
        words = ["nsenter", f"--target={self.state.keeper.pids['dut']}", "--net", "--mount", *command]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def neighbours(self) -> dict[str, str]:
        """Address → MAC, of the router."""
        found = json.loads(self.on_router("ip", "-json", "neighbour"))
        return {one["dst"]: one["lladdr"] for one in found if "lladdr" in one}

    def macs(self) -> dict[str, str]:
        return {node.name: node.mac for node in self.state.plan.nodes}


cluster = cluster_of(RoutedCluster)


def found(document: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {row["stream"]: (row["received_packets"], row["altered_packets"]) for row in document["rows"]}


def test_streams_of_both_ip_versions_and_of_other_subnets_are_forwarded(cluster: RoutedCluster) -> None:
    cluster.on_router("ip", "neighbour", "flush", "all")
    inner = "{udp: {src: 7, dst: 7}}"
    one = "rate_pps: 1000, count_packets: 500, size_bytes: 128"
    scenario = cluster.scenario(f"""
streams:
  - {{name: own, from: tx1, to: rx2, {one}}}
  - name: pools
    from: tx1
    to: rx1
    {one.replace(", ", chr(10) + "    ")}
    headers:
      - ethernet: {{}}
      - ipv4: {{src: {{increment: [10.50.0.0, 10.50.3.255]}}, dst: {{increment: [10.60.1.0, 10.60.1.255]}}}}
      - {inner}
  - name: six
    from: tx2
    to: rx2
    {one.replace(", ", chr(10) + "    ")}
    headers:
      - ethernet: {{}}
      - ipv6: {{src: "2001:db8:50::9", dst: {{increment: ["2001:db8:60::1", "2001:db8:60::ff"]}}}}
      - {inner}
expect: {{loss: 0, altered: 0, sent: intended}}
""")
    document = cluster.run(scenario, 0)
    assert found(document) == {"own": (500, 0), "pools": (500, 0), "six": (500, 0)}
    router, macs = cluster.state.plan.router, cluster.macs()
    assert router is not None
    gateways = {leg["stream"]: leg["gateway"] for leg in document["legs"]}
    assert gateways["own"] == {
        "address": router.ipv4["a"],
        "mac": router.mac["a"],
        "asked_from": cluster.state.plan.nodes[1].ipv4,
        "receiver_mac": macs["rx2"],
    }
    assert gateways["six"]["address"] == router.ipv6["a"] and gateways["six"]["mac"] == router.mac["a"]
    known = cluster.neighbours()
    assert {known[node.ipv4] for node in cluster.state.plan.nodes if node.name == "rx1"} == {macs["rx1"]}
    again = recount(Path(document["results"]))
    assert again.status == 0, again.summary
    assert not cluster.left_behind()


def test_on_link_subnets_at_one_port_have_gateways_of_their_own(cluster: RoutedCluster) -> None:
    for prefix, port in (("10.81.0.1/24", "to-a"), ("10.82.0.1/24", "to-b"), ("10.83.0.1/24", "to-b")):
        cluster.on_router("ip", "address", "replace", prefix, "dev", port)
    ends = "{ipv4: {src: {increment: [10.81.0.10, 10.81.0.49]}, dst: {increment: [10.82.0.10, 10.82.0.49]}}}"
    more = "rate_pps: 500, count_packets: 200, size_bytes: 128"
    streams = [
        f"{{name: one, from: tx1, to: rx1, {more}, gateway: 10.81.0.1, headers: [{{ethernet: {{}}}}, {ends}]}}",
        f"{{name: two, from: tx1, to: rx2, {more}, headers: [{{ethernet: {{}}}}, {{ipv4: {{dst: 10.83.0.9}}}}]}}",
    ]
    document = cluster.run(cluster.scenario(f"streams: [{', '.join(streams)}]"), 0)
    assert found(document) == {"one": (200, 0), "two": (200, 0)}
    router, macs, known = cluster.state.plan.router, cluster.macs(), cluster.neighbours()
    assert router is not None
    asked = {leg["stream"]: (leg["gateway"]["address"], leg["gateway"]["asked_from"]) for leg in document["legs"]}
    own = cluster.state.plan.nodes[1].ipv4
    assert asked == {"one": ("10.81.0.1", "10.81.0.10"), "two": (router.ipv4["a"], own)}
    assert {known[f"10.82.0.{last}"] for last in range(10, 50)} == {macs["rx1"]} and known["10.83.0.9"] == macs["rx2"]


def test_a_router_that_asks_again_and_again_is_answered(cluster: RoutedCluster) -> None:
    """Its entries are of use for a tenth of a second, so that it asks by unicast while frames are sent."""
    for version, side in (("ipv4", "to-a"), ("ipv4", "to-b"), ("ipv6", "to-b")):
        for name, value in {"base_reachable_time_ms": 100, "delay_first_probe_time": 0, "locktime": 0}.items():
            path = f"/proc/sys/net/{version}/neigh/{side}/{name}"
            cluster.on_router("sh", "-c", f"test ! -e {path} || echo {value} > {path}")
    cluster.on_router("ip", "neighbour", "flush", "all")
    six = '{ethernet: {}}, {ipv6: {src: "2001:db8:50::9", dst: "2001:db8:60::1"}}, {udp: {src: 7, dst: 7}}'
    streams = [
        "{name: four, from: tx1, to: rx1, rate_pps: 500, duration_s: 3, size_bytes: 128}",
        f"{{name: six, from: tx2, to: rx2, rate_pps: 500, duration_s: 3, size_bytes: 128, headers: [{six}]}}",
    ]
    document = cluster.run(cluster.scenario(f"streams: [{', '.join(streams)}]\nexpect: {{loss: 0}}"), 0)
    assert document["played"]["rx1"]["counts"]["arp"] > 2
    assert document["played"]["rx2"]["counts"]["neighbour"] > 2


def test_frames_wait_for_the_answer_of_a_slow_node(cluster: RoutedCluster) -> None:
    """The router has forgotten the receiver, which is frozen for half a second: its counting program is not."""
    text = "streams: [{name: s, from: tx1, to: rx1, rate_pps: 500, duration_s: 3, size_bytes: 128}]\nexpect: {loss: 0}"
    sender = [cluster.state.keeper.pids["tx1"]]
    process = cluster.start(cluster.scenario(text), "--json")
    try:
        wait_for(process, "sending")
        wait_until_sent(sender)
        frozen = pids_of("-m pktswarm.nodes", network_of(cluster, "rx1"))
        assert frozen
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            cluster.on_router("ip", "neighbour", "flush", "dev", "to-b")
            wait_until_sent(sender, 250)
            assert cluster.macs()["rx1"] not in cluster.neighbours().values(), "the test says nothing"
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 0, err + out_of_a_run(out)


@contextmanager
def mirrored(cluster: RoutedCluster, port: str) -> Iterator[Path]:
    """A capture at a port of the switch, as long as the block lasts."""
    path, net = cluster.folder / f"{port}.pcap", f"--net=/proc/{cluster.state.keeper.pids['switch']}/ns/net"
    options = f"-i {port} -U -Z root -B 32768 --immediate-mode --time-stamp-precision nano -w".split()
    process = subprocess.Popen(["nsenter", net, "tcpdump", *options, path], stderr=subprocess.PIPE, text=True)
    try:
        wait_for(process, "listening on")
        yield path
        wait_until_written(process)
    finally:
        process.terminate()
        process.communicate(timeout=20)


def wait_until_written(tcpdump: subprocess.Popen[str]) -> None:
    """Until it has written all that the kernel has for it: when it is terminated it reads no more."""
    assert tcpdump.stderr is not None
    deadline = time.monotonic() + 30
    captured, received = 0, 1
    while captured < received:
        assert time.monotonic() < deadline, f"tcpdump wrote {captured} of {received} frames"
        tcpdump.send_signal(signal.SIGUSR1)
        captured, received, dropped = map(int, re.findall(r"(\d+) packets", tcpdump.stderr.readline()))
        assert dropped == 0


@pytest.mark.parametrize("stamp", [True, False])
def test_a_trace_goes_both_ways_and_is_verified_behind_the_router(cluster: RoutedCluster, stamp: bool) -> None:
    pools = "users: {first: 10.50.7.1}, servers: {first: 10.60.7.1}, scale: {instances: 2}"
    options = f"speed: 4, direction: both, options: {{stamp: {str(stamp).lower()}}}, verify: true"
    text = f"traces: [{{name: t, from: tx1, to: rx1, file: {TRACE}, {pools}, {options}}}]\nexpect: {{loss: 0}}"
    with mirrored(cluster, "to-dut-a") as capture:
        document = cluster.run(cluster.scenario(text), 0)
    assert {(row["from"], row["lost_packets"]) for row in document["rows"]} == {("tx1", 0), ("rx1", 0)}
    for verified in document["verified"]:
        assert verified["altered"] == verified["lost"] == 0 and verified["intended"] > 500
    again = recount(Path(document["results"]))
    assert again.status == 0, again.summary
    assert {one.again.altered for one in again.legs} == {0}
    # The uplink in front of the router, and the downlink behind it.
    mirror = elsewhere(Path(document["results"]), capture)
    assert [one.leg.source for one in mirror] == ["tx1", "rx1"]
    for one in mirror:
        assert one.verified is not None and one.verified.holds and not one.verified.lost, one.verified


def test_a_router_that_changes_more_is_seen(cluster: RoutedCluster) -> None:
    """It is a second hop: nftables takes one more from the TTL."""
    rules = "add table ip t; add chain ip t c { type filter hook forward priority 0; }; add rule ip t c ip ttl set 62"
    try:
        cluster.on_router("nft", rules)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("nftables cannot set a TTL here")
    text = "streams: [{name: s, from: tx1, to: rx1, rate_pps: 500, count_packets: 100, size_bytes: 128%s}]"
    try:
        document = cluster.run(cluster.scenario(text % ""), 0)
        assert found(document) == {"s": (100, 100)}
        document = cluster.run(cluster.scenario(text % ", expect: {ttl: 62}"), 0)
        assert found(document) == {"s": (100, 0)}
    finally:
        cluster.on_router("nft", "delete table ip t")


def test_nothing_is_sent_when_a_gateway_does_not_answer(cluster: RoutedCluster) -> None:
    own = cluster.state.plan.nodes[1].ipv4
    gateway = own.rpartition(".")[0] + ".254"
    before = len(cluster.results())
    text = f"streams: [{{name: s, from: tx1, to: rx1, rate_pps: 100, count_packets: 10, gateway: {gateway}}}]"
    document = cluster.run(cluster.scenario(text), 2)
    expected = f"tx1: gateway = '{gateway}': no answer by ARP from the gateway of 's' on eth1"
    assert expected in document["error"] and own in document["error"]
    assert len(cluster.results()) == before and not cluster.left_behind()


def test_a_bottleneck_and_static_routes_of_frr(tmp_path: Path) -> None:
    if not (FRR / "zebra").exists():
        pytest.skip("FRR is not installed: apt install frr")
    name = f"frr{os.getpid()}"
    state = lab.up(name, 1, 1, tmp_path, dut="router", bottleneck_bps=50_000_000)
    try:
        one = FrrRouter(state)
        one.start()
        text = "{ipv4: {dst: {increment: [10.70.0.1, 10.70.0.100]}}}, {udp: {src: 7, dst: 7}}"
        path = tmp_path / "scenario.yaml"
        path.write_text(
            "name: frr\nstreams:\n  - {name: s, from: tx1, to: rx1, rate_pps: 1000, duration_s: 2, size_bytes: 512, "
            f"headers: [{{ethernet: {{}}}}, {text}]}}\nexpect: {{loss: 0, altered: 0}}\n"
        )
        process = one.run(path)
        out, err = process.communicate(timeout=90)
        assert process.returncode == 0, out + err
        assert found(json.loads(out)) == {"s": (2000, 0)}
        one.withdraw()
        process = one.run(path)
        wait_for(process, "sending")
        wait_until_sent([state.keeper.pids["tx1"]])
        out, err = process.communicate(timeout=90)
        assert process.returncode == 1, out + err
        assert found(json.loads(out)) == {"s": (0, 0)}
        assert sent_packets(state.keeper.pids["tx1"]) > 4000
    finally:
        lab.down(name, tmp_path)


class FrrRouter:
    """zebra and staticd of FRR in the router's namespaces, with their sockets below its own /run."""

    def __init__(self, state: lab.LabState) -> None:
        self.state, self.folder = state, Path("/run/frr")
        self.target = next(node.ipv4 for node in state.plan.nodes if node.name == "rx1")

    def inside(self, *command: str) -> None:
        assert lab.run_in(self.state.inventory, "dut", list(command)) == 0, command

    def start(self) -> None:
        config = f"ip route {FRR_ROUTE} {self.target}"
        making = f"mkdir -p {self.folder} && echo '{config}' > {self.folder}/frr.conf && chown -R frr:frr {self.folder}"
        self.inside("sh", "-c", making)
        for daemon in ("zebra", "staticd"):
            self.inside(
                *(str(FRR / daemon), "-d", "-A", "127.0.0.1", "-P", "0", "-i", f"{self.folder}/{daemon}.pid"),
                *("-z", f"{self.folder}/zserv.api", "--vty_socket", str(self.folder)),
                *("-f", f"{self.folder}/frr.conf"),
            )
        self.wait(True)

    def withdraw(self) -> None:
        self.inside(
            *("vtysh", "--vty_socket", str(self.folder), "-d", "staticd", "-c", "configure terminal"),
            *("-c", f"no ip route {FRR_ROUTE} {self.target}"),
        )
        self.wait(False)

    def wait(self, there: bool) -> None:
        """Until the kernel has FRR's route, or no longer."""
        words = ["nsenter", f"--net=/proc/{self.state.keeper.pids['dut']}/ns/net", "ip", "route", "show", FRR_ROUTE]
        deadline = time.monotonic() + 30
        while ("proto" in subprocess.run(words, check=True, capture_output=True, text=True).stdout) != there:
            assert time.monotonic() < deadline, f"the route is {'not ' * there}there"
            time.sleep(0.05)

    def run(self, scenario: Path) -> subprocess.Popen[str]:
        words = [PKTSWARM, "run", scenario, "--hosts", self.state.inventory, "--json", "--no-report"]
        results = ["--results", scenario.parent / "results"]
        return forked.popen([*words, *results], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
