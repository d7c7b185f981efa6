"""Distributes the legs of an interface over processors, and chooses how many frames the kernel makes at a time."""

from __future__ import annotations

import math

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import assemble
from pktswarm.traffic.schedule.fragments import most_frames

BATCHES = ((250_000, 1), (2_000_000, 16))
"""(packets/s up to, frames that the kernel builds before it sends them). A smaller batch is nearer the due times."""
LARGEST_BATCH = 128


def cores(legs: list[Leg]) -> int:
    """Returns the number of processors: the largest `cores` option of the legs."""
    return max(int(leg.options.get("cores", 1)) for leg in legs)


def share(legs: list[Leg], number: int) -> list[list[Leg]]:
    """Assigns each leg, the fastest first, to the processor with the lowest total rate; no share is empty."""
    # Legs whose stamps share one sequence stay together: the program holds its counter.
    groups: dict[int, list[Leg]] = {}
    for leg in legs:
        groups.setdefault(assemble.first_of(leg), []).append(leg)
    shares: list[list[Leg]] = [[] for _ in range(min(number, len(groups)))]
    for group in sorted(groups.values(), key=_rates_pps, reverse=True):
        min(shares, key=lambda legs: (_rates_pps(legs), len(legs))).extend(group)
    return shares


def _rates_pps(legs: list[Leg]) -> float:
    return sum(map(_rate_pps, legs))


def batch_size(legs: list[Leg]) -> int:
    """Returns the smallest batch that the sum of the rates allows, or the smallest `batch` option of the legs.

    The engine tc has no batches: 1.
    """
    if any(leg.engine == "tc" for leg in legs):
        return 1
    if asked := [int(leg.options["batch"]) for leg in legs if "batch" in leg.options]:
        return min(asked)
    rate_pps = _rates_pps(legs)
    return next((batch for most_pps, batch in BATCHES if rate_pps <= most_pps), LARGEST_BATCH)


def _rate_pps(leg: Leg) -> float:
    """Returns the mean rate in frames/s; infinite where nothing limits it."""
    if leg.rates:
        return max(rate for _, rate in leg.rates) * most_frames(leg)
    if leg.kind == "stream" and leg.sequence_file is None:
        return math.inf if leg.rate_pps is None else leg.rate_pps * most_frames(leg)
    if leg.intended_packets and leg.duration_s and leg.timing.mode != "top":
        return leg.intended_packets / leg.duration_s
    return math.inf if leg.timing.mode == "top" else 0.0
