"""The engines that count on each receiver."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pktswarm.master.plan import interactive
from pktswarm.master.plan.capacity_limits import Planned
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.traffic.capture import ebpf
from pktswarm.traffic.capture import filter as pcap
from pktswarm.traffic.counting import expect
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg

FAST = ("xdp", "tc")
"""Engines that reach a rate at which the reading of the clock matters."""
TIMED_EVERY = 16
TIMED_MOST_PPS = 1_000_000
"""At most so many packets/s to a receiver, and each frame is timed."""


def receiving_engines(
    scenario: Scenario, host: str, legs: list[Leg], report: dict[str, Any], no_filter: str
) -> tuple[str, str]:
    """Engines that count on `host`, and the reason why xdp does not. Raises BadInput for an engine the host lacks.

    `no_filter`: reason why the scenario's filter is not available in XDP.
    """
    frames = [leg for leg in legs if leg.kind != "connections" and leg.engine != interactive.ENGINE]
    names, because = _counting(scenario, host, frames, report, no_filter) if frames else ([], "")
    names += [interactive.ENGINE] if any(leg.engine == interactive.ENGINE for leg in legs) else []
    names += ["socket"] if any(leg.kind == "connections" for leg in legs) else []
    for name in names:
        if missing := report["receivers"][name]:
            raise BadInput(host, f"no engine can receive here: {name}: {missing}", key="receive")
    if frames:
        _refuse_without_xdp(scenario, host, names, because, frames)
    return "+".join(names), f"xdp: {because}" if because else ""


def _counting(
    scenario: Scenario, host: str, legs: list[Leg], report: dict[str, Any], no_filter: str
) -> tuple[list[str], str]:
    """Engines that count frames on `host`, and the reason why xdp is not among them."""
    wanted, because = scenario.receive.engine, ""
    if wanted == "auto":
        no_filter = no_filter or (report.get("tail_calls", "") if scenario.receive.filter else "")
        because = report["receivers"]["xdp"] or no_filter or _unknown_to_xdp(host, legs, report)
        wanted = "netsniff-ng" if because else "xdp"
    return ["xdp", "netsniff-ng"] if wanted == "xdp" and scenario.receive.mode == "capture" else [wanted], because


def _unknown_to_xdp(host: str, legs: list[Leg], report: dict[str, Any]) -> str:
    """Why the receiver xdp cannot distinguish all flows; empty if it can."""
    known = expect.matched_by_bytes(legs)
    if report["interface"].get("driver") == "veth" and any(match.outer_tag for _, match in known):
        return "a veth may hand over a VLAN tag beside the frame, where XDP does not see it"
    try:
        expect.rows(host, known)
    except BadInput as error:
        return error.problem
    return ""


def timed_every(scenario: Scenario, legs: list[Leg], loads: Iterable[Planned]) -> int:
    """Returns the number of frames in a row of which the receiver of `legs` times two; 1: each is timed, as where users
    are counted, some of which can have only a few packets."""
    if scenario.receive.timed_every != "auto":
        return scenario.receive.timed_every
    fast = {leg.id for leg in legs if leg.engine in FAST}
    rates_pps = [math.inf if one.pps is None else one.pps for one in loads if one.leg.id in fast]
    users = any(leg.users for leg in legs)
    return 1 if users or sum(rates_pps) <= TIMED_MOST_PPS else TIMED_EVERY


def refuse_without_tail_calls(
    scenario: Scenario, host: str, received: list[Leg], echoes: list[Leg], report: dict[str, Any]
) -> None:
    """BadInput for what the counter in the kernel of a host does by a further program, if it cannot call one there."""
    why = report.get("tail_calls", "")
    cut = [leg for leg in received if leg.arrives and leg.oversize is not None]
    keys = [*(f"streams.{leg.stream}" for leg in echoes), *(f"streams.{leg.stream}.oversize" for leg in cut)]
    keys += ["receive.filter"] if scenario.receive.filter and scenario.receive.engine == "xdp" else []
    if why and keys:
        raise BadInput(host, f"the receiver xdp cannot do that here: {why}", key=keys[0], allowed="another host")


def _refuse_without_xdp(scenario: Scenario, host: str, names: list[str], because: str, legs: list[Leg]) -> None:
    """BadInput for a setting that only the receiver xdp supports, if xdp does not receive."""
    if "xdp" in names:
        return
    asked = {"receive.capture_every": scenario.receive.capture_every > 1, "clock": scenario.clock == "ptp"}
    asked["receive.timed_every"] = scenario.receive.timed_every not in ("auto", 1)
    asked["receive.capture_filter"] = bool(scenario.receive.capture_filter)
    asked |= {f"streams.{leg.stream}.users": bool(leg.users) for leg in legs if leg.kind == "stream"}
    for key, wanted in asked.items():
        if wanted:
            why = f"only the receiver xdp does that, and it cannot receive here: {because}" if because else ""
            raise BadInput(host, why or "only the receiver xdp does that", key=key, allowed="receive: {engine: xdp}")


def translated_filter(scenario: Scenario) -> tuple[str, str]:
    """Filter of the receiver xdp if it is named or `auto` may take it; else the reason why there is none."""
    if scenario.receive.capture_filter:
        pcap.compile_ethernet(scenario.receive.capture_filter, "receive.capture_filter")
    if not scenario.receive.filter or scenario.receive.engine == "netsniff-ng":
        return "", ""
    try:
        return ebpf.to_hex(ebpf.translate(pcap.compile_ethernet(scenario.receive.filter, "receive"))), ""
    except BadInput as error:
        if scenario.receive.engine == "xdp":
            raise
        return "", error.problem
