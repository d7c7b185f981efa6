"""What the benchmarks have found so far, and the trials that are left of them. Pure."""

from __future__ import annotations

import statistics

from pktswarm.master.benchmark.outlook import Outlook
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.rfc2544 import formulas
from pktswarm.master.rfc2544.options import BACK_TO_BACK, LATENCY, LOSS, THROUGHPUT
from pktswarm.master.rfc2544.procedure import Benchmark, SizeResult
from pktswarm.master.search.engine import HIGHEST
from pktswarm.master.search.outlook import bounds, left_s, left_to_confirm, left_to_find

TRIALS_OF_A_BURST = 10
"""Trials of a search for the longest burst, until one is made."""
SHARE_OF_A_BURST = 0.25
"""Mean duration of a burst, as a share of the longest."""


def outlook(benchmark: Benchmark) -> Outlook:
    """What the benchmarks have found so far."""
    made = len(benchmark.trials)
    plan = benchmark.trials[-1][0] if made else None
    size = next((each for each in benchmark.sizes if plan and each.size_bytes == plan.size_bytes), benchmark.sizes[0])
    at = benchmark.sizes.index(size)
    found = Outlook(
        made,
        stage=f"{size.size_bytes} bytes, {plan.test}" if plan else f"{size.size_bytes} bytes",
        part=at + 1,
        parts=len(benchmark.sizes),
        bounds=(bounds(_trials(benchmark, size, THROUGHPUT), 0.0),),
    )
    durations_s = [seconds for each in benchmark.sizes[at:] for seconds in _left_s(benchmark, each)]
    return found.with_left([trial for _, trial in benchmark.trials], durations_s, benchmark.options.form.settle_s)


def _left_s(benchmark: Benchmark, size: SizeResult) -> list[float]:
    """The durations of the trials that are left of a frame size."""
    left = {THROUGHPUT: _throughput, LATENCY: _latency, LOSS: _loss, BACK_TO_BACK: _bursts}
    if size.problem:
        return []
    return [seconds for test in benchmark.options.tests for seconds in left[test](benchmark, size)]


def _throughput(benchmark: Benchmark, size: SizeResult) -> list[float]:
    if size.throughput is not None:
        return []
    limit, goal = benchmark.limits[size.size_bytes], benchmark.goal(size)
    if benchmark.search is not None and _trials(benchmark, size, THROUGHPUT):
        return left_s(benchmark.search)
    return left_to_find(goal, limit.lowest_pps, limit.maximum_pps, []) + left_to_confirm(goal, limit.lowest_pps, [], ())


def _latency(benchmark: Benchmark, size: SizeResult) -> list[float]:
    form = benchmark.options.form
    if LATENCY in size.left_out or (size.throughput is not None and size.rate_pps is None):
        return []
    made = sum(not trial.problem for trial in _trials(benchmark, size, LATENCY))
    return [form.latency_s] * max(0, form.latency_trials - made)


def _loss(benchmark: Benchmark, size: SizeResult) -> list[float]:
    """The loads from the highest one down to the throughput, and those without loss that end the test."""
    made = [trial for trial in _trials(benchmark, size, LOSS) if not trial.problem]
    if len(made) >= formulas.CLEAN_LOADS and not any(trial.lost_packets for trial in made[-formulas.CLEAN_LOADS :]):
        return []
    lossy = [share for share in formulas.LOADS_PERCENT if size.maximum_pps * share / 100 > (size.rate_pps or 0.0)]
    loads = min(len(formulas.LOADS_PERCENT), len(lossy) + formulas.CLEAN_LOADS)
    return [benchmark.options.form.trial_s] * max(0, loads - len(made))


def _bursts(benchmark: Benchmark, size: SizeResult) -> list[float]:
    throughput = size.throughput
    if BACK_TO_BACK in size.left_out or (throughput is not None and throughput.state == HIGHEST):
        return []
    if throughput is not None and size.rate_pps is None:
        return []
    made, starts = _trials(benchmark, size, BACK_TO_BACK), size.burst_starts
    mean_s = SHARE_OF_A_BURST * benchmark.options.longest_burst_s
    if made:
        mean_s = statistics.fmean(trial.duration_s for trial in made)
    each = (starts[-1] - starts[0]) / (len(starts) - 1) if len(starts) > 1 else TRIALS_OF_A_BURST
    of_the_last = len(benchmark.trials) - starts[-1] if starts else 0
    left = each * (benchmark.options.form.bursts - len(starts)) + (max(0.0, each - of_the_last) if starts else 0.0)
    return [mean_s] * round(left)


def _trials(benchmark: Benchmark, size: SizeResult, test: str) -> list[Trial]:
    return [trial for plan, trial in benchmark.trials if (plan.test, plan.size_bytes) == (test, size.size_bytes)]
