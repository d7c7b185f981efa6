"""Tunnels over a wire, taken off by the Linux kernel's own devices; and through a whole lab, counted by their bytes."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import availability
from pktswarm.traffic.frames.placement import headers_bytes
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from run_cluster import Cluster
from running import cluster_of
from wire import SO_RCVBUFFORCE, A, B, Wire, inside, ip
from xdp_ends import send

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender()),
]
CONFIGS = Path("configs").resolve()
Headers = list[dict[str, Any]]
cluster = cluster_of(Cluster)
PACKETS, SIZE_BYTES, PORT = 300, 200, 6001
INNER_MAC = "02:00:00:00:01:02"
OUTER = {"ipv4": {"src": "10.92.0.12", "dst": "10.92.0.1"}}
INNER_ETHERNET = {"ethernet": {"src": "02:00:00:00:01:01", "dst": INNER_MAC}}
USER = [{"ipv4": {"src": "10.9.0.2", "dst": "10.9.0.1"}}, {"udp": {"src": {"increment": [5000, 5009]}, "dst": PORT}}]
DEVICES: dict[str, tuple[str, Headers]] = {
    "vxlan": (
        "type vxlan id 7001 local 10.92.0.1 dstport 4789 dev rx0",
        [{"udp": {"src": {"increment": [50000, 50006]}, "dst": 4789}}, {"vxlan": {"vni": 7001}}, INNER_ETHERNET],
    ),
    "geneve": (
        "type geneve id 7002 remote 10.92.0.12",
        [{"udp": {"src": 50000, "dst": 6081}}, {"geneve": {"vni": 7002}}, INNER_ETHERNET],
    ),
    "gre": ("type gre local 10.92.0.1 remote 10.92.0.12", [{"gre": {}}]),
    "gre with a key and numbers": (
        "type gre local 10.92.0.1 remote 10.92.0.12 key 9 iseq",
        [{"gre": {}}, {"gre_key": {"key": 9}}, {"gre_sequence": {"sequence": {"increment": [1, 65535]}}}],
    ),
    "gretap": ("type gretap local 10.92.0.1 remote 10.92.0.12", [{"gre": {}}, INNER_ETHERNET]),
    "ipip": ("type ipip local 10.92.0.1 remote 10.92.0.12", []),
}


def a_leg(tunnel: Headers, engine: str) -> Leg:
    headers = [{"ethernet": {"src": A, "dst": B}}, OUTER, *tunnel, *USER]
    frame: Any = {"headers": headers, "payload": {"fill": 0xA5}}
    return Leg(0, "t", "a", "b", "stream", engine, frame, SIZE_BYTES, rate_pps=5000.0, count_packets=PACKETS)


def add_device(wire: Wire, device: str) -> None:
    command = ["ip", "-n", wire.receiver, "link", "add", "inner0", *device.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and re.search("Unknown device type|Operation not supported", done.stderr):
        pytest.skip(f"this kernel has no such device: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


@pytest.mark.kernel("[xdp-")
@pytest.mark.usefixtures("live_frames")
@pytest.mark.parametrize("kind", DEVICES)
def test_the_linux_kernel_takes_the_tunnel_off(wire: Wire, tmp_path: Path, kind: str, engine: str) -> None:
    """A socket behind the kernel's device gets each packet."""
    device, tunnel = DEVICES[kind]
    ip("-n", wire.receiver, "address", "add", "10.92.0.1/24", "dev", "rx0")
    add_device(wire, device)
    if INNER_ETHERNET in tunnel:
        ip("-n", wire.receiver, "link", "set", "inner0", "address", INNER_MAC)
    ip("-n", wire.receiver, "address", "add", "10.9.0.1/24", "dev", "inner0")
    ip("-n", wire.receiver, "link", "set", "inner0", "up")
    with inside(wire.receiver), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        channel.bind(("10.9.0.1", PORT))
        channel.settimeout(5)
        (count,) = send(wire, tmp_path, [a_leg(tunnel, engine)], engine=engine)
        received = [channel.recvfrom(2000) for _ in range(PACKETS)]
    assert count["sent_packets"] == PACKETS
    assert [address[1] for _, address in received] == [5000 + number % 10 for number in range(PACKETS)]
    headers = headers_bytes(a_leg(tunnel, engine).frame["headers"])
    assert {len(data) for data, _ in received} == {SIZE_BYTES - FCS_BYTES - headers}


def received_packets(document: dict[str, Any]) -> dict[str, int]:
    """Stream → packets, from all of its transmitters."""
    counted: Counter[str] = Counter()
    for row in document["rows"]:
        if row["from"]:
            counted[row["stream"]] += row["received_packets"]
    return dict(counted)


STREAMS = """
  - {name: overlay, headers: [ethernet: {}, ipv4: {}, udp: {src: {increment: [50000, 50009]}, dst: 4789},
      vxlan: {vni: {increment: [1, 100]}}, ethernet: {}, ipv4: {}, udp: {src: 5000, dst: 5000}], MORE}
  - {name: keyed, headers: [ethernet: {}, ipv4: {}, gre: {}, gre_key: {key: 7}, ipv4: {}, udp: {src: 1, dst: 2}], MORE}
  - {name: plain, MORE}
"""


@pytest.mark.parametrize("engine", ["xdp", "tc", "trafgen"])
def test_streams_in_tunnels_are_counted_beside_others(cluster: Cluster, engine: str) -> None:
    streams = STREAMS.replace("MORE", f"engine: {engine}, size_bytes: 200, rate_pps: 400, count_packets: 400")
    document = cluster.run(cluster.scenario(f"streams:{streams}expect: {{loss: 0, sent: intended}}"), 0)
    assert received_packets(document) == {"overlay": 400, "keyed": 400, "plain": 400}


def test_the_overlay_that_ships_loses_nothing(cluster: Cluster) -> None:
    document = cluster.run(CONFIGS / "overlay.yaml", 0)
    assert received_packets(document) == {"tenants": 4000, "branch": 1000, "plain": 1000}
