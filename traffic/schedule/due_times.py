"""Due times of a stream whose rate changes or whose gaps are random, and tables of random gaps, in NumPy.

They are those of kernel/send_schedule.h to the nanosecond: schedule.pace has the rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.pace import (
    FRACTION,
    GOLDEN,
    PacingState,
    StepPacing,
    first,
    next_step,
    pace,
    until_step_ends,
)
from pktswarm.traffic.schedule.records import GAP_FRACTION_BITS, GAP_TABLE_BITS

BLOCK = 2**18
"""Gaps computed at a time."""
_FAR_NS = 2**62
Times = NDArray[np.uint64]


def relative_gaps(gaps: Sequence[float] | NDArray[np.float64]) -> list[int]:
    """Makes Leg.gap_table, with a mean of exactly 1, from equally likely gaps in any unit."""
    exact = np.asarray(gaps, dtype=float) * (len(gaps) * 2.0**GAP_TABLE_BITS / math.fsum(gaps))
    table = np.floor(exact).astype(np.int64)
    missing = (len(gaps) << GAP_TABLE_BITS) - int(table.sum())
    table[np.argsort(table - exact, kind="stable")[:missing]] += 1
    return [int(one) for one in table]


def exponential_gaps(size: int = 4096) -> list[int]:
    """Leg.gap_table of a Poisson process: means of `size` equally likely parts of the exponential distribution."""
    edges = np.arange(size + 1) / size
    tail = 1 - edges
    integral = edges + tail * np.log(np.where(tail > 0, tail, 1))
    return relative_gaps(np.diff(integral))


def factors(given: StepPacing, begin: int, count: int) -> Times:
    """The random factors of `count` gaps from number `begin` on."""
    numbers = np.arange(begin, begin + count, dtype=np.uint64)
    high = draws(given.seed, numbers) >> np.uint64(32)
    found: Times = np.array(given.table, dtype=np.uint64)[high * np.uint64(len(given.table)) >> np.uint64(32)]
    return found


def draws(seed: int, numbers: Times) -> Times:
    """Outputs of splitmix64 (Steele, Lea, Flood, 2014) by their numbers, from 0."""
    mixed = np.uint64(seed) + (numbers + np.uint64(1)) * np.uint64(GOLDEN)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)


def _scale_all(value: int, factors: Times, shift: int) -> Times:
    """scale() in 64 bits, as in the kernel; `shift` is below 32."""
    high, low = np.uint64(value >> 32) * factors, np.uint64(value & 0xFFFFFFFF) * factors
    return (high << np.uint64(32 - shift)) + (low >> np.uint64(shift))


def _bursts(given: StepPacing, until_ns: int) -> Iterator[Times]:
    """Due times of bursts before `until_ns`, from the start."""
    state = first(given)
    while state.due_ns < until_ns:
        if state.crossing:
            next_step(given, state)
        else:
            yield _block(given, state, min(until_ns, state.step_end_ns))


def _block(given: StepPacing, state: PacingState, end_ns: int) -> Times:
    """Up to BLOCK due times before `end_ns`; advances the state."""
    each = given.steps[state.step].gap
    number = (end_ns - state.due_ns << GAP_FRACTION_BITS) // each + 1
    number = min(BLOCK, number + number // 8 + 16 if given.table else number)
    whole, parts = _sums(given, state, each, number)
    parts += np.uint64(state.fraction)
    due = whole + (parts >> np.uint64(GAP_FRACTION_BITS)) + np.uint64(state.due_ns)
    kept = min(number, int(np.searchsorted(due, np.uint64(end_ns))))
    state.fraction = int(parts[kept]) & FRACTION
    state.drawn += kept if given.table else 0
    until_step_ends(state, int(due[kept]))
    return due[:kept]


def _sums(given: StepPacing, state: PacingState, each: int, number: int) -> tuple[Times, Times]:
    """Sums of 0, 1, … `number` gaps: of whole nanoseconds, and of their 2**-24 parts."""
    if not given.table:
        counted = np.arange(number + 1, dtype=np.uint64)
        return counted * np.uint64(each >> GAP_FRACTION_BITS), counted * np.uint64(each & FRACTION)
    gaps = np.zeros(number + 1, dtype=np.uint64)
    gaps[1:] = _scale_all(each, factors(given, state.drawn, number), GAP_TABLE_BITS)
    return np.cumsum(gaps >> np.uint64(GAP_FRACTION_BITS)), np.cumsum(gaps & np.uint64(FRACTION))


def due_blocks(leg: Leg) -> Iterator[Times]:
    """Due times of a leg's frames in ns from the start, within its duration and count, in blocks."""
    until_ns = _FAR_NS if leg.duration_s is None else round(leg.duration_s * 1e9)
    left, burst = leg.count_packets, leg.options.get("burst", 1)
    for bursts in _bursts(pace(leg), until_ns):
        due = np.repeat(bursts, burst) if burst > 1 else bursts
        if left is not None and len(due) >= left:
            yield due[:left]
            return
        left = None if left is None else left - len(due)
        yield due


def due_times(leg: Leg) -> Times:
    return np.concatenate([np.zeros(0, dtype=np.uint64), *due_blocks(leg)])


def intended_packets(leg: Leg) -> int:
    """The number of frames that are due before the end of a leg with rates or random gaps."""
    return sum(len(block) for block in due_blocks(leg))
