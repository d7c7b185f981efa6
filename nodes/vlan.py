"""VLAN interfaces (IEEE 802.1Q) by the name that ifupdown and vconfig give them: eth0.20 is VLAN 20 on eth0."""

from __future__ import annotations

import re
from typing import NamedTuple

from pktswarm.nodes.process import iproute2

_NAME = re.compile(r"(?P<on>.+)\.(?P<number>[0-9]{1,4})")
LEAST, MOST = 1, 4094


class Vlan(NamedTuple):
    on: str
    number: int


def of_name(interface: str) -> Vlan | None:
    """None: the name is not that of a VLAN."""
    match = _NAME.fullmatch(interface)
    if match is None or not LEAST <= int(match["number"]) <= MOST:
        return None
    return Vlan(match["on"], int(match["number"]))


def add(interface: str, vlan: Vlan) -> None:
    """Raises EngineError where the kernel does not take it."""
    iproute2("ip", "ip", "link", "add", "link", vlan.on, "name", interface, "type", "vlan", "id", str(vlan.number))


def remove(interface: str) -> None:
    """Raises EngineError where the kernel does not take it."""
    iproute2("ip", "ip", "link", "del", "dev", interface, "type", "vlan")
