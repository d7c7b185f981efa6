"""Flows through routers: the gateway of each, and the node's address from which its MAC address is asked for.

The gateway of a flow is that of the scenario, else that of its transmitter in the inventory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from pktswarm.master.cluster.gateways import NONE
from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.plan import interactive
from pktswarm.master.plan.shares import Share
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.section import Traffic
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.frames.address_set import text_of
from pktswarm.traffic.frames.ranges import ranges_of
from pktswarm.traffic.leg import Gateway, Leg
from pktswarm.traffic.protocol.neighbours import Question

IP = ("ipv4", "ipv6")
TAGS = ("vlan", "svlan", "mpls")
LINK_LOCAL_PREFIX = "fe80::"
Given = str | list[str] | None
"""Traffic.gateway of a scenario."""


def with_gateways(
    legs: Iterable[Leg], scenario: Scenario, inventory: Inventory, path: Path, shares: Mapping[int, Share]
) -> list[Leg]:
    """The flows with the addresses of their gateways. Raises BadInput for a flow that cannot be sent through one."""
    sections: dict[str, Sequence[Traffic]] = {
        "streams": scenario.streams,
        "sources": scenario.sources,
        "traces": scenario.traces,
    }
    keys = {flow.name: f"{name}.{place}" for name, flows in sections.items() for place, flow in enumerate(flows)}
    given = {flow.name: flow.gateway for flows in sections.values() for flow in flows}
    return [
        _with_gateway(leg, given.get(leg.stream), inventory.host(leg.source), path, keys.get(leg.stream, ""), shares)
        for leg in legs
    ]


def _with_gateway(leg: Leg, given: Given, source: Host, path: Path, key: str, shares: Mapping[int, Share]) -> Leg:
    if given == NONE or leg.arrives is not None or leg.echo_of is not None:
        return leg  # frames of sessions go to the UPF
    share = shares.get(leg.id)
    if share is not None and share.prepared.settings.behind_upf:
        return leg
    # The section's gateway is on the side of the nodes in `from`.
    own = list(given) if isinstance(given, list) and not (share and share.downlink) else []
    addresses = own or list(source.gateways)
    where = (path, f"{key}.gateway", given) if own else (source.name, "pktswarm_gateway", ", ".join(source.gateways))
    if not addresses:
        if isinstance(given, list):
            problem = f"{leg.source} sends the other direction of {leg.stream!r}, and has no gateway"
            raise BadInput(source.name, problem, key="pktswarm_gateway", allowed="an address in the inventory")
        return leg
    version = _version(leg, share, addresses, bool(own), where)
    if version is None:
        return leg
    found = [one for one in addresses if ip_address(one).version == version]
    if not found:
        problem = f"{leg.stream!r} has IPv{version} packets, and its gateway no IPv{version} address"
        raise _refused(where, problem, f"an IPv{version} address; or gateway: none")
    return replace(leg, gateway=Gateway(found[0]))


Where = tuple[object, str, object]
"""File or host, key, and value of a gateway."""


def _refused(where: Where, problem: str, allowed: str = "gateway: none") -> BadInput:
    return BadInput(where[0], problem, key=where[1], value=where[2], allowed=allowed)


def _version(leg: Leg, share: Share | None, addresses: list[str], is_own: bool, where: Where) -> int | None:
    """The IP version of the gateway that a flow needs; None: it needs none."""
    if leg.kind == "connections" or leg.engine == interactive.ENGINE:
        what = "connections" if leg.kind == "connections" else "an interactive trace"
        raise _refused(where, f"{leg.stream!r} is {what}, which cannot be sent through a gateway", "hosts without one")
    if share is not None:
        columns = share.prepared.pieces.columns
        if share.prepared.settings.tag or (columns.l3[share.rows] > 14).any():
            raise _refused(where, f"packets of {leg.stream!r} have VLAN tags, and gateways are asked without one")
        versions = {ip_address(one).version for one in addresses}
        # All frames of a trace go to one MAC address: that of the IPv4 gateway, if there is one.
        return min(versions)
    names = [next(iter(header)) for header in leg.frame["headers"]]
    ethernet = (leg.frame["headers"][0].get("ethernet") or {}) if names else {}
    if ethernet.get("dst", "auto") != "auto":
        if is_own:
            raise _refused(where, f"{leg.stream!r} has a destination MAC address too; give one", "without ethernet.dst")
        return None
    second = names[1] if len(names) > 1 and names[0] == "ethernet" else ""
    if second in IP:
        return int(second[-1])
    if second in TAGS:
        raise _refused(where, f"frames of {leg.stream!r} have a {second} header, and gateways are asked without one")
    if is_own:
        raise _refused(where, f"{leg.stream!r} has no IP packets", "leave it out")
    return None


def questions_of(legs: Iterable[Leg], known: Mapping[str, Host]) -> dict[str, list[Question]]:
    """Host → what it asks. Raises BadInput for a host without an address of the gateway's IP version."""
    played: dict[str, dict[str, list[str]]] = {}
    for leg in legs:
        if leg.gateway is not None:
            played.setdefault(leg.source, {}).setdefault(leg.gateway.address, []).extend(_first_sources(leg))
    return {
        host: [Question(gateway, asking_address(gateway, known[host], more)) for gateway, more in asked.items()]
        for host, asked in played.items()
    }


