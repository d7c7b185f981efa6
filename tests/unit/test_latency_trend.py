"""The trend of the latency within a trial, and the confirmation of a rate at devices that queue."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pktswarm.master.benchmark.latency_trend import rise_ns_per_s, trend
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.results import samples
from pktswarm.master.search import confirm, engine, goals

FORWARDED_PPS = 9845.0


def points(slope_ns_per_s: float, noise_ns: float, count: int = 20, seed: int = 1) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    return [(n / 20, 1e6 + slope_ns_per_s * n / 20 + draw.uniform(-noise_ns, noise_ns)) for n in range(count)]


@pytest.mark.parametrize("noise_ns", [0, 300_000])
def test_a_queue_that_fills_is_a_rise(noise_ns: float) -> None:
    assert trend(points(5e6, noise_ns)) == pytest.approx(5e6, rel=0.2)


@pytest.mark.parametrize("slope_ns_per_s", [0.0, -5e6, 100_000.0])
def test_noise_a_fall_and_the_drift_of_clocks_are_no_rise(slope_ns_per_s: float) -> None:
    assert trend(points(slope_ns_per_s, 1000)) == 0.0


def test_noise_is_rarely_a_rise() -> None:
    assert sum(trend(points(0.0, 10e6, seed=seed)) != 0 for seed in range(500)) <= 3


def test_few_samples_have_no_trend() -> None:
    assert trend(points(5e6, 0, count=8)) is None


def written(path: Path, sums: dict[str, list[tuple[int, int, int]]]) -> Path:
    """samples.csv of streams: (time_ns, packets, sum_ns) of each sample."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, samples.COLUMNS)
        writer.writeheader()
        for stream, rows in sums.items():
            for time_ns, packets, sum_ns in rows:
                own = {"stream": stream, "from": "tx1", "to": "rx1"}
                latency = {"latency_packets": packets, "latency_sum_ns": sum_ns}
                writer.writerow({"time_ns": time_ns, "node": "rx1", "role": "receive", **own, **latency})
            writer.writerow({"time_ns": rows[-1][0], "node": "rx1", "role": "receive", "rx_packets": 5})
    return path


def test_the_fastest_rise_of_the_streams_is_read_from_their_samples(tmp_path: Path) -> None:
    def stream(rise_ns: int) -> list[tuple[int, int, int]]:
        total, rows = 0, []
        for n in range(1, 21):
            total += 100 * (1_000_000 + rise_ns * n)
            rows.append((n * 50_000_000, 100 * n, total))
        return rows

    path = written(tmp_path / "samples.csv", {"a": stream(250_000), "b": stream(500_000), "c": stream(900_000)})
    assert rise_ns_per_s(path, {"a", "b"}) == pytest.approx(500_000 * 20)
    assert rise_ns_per_s(path, {"without samples"}) is None


def queue_device(queue_s: float, latency: bool = True) -> Callable[[float, float], Trial]:
    """A device that forwards FORWARDED_PPS behind a queue."""

    def trial(load_pps: float, duration_s: float) -> Trial:
        sent = round(load_pps * duration_s)
        lost = max(0, sent - int(FORWARDED_PPS * (duration_s + queue_s)))
        excess = max(0.0, load_pps / FORWARDED_PPS - 1)
        filled = min(queue_s, excess * duration_s)
        rise = excess * 1e9 if latency and filled < queue_s and excess > 2e-4 else 0.0 if latency else None
        delay_ns = round(filled * 1e9) if latency else None
        return Trial(
            load_pps,
            duration_s,
            sent,
            sent,
            sent - lost,
            lost,
            duration_s,
            latency_rise_ns_per_s=rise,
            queue_delay_ns=delay_ns,
        )

    return trial


