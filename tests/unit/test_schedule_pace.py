"""Due times of rates that change and of random gaps: against plain integers, and against what they stand for."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pktswarm.traffic.frames.description import Headers
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import capabilities, due_times, pace
from pktswarm.traffic.schedule.due_times import exponential_gaps, relative_gaps

HEADERS: Headers = [
    {"ethernet": {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}},
    {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}},
    {"udp": {"src": 1, "dst": 2}},
]
ONE = 1 << 20


def a_leg(**more: Any) -> Leg:
    return Leg(7, "s", "a", "b", "stream", engine="xdp", frame={"headers": HEADERS, "payload": {}}, **more)


def integral(leg: Leg, until_ns: int) -> Fraction:
    """Of the rate, in frames."""
    period = leg.rates_period_ns or 2**62
    passes, rest = divmod(until_ns, period)
    ends = [start for start, _ in leg.rates[1:]] + [period]
    total = Fraction(0)
    for (start, rate), end in zip(leg.rates, ends, strict=True):
        total += Fraction(rate) * Fraction(passes * (end - start) + max(0, min(rest, end) - start)) if rate else 0
    return total / 10**9


def splitmix(seed: int, number: int) -> int:
    mixed = (seed + (number + 1) * 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    return mixed ^ mixed >> 31


RATES: dict[str, dict[str, Any]] = {
    "one": {"rates": [[0, 12_345.6]]},
    "two": {"rates": [[0, 1000.0], [123_456_789, 33_333.3]]},
    "square wave": {"rates": [[0, 20_000.0], [30_000_000, 7_000.0]], "rates_period_ns": 60_000_001},
    "silence": {"rates": [[0, 0], [50_000_000, 12_000.0], [170_000_000, 0.0]], "rates_period_ns": 250_000_000},
    "steps shorter than gaps": {
        "rates": [[n * 1_000_000, 90.0 + 80 * math.sin(n / 16)] for n in range(100)],
        "rates_period_ns": 100_000_000,
    },
    "far apart": {"rates": [[0, 5.0], [300_000_000, 2_000_000.0], [310_000_000, 1.0]]},
    "burst": {"rates": [[0, 1000.0], [123_456_789, 33_333.3]], "options": {"burst": 7}},
}


@pytest.mark.parametrize("name", RATES)
def test_a_frame_is_due_when_the_integral_of_the_rate_reaches_its_number(name: str) -> None:
    leg = a_leg(duration_s=1.0, **RATES[name])
    assert pace.unable(leg) == ""
    burst = leg.options.get("burst", 1)
    due = due_times.due_times(leg)[::burst]
    assert len(due) * burst == due_times.intended_packets(leg)
    assert np.all(np.diff(due.astype(np.int64)) >= 0)
    assert abs(len(due) * burst - integral(leg, 10**9)) < burst + 0.001
    for number, one in list(enumerate(due.tolist()))[:: max(1, len(due) // 50)]:
        assert integral(leg, one - 5) - 0.001 < number * burst < integral(leg, one + 6) + 0.001


def test_a_steady_rate_given_as_rates_or_as_gaps_is_the_same() -> None:
    gap = pace.gap(777.7)
    exact = [number * gap >> 24 for number in range(1556)]
    assert due_times.due_times(a_leg(rates=[[0, 777.7]], duration_s=2.0)).tolist() == exact
    # Random gaps that are all alike: the first frame comes after one.
    alike = a_leg(rate_pps=777.7, gap_table=[ONE], count_packets=1555)
    assert due_times.due_times(alike).tolist() == exact[1:]


def test_random_gaps_are_drawn_by_their_number() -> None:
    """Against plain integers."""
    table = relative_gaps([0.2, 0.5, 1.0, 2.3])
    leg = a_leg(rate_pps=1_000_000.0, gap_table=table, count_packets=5000, seed=99)
    seed, due, at = splitmix(0, 99), [], 0
    for number in range(5000):
        at += pace.gap(1e6) * table[(splitmix(seed, number) >> 32) * 4 >> 32] >> 20
        due.append(at >> 24)
    assert due_times.due_times(leg).tolist() == due


def test_gaps_of_a_table_have_the_mean_1() -> None:
    table = relative_gaps([3.0, 1.0, 7.7, 0.0])
    assert sum(table) == 4 * ONE and table[3] == 0
    assert table[2] / table[1] == pytest.approx(7.7, rel=1e-5)
    assert sum(exponential_gaps()) == 4096 * ONE


def test_a_poisson_process() -> None:
    """Counts per millisecond have the mean and the variance of a Poisson distribution, through all its steps."""
    steps = {"rates": [[0, 20_000.0], [50_000_000, 60_000.0]], "rates_period_ns": 100_000_000}
    leg = a_leg(**steps, gap_table=exponential_gaps(), duration_s=20.0)
    counts = np.bincount((due_times.due_times(leg) // 1_000_000).astype(np.int64), minlength=20_000)
    high = np.arange(20_000) % 100 >= 50
    for part, mean in ((counts[~high], 20.0), (counts[high], 60.0)):
        assert abs(part.mean() - mean) < 5 * math.sqrt(mean / 10_000)
        # The variance of so many counts is known to 1.4 %; the table's bins take a little of it.
        assert 0.93 < part.var() / mean < 1.06


def test_a_run_can_be_repeated_and_seeds_differ() -> None:
    def due(**more: Any) -> list[int]:
        leg = a_leg(rate_pps=1e6, gap_table=exponential_gaps(64), count_packets=100, **more)
        times: list[int] = due_times.due_times(leg).tolist()
        return times

    assert due() == due() == due(seed=7) != due(seed=8)


def test_blocks_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    leg = a_leg(gap_table=exponential_gaps(64), duration_s=0.5, **RATES["square wave"])
    whole = due_times.due_times(leg).tolist()
    monkeypatch.setattr(due_times, "BLOCK", 7)
    assert due_times.due_times(leg).tolist() == whole and len(whole) > 5000


def test_a_count_ends_it_too() -> None:
    leg = a_leg(count_packets=10, duration_s=1.0, options={"burst": 4}, rates=[[0, 1000.0]])
    assert due_times.due_times(leg).tolist() == [0] * 4 + [4_000_000] * 4 + [8_000_000] * 2
    silent = a_leg(count_packets=10, rates=[[0, 1000.0], [3_000_000, 0]])
    assert due_times.due_times(silent).tolist() == [0, 1_000_000, 2_000_000]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"rates": [[5, 1.0]]}, "the times of the rates must begin at 0 and ascend"),
        ({"rates": [[0, 1.0], [9, 2.0], [9, 1.0]]}, "the times of the rates must begin at 0 and ascend"),
        ({"rates": [[0, 1.0], [9, -2.0]]}, "rate -2.0 packets/s: must be finite and 0 or more"),
        ({"rates": [[0, 1.0], [9, math.inf]]}, "rate inf packets/s: must be finite and 0 or more"),
        ({"rates": [[0, 0.0], [9, 0]]}, "all rates are 0"),
        (
            {"rates": [[0, 1.0], [9, 2.0]], "rates_period_ns": 9},
            "period 9 ns: must be longer than 9 ns, the start of the last rate",
        ),
        ({"rates_period_ns": 9}, "a period needs a list of rates"),
        ({"rates": [[0, 1.0], [9, 3e9]]}, "the ratio of the rates is 3e+09: the maximum is 2147483648"),
        ({"rates": [[0, 0.001]]}, "rate 0.001 packets/s: must be 0 or at least 0.00364 packets/s"),
        ({"gap_table": [ONE]}, "random gaps need a rate"),
        ({"rate_pps": 5.0, "gap_table": [ONE, ONE + 1]}, "gaps must be whole numbers of 2**-20 with a mean of 1"),
        ({"rate_pps": 5.0, "gap_table": [ONE] * 65537}, "65537 gaps: the maximum is 65536"),
        ({"kind": "trace", "rates": [[0, 1.0]]}, "a trace takes no rates and no gaps"),
    ],
)
def test_paces_that_cannot_be_kept(more: dict[str, Any], why: str) -> None:
    leg = Leg(0, "s", "a", "b", **{"kind": "stream", "frame": {"headers": HEADERS}, **more})
    assert capabilities.unable("xdp", leg) == why


@pytest.mark.parametrize("engine", ["pktgen", "trafgen", "tcpreplay"])
@pytest.mark.parametrize("more", [{"rates": [[0, 1.0]]}, {"rate_pps": 1.0, "gap_table": [ONE]}])
def test_other_engines_send_at_a_steady_rate(engine: str, more: dict[str, Any]) -> None:
    assert capabilities.unable(engine, a_leg(**more)) == "sends at a steady rate only"
