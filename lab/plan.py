"""The nodes of a lab, with names, addresses and sides. Pure: nothing is made here."""

from __future__ import annotations

import ipaddress
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames import sizes

Group = Literal["master", "transmit", "receive"]
Side = Literal["", "a", "b", "n3", "n6"]
Switch = Literal["xdp", "bridge"]
SWITCHES: tuple[Switch, ...] = ("xdp", "bridge")
"""What the sides' switches, and a switch under test without a bottleneck, forward by: lab/switch/xdp.py, or the
kernel's bridge."""
Dut = Literal["switch", "router", "upf", "exec"]
DUTS: tuple[Dut, ...] = ("switch", "router", "upf", "exec")
"""Devices under test: a switch, a router, the lab's own UPF, or a user's program as a UPF."""

NAME = re.compile(r"[a-z0-9-]{1,20}")
MOST_NODES = 120
"""Maximum number of transmitters, and of receivers: a control subnet has room for 1 + 120 + 120 hosts."""
MTU_RANGE = (576, 9000)
MOST_MTU_XDP = 3000
"""Beyond about 3,500 bytes a frame has several buffers, which the kernel does not flood."""
BOTTLENECK_RANGE_BPS = (64_000, 10_000_000_000)
MOST_QUEUE_BYTES = 2**30
QUEUE_S = 0.02
"""Default queue of the bottleneck, as time at its rate."""
ETHERNET_BYTES = 18
"""Header and one VLAN tag."""
MASTER = "m0"
CONTROL_INTERFACE = "ctl0"
TRAFFIC_INTERFACE = "eth1"
N3_SUBNET, N6_SUBNET = "10.92", "10.93"
"""First bytes of the traffic network's addresses; a UPF or router has two networks, a switch only the first."""
N3_PREFIX, N6_PREFIX = "2001:db8:92", "2001:db8:93"
"""RFC 3849. Around a UPF: for gNBs with IPv6 addresses, and for servers of users with IPv6 addresses; around a router:
side a and side b."""
N4_SMF, N4_UPF = "192.0.2.1", "192.0.2.2"
"""RFC 5737: for documentation, so no machine's network has them."""
N4_SMF_IPV6, N4_UPF_IPV6 = "2001:db8:94::1", "2001:db8:94::2"
FIRST_HOST: dict[Group, int] = {"master": 0, "transmit": 10, "receive": 130}
"""Plus a node's number: the last byte of its addresses; tx1 has .11, rx1 has .131."""


@dataclass(frozen=True)
class Node:
    """One host of the lab. `side`, `mac` and `ipv4` belong to its traffic interface; the master has none."""

    name: str
    group: Group
    address: str
    side: Side = ""
    mac: str = ""
    ipv4: str = ""
    ipv6: str = ""
    """For a node beside a router; or beside a UPF: address of a gNB, or of a server of users with IPv6 addresses."""
    gateways: tuple[str, ...] = ()
    """The router's addresses on the side of the node."""

    @property
    def control_mac(self) -> str:
        _, control, slot, last = (int(part) for part in self.address.split("."))
        return f"02:{control}:{slot:02x}:00:00:{last:02x}"


@dataclass(frozen=True)
class Bottleneck:
    """Rate of the device under test in each direction, and its queue, beyond which it drops."""

    rate_bps: int
    """Bits of frames without FCS, as the kernel's token bucket counts them."""
    queue_bytes: int


@dataclass(frozen=True)
class Route:
    """A route of a UPF or router by way of a node: to addresses that the node plays beside its own."""

    prefix: str
    node: str


@dataclass(frozen=True)
class Router:
    """The router's ports, by side: a and b. Prefixes: /24 and /64."""

    mac: dict[str, str]
    ipv4: dict[str, str]
    ipv6: dict[str, str]
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True)
class Upf:
    """The host of a UPF: interfaces n3, n6 and n4. The master's own end of N4 is the SMF's. Prefixes: /24 and /64."""

    n3_ipv4: str
    n3_ipv6: str
    n3_mac: str
    n6_ipv4: str
    n6_mac: str
    n4_ipv4: str
    n4_ipv6: str
    smf_ipv4: str
    smf_ipv6: str
    routes: tuple[Route, ...] = ()
    command: tuple[str, ...] = ()
    """The command of the user's UPF; empty: the lab's own."""


