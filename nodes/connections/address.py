"""The address that connections use: on the traffic interface for as long as a run, and never the host's own.

The interface has none otherwise, because a kernel that had the streams' addresses would answer them. The kernel itself
takes the address away at the end of its lifetime, so not even a guard that is killed leaves it behind.
"""

from __future__ import annotations

import ipaddress
import json
import math
import subprocess
from typing import Any

from pktswarm.traffic.errors import BadInput, EngineError

SPARE_S = 5.0
IP_TIMEOUT_S = 5.0
FOR_EVER = 0xFFFFFFFF


class Address:
    """`ipv4` with its prefix length. Whoever has added it removes it."""

    def __init__(self, interface: str, ipv4: str) -> None:
        self.interface, self.wanted = interface, ipaddress.IPv4Interface(ipv4)
        self._added = False

    def add(self, limit_s: float) -> None:
        """BadInput where the node has this address, or its network, already."""
        self._refuse_taken()
        seconds = str(math.ceil(limit_s + SPARE_S))
        _ip("addr", "replace", str(self.wanted), "dev", self.interface, "valid_lft", seconds, "preferred_lft", seconds)
        self._added = True

    def remove(self) -> None:
        if self._added:
            self._added = False
            try:
                if self._mine():
                    _ip("addr", "del", str(self.wanted), "dev", self.interface)
            except EngineError:
                if self._mine():
                    raise

    def _mine(self) -> bool:
        """The kernel may have taken it away already."""
        return any(name == self.interface and one.ip == self.wanted.ip for name, one, _ in _addresses())

    def _refuse_taken(self) -> None:
        for name, one, for_ever in _addresses():
            # One that will go away by itself is what a guard that was killed has left.
            taken = one.ip == self.wanted.ip and (for_ever or name != self.interface)
            # The other role of this host has an address in the same network on the same interface.
            if taken or (name != self.interface and one.network.overlaps(self.wanted.network)):
                raise BadInput(
                    self.interface,
                    f"the node has {one} on {name}: connections need an address of their own",
                    key="socket_ipv4",
                    value=str(self.wanted),
                    allowed="an address in a network that is not used on the node",
                )


def _addresses() -> list[tuple[str, ipaddress.IPv4Interface, bool]]:
    """Interface, address, whether it stays for ever."""
    found = []
    for link in json.loads(_ip("-json", "-4", "addr", "show") or "[]"):
        for one in _infos(link):
            address = ipaddress.IPv4Interface(f"{one['local']}/{one['prefixlen']}")
            found.append((str(link["ifname"]), address, one.get("valid_life_time", FOR_EVER) == FOR_EVER))
    return found


def _infos(link: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in link.get("addr_info", []) if "local" in one]


def _ip(*words: str) -> str:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=IP_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError("socket", f"ip {' '.join(words)}: {error}") from None
    if done.returncode:
        raise EngineError("socket", f"ip {' '.join(words)}: exit {done.returncode}", done.stderr)
    return done.stdout
