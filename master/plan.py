"""Who sends what to whom: from a scenario and an inventory to legs, before any host is touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from master.inventory import Inventory
from master.scenario import Scenario, Stream, Trace, Traffic
from traffic.errors import BadInput
from traffic.task import Leg
from traffic.traces import Packet, lead_ns, read_trace, split_by_flow
from traffic.traces import Trace as Recorded

FIRST_UDP_PORT = 5001
MARGIN_S = 20.0
"""How much longer than planned an engine may take before its guard ends it."""
SLOWEST_PPS = 1000.0
"""Assumed of an engine told to send as fast as it can, only to bound its time."""


@dataclass(frozen=True)
class Plan:
    """`legs` still have "auto" in their frames: addresses are known when the nodes have answered.

    `shares`: leg id → the packets of a trace that the leg's transmitter sends, as recorded.
    """

    legs: tuple[Leg, ...]
    shares: dict[int, list[Packet]]
    recorded: dict[str, Recorded]
    """Trace name → what was read from its file."""
    notes: tuple[str, ...]

    @property
    def expected_s(self) -> float:
        """How long the sending takes at the intended rates."""
        return max(_seconds(leg, self.shares.get(leg.id, [])) for leg in self.legs)

    @property
    def limit_s(self) -> float:
        """When every engine must have ended, from its start."""
        return self.expected_s * 1.2 + MARGIN_S


def plan(scenario: Scenario, scenario_path: Path, inventory: Inventory) -> Plan:
    """The legs of every stream and trace. BadInput for a group or host that is not there."""
    legs: list[Leg] = []
    shares: dict[int, list[Packet]] = {}
    notes: list[str] = []
    recorded: dict[str, Recorded] = {}
    for index, stream in enumerate(scenario.streams):
        pairs = _pairs(stream, f"streams.{index}", scenario_path, inventory)
        legs += _stream_legs(stream, index, pairs, len(legs))
    for index, trace in enumerate(scenario.traces):
        pairs = _pairs(trace, f"traces.{index}", scenario_path, inventory)
        recorded[trace.name] = read_trace(trace.file)
        notes += recorded[trace.name].notes
        traced, split, told = _trace_legs(trace, recorded[trace.name], pairs, len(legs))
        legs += traced
        shares |= split
        notes += told
    return Plan(tuple(legs), shares, recorded, tuple(notes))


def _pairs(traffic: Traffic, key: str, path: Path, inventory: Inventory) -> list[tuple[str, str]]:
    """Each transmitter with its receiver: the first with the first, and around when there are fewer receivers."""
    sources = _members(traffic.source, "transmit", f"{key}.from", path, inventory)
    targets = _members(traffic.target, "receive", f"{key}.to", path, inventory)
    pairs = []
    for index, source in enumerate(sources):
        others = [target for target in targets if target != source]
        if not others:
            raise BadInput(path, "a host cannot send to itself", key=f"{key}.to", value=source)
        pairs.append((source, others[index % len(others)]))
    return pairs


def _members(group: str, role: Any, key: str, path: Path, inventory: Inventory) -> list[str]:
    names = [host.name for host in inventory.with_role(role)]
    if group == role:
        return names
    if group in names:
        return [group]
    raise BadInput(
        path, f"no such {role} host in {inventory.path}", key=key, value=group, allowed=", ".join([role, *names])
    )


def _split(total: int, parts: int) -> list[int]:
    """`total` in `parts` whole numbers that differ by at most one."""
    return [total // parts + (1 if index < total % parts else 0) for index in range(parts)]


def _stream_legs(stream: Stream, index: int, pairs: list[tuple[str, str]], first_id: int) -> list[Leg]:
    nodes = 1 if stream.per == "node" else len(pairs)
    pps = stream.pps()
    rate = None if pps is None else pps / nodes
    counts: list[int | None] = [None] * len(pairs)
    if stream.count_packets is not None:
        shares = [stream.count_packets] * len(pairs) if nodes == 1 else _split(stream.count_packets, nodes)
        counts = list(shares)
    elif rate is not None and stream.duration_s is not None:
        counts = [round(rate * stream.duration_s)] * len(pairs)
    frame = {"headers": stream.headers or default_headers(index), "payload": stream.payload}
    return [
        Leg(
            id=first_id + number,
            stream=stream.name,
            source=source,
            target=target,
            kind="stream",
            engine=stream.engine,
            frame=frame,
            size_bytes=stream.size_bytes,
            rate_pps=rate,
            count_packets=count,
            duration_s=stream.duration_s,
            intended_packets=count,
            options=stream.options,
        )
        for number, ((source, target), count) in enumerate(zip(pairs, counts, strict=True))
        if count is None or count > 0
    ]


def default_headers(index: int) -> list[dict[str, Any]]:
    """Ethernet, IPv4 and UDP between the two nodes; the port tells the streams apart."""
    return [{"ethernet": {}}, {"ipv4": {}}, {"udp": {"src": FIRST_UDP_PORT + index, "dst": FIRST_UDP_PORT + index}}]


def _trace_legs(
    trace: Trace, recorded: Recorded, pairs: list[tuple[str, str]], first_id: int
) -> tuple[list[Leg], dict[int, list[Packet]], list[str]]:
    split = split_by_flow(recorded.packets, len(pairs))
    legs: list[Leg] = []
    shares: dict[int, list[Packet]] = {}
    notes: list[str] = []
    for (source, target), packets in zip(pairs, split, strict=True):
        if not packets:
            notes.append(f"{trace.name}: {source} sends nothing, the trace has fewer flows than there are transmitters")
            continue
        leg = Leg(
            id=first_id + len(legs),
            stream=trace.name,
            source=source,
            target=target,
            kind="trace",
            engine=trace.engine,
            repeat=trace.repeat,
            size_bytes=max(len(packet.data) for packet in packets) + 4,
            count_packets=len(packets) * trace.repeat,
            intended_packets=len(packets) * trace.repeat,
            timing=_timing(trace, packets, recorded),
            options=trace.options,
        )
        legs.append(leg)
        shares[leg.id] = packets
    return legs, shares, notes


def _timing(trace: Trace, share: list[Packet], recorded: Recorded) -> dict[str, Any]:
    """A node's share of the pace: a rate is the whole trace's, so each node takes its part of it.

    At the trace's own timing, `lead_ns` is when the share's first packet is due after the common start, `period_ns`
    from one pass of the whole trace to the next; both in time as replayed.
    """
    if trace.timing == "top":
        return {"mode": "top", "value": 1.0, "lead_ns": 0}
    mode, value = ("original", 1.0) if isinstance(trace.timing, str) else next(iter(trace.timing.items()))
    if mode in ("original", "multiplier"):
        lead, period = round(lead_ns(share) / value), round(recorded.period_ns / value)
        return {"mode": mode, "value": value, "lead_ns": lead, "period_ns": period}
    whole = recorded.packets
    part = len(share) / len(whole) if mode == "pps" else _frame_bytes(share) / _frame_bytes(whole)
    return {"mode": mode, "value": value * part, "lead_ns": 0}


def _frame_bytes(packets: list[Packet]) -> int:
    return sum(len(packet.data) for packet in packets)


def _seconds(leg: Leg, packets: list[Packet]) -> float:
    """How long a leg takes at its intended rate."""
    if leg.kind == "trace":
        span = leg.timing.get("period_ns", 0) / 1e9
        mode, value = leg.timing["mode"], float(leg.timing["value"])
        if mode == "pps":
            return len(packets) * leg.repeat / value
        if mode == "bps":
            return 8 * _frame_bytes(packets) * leg.repeat / value
        return leg.repeat * span if span else len(packets) * leg.repeat / SLOWEST_PPS
    if leg.rate_pps and leg.count_packets:
        return leg.count_packets / leg.rate_pps
    return leg.duration_s if leg.duration_s else (leg.count_packets or 0) / SLOWEST_PPS
