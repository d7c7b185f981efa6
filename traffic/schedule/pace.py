"""Due times of a stream whose rate changes or whose gaps are random, equal to those of kernel/send.bpf.c.

The pacing is a list of steps, each with its gap between two frames (or bursts); with a period it repeats. The rest of a
gap at the end of a step is scaled to the gap of the next step, so frame n is due when the integral of the rate reaches
n, without rounding at any step. In silence (rate 0) the rest stays as it is. A random gap is the step's gap times an
entry of a table, drawn by the number of the gap alone (splitmix64); the first frame is then due after a gap, else at
once.

All arithmetic is in integers of 2**-24 ns, so the kernel and NumPy agree to the nanosecond.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.records import GAP_FRACTION_BITS, GAP_TABLE_BITS, NEVER, LegRecord, StepRecord

MOST_STEPS, MOST_GAPS = 2**20, 2**16
LARGEST_RATIO = 2**31
"""Largest ratio of two rates of a leg."""
BLOCK = 2**18
"""Gaps computed at a time."""
GOLDEN = 0x9E3779B97F4A7C15
_FRACTION = (1 << GAP_FRACTION_BITS) - 1
_FAR_NS = 2**62
_ONE = (2**31, 31)
"""The ratio 1."""

Times = NDArray[np.uint64]


def gap(rate_pps: float | None, burst: int = 1) -> int:
    """The gap between the due times of two bursts, in 2**-24 ns; up to 18 minutes. 0: no rate, or silence."""
    return max(1, round(burst * 1e9 * 2**GAP_FRACTION_BITS / rate_pps)) if rate_pps else 0


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


def is_paced(leg: Leg) -> bool:
    """Whether the leg's gaps differ."""
    return bool(leg.rates or leg.gap_table)


# --- limits --------------------------------------------------------------------------------------------------------


def unable(leg: Leg) -> str:
    """Why the rates or gaps of a leg are invalid; empty when they are valid."""
    if not is_paced(leg):
        return "" if leg.rates_period_ns is None else "a period needs a list of rates"
    if leg.kind == "trace":
        return "a trace takes no rates and no gaps"
    if problem := _unable_rates(leg) or _unable_gaps(leg.gap_table):
        return problem
    rates = [rate for _, rate in _steps(leg) if rate]
    if not rates:
        return "all rates are 0" if leg.rates else "random gaps need a rate"
    if max(rates) / min(rates) > LARGEST_RATIO:
        return f"the ratio of the rates is {max(rates) / min(rates):.3g}: the maximum is {LARGEST_RATIO}"
    widest = max(leg.gap_table, default=1 << GAP_TABLE_BITS) / (1 << GAP_TABLE_BITS)
    least = widest * leg.options.get("burst", 1) * 1e9 * 2**GAP_FRACTION_BITS / 2**62
    if min(rates) < least:
        return f"rate {min(rates):.3g} packets/s: must be 0 or at least {least:.3g} packets/s"
    return ""


def _unable_rates(leg: Leg) -> str:
    if not leg.rates:
        return "a period needs a list of rates" if leg.rates_period_ns is not None else ""
    if len(leg.rates) > MOST_STEPS:
        return f"{len(leg.rates)} rates: the maximum is {MOST_STEPS}"
    starts = [start for start, _ in leg.rates]
    if starts[0] != 0 or any(a >= b for a, b in pairwise(starts)):
        return "the times of the rates must begin at 0 and ascend"
    if wrong := [rate for _, rate in leg.rates if not 0 <= rate < math.inf]:
        return f"rate {wrong[0]} packets/s: must be finite and 0 or more"
    if leg.rates_period_ns is not None and leg.rates_period_ns <= starts[-1]:
        return f"period {leg.rates_period_ns} ns: must be longer than {starts[-1]} ns, the start of the last rate"
    return ""


def _unable_gaps(table: list[int]) -> str:
    if len(table) > MOST_GAPS:
        return f"{len(table)} gaps: the maximum is {MOST_GAPS}"
    if any(not 0 <= one < 2**32 for one in table) or sum(table) != len(table) << GAP_TABLE_BITS:
        return f"gaps must be whole numbers of 2**-{GAP_TABLE_BITS} with a mean of 1"
    return ""


def _steps(leg: Leg) -> list[tuple[int, float]]:
    return [(int(start), rate) for start, rate in leg.rates] or [(0, leg.rate_pps or 0.0)]


# --- steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepPacing:
    """The steps of a rate that changes, and the table of random gaps."""

    steps: list[StepRecord]
    period_ns: int
    table: list[int]
    seed: int

    def factors(self, first: int, count: int) -> Times:
        """The random factors of `count` gaps from number `first` on."""
        numbers = np.arange(first, first + count, dtype=np.uint64)
        high = draws(self.seed, numbers) >> np.uint64(32)
        found: Times = np.array(self.table, dtype=np.uint64)[high * np.uint64(len(self.table)) >> np.uint64(32)]
        return found


def draws(seed: int, numbers: Times) -> Times:
    """Outputs of splitmix64 (Steele, Lea, Flood, 2014) by their numbers, from 0."""
    mixed = np.uint64(seed) + (numbers + np.uint64(1)) * np.uint64(GOLDEN)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)


