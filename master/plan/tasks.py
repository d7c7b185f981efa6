"""The task of each rank."""

from __future__ import annotations

from typing import Any

from pktswarm.master.cluster.clock_offsets import Clocks
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.plan.plan import Plan, planned_loads
from pktswarm.master.plan.receivers import (
    receiving_engines,
    refuse_without_tail_calls,
    timed_every,
    translated_filter,
)
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask, SendTask


def add_tasks(
    scenario: Scenario,
    plan: Plan,
    resolved: Resolved,
    known: dict[str, Host],
    reports: dict[str, dict[str, Any]],
    clocks: Clocks,
) -> None:
    filter_program, no_filter = translated_filter(scenario)
    receiving: dict[tuple[str, str], list[str]] = {}
    loads = planned_loads(plan)
    routed = resolved.routed.by_host(known)
    for name, host in known.items():
        sent = [leg for leg in resolved.legs if leg.transmitter == name]
        received = [leg for leg in resolved.legs if leg.receiver == name and leg.merged_into is None]
        received += resolved.moved.get(name, [])
        answered = [*resolved.proxy_addresses.get(name, []), *routed.get(name, [])]
        neighbours = _upf_at(host, plan) + (resolved.routed.neighbours(host) if name in routed else [])
        if sent:
            resolved.sends[name] = _send_task(scenario, plan, host, sent, [] if received else answered, neighbours)
        if received:
            echoes = [leg for leg in resolved.legs if leg.echo_of is not None and leg.source == name]
            refuse_without_tail_calls(scenario, name, received, echoes, reports[name])
            engine, because = receiving_engines(scenario, name, received, reports[name], no_filter)
            receiving.setdefault((engine, because), []).append(name)
            resolved.receives[name] = ReceiveTask(
                interface=host.traffic_interface,
                mac=host.mac,
                legs=received,
                limit_s=plan.limit_s + 60.0,
                mode=scenario.receive.mode,
                filter=scenario.receive.filter,
                filter_program=filter_program,
                ring_mib=scenario.receive.ring_mib,
                engine=engine,
                tai=scenario.clock == "ptp",
                timed_every=timed_every(scenario, received, loads),
                capture_every=scenario.receive.capture_every,
                capture_filter=scenario.receive.capture_filter,
                proxy_addresses=answered,
                neighbours=neighbours,
                streams=max(leg.id for leg in resolved.legs) + 1,
                echoes=echoes,
                **_clock_offsets(name, received, clocks),
            )
    for (engine, because), names in receiving.items():
        line = f"{engine} receives on {', '.join(names)}"
        resolved.notes.append(f"{line}, because: {because}" if because else line)


def _send_task(
    scenario: Scenario, plan: Plan, host: Host, legs: list[Leg], proxy_addresses: list[str], neighbours: list[str]
) -> SendTask:
    return SendTask(
        interface=host.traffic_interface,
        legs=legs,
        limit_s=plan.limit_s,
        clock="ptp" if scenario.clock == "ptp" else "monotonic",
        mac=host.mac,
        proxy_addresses=proxy_addresses,
        neighbours=neighbours,
    )


def _upf_at(host: Host, plan: Plan) -> list[str]:
    """IPv4 address of the UPF on the side of a host, as far as it is known."""
    addresses = {} if plan.upf is None else {"n3": plan.upf.n3, "n6": plan.upf.n6}
    address = addresses.get(host.side) or ""
    return [address] if "." in address else []


def _clock_offsets(name: str, legs: list[Leg], clocks: Clocks) -> dict[str, dict[str, int]]:
    """Clock offsets of the transmitters whose clocks were read, if this receiver's was."""
    read = {leg.source for leg in legs} & set(clocks.offsets_ns) if name in clocks.offsets_ns else set()
    return {
        "offsets_ns": {source: clocks.between(source, name) for source in read},
        "bounds_ns": {source: clocks.bounds_ns[source] + clocks.bounds_ns[name] for source in read},
        "realtime_ns": {source: clocks.realtime_ns[source] for source in read},
    }
