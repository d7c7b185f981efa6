"""Due times of a trace's packets: longest gap, speed, mean rate, passes and instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.leg import TraceMode
from pktswarm.traffic.protocol.task import FCS_BYTES

Integers = NDArray[np.int64]
NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class ReplayTiming:
    """`value`: a factor for multiplier; packets/s or bit/s (of frames with FCS) for the others. mean_pps and mean_bps
    keep the shape of the trace; pps and bps are even."""

    mode: Literal["original", "multiplier", "pps", "bps", "mean_pps", "mean_bps", "top"] = "original"
    value: float = 1.0
    longest_gap_ns: int | None = None


@dataclass(frozen=True)
class Due:
    """`order`: the packets in the order of sending; `time_ns`: their times from the trace's start, at recorded
    speed."""

    order: Integers
    time_ns: Integers
    mode: TraceMode
    value: float
    shortened: int = 0
    """Number of gaps that were longer than allowed."""

    @property
    def period_ns(self) -> int:
        """From one pass to the next, as replayed: the duration and one mean gap. For recorded times only."""
        return round(period_ns(self.time_ns) / self.value) if self.mode in ("original", "multiplier") else 0


def due(time_ns: Integers, frame_bytes: Integers, pace: ReplayTiming) -> Due:
    """Due times of all packets of a trace. `frame_bytes`: as sent, without FCS."""
    order = np.argsort(time_ns, kind="stable")
    times, shortened = time_ns[order] - time_ns[order[0]], 0
    if pace.longest_gap_ns is not None:
        times, shortened = shorten(times, pace.longest_gap_ns)
    if pace.mode != "mean_pps" and pace.mode != "mean_bps":  # mypy narrows only so
        return Due(order, times, pace.mode, pace.value, shortened)
    bits = 8 * int(frame_bytes.sum() + FCS_BYTES * len(frame_bytes))
    amount = len(times) if pace.mode == "mean_pps" else bits
    whole = period_ns(times)
    # A trace without a duration has no shape to keep: it is sent at an even rate.
    if not whole:
        return Due(order, times, "pps" if pace.mode == "mean_pps" else "bps", pace.value, shortened)
    return Due(order, times, "multiplier", pace.value * whole / NS_PER_S / amount, shortened)


def shorten(times: Integers, longest_gap_ns: int) -> tuple[Integers, int]:
    """(ascending times without gaps above the limit, number of shortened gaps)."""
    gaps = np.diff(times, prepend=times[:1])
    return np.cumsum(np.minimum(gaps, longest_gap_ns)), int(np.count_nonzero(gaps > longest_gap_ns))


def period_ns(times: Integers) -> int:
    """From one pass to the next: the duration and one mean gap."""
    duration = int(times[-1] - times[0])
    return duration + duration // max(1, len(times) - 1)


def mean_gap_ns(times: Integers) -> int:
    return int(times[-1] - times[0]) // max(1, len(times) - 1)


Start = Literal["together", "spread", "random"]


def lead_ns(instance: int, instances: int, period: int, start: Start) -> int:
    """Start of an instance after the first one: 0, or an even part of the period."""
    return instance * period // instances if start == "spread" else 0


def random_times(times: Integers, flow: Integers, instance: int, width_ns: int, seed: int) -> tuple[Integers, Integers]:
    """(order, times) of an instance whose packets are each delayed by a random time, uniform from 0 to `width_ns`
    (Hrustic 2022, section 6.3: it keeps the dependence that equal times destroy). Flows stay in order.

    Instance 0 is the trace itself.
    """
    if instance == 0:
        return np.arange(len(times)), times
    generator = np.random.default_rng([seed, instance])
    moved = in_flow_order(times + generator.integers(0, max(1, width_ns), len(times)), flow)
    order = np.argsort(moved, kind="stable")
    return order, moved[order]


def in_flow_order(times: Integers, flow: Integers) -> Integers:
    """Times that never decrease within a flow: a packet is at least as late as the one ahead of it."""
    by_flow = np.argsort(flow, kind="stable")
    grown = times[by_flow].copy()
    starts = np.flatnonzero(np.diff(flow[by_flow], prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(grown)], strict=True):
        np.maximum.accumulate(grown[start:stop], out=grown[start:stop])
    result = np.empty_like(grown)
    result[by_flow] = grown
    return result
