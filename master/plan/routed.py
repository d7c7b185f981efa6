"""Flows that a router forwards: their frames as sent and as received, and the addresses that their nodes play.

A router asks for the MAC address of each address to which it sends. A node answers for the addresses that it plays, and
not by its kernel: see traffic.frames.responder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.plan.gateways import own_addresses
from pktswarm.traffic.counting.routed import ttl_of
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.address_set import AddressSet, Range, text_of
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.ranges import ranges_of
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.replay.ends import Ends

IP = ("ipv4", "ipv6")
MOST_RANGES = 1 << 16
"""Ranges of addresses that a node answers for."""


def far_end(leg: Leg, known: Mapping[str, Host]) -> Host:
    """The receiver, with the MAC address that frames are sent to."""
    target = known[leg.target]
    return target if leg.gateway is None else replace(target, mac=leg.gateway.mac)


def expecting(leg: Leg) -> Leg:
    """The stream with the changes that a router makes to its frames, where its scenario expects no others."""
    if leg.gateway is None:
        return leg
    made: dict[str, object] = {"dst_mac": leg.gateway.receiver_mac, "src_mac": None}
    ttl = ttl_of(build_frame(leg.frame, leg.size_bytes))
    if ttl is not None and ttl < 2:
        problem = f"a router forwards no packet of {leg.stream!r}"
        raise BadInput(leg.source, problem, key="headers: ttl", value=ttl, allowed="2 to 255")
    # Deeper IP headers are payload to a router, and "ttl" is that of the innermost one.
    if sum(name in IP for header in leg.frame["headers"] for name in header) == 1:
        made["ttl"] = None if ttl is None else ttl - 1
    return replace(leg, expect={**made, **leg.expect})


def ends_of_stream(leg: Leg) -> Ends:
    """The addresses of the outermost IP header."""
    header = leg.frame["headers"][1]
    name = next(iter(header))
    return Ends(*(AddressSet(ranges_of(name, key, header[name].get(key))) for key in ("src", "dst")))


@dataclass
class Played:
    """The addresses that the nodes of routed flows play."""

    sources: dict[str, AddressSet] = field(default_factory=dict)
    targets: dict[str, AddressSet] = field(default_factory=dict)
    gateways: dict[str, list[str]] = field(default_factory=dict)
    """Host → the routers on its side."""

    def add(self, leg: Leg, ends: Ends) -> None:
        if leg.gateway is not None:
            for host, own, more in (
                (leg.source, self.sources, ends.sources),
                (leg.target, self.targets, ends.targets),
            ):
                own[host] = own.get(host, AddressSet()) | more
            self.gateways.setdefault(leg.source, []).append(leg.gateway.address)

    def by_host(self, known: Mapping[str, Host]) -> dict[str, list[str]]:
        """Host → the addresses and ranges that it answers for. Raises BadInput for a destination at two hosts.

        The first host answers for a source address of several: nothing is sent there.
        """
        hosts = list(dict.fromkeys([*self.targets, *self.sources]))
        routers = AddressSet.parse(one for host in known.values() for one in host.gateways)
        routers |= AddressSet.parse(one for found in self.gateways.values() for one in found)
        strong = {
            host: (AddressSet.parse(own_addresses(known[host])) | self.targets.get(host, AddressSet())).without(routers)
            for host in hosts
        }
        _refuse_shared(strong)
        taken = routers
        for own in strong.values():
            taken |= own
        found = {}
        for host in hosts:
            more = self.sources.get(host, AddressSet()).without(taken)
            taken |= more
            found[host] = (strong[host] | more).texts()
            if len(found[host]) > MOST_RANGES:
                problem = "plays too many separate addresses behind a router"
                raise BadInput(host, problem, key="headers", value=len(found[host]), allowed=f"{MOST_RANGES} ranges")
        return found

    def neighbours(self, host: Host) -> list[str]:
        """The routers that the addresses of a host ask for before traffic starts."""
        return list(dict.fromkeys([*host.gateways, *self.gateways.get(host.name, [])]))


def _refuse_shared(played: Mapping[str, AddressSet]) -> None:
    ranges = sorted((one, host) for host, own in played.items() for one in own.ranges)
    for (one, host), (two, other) in _neighbouring(ranges):
        if host != other and one[0] == two[0] and two[1] <= one[2]:
            shared = text_of((two[0], two[1], min(one[2], two[2])))
            problem = f"{shared} would be played by {host} and {other}, and a router delivers to one of them"
            raise BadInput(other, problem, key="headers: dst", value=shared, allowed="addresses of one receiver each")


def _neighbouring(ranges: list[tuple[Range, str]]) -> Iterable[tuple[tuple[Range, str], tuple[Range, str]]]:
    """Each range with the one before it that reaches furthest."""
    furthest = None
    for one in ranges:
        if furthest is not None:
            yield furthest, one
        if furthest is None or one[0][0] != furthest[0][0] or one[0][2] > furthest[0][2]:
            furthest = one
