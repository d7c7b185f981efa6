"""Fill in the nodes' addresses for those that a scenario leaves out or sets to "auto"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pktswarm.master.cluster.inventory import Host
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg

GivenHeader = Mapping[str, Mapping[str, object] | None]
"""A header as written in a scenario: `{udp: }` has no fields."""

PLACEHOLDERS = (
    Host("from", "", (), mac="02:00:00:00:00:01", ipv4="192.0.2.1", ipv6="2001:db8::1"),
    Host("to", "", (), mac="02:00:00:00:00:02", ipv4="192.0.2.2", ipv6="2001:db8::2"),
)
"""Placeholder nodes for checking a scenario without an inventory (addresses of RFC 5737)."""


def fill(headers: Sequence[GivenHeader], source: Host, target: Host) -> list[dict[str, dict[str, object]]]:
    """The headers with both ends' MAC and IPv4 address where left out. Raises BadInput for a host without one."""
    return [_fill(header, source, target) for header in headers]


def with_placeholders(leg: Leg) -> Leg:
    """The flow with placeholder addresses, which make no difference to the ability of an engine."""
    if leg.kind != "stream":
        return leg
    return replace(leg, frame={**leg.frame, "headers": fill(leg.frame["headers"], *PLACEHOLDERS)})


def _fill(header: GivenHeader, source: Host, target: Host) -> dict[str, dict[str, object]]:
    own = {"ethernet": ("mac", source.mac, target.mac), "ipv4": ("ipv4", source.ipv4, target.ipv4)}
    filled: dict[str, dict[str, object]] = {}
    for name, given in header.items():
        fields = dict(given or {})
        what, from_source, from_target = own.get(name, ("", "", ""))
        for key, value, host in (("src", from_source, source), ("dst", from_target, target)):
            if what and fields.get(key, "auto") == "auto":
                if not value:
                    raise BadInput(host.name, f"no address known; give {what} in the inventory", key=f"{name}.{key}")
                fields[key] = value
        filled[name] = fields
    return filled
