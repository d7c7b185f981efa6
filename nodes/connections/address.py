"""The IPv4 address of the connections, on the traffic interface during a run, never an address of the host's own.

The interface has no other address, because the kernel would answer streams to its own addresses. The address has a
lifetime, at whose end the kernel removes it, even if the guard was killed.
"""

from __future__ import annotations

import ipaddress
import json
import math
import subprocess
from typing import NotRequired, TypedDict

from pktswarm.traffic.errors import BadInput, EngineError

SPARE_S = 5.0
IP_TIMEOUT_S = 5.0
FOR_EVER = 0xFFFFFFFF


class _AddressInfo(TypedDict):
    """An address in the output of `ip -json addr show`. Other entries lack `local`."""

    local: NotRequired[str]
    prefixlen: int
    valid_life_time: NotRequired[int]


class _Link(TypedDict):
    """An interface in the output of `ip -json addr show`; `ip` prints {} for one that the filter rejects."""

    ifname: NotRequired[str]
    addr_info: NotRequired[list[_AddressInfo]]


class Address:
    """`ipv4`: with its prefix length. remove() removes only an address that add() added."""

    def __init__(self, interface: str, ipv4: str) -> None:
        self.interface, self.wanted = interface, ipaddress.IPv4Interface(ipv4)
        self._added = False

    def add(self, limit_s: float) -> None:
        """Raises BadInput when the node has this address, or one in its network, already."""
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
        """Returns whether the address is still there: its lifetime can be over."""
        return any(name == self.interface and address.ip == self.wanted.ip for name, address, _ in _addresses())

    def _refuse_taken(self) -> None:
        for name, address, for_ever in _addresses():
            # An address with a lifetime was left by a guard that was killed.
            taken = address.ip == self.wanted.ip and (for_ever or name != self.interface)
            # On the same interface, the host's other role has an address in the same network.
            if taken or (name != self.interface and address.network.overlaps(self.wanted.network)):
                raise BadInput(
                    self.interface,
                    f"the node has {address} on {name}: connections need an address of their own",
                    key="socket_ipv4",
                    value=str(self.wanted),
                    allowed="an address in a network that is not used on the node",
                )


def _addresses() -> list[tuple[str, ipaddress.IPv4Interface, bool]]:
    """Returns (interface, address, whether it has no lifetime) of each address."""
    links: list[_Link] = json.loads(_ip("-json", "-4", "addr", "show") or "[]")
    return [
        (
            link["ifname"],
            ipaddress.IPv4Interface(f"{info['local']}/{info['prefixlen']}"),
            info.get("valid_life_time", FOR_EVER) == FOR_EVER,
        )
        for link in links
        for info in link.get("addr_info", [])
        if "local" in info
    ]


def _ip(*arguments: str) -> str:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=IP_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError("socket", f"ip {' '.join(arguments)}: {error}") from None
    if done.returncode:
        raise EngineError("socket", f"ip {' '.join(arguments)}: exit {done.returncode}", done.stderr)
    return done.stdout
