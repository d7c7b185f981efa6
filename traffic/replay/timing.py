"""When each packet is due: window, longest gap, speed, mean rate; passes and instances."""

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
    """`value`: a factor for multiplier; packets or bits (frames with FCS) a second for the others, of which mean_pps
    and mean_bps keep the shape of the trace and pps and bps go evenly."""

    mode: Literal["original", "multiplier", "pps", "bps", "mean_pps", "mean_bps", "top"] = "original"
    value: float = 1.0
    longest_gap_ns: int | None = None


@dataclass(frozen=True)
class Due:
    """`order`: the packets in the order of sending; `time_ns` theirs from the trace's start, still at its own speed."""

    order: Integers
    time_ns: Integers
    mode: TraceMode
    value: float
    shortened: int = 0
    """Gaps that were longer than allowed."""

    @property
    def period_ns(self) -> int:
        """From one pass to the next, as replayed: the duration and one mean gap. Of recorded times only."""
        return round(period_ns(self.time_ns) / self.value) if self.mode in ("original", "multiplier") else 0


def due(time_ns: Integers, frame_bytes: Integers, pace: ReplayTiming) -> Due:
    """Of all packets of a trace. `frame_bytes`: as sent, without FCS."""
    order = np.argsort(time_ns, kind="stable")
    times, shortened = time_ns[order] - time_ns[order[0]], 0
    if pace.longest_gap_ns is not None:
        times, shortened = shorten(times, pace.longest_gap_ns)
    if pace.mode != "mean_pps" and pace.mode != "mean_bps":  # mypy narrows only so
        return Due(order, times, pace.mode, pace.value, shortened)
    bits = 8 * int(frame_bytes.sum() + FCS_BYTES * len(frame_bytes))
    amount = len(times) if pace.mode == "mean_pps" else bits
    whole = period_ns(times)
    # A trace without a duration has no shape to keep: it goes at the rate itself.
    if not whole:
        return Due(order, times, "pps" if pace.mode == "mean_pps" else "bps", pace.value, shortened)
    return Due(order, times, "multiplier", pace.value * whole / NS_PER_S / amount, shortened)


def shorten(times: Integers, longest_gap_ns: int) -> tuple[Integers, int]:
    """Times, in order, with no gap above the limit; and how many gaps were."""
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
    """When an instance begins after the first one: at once, or an even part of the period later."""
    return instance * period // instances if start == "spread" else 0


def random_times(times: Integers, flow: Integers, instance: int, width_ns: int, seed: int) -> tuple[Integers, Integers]:
    """(order, times) of an instance whose packets are each later by a time of their own, uniform from 0 to `width_ns`
    (Hrustic 2022, section 6.3: it keeps the dependence that equal times destroy). None overtakes its flow.

    Instance 0 is the trace itself.
    """
    if instance == 0:
        return np.arange(len(times)), times
    generator = np.random.default_rng([seed, instance])
    moved = in_flow_order(times + generator.integers(0, max(1, width_ns), len(times)), flow)
    order = np.argsort(moved, kind="stable")
    return order, moved[order]


def in_flow_order(times: Integers, flow: Integers) -> Integers:
    """Times that do not fall within a flow: a packet that would come before the one ahead of it comes with it."""
    by_flow = np.argsort(flow, kind="stable")
    grown = times[by_flow].copy()
    starts = np.flatnonzero(np.diff(flow[by_flow], prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(grown)], strict=True):
        np.maximum.accumulate(grown[start:stop], out=grown[start:stop])
    result = np.empty_like(grown)
    result[by_flow] = grown
    return result