@pytest.mark.parametrize("latency", [True, False])
@pytest.mark.parametrize("queue_s", [0.0, 0.02, 1.0])
def test_a_rate_that_is_reported_lasts_for_60_s(queue_s: float, latency: bool) -> None:
    device = queue_device(queue_s, latency)
    search = engine.Search(goals.SearchOptions(confirm_s=None), 1000, 20_000, device)
    search.run()
    (goal,) = search.goals()
    assert search.status == 0 and goal.rate_pps is not None and goal.confirmed_s is not None
    assert device(goal.rate_pps, 60.0).lost_packets == 0
    assert goal.rate_pps >= 0.98 * FORWARDED_PPS and goal.confirmed_s == (60 if queue_s == 1 or not latency else 10)
    assert goal.upper_pps is not None and goal.upper_pps > goal.rate_pps


@pytest.mark.parametrize("queue_s", [0.02, 1.0])
def test_no_long_trial_is_made_at_a_rate_that_has_failed_in_each_short_one(queue_s: float) -> None:
    def found_pps(device: Callable[[float, float], Trial]) -> float | None:
        search = engine.Search(goals.SearchOptions(confirm_s=0.0), 1000, 20_000, device)
        search.run()
        return search.goals()[0].rate_pps

    def once_without(load_pps: float, duration_s: float) -> Trial:
        """A queue that another node's frames leave room in: one of the short trials shows no rise."""
        trial = device(load_pps, duration_s)
        first = load_pps not in loads
        loads.add(load_pps)
        return replace(trial, latency_rise_ns_per_s=0.0) if first and duration_s == 1 else trial

    device, loads = queue_device(queue_s), set[float]()
    for trials, long_ones in ((device, {1}), (once_without, {2, 3})):
        search = engine.Search(goals.SearchOptions(confirm_s=None), 1000, 20_000, trials)
        search.run()
        (goal,) = search.goals()
        assert search.confirming_from is not None and len(search.trials) - search.confirming_from in long_ones
        assert goal.state == engine.REACHED and goal.upper_pps is not None
        assert trials is once_without or goal.upper_pps == pytest.approx(found_pps(device))
        assert goal.rate_pps is not None and 0.99 * FORWARDED_PPS < goal.rate_pps < FORWARDED_PPS


def test_without_a_confirmation_the_queue_is_taken_for_the_device() -> None:
    search = engine.Search(goals.SearchOptions(confirm_s=0.0), 1000, 20_000, queue_device(1.0))
    search.run()
    assert (search.goals()[0].rate_pps or 0) > 1.9 * FORWARDED_PPS and search.confirming_from is None


def test_a_rate_is_not_reported_before_it_is_confirmed() -> None:
    device = queue_device(0.02)

    def ends_at_the_confirmation(load_pps: float, duration_s: float) -> Trial:
        trial = device(load_pps, duration_s)
        return trial if duration_s == 1 else Trial(load_pps, duration_s, problem="the user stopped the run")

    search = engine.Search(goals.SearchOptions(confirm_s=None), 1000, 20_000, ends_at_the_confirmation)
    search.run()
    (goal,) = search.goals()
    assert (goal.state, goal.rate_pps, search.status) == (engine.OPEN, None, 3) and goal.lower_pps is not None


def test_a_rate_is_the_one_that_was_sent_while_it_was_confirmed() -> None:
    """The sender was held up for 25 ms of 10 s, within the tolerance, and sent the rest of its schedule later."""
    device = queue_device(0.02)

    def stretched(load_pps: float, duration_s: float) -> Trial:
        trial = device(load_pps, duration_s)
        return replace(trial, sending_s=duration_s + 0.025) if duration_s == 10 else trial

    exact, late = (engine.Search(goals.SearchOptions(confirm_s=10.0), 1000, 20_000, one) for one in (device, stretched))
    exact.run()
    late.run()
    ((at,), (behind,)) = exact.goals(), late.goals()
    assert at.rate_pps is not None and behind.rate_pps == pytest.approx(at.rate_pps * 10 / 10.025)
    assert behind.conditional_throughput_pps == behind.lower_pps == behind.rate_pps


def test_a_device_on_which_no_rate_lasts() -> None:
    def trial(load_pps: float, duration_s: float) -> Trial:
        lost = 1 if duration_s > 1 else 0
        return Trial(load_pps, duration_s, 100, 100, 100 - lost, lost, duration_s)

    search = engine.Search(goals.SearchOptions(confirm_s=30.0), 1000, 20_000, trial)
    search.run()
    assert "no rate held for 30 s in 12 confirming trials" in search.problem
    lowest = engine.Search(goals.SearchOptions(confirm_s=30.0), 19_999, 20_000, trial)
    lowest.run()
    assert (lowest.goals()[0].state, lowest.status) == (engine.BELOW, 1)


