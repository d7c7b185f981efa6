"""A placeholder inventory, for a scenario that is checked or previewed without one: every named host exists."""

from __future__ import annotations

from dataclasses import replace

from pktswarm.master.cluster import inventory as inventories
from pktswarm.master.cluster.inventory import Host, Inventory, Side
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.upf import Upf

NOT_CHECKED = (
    "no inventory: names, roles and addresses of hosts, allowed destinations (pktswarm_under_test), the UPF's profile "
    "and capacities are not checked"
)
GROUPS = {"transmit": "tx1", "receive": "rx1"}
UPF_VARIABLES = {
    "n4_ipv4": "192.0.2.3",
    "n3_ipv4": "192.0.2.4",
    "n3_ipv6": "2001:db8::4",
    "n6_ipv4": "192.0.2.5",
    "n3_mac": "02:00:00:00:00:03",
    "n6_mac": "02:00:00:00:00:04",
}
"""Addresses of RFC 5737 and RFC 3849."""


def made_up_inventory(scenario: Scenario) -> Inventory:
    """Make an inventory of the scenario's hosts. Without a UPF, a group becomes one host, also in the scenario."""
    flows = [*scenario.streams, *scenario.sources, *scenario.traces]
    if scenario.upf is None:
        for flow in flows:
            flow.source, flow.target = _named(flow.source), _named(flow.target)
        for connection in scenario.connections:
            connection.origin, connection.target = _named(connection.origin), _named(connection.target)
    ends = [(flow.source, flow.target) for flow in flows]
    ends += [(connection.origin, connection.target) for connection in scenario.connections]
    if scenario.upf is not None:
        return _at_upf([name for pair in ends for name in pair if name not in GROUPS], scenario.upf)
    # Receivers send the reverse direction.
    ends += [end[::-1] for end in ends] if any(trace.direction == "both" for trace in scenario.traces) else []
    sources, targets = (list(dict.fromkeys(column)) for column in zip(*ends, strict=True))
    return inventories.made_up(sources, targets)


def _at_upf(named: list[str], upf: Upf) -> Inventory:
    """An inventory of hosts with both roles: the gNBs on side n3, the named hosts (or one) on side n6."""
    gnbs = dict(upf.gnbs) or {name: "" for group in upf.groups if group.gnb is not None for name in upf.gnbs_of(group)}
    if not gnbs:
        gnbs = dict.fromkeys(("gnb1", "gnb2") if upf.handover is not None else ("gnb1",), "")
    core = list(dict.fromkeys(name for name in named if name not in gnbs)) or ["core1"]
    hosts = [_placed(name, "n3", place, address) for place, (name, address) in enumerate(gnbs.items(), 1)]
    hosts += [_placed(name, "n6", place) for place, name in enumerate(core, len(gnbs) + 1)]
    empty = inventories.made_up([], [])
    return replace(empty, hosts=tuple(hosts), variables={"pktswarm_upf": UPF_VARIABLES})


def _placed(name: str, side: Side, place: int, address: str = "") -> Host:
    return Host(
        name,
        "",
        ("transmit", "receive"),
        traffic_interface="eth0",
        side=side,
        mac=f"02:00:00:00:01:{place:02x}",
        ipv4=address if "." in address else f"198.51.100.{place}",
        ipv6=address if ":" in address else f"2001:db8:1::{place:x}",
    )


def _named(group: str) -> str:
    return GROUPS.get(group, group)
