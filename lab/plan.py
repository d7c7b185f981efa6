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
class Plan:
    name: str
    nodes: tuple[Node, ...]
    mtu: int = 1500

    @property
    def transmit(self) -> int:
        return sum(node.group == "transmit" for node in self.nodes)

    @property
    def receive(self) -> int:
        return sum(node.group == "receive" for node in self.nodes)


def plan(name: str = "default", transmit: int = 3, receive: int = 3, mtu: int = 1500) -> Plan:
    """The nodes of lab `name`. Raises BadInput for a name, a count or an MTU that cannot be."""
    check_name(name)
    _check_range(name, "transmit", transmit, 1, MOST_NODES)
    _check_range(name, "receive", receive, 1, MOST_NODES)
    _check_range(name, "mtu", mtu, *MTU_RANGE)
    slot = _slot(name)
    nodes = [Node("m0", "master", f"10.91.{slot}.1")]
    nodes += [_traffic_node("transmit", slot, number) for number in range(1, transmit + 1)]
    nodes += [_traffic_node("receive", slot, number) for number in range(1, receive + 1)]
    return Plan(name, tuple(nodes), mtu)


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
