"""The limit of test traffic on a wire that carries the connection to the master too, on another VLAN.

A board with one Ethernet port has control and test on that port. Test traffic that fills it starves SSH and MPI: a
run then loses its node. All rates are on layer 1: frames with FCS and VLAN tag, preamble and gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.cluster.wire_limit import KEY
from pktswarm.master.plan.allowlist import ALLOW_INTERFACES, Allow
from pktswarm.master.plan.capacity_limits import Planned
from pktswarm.master.plan.plan import Plan, planned_loads
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import Role
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

TAG_BYTES = 4
"""Size of the VLAN tag, which the interface adds."""
VERBS: dict[Role, str] = {"transmit": "sends", "receive": "receives"}


def checked(plan: Plan, nodes: Iterable[NodeState], allow: Allow) -> Plan:
    """Returns the plan with a note for each node and direction. Raises BadInput for a load above the limit."""
    if allow.control_interface:
        return plan
    return replace(plan, notes=(*plan.notes, *check(nodes, plan.legs, planned_loads(plan))))


def check(nodes: Iterable[NodeState], legs: Iterable[Leg], plans: Iterable[Planned]) -> list[str]:
    """Returns a note for each node and direction. Raises BadInput for a load above the limit, or one that is unknown.

    `plans`: the loads of those `legs` whose rate is known before the run.
    """
    sharing = {node.rank.host.name: node for node in nodes if node.report and node.report.interface.shared_wire}
    loads: dict[tuple[str, Role], float] = {}
    for host, role, stream, load_bps in _ends(legs, plans) if sharing else ():
        if host in sharing and load_bps is None:
            raise BadInput(
                host,
                f"the rate of {stream!r} is not known before the run, and it could starve the connection to the "
                f"master, which is on {_wire(sharing[host])} too",
                key="traffic_interface",
                value=sharing[host].rank.host.traffic_interface,
                allowed=f"streams, sources and traces with a rate; or {ALLOW_INTERFACES}",
            )
        if host in sharing:
            loads[host, role] = loads.get((host, role), 0.0) + (load_bps or 0.0)
    return [_checked(sharing[host], role, load_bps) for (host, role), load_bps in loads.items()]


def _ends(legs: Iterable[Leg], plans: Iterable[Planned]) -> Iterator[tuple[str, Role, str, float | None]]:
    """Host, role, stream and load of each end of a flow, in bits/s; None: unknown."""
    known = {one.leg.id: one for one in plans}
    for leg in legs:
        plan = known.get(leg.id if leg.echo_of is None else leg.echo_of)
        added = leg.arrives.added_bytes if leg.arrives else 0
        yield leg.transmitter, "transmit", leg.stream, _bps(plan, 0)
        for host in leg.receivers:
            yield host, "receive", leg.stream, _bps(plan, added)


def _bps(plan: Planned | None, added_bytes: int) -> float | None:
    if plan is None or plan.pps is None:
        return None
    weight = sum(share for _, share in plan.sizes)
    mean_bytes = sum(size * share for size, share in plan.sizes) / weight
    return 8 * plan.pps * (mean_bytes + added_bytes + TAG_BYTES + ETHERNET_OVERHEAD_BYTES)


def _checked(node: NodeState, role: Role, load_bps: float) -> str:
    host, wire = node.rank.host, _wire(node)
    limit_bps = host.wire_limit.at(node.report.interface.speed_mbps if node.report else None)
    if limit_bps is None:
        problem, allowed = f"the speed of {wire} is unknown, and a share of it is the limit", f"{KEY}: a bit rate"
        raise BadInput(host.name, problem, key="traffic_interface", value=host.traffic_interface, allowed=allowed)
    load, limit = f"{load_bps / 1e6:,.6g} Mbit/s", f"{limit_bps / 1e6:,.6g} Mbit/s"
    if load_bps > limit_bps:
        raise BadInput(
            host.name,
            f"{VERBS[role]} {load} on {wire}, which carries the connection to the master too",
            key="traffic_interface",
            value=host.traffic_interface,
            allowed=f"{limit} with FCS, VLAN tag, preamble and gap ({KEY}); or {ALLOW_INTERFACES}",
        )
    return (
        f"{host.name} {VERBS[role]} up to {load} of the {limit} that test traffic may take on {wire}, which carries "
        "the connection to the master too (with FCS, VLAN tag, preamble and gap)"
    )


def _wire(node: NodeState) -> str:
    return node.report.interface.shared_wire if node.report else ""
