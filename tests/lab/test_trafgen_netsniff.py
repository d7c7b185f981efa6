"""trafgen to netsniff-ng over one wire between two throwaway namespaces: every frame counted, as it was built."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodes.interface import Interface
from nodes.receivers.netsniff import NetsniffReceiver
from nodes.senders.trafgen import TrafgenSender
from traffic.capture import CaptureFile
from traffic.errors import BadInput, EngineError
from traffic.frames import build_frame
from traffic.match import Match
from traffic.task import Leg, ReceiveCount, ReceiveTask, SendCount, SendTask

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(not shutil.which("trafgen", path="/usr/sbin:/usr/bin"), reason="trafgen is not installed"),
]

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
ETHERNET = {"ethernet": {"src": A, "dst": B}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "dscp": 46, "df": 1}}
IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}
UDP = {"udp": {"src": 1000, "dst": 2000}}
TCP = {"tcp": {"src": 1000, "dst": 2000, "flags": "syn"}}
VLAN, SVLAN = {"vlan": {"id": 10, "priority": 3}}, {"svlan": {"id": 20}}
SHAPES: dict[str, list[dict[str, Any]]] = {
    "udp4": [ETHERNET, IPV4, UDP],
    "udp6": [ETHERNET, IPV6, UDP],
    "tcp4": [ETHERNET, IPV4, TCP],
    "tcp6": [ETHERNET, IPV6, TCP],
    "icmp": [ETHERNET, IPV4, {"icmp": {"id": 7}}],
    "icmpv6": [ETHERNET, IPV6, {"icmpv6": {"id": 7}}],
    "vlan": [ETHERNET, VLAN, IPV4, UDP],
    "qinq": [ETHERNET, SVLAN, VLAN, IPV4, UDP],
    "mpls": [ETHERNET, {"mpls": {"label": 16}}, {"mpls": {"label": 17}}, IPV4, UDP],
    "arp": [ETHERNET, {"arp": {"sender_mac": A, "sender_ip": "10.0.0.1", "target_ip": "10.0.0.2"}}],
    "raw": [ETHERNET, {"raw": {"hex": "deadbeef"}}],
    "varying": [
        ETHERNET,
        {"ipv4": {"src": {"increment": ["10.0.0.1", "10.0.0.9"], "step": 2}, "dst": "10.0.1.2"}},
        {"udp": {"src": {"random": [3000, 4000]}, "dst": {"decrement": [2003, 2000]}}},
    ],
    "vlans": [ETHERNET, {"vlan": {"id": {"increment": [100, 107]}}}, IPV4, UDP],
}


class Wire:
    def __init__(self) -> None:
        tail = uuid.uuid4().hex[:8]
        self.sender, self.receiver = f"tg-a-{tail}", f"tg-b-{tail}"

    def up(self) -> None:
        for name in (self.sender, self.receiver):
            _ip("netns", "add", name)
        pair = ["tx0", "address", A, "type", "veth", "peer", "name", "rx0", "address", B, "netns", self.receiver]
        _ip("-n", self.sender, "link", "add", *pair)
        for name, interface in ((self.sender, "tx0"), (self.receiver, "rx0")):
            with inside(name):
                Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
            _ip("-n", name, "link", "set", interface, "up")

    def down(self) -> None:
        for name in (self.sender, self.receiver):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This process in a network namespace, with /sys showing that namespace's interfaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/self/ns/net").open() as home, Path(f"/run/netns/{namespace}").open() as there:
        libc.setns(there.fileno(), 0x40000000)
        try:
            yield
        finally:
            libc.setns(home.fileno(), 0x40000000)


@pytest.fixture
def wire() -> Iterator[Wire]:
    one = Wire()
    try:
        one.up()
        yield one
    finally:
        one.down()
