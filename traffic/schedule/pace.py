"""The pacing of a stream whose rate changes or whose gaps are random, as kernel/send_schedule.h executes it.

The pacing is a list of steps, each with its gap between two frames (or bursts); with a period it repeats. The rest of a
gap at the end of a step is scaled to the gap of the next step, so frame n is due when the integral of the rate reaches
n, without rounding at any step. In silence (rate 0) the rest stays as it is. A random gap is the step's gap times an
entry of a table, drawn by the number of the gap alone (splitmix64); the first frame is then due after a gap, else at
once.

All arithmetic is in integers of 2**-24 ns, so the kernel and schedule.due_times agree to the nanosecond. A guard loads
this for each stream, so it does without NumPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.records import GAP_FRACTION_BITS, GAP_TABLE_BITS, NEVER, LegRecord, StepRecord

MOST_STEPS, MOST_GAPS = 2**20, 2**16
LARGEST_RATIO = 2**31
"""Largest ratio of two rates of a leg."""
GOLDEN = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1
FRACTION = (1 << GAP_FRACTION_BITS) - 1
_ONE = (2**31, 31)
"""The ratio 1."""


def gap(rate_pps: float | None, burst: int = 1) -> int:
    """The gap between the due times of two bursts, in 2**-24 ns; up to 18 minutes. 0: no rate, or silence."""
    return max(1, round(burst * 1e9 * 2**GAP_FRACTION_BITS / rate_pps)) if rate_pps else 0


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

    def factor(self, number: int) -> int:
        """The random factor of a gap, in 2**-GAP_TABLE_BITS."""
        return self.table[(draw(self.seed, number) >> 32) * len(self.table) >> 32]


def draw(seed: int, number: int) -> int:
    """An output of splitmix64 (Steele, Lea, Flood, 2014) by its number, from 0."""
    mixed = seed + (number + 1) * GOLDEN & _WORD
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _WORD
    return mixed ^ mixed >> 31


def pace(leg: Leg) -> StepPacing:
    """The pacing of a leg with a rate, within the limits of unable()."""
    given, burst = _steps(leg), leg.options.get("burst", 1)
    seed = draw(0, seed_of(leg))
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
        state.left = scale(_last([step.gap for step in given.steps]), given.factor(0), GAP_TABLE_BITS)
        state.drawn = 1
    next_step(given, state)
    return state


def next_step(given: StepPacing, state: PacingState) -> None:
    begin_ns = state.step_end_ns
    state.step += 1
    if state.step == len(given.steps):
        state.step, state.pass_ns = 0, state.pass_ns + given.period_ns
    step = given.steps[state.step]
    state.step_end_ns = NEVER if step.until_ns == NEVER else state.pass_ns + step.until_ns
    state.left = scale(state.left, step.factor, step.shift)
    state.crossing, state.due_ns = not step.gap, state.step_end_ns
    if step.gap:
        state.fraction = state.left & FRACTION
        until_step_ends(state, begin_ns + (state.left >> GAP_FRACTION_BITS))


def until_step_ends(state: PacingState, due_ns: int) -> None:
    state.due_ns = due_ns
    if due_ns >= state.step_end_ns:
        state.left = (due_ns - state.step_end_ns << GAP_FRACTION_BITS) + state.fraction
        state.crossing, state.due_ns = True, state.step_end_ns


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