def _first_sources(leg: Leg) -> list[str]:
    """The first source address of a stream, if its scenario has one."""
    for name, fields in leg.frame["headers"][1].items() if leg.kind == "stream" else ():
        if name in IP and (given := (fields or {}).get("src", "auto")) != "auto":
            version, first, _ = ranges_of(name, "src", given)[0]
            return [text_of((version, first, first))]
    return []


def own_addresses(host: Host) -> list[str]:
    """The addresses of a node on its traffic interface, with the IPv6 link-local one that its MAC address makes."""
    given = [one for one in (host.ipv4, host.ipv6) if one]
    return [*given, link_local(host.mac)] if host.mac else given


def asking_address(gateway: str, host: Host, played: Iterable[str] = ()) -> str:
    """The address of a node that asks for a gateway: of its own and of those that it plays, the one with the longest
    common prefix, which is in the gateway's subnet if any is."""
    asked = ip_address(gateway)
    candidates = [ip_address(one) for one in [*own_addresses(host), *played]]
    same = [one for one in candidates if one.version == asked.version and one.is_link_local == asked.is_link_local]
    if not same:
        text = f"no IPv{asked.version} address known, from which the gateway {gateway} is asked for"
        raise BadInput(host.name, f"{text}; give ipv{asked.version} in the inventory", key=f"ipv{asked.version}")
    return str(max(same, key=lambda one: asked.max_prefixlen - (int(one) ^ int(asked)).bit_length()))


def link_local(mac: str) -> str:
    """RFC 4291, appendix A."""
    parts = bytes.fromhex(mac.replace(":", ""))
    number = bytes([parts[0] ^ 2, *parts[1:3], 0xFF, 0xFE, *parts[3:]])
    return str(ip_address(int(ip_address(LINK_LOCAL_PREFIX)) | int.from_bytes(number, "big")))


def notes(legs: Iterable[Leg]) -> list[str]:
    """A line for each gateway of a host."""
    found = ((leg.source, leg.gateway) for leg in legs if leg.gateway is not None)
    lines = (f"{host}: gateway {one.address} has {one.mac}, asked from {one.asked_from}" for host, one in found)
    return list(dict.fromkeys(lines))


def with_macs(legs: Iterable[Leg], known: Mapping[str, Host], macs: Mapping[str, Mapping[str, str]]) -> list[Leg]:
    """The flows with the MAC addresses of their gateways. Raises BadInput if one did not answer. `macs`: host → gateway
    → MAC."""
    legs = list(legs)
    asked = {(host, one.address): one for host, found in questions_of(legs, known).items() for one in found}
    return [_with_mac(leg, known, macs, asked) for leg in legs]


def _with_mac(
    leg: Leg,
    known: Mapping[str, Host],
    macs: Mapping[str, Mapping[str, str]],
    asked: Mapping[tuple[str, str], Question],
) -> Leg:
    if leg.gateway is None:
        return leg
    source, gateway = known[leg.source], leg.gateway.address
    if leg.source not in macs:
        raise PktswarmError(f"{leg.source}: was lost before its gateway {gateway} had answered; nothing was sent")
    mac, asked_from = macs[leg.source].get(gateway, ""), asked[leg.source, gateway].asked_from
    if not mac:
        protocol = "neighbour discovery" if ":" in gateway else "ARP"
        problem = f"no answer by {protocol} from the gateway of {leg.stream!r} on {source.traffic_interface}"
        allowed = f"a router there that answers {asked_from}"
        raise BadInput(leg.source, problem, key="gateway", value=gateway, allowed=allowed)
    return replace(leg, gateway=Gateway(gateway, mac, asked_from, known[leg.target].mac))
