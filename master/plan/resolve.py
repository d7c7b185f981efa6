"""From legs to tasks, once the nodes have answered: addresses, engines, frames, matches, shares of traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pktswarm.master.cluster.clock_offsets import Clocks
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.plan import interactive
from pktswarm.master.plan.gateways import notes, with_macs
from pktswarm.master.plan.matches import add_trace_matches, refuse_indistinguishable, refuse_uncountable
from pktswarm.master.plan.plan import Plan
from pktswarm.master.plan.resolve_connections import addressed
from pktswarm.master.plan.resolve_streams import tunnelled, with_match, with_records
from pktswarm.master.plan.resolve_traces import (
    carried,
    check_tags,
    check_trace_mtu,
    interactive_legs,
    with_file,
)
from pktswarm.master.plan.resolved import Resolved, choose_engine
from pktswarm.master.plan.routed import ends_of_stream, expecting, far_end
from pktswarm.master.plan.tasks import add_tasks
from pktswarm.master.scenario.addresses import fill
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.schedule import capabilities


def resolve(
    scenario: Scenario,
    plan: Plan,
    hosts: dict[str, Host],
    reports: dict[str, dict[str, Any]],
    clocks: Clocks | None = None,
    sessions: Sessions | None = None,
    macs: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Resolved:
    """Resolve the plan into tasks and files of the nodes. Raises BadInput naming the host that cannot do its part.

    `sessions`: the established sessions, if any; `reports`: host → its report; `macs`: host → address of a gateway →
    its MAC address.
    """
    known = with_addresses(hosts, reports)
    resolved = Resolved([])
    for leg in with_macs(plan.legs, known, macs):
        if leg.id in plan.tunnels:
            resolved.legs.append(tunnelled(leg, plan, known, reports, sessions, resolved))
        elif leg.kind == "stream":
            headers = fill(leg.frame["headers"], known[leg.source], far_end(leg, known))
            filled = expecting(replace(leg, frame={**leg.frame, "headers": headers}))
            chosen = choose_engine(filled, reports[leg.source], resolved)
            if leg.gateway is not None:
                resolved.routed.add(leg, ends_of_stream(filled))
            matched = with_match(chosen, reports)
            resolved.legs.append(with_records(matched, plan, resolved) if matched.sequence_file else matched)
        elif leg.engine == interactive.ENGINE:
            if leg.answers is None:
                back = next(other for other in plan.legs if other.answers == leg.id)
                ring_mib = scenario.receive.ring_mib if scenario.receive.mode == "capture" else 0
                resolved.legs += interactive_legs([leg, back], plan.plays[leg.id], known, reports, resolved, ring_mib)
        elif leg.kind == "connections":
            chosen = choose_engine(leg, reports[leg.source], resolved)
            resolved.legs.append(addressed(chosen, known, reports, scenario.receive.drain_s))
        else:
            share = plan.shares[leg.id]
            chosen = choose_engine(leg, reports[leg.source], resolved)
            if leg.merged_into is None:
                check_trace_mtu(leg, share, reports)
                check_tags(share, scenario.receive.mode)
            through = None
            if leg.id in plan.trace_sessions and leg.merged_into is None:
                share, through = carried(leg, share, plan, known, sessions, resolved)
            resolved.legs.append(with_file(chosen, share, known, resolved, through))
    resolved.notes += notes(resolved.legs)
    capabilities.check_numbers(resolved.legs)
    add_trace_matches(resolved, plan, known, sessions)
    refuse_uncountable(resolved.legs, scenario.receive.mode)
    refuse_indistinguishable(resolved.legs, set(plan.trace_sessions))
    add_tasks(scenario, plan, resolved, known, reports, clocks or Clocks())
    return resolved


def with_addresses(hosts: Mapping[str, Host], reports: dict[str, dict[str, Any]]) -> dict[str, Host]:
    """The hosts with what their inventory leaves out read from the nodes."""
    return {name: _addresses(host, reports[name]) for name, host in hosts.items()}


def _addresses(host: Host, report: dict[str, Any]) -> Host:
    """The host with what its inventory leaves out read from the node."""
    interface = report["interface"]
    if not interface["exists"]:
        raise BadInput(
            host.name, "the host has no interface of this name", key="traffic_interface", value=interface["name"]
        )
    if not interface["carrier"]:
        raise BadInput(
            host.name, "the interface is down or has no link", key="traffic_interface", value=interface["name"]
        )
    if host.mac and host.mac != interface["mac"]:
        raise BadInput(host.name, f"the interface's is {interface['mac']}", key="mac", value=host.mac)
    return replace(host, mac=interface["mac"], ipv4=host.ipv4 or interface["ipv4"] or "")
