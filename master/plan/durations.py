"""The time that a flow takes at its intended rate."""

from __future__ import annotations

import math

from pktswarm.master.plan import interactive
from pktswarm.master.plan.shares import Share
from pktswarm.traffic.leg import ConnectionShape, Leg

SLOWEST_BPS = 1e6
"""Assumed rate of connections without a rate, and of draining what is queued in one, to bound their time."""


SLOWEST_PPS = 1000.0
"""Assumed rate of an engine without a rate limit, to bound its time."""


def seconds_of(leg: Leg, share: Share | None) -> float:
    """Duration of a flow at its intended rate."""
    if leg.kind == "connections":
        return _connection_seconds(leg.connection)
    if leg.engine == interactive.ENGINE:
        return leg.timing.period_ns / 1e9
    return min(_whole_seconds(leg, share), leg.duration_s or math.inf)


def _whole_seconds(leg: Leg, share: Share | None) -> float:
    if share is not None:
        span = leg.timing.period_ns / 1e9
        mode, value = leg.timing.mode, leg.timing.value
        if mode == "pps":
            return len(share.rows) * leg.repeat / value
        if mode == "bps":
            return 8 * share.frame_bytes * leg.repeat / value
        if not span:
            return len(share.rows) * leg.repeat / SLOWEST_PPS
        # An instance that starts later ends later.
        return float(leg.repeat * span + leg.timing.lead_ns / 1e9)
    if leg.rate_pps and leg.count_packets:
        return leg.count_packets / leg.rate_pps
    return leg.duration_s if leg.duration_s else (leg.count_packets or 0) / SLOWEST_PPS


def _connection_seconds(connection: ConnectionShape) -> float:
    if connection.duration_ns is not None:
        return connection.duration_ns / 1e9
    blocks = connection.blocks or 0
    at_rate = 8 * blocks * (connection.block_bytes or 0) / (connection.pace_bps or SLOWEST_BPS)
    if connection.period_ns:
        by_period = blocks * connection.period_ns / 1e9
        return max(by_period, at_rate) if connection.pace_bps else by_period
    return at_rate