class PlanArguments(TypedDict, total=False):
    """Arguments of plan() beside the name."""

    transmit: int
    receive: int
    mtu: int
    bare: str
    bottleneck_bps: int
    queue_bytes: int
    dut: Dut
    command: Sequence[str]
    routes: Sequence[str]
    switch: Switch


@dataclass(frozen=True)
class Plan:
    name: str
    nodes: tuple[Node, ...]
    mtu: int = 1500
    bottleneck: Bottleneck | None = None
    upf: Upf | None = None
    """None: the device under test is a switch or a router."""
    router: Router | None = None
    bare: str = ""
    """For bare nodes: the Debian release of their roots (lab/bare.py)."""
    both_roles: bool = False
    """Whether the inventory lists every node in both groups, so that senders can receive too."""
    switch: Switch = "bridge"

    def arguments(self) -> PlanArguments:
        """Returns the arguments of plan() for this one; for another process."""
        arguments: PlanArguments = {"transmit": self.transmit, "receive": self.receive, "mtu": self.mtu}
        arguments["switch"] = self.switch
        if self.bare:
            arguments["bare"] = self.bare
        if self.bottleneck:
            arguments["bottleneck_bps"] = self.bottleneck.rate_bps
            arguments["queue_bytes"] = self.bottleneck.queue_bytes
        if self.upf:
            arguments["command"] = self.upf.command
        if host := self.upf or self.router:
            arguments["dut"] = self.dut
            arguments["routes"] = [f"{each.prefix}={each.node}" for each in host.routes]
        return arguments

    @property
    def dut(self) -> Dut:
        if self.router:
            return "router"
        return "switch" if self.upf is None else "exec" if self.upf.command else "upf"

    @property
    def dut_switch(self) -> Switch:
        """What a switch under test forwards by: a bottleneck is a queueing discipline, which XDP passes by."""
        return "bridge" if self.bottleneck else self.switch

    @property
    def sides(self) -> tuple[Side, Side]:
        """The side of the transmit nodes, and of the receive nodes."""
        return ("n3", "n6") if self.upf else ("a", "b")

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
    dut: Dut = "switch",
    command: Sequence[str] = (),
    routes: Sequence[str] = (),
    bare: str = "",
    switch: Switch = "bridge",
) -> Plan:
    """Returns the plan of lab `name`. Raises BadInput for an invalid name, count or MTU.

    `bottleneck_bps` 0: none; `queue_bytes` 0: QUEUE_S of it. `command`: what `exec` runs; `routes`: "PREFIX=NODE" each.
    """
    check_name(name)
    _check_range(name, "transmit", transmit, 1, MOST_NODES)
    _check_range(name, "receive", receive, 1, MOST_NODES)
    _check_range(name, "mtu", mtu, *MTU_RANGE)
    _check_switch(name, switch, mtu)
    slot = _slot(name)
    nodes = [Node(MASTER, "master", f"10.91.{slot}.1")]
    router = _router(slot) if dut == "router" else None
    kinds: tuple[tuple[Group, int], ...] = (("transmit", transmit), ("receive", receive))
    nodes += [_traffic_node(group, slot, n, dut, router) for group, count in kinds for n in range(1, count + 1)]
    bottleneck = _bottleneck(name, mtu, bottleneck_bps, queue_bytes)
    upf = _upf(name, dut, slot, nodes, bottleneck, command, routes)
    if router:
        router = replace(router, routes=tuple(_route(f"lab {name}", text, nodes) for text in routes))
    return Plan(name, tuple(nodes), mtu, bottleneck, upf, router, bare, switch=switch)


def _router(slot: int) -> Router:
    return Router(
        mac={"a": f"02:92:{slot:02x}:00:00:01", "b": f"02:93:{slot:02x}:00:00:01"},
        ipv4={"a": f"{N3_SUBNET}.{slot}.1", "b": f"{N6_SUBNET}.{slot}.1"},
        ipv6={"a": _ipv6(N3_PREFIX, slot, 1), "b": _ipv6(N6_PREFIX, slot, 1)},
    )


