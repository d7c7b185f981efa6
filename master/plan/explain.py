"""`pktswarm check`: describe what a scenario would do, without contacting a host."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from pktswarm.master.cluster import inventory as inventories
from pktswarm.master.plan import allowlist, capacity_limits
from pktswarm.master.plan import capacity as figures
from pktswarm.master.plan import plan as plans
from pktswarm.master.plan.capacity import Capacity
from pktswarm.master.plan.sendable import refuse_unsendable
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.master.scenario.addresses import with_placeholders
from pktswarm.master.scenario.placeholders import NOT_CHECKED, made_up_inventory
from pktswarm.master.scenario.upf import Upf
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.capabilities import order, unable


def explain_json(scenario_path: Path, inventory_path: Path | None) -> str:
    scenario, plan, capacity = _load(scenario_path, inventory_path)
    document: dict[str, Any] = {
        "name": scenario.name,
        "expected_s": plan.expected_s,
        "legs": [leg.to_json() for leg in plan.legs],
        "notes": list(plan.notes),
        "warnings": list(plan.warnings),
        **({} if capacity is None else {"capacity": capacity_limits.document(plan.limits, capacity)}),
    }
    return json.dumps(document)


def explain(scenario_path: Path, inventory_path: Path | None) -> str:
    """Text of the plan, one line for each leg."""
    scenario, plan, capacity = _load(scenario_path, inventory_path)
    lines = [f"{scenario.name}: {scenario.description}" if scenario.description else scenario.name]
    instances = Counter(leg.id if leg.merged_into is None else leg.merged_into for leg in plan.legs)
    lines += [_line(leg, instances[leg.id]) for leg in plan.legs if leg.merged_into is None]
    lines += [_sessions(plan.upf)] if plan.upf is not None else []
    lines.append(f"receivers: {scenario.receive.mode}" + _filter_words(scenario.receive.filter))
    lines.append(f"sending takes about {plan.expected_s:.1f} s")
    lines += [] if capacity is None else _capacity(plan, capacity)
    lines += [f"note: {note}" for note in plan.notes]
    lines += [f"warning: {warning}" for warning in plan.warnings]
    return "\n".join(lines)


def _load(scenario_path: Path, inventory_path: Path | None) -> tuple[scenarios.Scenario, plans.Plan, Capacity | None]:
    """Plan the scenario; without an inventory, with placeholders of its hosts."""
    if inventory_path is None:
        scenario = scenarios.load(scenario_path)
        plan = plans.plan(scenario, scenario_path, made_up_inventory(scenario))
        refuse_unsendable(scenario, scenario_path, plan.legs)
        return scenario, replace(plan, notes=(*plan.notes, NOT_CHECKED)), None
    inventory, capacity = inventories.load(inventory_path), figures.beside(inventory_path)
    scenario = scenarios.load(scenario_path)
    plan = plans.plan(scenario, scenario_path, inventory, capacity)
    allowlist.check_plan(inventory, plan)
    refuse_unsendable(scenario, scenario_path, plan.legs)
    return scenario, plan, capacity


def _capacity(plan: plans.Plan, capacity: Capacity) -> list[str]:
    loads = capacity_limits.loads_of(plan.limits)
    known = "" if loads else " nothing that this scenario needs"
    return [f"by {capacity.path}:{known}", *(f"  {load.describe()}" for load in loads)]


def _sessions(upf: Upf) -> str:
    churn, coming = upf.churn, upf.churn.group if upf.churn else ""
    count = sum(group.sessions for group in upf.groups if group.name != coming)
    more = f", {churn.sessions_per_s:g} others a second of {coming}" if churn else ""
    if (handover := upf.handover) is not None:
        more += f", {handover.users_per_s:g} users of {handover.group} a second move to another gNB"
    return f"sessions: {count:,} at the UPF {upf.n4}, gNBs {', '.join(upf.gnbs)}{more}"


def _filter_words(expression: str) -> str:
    return f", filter {expression!r}" if expression else ""


def _line(leg: Leg, instances: int) -> str:
    if leg.kind == "connections":
        return f"  {leg.stream}: {_connection(leg)}"
    if leg.echo_of is not None:
        return f"  {leg.stream}: {leg.source} → {leg.target}, {leg.echo_percent} % of what arrives there comes back"
    able = list(order(leg))
    if len(able) > 1:
        able = [name for name in able if not unable(name, with_placeholders(leg))]
    engine = f"the first of {', '.join(able)} that the node has" if len(able) > 1 else able[0]
    many = f", {instances} instances of it" if instances > 1 else ""
    path = f" through {leg.gateway.address}" if leg.gateway else ""
    return f"  {leg.stream}: {leg.source} → {leg.to}{path}, {_amount(leg)}{many}, {_pace(leg)}, by {engine}"


def _connection(leg: Leg) -> str:
    shape = leg.connection
    arrow = {"up": "→", "down": "←", "both": "↔"}[shape.direction]
    count = f"{shape.connections} {shape.protocol.upper()} connection" + "s" * (shape.connections > 1)
    blocks = f"blocks of {shape.block_bytes:,} bytes" if shape.items is None else "the blocks of a source"
    if shape.period_ns:
        blocks += f" every {shape.period_ns / 1e6:g} ms"
    paced = f", paced at {shape.pace_bps / 1e6:g} Mbit/s each" if shape.pace_bps else ""
    return f"{leg.source} {arrow} {leg.target}, {count}, {blocks}{paced}, by socket"


def _amount(leg: Leg) -> str:
    if leg.kind == "trace":
        passes = f" in {leg.repeat} passes" if leg.repeat > 1 else ""
        return f"{leg.count_packets:,} packets of the trace{passes}"
    count = "as many packets as fit" if leg.intended_packets is None else f"{leg.intended_packets:,} packets"
    smallest = min((size for size, _ in leg.sizes), default=leg.size_bytes)
    sizes = f"{leg.size_bytes}" if smallest == leg.size_bytes else f"{smallest} to {leg.size_bytes}"
    return f"{count} of {sizes} bytes"


def _pace(leg: Leg) -> str:
    if leg.kind == "trace":
        mode, value = leg.timing.mode, leg.timing.value
        words = {"original": "at its own timing", "top": "as fast as can be"}
        return words.get(mode) or f"{mode} {value:g}"
    if leg.sequence_file is not None:
        return "at its source's own times"
    how = " at random" if leg.gap_table else ""
    how += f" in bursts of {leg.options['burst']}" if leg.options.get("burst", 1) > 1 else ""
    if leg.rates:
        rates = [rate for _, rate in leg.rates]
        return f"{min(rates):,.6g} to {max(rates):,.6g} packets/s in {len(rates):,} steps{how}"
    return "as fast as can be" if leg.rate_pps is None else f"{leg.rate_pps:,.6g} packets/s{how}"
