"""The lab's own UPF under pfcpsim's package as its SMF (smf/): sessions as pfcpsim's own command line makes them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from pktswarm import lab
from pktswarm.lab.namespaces import network_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")
NAME, FIRST_USER, SESSIONS = f"pfs{os.getpid()}", "10.60.0.1", 200
NO_ASSOCIATION = 72


@pytest.fixture(scope="module")
def state(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("hosts")
    yield lab.up(NAME, 1, 1, folder, dut="upf")
    lab.down(NAME, folder)


def tell(state: Any, **order: Any) -> Any:
    return lab.order_upf(NAME, order, state.inventory.parent)


def pfcpsim(state: Any, programs: Path, *words: str) -> subprocess.Popen[str]:
    upf, gnb = state.plan.upf, state.plan.nodes[1]
    command = ["nsenter", f"--net=/proc/{state.keeper.pids['m0']}/ns/net", str(programs / "smf")]
    command += ["-bind", upf.smf_ipv4, "-n4", upf.n4_ipv4, "-n3", upf.n3_ipv4, "-gnb", gnb.ipv4, *words]
    command += ["-user", FIRST_USER, "-sessions", str(SESSIONS)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate("\n", timeout=60)
    return dict(json.loads(output.splitlines()[-1]))


def send_both_ways(state: Any) -> None:
    """One packet of each user up from the gNB, one down from the server."""
    upf, (_, gnb, server) = state.plan.upf, state.plan.nodes
    to_upf = Ether(src=gnb.mac, dst=upf.n3_mac) / IP(src=gnb.ipv4, dst=upf.n3_ipv4) / UDP(sport=2152, dport=2152)
    ups, downs = [], []
    for number in range(SESSIONS):
        user = str(ip_address(FIRST_USER) + number)
        inside = IP(src=user, dst=server.ipv4) / UDP(sport=9, dport=9) / b"up"
        ups.append(bytes(to_upf / GTP_U_Header(teid=10 * number + 1) / inside))
        down = Ether(src=server.mac, dst=upf.n6_mac) / IP(src=server.ipv4, dst=user) / UDP(sport=9, dport=9)
        downs.append(bytes(down / b"down"))
    for node, frames in ((gnb, ups), (server, downs)):
        with network_of(state.keeper.pids[node.name]), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("eth1", 0))
            for frame in frames:
                wire.send(frame)


def test_the_labs_upf_accepts_and_does_what_pfcpsim_asks_for(state: Any, programs: Path) -> None:
    """Sessions of two PDRs, two FARs, two URRs, three QERs; buffering, then forwarding to the gNB; and all of it once
    more, for pfcpsim's release names another node than itself (it puts address and port where an address stands), so
    that the association stays."""
    for again in (1, 2):
        with pfcpsim(state, programs, "-hold") as smf:
            assert smf.stdout is not None and "held\n" in smf.stdout
            assert tell(state, status={})["sessions"] == SESSIONS
            send_both_ways(state)
            wait_until_forwarded(state, again * SESSIONS)
            done = outcome(smf)
        counts = dict.fromkeys(("established", "buffering", "moved", "deleted"), SESSIONS)
        assert done == {"associated": True, "heartbeats": 1, **counts, "release": NO_ASSOCIATION, "problem": ""}
        assert tell(state, status={})["sessions"] == 0


def wait_until_forwarded(state: Any, count: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        totals = tell(state, status={})["totals"]
        forwarded = {totals["forwarded_uplink"], totals["forwarded_downlink"]}
        if forwarded == {count}:
            return
        assert time.monotonic() < deadline, totals
        time.sleep(0.05)


def test_a_refusal_is_told(state: Any, programs: Path) -> None:
    """The control of the test above."""
    tell(state, faults={"n4": {"refuse_every": 5}})
    with pfcpsim(state, programs) as smf:
        done = outcome(smf)
    tell(state, faults={})
    assert done["established"] == 4 and done["problem"].startswith("establishment 4: ")
