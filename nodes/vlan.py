"""VLAN interfaces (IEEE 802.1Q) by the name that ifupdown and vconfig give them: eth0.20 is VLAN 20 on eth0."""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

from pktswarm.nodes.process import TOOL_PATH
from pktswarm.traffic.errors import EngineError

_NAME = re.compile(r"(?P<on>.+)\.(?P<number>[0-9]{1,4})")
LEAST, MOST = 1, 4094
_TIMEOUT_S = 10.0


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
    _ip("link", "add", "link", vlan.on, "name", interface, "type", "vlan", "id", str(vlan.number))


def remove(interface: str) -> None:
    """Raises EngineError where the kernel does not take it."""
    _ip("link", "del", "dev", interface, "type", "vlan")


def _ip(*words: str) -> None:
    environment = {"PATH": TOOL_PATH, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["ip", *words], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError("ip", f"{' '.join(words)}: {error}") from None
    if done.returncode:
        raise EngineError("ip", f"{' '.join(words)}: {done.stderr.strip()}")
