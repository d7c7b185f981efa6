"""Rates over time: the steps of each profile, and that they send as much as the curve says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.random.rates import Rates, parse_rates


def made(value: Any, duration_s: float = 60, **more: Any) -> Rates:
    rates = parse_rates("s.yaml", "rate", value, duration_s, **more)
    assert rates.from_ns[0] == 0 and np.all(np.diff(rates.from_ns) > 0) and rates.from_ns[-1] < rates.until_ns
    return rates


def seconds(rates: Rates) -> list[tuple[float, float]]:
    return [(start / 1e9, rate) for start, rate in rates.pairs()]


@pytest.mark.parametrize("value", [1000, {"steady": 1000}, {"steady": 1000, "unit": "pps"}])
def test_steady(value: Any) -> None:
    assert made(value).pairs() == [[0, 1000]]
    assert made(value).integral == 60_000


@pytest.mark.parametrize(
    ("with_units", "plain"),
    [
        ({"steady": "1kpps"}, {"steady": 1000}),
        ({"steady": "10 Mbit", "unit": "bps"}, {"steady": 1e7, "unit": "bps"}),
        (
            {"sine": {"mean": "1k", "amplitude": "0.5kpps", "day_s": "1min", "from_h": "6h"}},
            {"sine": {"mean": 1000, "amplitude": 500, "day_s": 60, "from_h": 6}},
        ),
        ({"square": {"rates": ["1k", "2kpps"], "every_s": "500ms"}}, {"square": {"rates": [1e3, 2e3], "every_s": 0.5}}),
        ({"table": [[0, "1k"], ["500ms", 5]]}, {"table": [[0, 1000], [0.5, 5]]}),
        (
            {"on_off": {"on": {"constant": "2s"}, "off": {"exponential": "500ms"}, "rate": "1k"}},
            {"on_off": {"on": {"constant": 2}, "off": {"exponential": 0.5}, "rate": 1000}},
        ),
        (
            {"walk": {"between": ["1k", "2k"], "by": "100", "every_s": "1s"}},
            {"walk": {"between": [1e3, 2e3], "by": 100, "every_s": 1}},
        ),
    ],
)
def test_a_profile_has_units(with_units: Any, plain: Any) -> None:
    assert made(with_units).pairs() == made(plain).pairs()


def test_step_wise() -> None:
    up = {"steps": {"start": 100, "increment": 50, "interval_s": 10, "until": 220}}
    assert seconds(made(up)) == [(0, 100), (10, 150), (20, 200), (30, 220)]
    down = {"steps": {"start": 100, "increment": -60, "interval_s": 10, "until": 0}}
    assert seconds(made(down, 15)) == [(0, 100), (10, 40)]
    assert seconds(made(down)) == [(0, 100), (10, 40), (20, 0)]
    endless = {"steps": {"start": 1, "increment": 1, "interval_s": 1}}
    assert made(endless, 100).integral == 100 * 101 / 2


def test_the_emulators_walk_turns_at_its_bounds() -> None:
    walk = {"walk": {"between": [800e6, 1200e6], "by": 100e6, "every_s": 5}, "unit": "bps"}
    rates = made(walk)
    assert rates.rate.tolist() == [r * 1e8 for r in (8, 9, 10, 11, 12, 11, 10, 9, 8, 9, 10, 11)]
    assert np.all(np.diff(rates.from_ns) == 5_000_000_000)
    down = {"walk": {"between": [800, 1200], "by": 300, "every_s": 5, "start": 1200}}
    assert made(down, 30).rate.tolist() == [1200, 900, 800, 1100, 1200, 900]


def test_a_random_walk_stays_within_its_bounds() -> None:
    walk = {"walk": {"between": [0, 4], "by": 1, "every_s": 1, "random": True}}
    rates = made(walk, 20_000, seed=3)
    levels = rates.at(np.arange(20_000) + 0.5)
    assert set(np.abs(np.diff(levels))) == {1.0} and set(levels) == {0.0, 1, 2, 3, 4}
    shares = np.bincount(levels.astype(int)) / levels.size
    assert np.allclose(shares, [1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8], atol=0.02)
    ups = np.diff(levels)[levels[:-1] == 2] > 0
    assert abs(ups.mean() - 0.5) < 0.05
    assert made(walk, 100, seed=3).pairs() == made(walk, 100, seed=3).pairs() != made(walk, 100, seed=4).pairs()
    assert made(walk, 100, seed=3, stream=(1,)).pairs() != made(walk, 100, seed=3, stream=(2,)).pairs()


def test_square_wave() -> None:
    square = {"square": {"rates": [800, 1200], "every_s": 30}}
    assert seconds(made(square, 100)) == [(0, 800), (30, 1200), (60, 800), (90, 1200)]


CURVES: dict[str, tuple[Any, Any]] = {
    "ramp": ({"from": 100, "to": 900, "over_s": 7.03}, lambda t: np.interp(t, [0, 7.03], [100, 900])),
    "ramp down to 0": ({"from": 100, "to": 0, "over_s": 60}, lambda t: 100 - t / 60 * 100),
    "ramp longer than the run": ({"from": 0, "to": 600, "over_s": 600}, lambda t: t),
    "sine": (
        {"mean": 10, "amplitude": 10, "day_s": 24.7},
        lambda t: 10 - 10 * np.cos(2 * math.pi * t / 24.7),
    ),
    "sine from six": (
        {"mean": 10, "amplitude": 8, "day_s": 20, "from_h": 6},
        lambda t: 10 + 8 * np.sin(2 * math.pi * t / 20),
    ),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("resolution_s", [0.1, 0.37, 5])
def test_steps_send_what_the_curve_says(name: str, resolution_s: float) -> None:
    parameters, curve = CURVES[name]
    rates = made({name.split()[0]: parameters, "resolution_s": resolution_s})
    fine = (np.arange(600_000) + 0.5) * 1e-4
    exact = curve(fine)
    assert rates.integral == pytest.approx(exact.mean() * 60, rel=1e-6)
    # Each step, not only their sum.
    inside = np.searchsorted(rates.from_ns / 1e9, fine, side="right") - 1
    means = np.bincount(inside, weights=exact) / np.bincount(inside)
    assert np.allclose(rates.rate, means, rtol=1e-3, atol=0.02)
    # Two that are alike, on either side of noon, are one.
    flat = 60 - 7.03 if name == "ramp" else 0
    assert rates.lengths_s.max() <= max(2 * resolution_s, flat) + 1e-9
    assert np.all(rates.rate >= 0)


def test_night_is_quiet() -> None:
    rates = made({"sine": {"mean": 10, "amplitude": 9, "day_s": 60}})
    assert rates.at(0.01) == pytest.approx(1, abs=0.01) and rates.at(30) == pytest.approx(19, abs=0.01)


def test_table(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("time_s,rate\n0,5\n3600,7\n7200,0\n")
    plain = made({"table": "day.csv"}, 10_000, folder=tmp_path)
    assert seconds(plain) == [(0, 5), (3600, 7), (7200, 0)]
    short = {"file": "day.csv", "until_s": 10800, "over_s": 30}
    assert seconds(made({"table": short}, folder=tmp_path)) == [(0, 5), (10, 7), (20, 0)]
    assert seconds(made({"table": [[0, 1], [2, 3]]})) == [(0, 1), (2, 3)]
    assert seconds(made({"table": [[0, 1], [2, 1], [100, 4]]})) == [(0, 1)]


def test_on_off() -> None:
    value = {"on_off": {"on": {"exponential": 2}, "off": {"exponential": 3}, "rate": 50}}
    rates = made(value, 50_000, seed=1)
    assert set(rates.rate) == {0.0, 50.0} and rates.rate[0] == 50
    on, off = rates.lengths_s[rates.rate > 0], rates.lengths_s[rates.rate == 0]
    assert stats.kstest(on[:-1], stats.expon(scale=2).cdf).pvalue > 0.01
    assert stats.kstest(off[:-1], stats.expon(scale=3).cdf).pvalue > 0.01
    assert rates.mean == pytest.approx(20, rel=0.05)
    fixed = {"on_off": {"on": 1, "off": 2, "rate": 9, "rate_off": 3}}
    assert seconds(made(fixed, 7)) == [(0, 9), (1, 3), (3, 9), (4, 3), (6, 9)]


def test_units_by_size() -> None:
    bits = made({"steady": 8000, "unit": "bps"})
    assert bits.in_pps(100).pairs() == [[0, 10]] and bits.in_pps(100).unit == "pps"
    assert made({"steady": 8 * 84, "unit": "l1_bps"}).in_pps(64).rate.tolist() == [1]
    assert made(5).in_pps(64).pairs() == [[0, 5]]


def test_at_and_times() -> None:
    rates = made({"square": {"rates": [1, 3], "every_s": 10}}, 30)
    assert rates.at([-5, 0, 9.99, 10, 29, 99]).tolist() == [1, 1, 1, 3, 1, 1]
    assert rates.times(2).rate.tolist() == [2, 6, 2] and rates.mean == pytest.approx(5 / 3)


@pytest.mark.parametrize(
    ("value", "key", "said"),
    [
        (-1, "rate.steady", "negative 0 s after"),
        (0, "rate.steady", "0 all the time"),
        ("fast", "rate.steady", "not a packet rate"),
        ({"steady": "1s"}, "rate.steady", "wrong unit"),
        ({"steady": "10Mbit"}, "rate.steady", "wrong unit"),
        ({"sine": {"mean": 5, "amplitude": 1, "day_s": "1kpps"}}, "rate.sine.day_s", "wrong unit"),
        ({"table": [[0, 5], ["1kpps", 6]]}, "rate.table.points.1", "wrong unit"),
        ({"steady": 1, "unit": "mbit"}, "rate.unit", "pps, bps, l1_bps"),
        ({"steady": 1, "resolution_s": 0}, "rate.resolution_s", "> 0"),
        ({"steady": 1, "ramp": {}}, "rate", "one profile"),
        ({"poisson": 1}, "rate", "steady, steps, walk"),
        ({}, "rate", "one profile"),
        ({"steps": 3}, "rate.steps", "not a mapping"),
        ({"steps": {"start": 1, "increment": 1}}, "rate.steps", "start increment interval_s; and until"),
        ({"steps": {"start": 9, "increment": -2, "interval_s": 1}}, "rate.steps", "negative 5 s after"),
        ({"steps": {"start": 9, "increment": -2, "interval_s": 1, "until": 20}}, "rate.steps.until", "not reached"),
        ({"walk": {"between": [3, 1], "by": 1, "every_s": 1}}, "rate.walk.between", "must be below"),
        ({"walk": {"between": 3, "by": 1, "every_s": 1}}, "rate.walk.between", "not two rates"),
        ({"walk": {"between": [-3, 1], "by": 1, "every_s": 1}}, "rate.walk", "negative"),
        ({"walk": {"between": [1, 3], "by": 0, "every_s": 1}}, "rate.walk.by", "> 0"),
        ({"walk": {"between": [1, 3], "by": 1, "every_s": 1, "start": 4}}, "rate.walk.start", "1 to 3"),
        ({"walk": {"between": [1, 3], "by": 1, "every_s": 1, "random": "yes"}}, "rate.walk.random", "true nor false"),
        ({"walk": {"between": [1, 3], "by": 1, "every_s": 1e-6}}, "rate.walk", "steps"),
        ({"square": {"rates": [1], "every_s": 1}}, "rate.square.rates", "two rates or more"),
        ({"square": {"rates": [1, -1], "every_s": 1}}, "rate.square", "negative 1 s after"),
        ({"ramp": {"from": 5, "to": -1, "over_s": 9}}, "rate.ramp", "negative"),
        ({"ramp": {"from": 5, "to": 1, "over_s": 0}}, "rate.ramp.over_s", "> 0"),
        ({"ramp": {"from": 5, "to": 1, "over_s": 60}, "resolution_s": 1e-6}, "rate.ramp", "steps"),
        ({"sine": {"mean": 1, "amplitude": 2, "day_s": 9}}, "rate.sine.amplitude", "at most the mean"),
        ({"table": []}, "rate.table.points", "no points"),
        ({"table": [[0, 1], [3]]}, "rate.table.points.1", "not a pair"),
        ({"table": [[1, 1]]}, "rate.table", "first time must be 0"),
        ({"table": [[0, 1], [3, 1], [2, 1]]}, "rate.table", "must ascend"),
        ({"table": [[0, 1], [3, -1]]}, "rate.table", "negative 3 s after"),
        ({"table": {"points": [[0, 1]], "over_s": 3}}, "rate.table", "both"),
        ({"table": {"points": [[0, 1], [5, 1]], "over_s": 3, "until_s": 5}}, "rate.table.until_s", "> 5"),
        ({"on_off": {"on": {"pareto": {"shape": 1, "least": 1}}, "off": 1, "rate": 1}}, "rate.on_off.on", "no finite"),
        ({"on_off": {"on": 1, "off": 0, "rate": 1}}, "rate.on_off.off", "must be above 0"),
        ({"on_off": {"on": 1e-6, "off": 1e-6, "rate": 1}}, "rate.on_off", "too often"),
        ({"on_off": {"on": 1, "off": 1, "rate": -1}}, "rate.on_off", "negative"),
    ],
    ids=str,
)
def test_bad_profiles_are_told(value: Any, key: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        made(value)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time_s,rate\n", "no values"),
        ("0,1\n5,1\n3,1\n", "must ascend"),
        ("0,1\n5\n", "line 2 = \\['5'\\]: not two columns"),
        ("0,1\n5,much\n", "line 2 = 'much': not a number"),
        ("0,1\n5,-1\n", "line 2 = -1.0: a negative rate"),
    ],
)
def test_bad_tables_are_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadInput, match=said) as caught:
        made({"table": "t.csv"}, folder=tmp_path)
    assert "t.csv" in str(caught.value)