def held_up_above(rate_pps: float, device: Callable[[float, float], Trial]) -> Callable[[float, float], Trial]:
    """Long trials of a rate above `rate_pps` decide nothing, as a node was held up."""

    def trial(load_pps: float, duration_s: float) -> Trial:
        made = device(load_pps, duration_s)
        return (
            replace(made, problem="tx1 was held up", held_up=True) if duration_s > 1 and load_pps > rate_pps else made
        )

    return trial


def test_a_rate_that_no_trial_decides_is_replaced_by_a_lower_one_that_is_confirmed() -> None:
    device = queue_device(0.0)
    exact = engine.Search(goals.SearchOptions(confirm_s=None), 1000, 20_000, device)
    exact.run()
    (exactly,) = exact.goals()
    assert exactly.rate_pps is not None and exactly.upper_pps is not None and not exactly.undecided
    held_up = engine.Search(
        goals.SearchOptions(confirm_s=None), 1000, 20_000, held_up_above(0.993 * exactly.rate_pps, device)
    )
    held_up.run()
    (goal,) = held_up.goals()
    assert (goal.state, held_up.status) == (engine.AT_LEAST, 0)
    assert goal.rate_pps == pytest.approx(exactly.rate_pps * 0.995**2)
    # The upper bound is a rate that the device did not hold, never one that was not decided.
    assert goal.upper_pps == exactly.upper_pps and goal.confirmed_s == exactly.confirmed_s
    assert goal.undecided == f"{exactly.rate_pps * 0.995:,.1f} packets/s is undecided: tx1 was held up, in 3 trials"
    assert len([trial for trial in held_up.trials if trial.held_up]) == 6


def test_a_rate_that_fails_below_an_undecided_one_is_the_upper_bound() -> None:
    def trial(load_pps: float, duration_s: float) -> Trial:
        lost = 1 if duration_s > 1 and load_pps > 19_850 else 0
        return Trial(load_pps, duration_s, 100, 100, 100 - lost, lost, duration_s)

    search = engine.Search(goals.SearchOptions(confirm_s=30.0), 1000, 20_000, held_up_above(19_950, trial))
    search.run()
    (goal,) = search.goals()
    assert (goal.state, goal.undecided) == (engine.REACHED, "") and goal.upper_pps == pytest.approx(19_900)


@pytest.mark.parametrize(("lowest_pps", "rates"), [(1000, 3), (19_999, 1 + 1)])
def test_a_tester_that_decides_no_rate_ends_the_search_without_one(lowest_pps: float, rates: int) -> None:
    def device(load_pps: float, duration_s: float) -> Trial:
        return Trial(load_pps, duration_s, 100, 100, 100, 0, duration_s)

    search = engine.Search(goals.SearchOptions(confirm_s=30.0), lowest_pps, 20_000, held_up_above(0, device))
    search.run()
    assert search.status == 3 and search.problem.startswith(
        "tx1 was held up, in 3 trials; this is a limit of the tester"
    )
    assert search.goals()[0].rate_pps is None and len([t for t in search.trials if t.held_up]) == 3 * rates


def test_the_duration_follows_the_queue() -> None:
    def seen(*delays_ns: int | None) -> list[Trial]:
        return [Trial(1.0, 1.0, queue_delay_ns=delay_ns) for delay_ns in delays_ns]

    def default(*delays_ns: int | None, longest_s: float = 60.0) -> float:
        return confirm.duration_s(None, longest_s, 0.005, seen(*delays_ns))

    assert default(None, 1000, 150_000_000) == pytest.approx(30)
    assert (default(1000), default(10**10), default(None), default(None, longest_s=9.0)) == (10, 60, 60, 9)
    assert confirm.duration_s(7.0, 60.0, 0.005, seen(None)) == 7.0