def pace(leg: Leg) -> StepPacing:
    """The pacing of a leg with a rate, within the limits of unable()."""
    given, burst = _steps(leg), leg.options.get("burst", 1)
    seed = int(draws(0, np.array([seed_of(leg)], dtype=np.uint64))[0])
    gaps = [gap(rate, burst) for _, rate in given]
    ends = [start for start, _ in given[1:]] + [leg.rates_period_ns or NEVER]
    before, steps = _last(gaps), []
    for each, until_ns in zip(gaps, ends, strict=True):
        steps.append(StepRecord(each, until_ns, *(_ratio(each, before) if each else _ONE)))
        before = each or before
    return StepPacing(steps, leg.rates_period_ns or 0, leg.gap_table, seed)


def _last(gaps: list[int]) -> int:
    return next(one for one in reversed(gaps) if one)


def seed_of(leg: Leg) -> int:
    return leg.id if leg.seed is None else leg.seed


def _ratio(new: int, old: int) -> tuple[int, int]:
    """(m, s): new / old is m / 2**s, and m has 32 bits."""
    shift = 31 + old.bit_length() - new.bit_length()
    shift += new << shift < old << 31
    return (new << shift) // old, shift


def scale(value: int, factor: int, shift: int) -> int:
    return value * factor >> shift


def _scale_all(value: int, factors: Times, shift: int) -> Times:
    """scale() in 64 bits, as in the kernel; `shift` is below 32."""
    high, low = np.uint64(value >> 32) * factors, np.uint64(value & 0xFFFFFFFF) * factors
    return (high << np.uint64(32 - shift)) + (low >> np.uint64(shift))


@dataclass
class PacingState:
    """Progress of a pacing: the next burst's due time in ns from the start, with its 2**-24 parts; or, when `crossing`,
    the end of the step and the rest of the gap."""

    due_ns: int = 0
    fraction: int = 0
    left: int = 0
    step: int = -1
    pass_ns: int = 0
    step_end_ns: int = 0
    drawn: int = 0
    crossing: bool = True


def first(given: StepPacing) -> PacingState:
    """The state at the start: the end of the last step, with a frame (or its first random gap) due."""
    state = PacingState()
    if given.table:
        state.left = scale(_last([step.gap for step in given.steps]), int(given.factors(0, 1)[0]), GAP_TABLE_BITS)
        state.drawn = 1
    _next_step(given, state)
    return state


def _next_step(given: StepPacing, state: PacingState) -> None:
    begin_ns = state.step_end_ns
    state.step += 1
    if state.step == len(given.steps):
        state.step, state.pass_ns = 0, state.pass_ns + given.period_ns
    step = given.steps[state.step]
    state.step_end_ns = NEVER if step.until_ns == NEVER else state.pass_ns + step.until_ns
    state.left = scale(state.left, step.factor, step.shift)
    state.crossing, state.due_ns = not step.gap, state.step_end_ns
    if step.gap:
        state.fraction = state.left & _FRACTION
        _until_step_ends(state, begin_ns + (state.left >> GAP_FRACTION_BITS))


def _until_step_ends(state: PacingState, due_ns: int) -> None:
    state.due_ns = due_ns
    if due_ns >= state.step_end_ns:
        state.left = (due_ns - state.step_end_ns << GAP_FRACTION_BITS) + state.fraction
        state.crossing, state.due_ns = True, state.step_end_ns


def _bursts(given: StepPacing, until_ns: int) -> Iterator[Times]:
    """Due times of bursts before `until_ns`, from the start."""
    state = first(given)
    while state.due_ns < until_ns:
        if state.crossing:
            _next_step(given, state)
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
    state.fraction = int(parts[kept]) & _FRACTION
    state.drawn += kept if given.table else 0
    _until_step_ends(state, int(due[kept]))
    return due[:kept]


def _sums(given: StepPacing, state: PacingState, each: int, number: int) -> tuple[Times, Times]:
    """Sums of 0, 1, … `number` gaps: of whole nanoseconds, and of their 2**-24 parts."""
    if not given.table:
        counted = np.arange(number + 1, dtype=np.uint64)
        return counted * np.uint64(each >> GAP_FRACTION_BITS), counted * np.uint64(each & _FRACTION)
    gaps = np.zeros(number + 1, dtype=np.uint64)
    gaps[1:] = _scale_all(each, given.factors(state.drawn, number), GAP_TABLE_BITS)
    return np.cumsum(gaps >> np.uint64(GAP_FRACTION_BITS)), np.cumsum(gaps & np.uint64(_FRACTION))


# --- due times -----------------------------------------------------------------------------------------------------


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


def place(record: LegRecord, leg: Leg) -> tuple[StepPacing, int]:
    """Writes the initial state into a leg's record. Returns the pacing and the first due time."""
    given = pace(leg)
    state = first(given)
    record.gap, record.fraction = given.steps[state.step].gap, state.fraction
    record.left, record.step, record.crossing = state.left, state.step, state.crossing
    record.steps, record.gaps = len(given.steps), len(given.table)
    record.seed, record.drawn, record.period_ns = given.seed, state.drawn, given.period_ns
    record.step_end_ns = state.step_end_ns
    return given, state.due_ns
