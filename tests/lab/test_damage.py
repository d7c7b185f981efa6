"""A run through a device that damages frames in its kernel: nft changes bits of one frame in a hundred and counts them.

Each of them is one altered or one lost packet in the run's figures, and no other figure changes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from typing import Any

import pytest

from run_cluster import Cluster
from running import cluster_of

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces"),
    pytest.mark.skipif(not shutil.which("nft"), reason="nft is not installed"),
]
cluster = cluster_of(lambda folder: Cluster(folder, "g", switch="bridge"))
SIZE_BYTES = 128
RULES, APART = 50, 100
"""Each rule damages one frame of its turn. The turns are so far apart that no frame is damaged twice, although a frame
whose port was damaged is not seen by the rules behind."""
SCENARIO = """
receive: {mode: count}
streams:
  - {name: one, from: tx1, to: rx1, size_bytes: %d, rate_pps: %d, duration_s: %d, engine: xdp,
     headers: [{ethernet: {}}, {ipv4: {}}, {udp: {src: 7000, dst: 7001}}]}
"""


class Damage:
    """nft in the lab's device, where frames of the transmitters come in: rules of its own, each with a counter."""

    def __init__(self, cluster: Cluster) -> None:
        self.inside = ["nsenter", f"--net=/proc/{cluster.state.keeper.pids['dut']}/ns/net"]

    def load(self, rules: list[str]) -> None:
        chain = "add chain netdev damage in { type filter hook ingress device to-a priority 0; }"
        lines = ["add table netdev damage", chain, *(f"add rule netdev damage in {rule}" for rule in rules)]
        subprocess.run([*self.inside, "nft", "-f", "-"], input="\n".join(lines), text=True, check=True)

    def counted(self) -> list[int]:
        """Of each rule, in order."""
        command = [*self.inside, "nft", "-j", "list", "table", "netdev", "damage"]
        document = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        each = [entry["rule"]["expr"] for entry in document["nftables"] if "rule" in entry]
        return [part["counter"]["packets"] for expr in each for part in expr if "counter" in part]

    def remove(self) -> None:
        subprocess.run([*self.inside, "nft", "delete", "table", "netdev", "damage"], check=True)


@pytest.fixture
def damage(cluster: Cluster) -> Any:
    made = Damage(cluster)
    yield made
    made.remove()


def flip(bit: int, every: int, number: int) -> str:
    """One bit of the frame, from its first byte, of frame `number` in each `every` of the stream."""
    byte, mask = bit // 8, 0x80 >> bit % 8
    return (
        f"udp dport 7001 numgen inc mod {every} == {number} counter @ll,{byte * 8},8 set @ll,{byte * 8},8 ^ {mask:#x}"
    )


TIME = f"@ll,{(14 + 20 + 8 + 13) * 8},8"
"""A byte of the time, behind Ethernet, IPv4 and UDP. It has any value, so one in its place can be the same."""


@pytest.mark.parametrize(
    "changed", ["@ih,56,8 set 1", "@ih,64,8 set 0xff", "@ih,88,8 set 1", f"{TIME} set {TIME} ^ 0x77"]
)
def test_a_damaged_stamp_is_one_altered_packet(cluster: Cluster, damage: Damage, changed: str) -> None:
    """Of its number or its time."""
    damage.load([f"udp dport 7001 numgen inc mod 20000 == 77 counter {changed}"])
    (row,) = cluster.run(cluster.scenario(SCENARIO % (64, 20_000, 1)), 0)["rows"]
    assert damage.counted() == [1]
    figures = [row[f"{name}_packets"] for name in ("received", "altered", "lost", "reordered", "duplicated")]
    assert figures == [20_000, 1, 0, 0, 0]
    assert -row["latency_bound_ns"] < row["latency_min_ns"] < row["latency_max_ns"] < 10**9


@pytest.mark.parametrize("seed", [1, 2])
def test_each_bit_damaged_at_random_is_one_altered_or_lost_packet(cluster: Cluster, damage: Damage, seed: int) -> None:
    """One frame in a hundred for ten seconds, from the destination MAC to the last byte."""
    bits = random.Random(seed).sample(range((SIZE_BYTES - 4) * 8), RULES)
    damage.load([flip(bit, RULES * APART, APART * number + 7) for number, bit in enumerate(bits)])
    (row,) = cluster.run(cluster.scenario(SCENARIO % (SIZE_BYTES, 5000, 10)), 0)["rows"]
    damaged = sum(damage.counted())
    assert 480 <= damaged <= 500
    assert row["altered_packets"] + row["lost_packets"] == damaged, bits
    assert row["received_packets"] + row["lost_packets"] == row["sent_packets"] == 50_000
    assert (row["reordered_packets"], row["duplicated_packets"]) == (0, 0)
    assert -row["latency_bound_ns"] < row["latency_min_ns"] < row["latency_max_ns"] < 10**9
