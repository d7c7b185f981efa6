"""Types of the output of `pktswarm preview --json`. Sizes have the FCS; None: without due times, or unlimited."""

from __future__ import annotations

from typing import TypedDict


class GapFigures(TypedDict):
    """Inter-arrival times. `variation`: their coefficient of variation; `zero`: gaps of 0."""

    gaps: int
    least_ns: int | None
    mean_ns: float | None
    largest_ns: int | None
    variation: float | None
    zero: int


class SizeCount(TypedDict):
    size_bytes: int
    packets: int


class UserCount(TypedDict):
    user: str
    packets: int
    bytes: int


LegFigures = TypedDict(
    "LegFigures",
    {
        "leg": int,
        "from": str,
        "to": str,
        "engine": str,
        "intended_packets": int | None,
        "packets": int,
        "bytes": int,
        "first_ns": int | None,
        "last_ns": int | None,
        "rate_pps": float | None,
        "rate_bps": float | None,
        "gaps": GapFigures,
    },
)


class StreamFigures(TypedDict):
    name: str
    packets: int
    bytes: int
    peak_pps: float
    peak_bps: float
    packets_in_bins: list[int]
    bits_in_bins: list[int]
    sizes: list[SizeCount]
    users: list[UserCount]
    legs: list[LegFigures]


class HostFigures(TypedDict):
    host: str
    gaps: GapFigures


ConnectionFigures = TypedDict(
    "ConnectionFigures",
    {
        "stream": str,
        "from": str,
        "to": str,
        "protocol": str,
        "connections": int,
        "direction": str,
        "blocks": int | None,
        "bytes": int | None,
        "bits_in_bins": list[int] | None,
    },
)
UntimedLeg = TypedDict("UntimedLeg", {"stream": str, "from": str, "why": str})


class PreviewDocument(TypedDict):
    name: str
    bin_s: float
    duration_s: float
    packets: int
    bytes: int
    streams: list[StreamFigures]
    hosts: list[HostFigures]
    connections: list[ConnectionFigures]
    untimed: list[UntimedLeg]
    notes: list[str]
