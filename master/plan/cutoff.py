"""Legs shortened to the scenario's cut-off time."""

from __future__ import annotations

import math
from dataclasses import replace

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import due_times, pace, sequence, trace
from pktswarm.traffic.schedule.sequence import Records
from pktswarm.traffic.schedule.trace import Integers


def cut_stream(leg: Leg, stop_s: float) -> Leg:
    """Shorten a stream of generated frames. At unlimited rate the packet count is unknown (None)."""
    within_s = stop_s if leg.duration_s is None else min(stop_s, leg.duration_s)
    if pace.is_paced(leg):
        cut = replace(leg, duration_s=within_s)
        return replace(cut, intended_packets=due_times.intended_packets(cut))
    if leg.rate_pps is None:
        return replace(leg, duration_s=within_s, intended_packets=None)
    # The rate of the whole stream is split, so shares round differently: one can have a packet more than another.
    count = math.ceil(round(leg.rate_pps * within_s, 6))
    count = count if leg.count_packets is None else min(count, leg.count_packets)
    return replace(leg, count_packets=count, intended_packets=count, duration_s=leg.duration_s and within_s)


def cut_sequence(leg: Leg, records: Records, stop_s: float) -> tuple[Leg, Records]:
    kept = records[records["due_ns"] < round(stop_s * 1e9)]
    duration_s = min(stop_s, leg.duration_s or stop_s)
    leg = replace(leg, count_packets=len(kept), intended_packets=len(kept), duration_s=duration_s)
    if not len(kept):
        return leg, kept
    sizes = sequence.sizes_bytes(kept)
    return replace(leg, sizes=sizes if len(sizes) > 1 else [], size_bytes=sizes[-1][0]), kept


def cut_trace(leg: Leg, times: Integers, length: Integers, stop_s: float) -> Leg:
    """Shorten a trace. `times` (ns), `length`: of the packets of one pass. At unlimited rate their count is unknown."""
    duration_s = stop_s if leg.duration_s is None else min(stop_s, leg.duration_s)
    if leg.timing.mode == "top":
        return replace(leg, duration_s=duration_s, intended_packets=None)
    due_ns, period_ns = trace.due_times(times, length, leg)
    left_ns = round(duration_s * 1e9) - leg.timing.lead_ns
    intended = sum(_passes(due, period_ns, left_ns, leg.repeat) for due in due_ns.tolist())
    return replace(leg, duration_s=duration_s, intended_packets=intended)


def _passes(due_ns: int, period_ns: int, left_ns: int, repeat: int) -> int:
    """Number of passes in which a packet is due before the end."""
    if due_ns >= left_ns:
        return 0
    return min(repeat, -(-(left_ns - due_ns) // period_ns)) if period_ns else repeat


def cut_connections(leg: Leg, stop_s: float) -> Leg:
    stop_ns = round(stop_s * 1e9)
    shape = leg.connection
    duration_ns = min(stop_ns, shape.duration_ns or stop_ns)
    blocks = shape.blocks
    if blocks is not None and shape.period_ns:
        blocks = min(blocks, math.ceil(duration_ns / shape.period_ns))
    return replace(leg, connection=replace(shape, duration_ns=duration_ns, blocks=blocks))
