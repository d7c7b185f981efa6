"""Flows of connections with the addresses and the port that they use."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface
from typing import Any

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.plan.resolved import Resolved
from pktswarm.traffic.connections.blocks import IP_UDP_BYTES, MOST_PARTS
from pktswarm.traffic.connections.counts import FIRST_PORT
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg


def addressed(leg: Leg, known: dict[str, Host], reports: dict[str, dict[str, Any]], drain_s: float) -> Leg:
    """The leg with the addresses and the port of its connections, and the match of their frames."""
    source, target = known[leg.source], known[leg.target]
    source_ipv4, target_ipv4 = source.socket_ipv4[0], target.socket_ipv4[-1]
    one, two = ip_interface(source_ipv4), ip_interface(target_ipv4)
    if one.ip not in two.network or two.ip not in one.network:
        raise BadInput(target.name, f"not in one network with {source_ipv4}", key="socket_ipv4", value=target_ipv4)
    mtu = min(reports[name]["interface"]["mtu"] for name in (leg.source, leg.target))
    shape = replace(
        leg.connection,
        source_ipv4=source_ipv4,
        target_ipv4=target_ipv4,
        port=FIRST_PORT + leg.id,
        datagram_bytes=mtu - IP_UDP_BYTES,
        drain_s=drain_s,
    )
    if leg.connection.protocol == "udp":
        _check_parts(leg, mtu)
    match = Match.of_addresses(source.mac, target.mac, source_ipv4.split("/")[0], target_ipv4.split("/")[0])
    return replace(leg, connection=shape, match=match.to_data())


def _check_parts(leg: Leg, mtu: int) -> None:
    """Raise BadInput for a block with more datagrams than 16-bit numbers."""
    items = leg.connection.items or []
    largest = max((size for one in items for _, size in one), default=leg.connection.block_bytes or 0)
    most = MOST_PARTS * (mtu - IP_UDP_BYTES)
    if largest > most:
        problem = f"a block is more than {MOST_PARTS} datagrams at an MTU of {mtu} bytes"
        raise BadInput(leg.stream, problem, key="block_bytes", value=largest, allowed=f"up to {most}")


def matches_between(resolved: Resolved, known: dict[str, Host], trace: Leg) -> list[Match]:
    """Matches of frames that the connections of two hosts send between the MACs of a trace in its direction: also the
    answers of connections in the other direction, and the ARP of both."""
    source, target = known[trace.source], known[trace.target]
    ends = {trace.source, trace.target}
    matches: dict[Match, None] = {}
    for leg in resolved.legs:
        if leg.kind == "connections" and {leg.source, leg.target} == ends:
            there = {leg.source: leg.connection.source_ipv4, leg.target: leg.connection.target_ipv4}
            one, two = (there[name].split("/")[0] for name in (trace.source, trace.target))
            matches[Match.of_addresses(source.mac, target.mac, one, two)] = None
            matches[Match.of_arp(source.mac, target.mac, one)] = None
    return list(matches)
