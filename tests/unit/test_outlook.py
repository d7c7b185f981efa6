"""Bounds of a benchmark so far, and the estimate of the trials that are left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pktswarm.master.benchmark.attempts import TrialResult
from pktswarm.master.benchmark.latency import Latencies
from pktswarm.master.benchmark.outlook import Bounds, left_by_parts
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.calibrate.measure import bounds_sent
from pktswarm.master.rfc2544 import outlook as rfc2544_outlook
from pktswarm.master.rfc2544.options import Options
from pktswarm.master.rfc2544.procedure import Benchmark, Limit, TrialPlan
from pktswarm.master.search.engine import Search
from pktswarm.master.search.goals import SearchOptions
from pktswarm.master.search.outlook import bounds, outlook
from pktswarm.master.y1564 import outlook as y1564_outlook
from pktswarm.master.y1564.procedure import TESTS, Activation, ActivationResult
from pktswarm.master.y1564.procedure import TrialPlan as StepPlan
from pktswarm.master.y1564.services import Service
from pktswarm.master.y1564.steps import Measured

LOWEST_PPS, HIGHEST_PPS = 100.0, 10_000.0


def trial(load_pps: float, lost: int = 0, duration_s: float = 1.0, **more: Any) -> Trial:
    sent = round(load_pps * duration_s)
    known = {"sent_packets": sent, "lost_packets": lost, "took_s": duration_s + 2, "latency_rise_ns_per_s": 0.0}
    return Trial(load_pps, duration_s, **{**known, **more})


@pytest.mark.parametrize(
    ("trials", "lower", "upper"),
    [
        ([], None, None),
        ([trial(1000, 50)], None, 1000),
        ([trial(1000, 50), trial(500)], 500, 1000),
        ([trial(1000, 50), trial(500), trial(700)], 700, 1000),
        ([trial(500), trial(500, 9), trial(500, 9)], None, 500),
        ([trial(500, 9), trial(500)], 500, None),
        ([trial(500), trial(500, 9, duration_s=2.0)], None, 500),
        ([trial(1000), trial(500, 9)], None, 500),
        ([trial(1000, 50), trial(500, problem="held up")], None, 1000),
        ([trial(1000, not_held=("latency",)), trial(500)], 500, 1000),
    ],
)
def test_bounds_are_the_highest_load_that_held_below_all_that_did_not(
    trials: list[Trial], lower: float | None, upper: float | None
) -> None:
    assert bounds(trials, 0.0) == Bounds("loss 0 %", lower, upper)


def test_a_goal_lets_its_share_through_and_a_rise_counts_in_confirming_trials_only() -> None:
    trials = [trial(1000, 50), trial(900, 10, latency_rise_ns_per_s=5e6)]
    assert bounds(trials, 0.02) == Bounds("loss 2 %", 900, 1000)
    assert bounds(trials, 0.02, confirming_from=1) == Bounds("loss 2 %", None, 900)


def test_a_transmitters_bounds_are_the_rates_that_it_sent_and_did_not() -> None:
    assert bounds_sent([trial(900), trial(1000, problem="late"), trial(800)]) == Bounds("sent", 900, 1000)
    assert bounds_sent([]) == Bounds("sent", None, None)


@pytest.mark.parametrize("capacity_pps", [50.0, 150.0, 1234.0, 5000.0, 9873.0, 20_000.0])
@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(),
        SearchOptions(trials=1),
        SearchOptions((0.0, 0.02)),
        SearchOptions(confirm_s=None, duration_s=2.0),
        SearchOptions(precision=0.05, trials=5),
    ],
)
def test_the_expected_number_of_trials_is_close_from_the_third_trial_on(
    options: SearchOptions, capacity_pps: float
) -> None:
    expected: list[int] = []

    def measure(load_pps: float, duration_s: float) -> Trial:
        lost = int(max(0.0, load_pps - capacity_pps) * duration_s)
        return trial(load_pps, lost, duration_s, queue_delay_ns=1_000_000)

    def look(search: Search) -> None:
        found = outlook(search)
        assert found.left_trials is not None and found.trials == len(search.trials)
        expected.append(found.trials + found.left_trials)

    search = Search(options, LOWEST_PPS, HIGHEST_PPS, measure, look)
    before = outlook(search)
    search.run()
    assert before.left_trials is not None and before.left_s is None
    assert all(abs(each - len(search.trials)) <= 1 for each in expected[2:]), expected
    assert expected[-1] == len(search.trials)


def test_after_a_confirming_trial_that_fails_the_rate_is_below_it() -> None:
    def measure(load_pps: float, duration_s: float) -> Trial:
        rises = duration_s > 1 and load_pps > 4800
        return trial(load_pps, int(max(0.0, load_pps - 5000)), duration_s, latency_rise_ns_per_s=1e7 if rises else 0.0)

    seen: list[Bounds] = []
    search = Search(
        SearchOptions(confirm_s=10.0),
        LOWEST_PPS,
        HIGHEST_PPS,
        measure,
        lambda made: seen.append(outlook(made).bounds[0]),
    )
    search.run()
    (goal,) = search.goals()
    assert (seen[-1].lower_pps, seen[-1].upper_pps) == (goal.lower_pps, goal.upper_pps)
    assert goal.upper_pps is not None and goal.upper_pps < 5000


def test_the_steps_of_an_activation_are_counted() -> None:
    services = {name: Service.model_validate({"cir_bps": 1e6, "eir_bps": 1e6}) for name in ("voice", "data")}
    left: list[int | None] = []

    def measure(plan: StepPlan) -> ActivationResult:
        problem = "5 of 9 packets were sent" if (plan.service, plan.step.name) == ("voice", "50 % of CIR") else ""
        figures = {name: Measured(1e6, 0.0, None) for name in services}
        return ActivationResult(trial(1000.0, duration_s=plan.duration_s, problem=problem), None, figures)

    made = Activation(
        services, TESTS, 5.0, 30.0, measure, lambda now: left.append(y1564_outlook.outlook(now).left_trials)
    )
    assert y1564_outlook.outlook(made).left_trials == 2 * 5 + 1
    made.run()
    assert left == [10, 6, 5, 4, 3, 2, 1, 0], "the further steps of a service that cannot be sent are left out"
    assert y1564_outlook.outlook(made).stage == "all services, all services at CIR"


def test_the_benchmarks_have_parts_and_an_estimate_that_ends_at_nothing() -> None:
    latencies = Latencies(100, 1_000, 2_000.0, 1_900, 5_000, 8_000, 9_000, 7_000, 300.0, 50, 0)
    stages: list[tuple[str, int | None, int | None]] = []

    def measure(plan: TrialPlan) -> TrialResult:
        lost = int(max(0.0, plan.load_pps - 5000) * plan.duration_s)
        made = trial(
            plan.load_pps, 0 if plan.test == "back-to-back" and plan.duration_s < 0.5 else lost, plan.duration_s
        )
        return TrialResult(replace(made, queue_delay_ns=1_000_000), latencies)

    def look(benchmark: Benchmark) -> None:
        found = rfc2544_outlook.outlook(benchmark)
        assert found.left_trials is not None and found.left_s is not None
        stages.append((found.stage, found.part, found.left_trials))

    limits = {size: Limit(HIGHEST_PPS, LOWEST_PPS, 1) for size in (64, 1518)}
    benchmark = Benchmark(Options(sizes_bytes=(64, 1518), medium_l1_bps=1e8), limits, measure, look)
    before = rfc2544_outlook.outlook(benchmark)
    assert before.left_trials is not None and (before.part, before.parts, before.left_s) == (1, 2, None)
    benchmark.run()
    assert benchmark.status == 0
    total = len(benchmark.trials)
    assert abs(before.left_trials - total) <= total / 2
    assert {part for _, part, _ in stages} == {1, 2} and stages[0][0] == "64 bytes, throughput"
    assert stages[-1][0] == "1518 bytes, back-to-back" and (stages[-1][2] or 0) <= 2
    middle = stages[total // 2]
    assert abs((middle[2] or 0) - total / 2) <= total / 4


def test_parts_left_take_as_long_as_those_that_were_measured() -> None:
    assert left_by_parts([2.0, 4.0], 3) == 9.0
    assert left_by_parts([], 3) is None and left_by_parts([], 0) == 0.0