def _upf(
    name: str,
    dut: Dut,
    slot: int,
    nodes: list[Node],
    bottleneck: Bottleneck | None,
    command: Sequence[str],
    routes: Sequence[str],
) -> Upf | None:
    where = f"lab {name}"
    if dut not in DUTS:
        raise BadInput(where, "unknown device under test", key="dut", value=dut, allowed=", ".join(DUTS))
    if bool(command) != (dut == "exec"):
        raise BadInput(where, "a command after -- is needed with exec, and only there", key="dut", value="exec")
    if dut == "switch" and routes:
        allowed = "--dut router, upf or exec"
        raise BadInput(where, "a switch has no routes", key="route", value=routes[0], allowed=allowed)
    if dut in ("switch", "router"):
        return None
    if bottleneck:
        problem, allowed = "a bottleneck needs a switch or a router", "--dut switch or router"
        raise BadInput(where, problem, key="bottleneck", value=bottleneck.rate_bps, allowed=allowed)
    return Upf(
        n3_ipv4=f"{N3_SUBNET}.{slot}.1",
        n3_ipv6=_ipv6(N3_PREFIX, slot, 1),
        n3_mac=f"02:92:{slot:02x}:00:00:01",
        n6_ipv4=f"{N6_SUBNET}.{slot}.1",
        n6_mac=f"02:93:{slot:02x}:00:00:01",
        n4_ipv4=N4_UPF,
        n4_ipv6=N4_UPF_IPV6,
        smf_ipv4=N4_SMF,
        smf_ipv6=N4_SMF_IPV6,
        routes=tuple(_route(where, text, nodes) for text in routes),
        command=tuple(command),
    )


def _route(where: str, text: str, nodes: list[Node]) -> Route:
    prefix, _, node = text.partition("=")
    allowed = "PREFIX=NODE, e.g. 10.60.0.0/16=rx2"
    try:
        found = ipaddress.ip_network(prefix)
    except ValueError:
        raise BadInput(where, "not a prefix", key="route", value=text, allowed=allowed) from None
    names = [each.name for each in nodes if each.side]
    if node not in names:
        raise BadInput(where, "there is no such node", key="route", value=text, allowed=", ".join(names))
    return Route(str(found), node)


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
    """Returns bits/s of `100mbit`. Raises BadInput."""
    return sizes.rate_bps("lab", "bottleneck", text)


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise BadInput("lab", "invalid name", key="name", value=name, allowed="1 to 20 of a-z, 0-9 and -")


def _check_switch(lab: str, switch: Switch, mtu: int) -> None:
    if switch not in SWITCHES:
        raise BadInput(f"lab {lab}", "unknown switch", key="switch", value=switch, allowed=", ".join(SWITCHES))
    if switch == "xdp" and mtu > MOST_MTU_XDP:
        problem, allowed = "too large for a switch in XDP", f"up to {MOST_MTU_XDP}, or --switch bridge"
        raise BadInput(f"lab {lab}", problem, key="mtu", value=mtu, allowed=allowed)


def _check_range(lab: str, key: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadInput(f"lab {lab}", "out of range", key=key, value=value, allowed=f"{least} to {most}")


def _slot(name: str) -> int:
    """Returns the third byte of the lab's subnets. Labs share no wire, so a collision is harmless."""
    return 0 if name == "default" else 1 + zlib.crc32(name.encode()) % 255


def _traffic_node(group: Group, slot: int, number: int, dut: Dut, router: Router | None) -> Node:
    last = FIRST_HOST[group] + number
    sends, has_two = group == "transmit", dut != "switch"
    sides: tuple[Side, Side] = ("a", "b") if dut in ("switch", "router") else ("n3", "n6")
    side = sides[not sends]
    return Node(
        name=f"{'tx' if sends else 'rx'}{number}",
        group=group,
        address=f"10.91.{slot}.{last}",
        side=side,
        mac=f"02:92:{slot:02x}:00:00:{last:02x}",
        ipv4=f"{N6_SUBNET if has_two and not sends else N3_SUBNET}.{slot}.{last}",
        ipv6=_ipv6(N3_PREFIX if sends else N6_PREFIX, slot, last) if has_two else "",
        gateways=(router.ipv4[side], router.ipv6[side]) if router else (),
    )


def _ipv6(prefix: str, slot: int, last: int) -> str:
    return str(ipaddress.IPv6Address(f"{prefix}:{slot:x}::{last:x}"))
