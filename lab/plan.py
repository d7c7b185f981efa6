"""What a lab consists of: its nodes with their names, addresses and sides. Pure; nothing is made here."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Literal

from traffic.errors import BadInput

Group = Literal["master", "transmit", "receive"]

NAME = re.compile(r"[a-z0-9-]{1,20}")
MOST_NODES = 120
"""Of one kind: a control subnet has room for 1 + 120 + 120 hosts."""
MTU_RANGE = (576, 9000)
BOTTLENECK_RANGE_BPS = (64_000, 10_000_000_000)
MOST_QUEUE_BYTES = 2**30
QUEUE_S = 0.02
"""What the bottleneck queues if nothing else is asked for, as time at its rate."""
ETHERNET_BYTES = 18
"""Header and one VLAN tag."""
CONTROL_INTERFACE = "ctl0"
TRAFFIC_INTERFACE = "eth1"
FIRST_HOST: dict[Group, int] = {"master": 0, "transmit": 10, "receive": 130}
"""Added to a node's number it makes the last byte of its addresses: tx1 is .11, rx1 is .131."""


@dataclass(frozen=True)
class Node:
    """One host of the lab. `side`, `mac` and `ipv4` belong to its traffic interface; the master has none."""

    name: str
    group: Group
    address: str
    side: Literal["", "a", "b"] = ""
    mac: str = ""
    ipv4: str = ""


@dataclass(frozen=True)
class Bottleneck:
    """What the device under test lets through in each direction, and how much it queues before it drops."""

    rate_bps: int
    """Of the frames without FCS, as the kernel's token bucket counts them."""
    queue_bytes: int


@dataclass(frozen=True)
class Plan:
    name: str
    nodes: tuple[Node, ...]
    mtu: int = 1500
    bottleneck: Bottleneck | None = None
    both_roles: bool = False
    """Whether the inventory lists every node in both groups: one that sends can then receive too."""

    @property
    def transmit(self) -> int:
        return sum(node.group == "transmit" for node in self.nodes)

    @property
    def receive(self) -> int:
        return sum(node.group == "receive" for node in self.nodes)


def plan(
    name: str = "default",
    transmit: int = 3,
    receive: int = 3,
    mtu: int = 1500,
    bottleneck_bps: int = 0,
    queue_bytes: int = 0,
) -> Plan:
    """The nodes of lab `name`. Raises BadInput for a name, a count or an MTU that cannot be.

    `bottleneck_bps` 0: none; `queue_bytes` 0: QUEUE_S of it.
    """
    check_name(name)
    _check_range(name, "transmit", transmit, 1, MOST_NODES)
    _check_range(name, "receive", receive, 1, MOST_NODES)
    _check_range(name, "mtu", mtu, *MTU_RANGE)
    slot = _slot(name)
    nodes = [Node("m0", "master", f"10.91.{slot}.1")]
    nodes += [_traffic_node("transmit", slot, number) for number in range(1, transmit + 1)]
    nodes += [_traffic_node("receive", slot, number) for number in range(1, receive + 1)]
    return Plan(name, tuple(nodes), mtu, _bottleneck(name, mtu, bottleneck_bps, queue_bytes))


def _bottleneck(name: str, mtu: int, rate_bps: int, queue_bytes: int) -> Bottleneck | None:
    if not rate_bps:
        if queue_bytes:
            raise BadInput(f"lab {name}", "there is no bottleneck", key="bottleneck-queue", value=queue_bytes)
        return None
    least = mtu + ETHERNET_BYTES
    queue_bytes = queue_bytes or max(least, round(rate_bps / 8 * QUEUE_S))
    _check_range(name, "bottleneck", rate_bps, *BOTTLENECK_RANGE_BPS)
    _check_range(name, "bottleneck-queue", queue_bytes, least, MOST_QUEUE_BYTES)
    return Bottleneck(rate_bps, queue_bytes)


def rate_bps(text: str) -> int:
    """`100mbit` in bits a second; `kbit`, `mbit` and `gbit` as the tool tc has them. Raises BadInput."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)", text.strip().lower())
    if not found:
        raise BadInput("lab", "is not a rate", key="bottleneck", value=text, allowed="like 64kbit, 100mbit, 1gbit")
    return round(float(found[1]) * {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[found[2]])


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise BadInput("lab", "cannot be used", key="name", value=name, allowed="1 to 20 of a-z, 0-9 and -")


def _check_range(lab: str, key: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadInput(f"lab {lab}", "out of range", key=key, value=value, allowed=f"{least} to {most}")


def _slot(name: str) -> int:
    """The third byte of the lab's subnets. Two labs never share a wire, so that two names that meet do no harm."""
    return 0 if name == "default" else 1 + zlib.crc32(name.encode()) % 255


def _traffic_node(group: Group, slot: int, number: int) -> Node:
    last = FIRST_HOST[group] + number
    sends = group == "transmit"
    return Node(
        name=f"{'tx' if sends else 'rx'}{number}",
        group=group,
        address=f"10.91.{slot}.{last}",
        side="a" if sends else "b",
        mac=f"02:92:{slot:02x}:00:00:{last:02x}",
        ipv4=f"10.92.{slot}.{last}",
    )
