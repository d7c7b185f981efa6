"""Which addresses test traffic may go to, and which interfaces it may leave by: RFC 6815 in the tester itself."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pktswarm.master.cluster.inventory import UPF_ADDRESSES, Inventory, Network
from pktswarm.master.cluster.node import NodeState
from pktswarm.master.plan.plan import Plan
from pktswarm.master.plan.shares import Share
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.address_set import AddressSet, Range, text_of
from pktswarm.traffic.frames.description import Fields
from pktswarm.traffic.frames.ranges import ranges_of
from pktswarm.traffic.leg import Leg

NOWHERE = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 "
    "::/128 ::1/128 fc00::/7 fe80::/10 ff00::/8 2001:2::/48 2001:db8::/32 3fff::/20"
)
"""Special-purpose addresses (RFC 6890 and its registry) and multicast: no provider routes them."""
DEFAULT: tuple[Network, ...] = tuple(map(ipaddress.ip_network, NOWHERE.split()))
EVERYWHERE: tuple[Network, ...] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
TARGETS = (("ipv4", "dst"), ("ipv6", "dst"), ("arp", "target_ip"))
SHIFTED_BY, NUMBERS = {"users": "user", "servers": "server"}, 1 << 32
ALLOW_ADDRESSES, ALLOW_INTERFACES = "--allow-any-address", "--allow-control-interface"


@dataclass(frozen=True)
class Allow:
    """Explicit permissions of a run."""

    any_address: bool = False
    control_interface: bool = False

    def inventory(self, given: Inventory) -> Inventory:
        return replace(given, under_test=EVERYWHERE) if self.any_address else given


class Allowed:
    """Addresses under test of an inventory: those it declares, else those no provider routes, and its own hosts'."""

    def __init__(self, inventory: Inventory, own: Iterable[str] = ()) -> None:
        networks = [*(inventory.under_test or DEFAULT), *map(ipaddress.ip_network, {*_own(inventory), *own})]
        self.path, self.declared = inventory.path, inventory.under_test
        self._addresses = AddressSet((n.version, int(n[0]), int(n[-1])) for n in networks)

    def check(self, stream: str, what: str, versions_range: Range) -> None:
        """Raise BadInput for a range with an address that is not allowed."""
        if self._addresses.covers(versions_range):
            return
        value = text_of(versions_range).replace("-", " to ")
        declared = ", ".join(map(str, self.declared)) or "private and other special-purpose addresses, none is declared"
        allowed = f"pktswarm_under_test: {declared}; or {ALLOW_ADDRESSES}"
        raise BadInput(
            self.path,
            f"{stream!r} would be sent there, but it is not under test",
            key=what,
            value=value,
            allowed=allowed,
        )


def check_plan(inventory: Inventory, plan: Plan) -> None:
    """Check a plan before any host is contacted."""
    check_legs(Allowed(inventory), plan.legs, plan.shares)


def check_legs(
    allowed: Allowed,
    legs: Iterable[Leg],
    shares: Mapping[int, Share],
    tunnels: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Check the target addresses of every frame, in outer and inner headers ("auto" is a node's own address).

    `shares`: leg id → share of a trace, checked with the address pools of each instance; `tunnels`: leg id → address
    of the UPF.
    """
    for leg in legs:
        for header in leg.frame.get("headers", ()):
            for what, found in _targets(header):
                allowed.check(leg.stream, what, found)
        if leg.id in shares:
            for what, found in _of_trace(leg, shares[leg.id], tunnels.get(leg.id, "")):
                allowed.check(leg.stream, what, found)


def refuse_interfaces(nodes: Iterable[NodeState], allow: Allow) -> None:
    """Raise BadInput for a traffic interface that carries the control connection or a default route."""
    for node in nodes if not allow.control_interface else ():
        interface = node.report.interface if node.report else None
        for carried in interface.carries if interface else ():
            raise BadInput(
                node.rank.host.name,
                f"carries {carried}: test traffic must not meet it",
                key="traffic_interface",
                value=node.rank.host.traffic_interface,
                allowed=f"an interface of the test network's own; or {ALLOW_INTERFACES}",
            )


def reported_addresses(nodes: Iterable[NodeState]) -> set[str]:
    """Addresses that nodes report for their traffic interfaces."""
    return {ip for node in nodes if node.report and (ip := node.report.interface.ipv4)}


def _own(inventory: Inventory) -> Iterator[str]:
    for host in inventory.hosts:
        yield from (one for one in (host.ipv4, host.ipv6) if one)
        yield from (one.split("/")[0] for one in host.socket_ipv4)
    upf = inventory.variables.get("pktswarm_upf")
    given: dict[str, Any] = upf if isinstance(upf, dict) else {}
    yield from (str(given[name]) for name in UPF_ADDRESSES if given.get(name))


def _targets(header: Mapping[str, Fields]) -> Iterator[tuple[str, Range]]:
    for name, field_name in TARGETS:
        given = header.get(name) or {}
        value = given.get(field_name, "auto")
        if value == "auto":
            continue
        yield from ((f"{name}.{field_name}", found) for found in ranges_of(name, field_name, value))


def _of_trace(leg: Leg, share: Share, tunnel: str) -> Iterator[tuple[str, Range]]:
    for name, pool in leg.pools.items():
        if not pool.first:
            continue  # a node without an address; it is refused where it needs one
        count, by = pool.count or 1, int(getattr(leg.shift, SHIFTED_BY[name]))
        first = int(ipaddress.IPv4Address(pool.first)) + by
        for low, high in _wrapped(first, first + count - 1):
            yield name, (4, low, high)
            if pool.prefix6 and share.prepared.has_ipv6:
                prefix = int(ipaddress.IPv6Address(pool.prefix6))
                yield f"{name}.prefix6", (6, prefix | low, prefix | high)
    gtpu = share.prepared.settings.gtpu
    if target := tunnel or (gtpu.target if gtpu else ""):
        address = ipaddress.ip_address(target)
        yield "gtpu.target", (address.version, int(address), int(address))


def _wrapped(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Range of 32-bit addresses, as two ranges where it wraps."""
    first, last = first % NUMBERS, last % NUMBERS
    yield from [(first, last)] if first <= last else [(first, NUMBERS - 1), (0, last)]
