"""Distributions: what is drawn follows the law, the law's figures are right, and bad ones are told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.random.parse import (
    Distribution,
    Exponential,
    gap_table,
    generator,
    parse,
    parse_arrivals,
    times,
)

DRAWS = 40_000
CONTINUOUS: dict[str, tuple[Any, Any]] = {
    "uniform": ({"uniform": {"least": 2, "most": 5}}, stats.uniform(2, 3)),
    "exponential": ({"exponential": {"mean": 0.5}}, stats.expon(scale=0.5)),
    "exponential by rate": ({"exponential": {"rate": 4}}, stats.expon(scale=0.25)),
    "exponential, short": ({"exponential": 3}, stats.expon(scale=3)),
    "normal": ({"normal": {"mean": 10, "sd": 2}}, stats.norm(10, 2)),
    "lognormal": ({"lognormal": {"mu": 1, "sigma": 0.5}}, stats.lognorm(0.5, scale=math.e)),
    "pareto": ({"pareto": {"shape": 4.5, "least": 1000}}, stats.pareto(4.5, scale=1000)),
    "pareto by mean": ({"pareto": {"shape": 5, "mean": 10}}, stats.pareto(5, scale=8)),
    "gamma": ({"gamma": {"shape": 2.5, "scale": 3}}, stats.gamma(2.5, scale=3)),
    "gamma by mean": ({"gamma": {"mean": 6, "sd": 3}}, stats.gamma(4, scale=1.5)),
    "weibull": ({"weibull": {"shape": 1.46, "scale": 0.382}}, stats.weibull_min(1.46, scale=0.382)),
    "weibull by mean": ({"weibull": {"shape": 1, "mean": 2}}, stats.expon(scale=2)),
    "times": ({"gamma": {"shape": 2.5, "scale": 3}, "times": 48}, stats.gamma(2.5, scale=144)),
}
DISCRETE: dict[str, tuple[Any, dict[float, float]]] = {
    "constant": (5, {5: 1.0}),
    "constant by name": ({"constant": 5}, {5: 1.0}),
    "empirical": ({"empirical": {"values": [3, 1, 3, 8], "weights": [1, 2, 1, 4]}}, {1: 0.25, 3: 0.25, 8: 0.5}),
    "geometric": ({"geometric": {"mean": 4}}, {k: 0.25 * 0.75 ** (k - 1) for k in range(1, 400)}),
    "geometric, cut": (
        {"geometric": {"p": 0.5}, "at_least": 2, "at_most": 3, "times": 1},
        {2: 2 / 3, 3: 1 / 3},
    ),
    "empirical, cut": ({"empirical": {"values": [1, 2, 3]}, "at_least": 2}, {2: 0.5, 3: 0.5}),
    "geometric in 48s, cut": ({"geometric": {"p": 0.5}, "at_most": 96, "times": 48}, {48: 2 / 3, 96: 1 / 3}),
}
CUT: list[Any] = [
    {"uniform": {"least": 0, "most": 10}, "at_least": 3, "at_most": 7},
    {"exponential": {"mean": 2}, "at_most": 3},
    {"normal": {"mean": 1, "sd": 2}, "at_least": 0},
    {"lognormal": {"mu": 8.37, "sigma": 1.37}, "at_least": 100, "at_most": 2_000_000},
    {"pareto": {"shape": 0.9, "least": 0.1}, "at_most": 300},
    {"pareto": {"shape": 1, "least": 1}, "at_least": 2, "at_most": 9},
    {"pareto": {"shape": 2, "least": 1}, "at_most": 9},
    {"gamma": {"shape": 2, "scale": 10}, "at_least": 5, "at_most": 60, "times": 2},
    {"weibull": {"shape": 0.7, "scale": 3}, "at_least": 1},
]


def made(value: Any) -> Distribution:
    return parse("s.yaml", "gap", value)


def drawn(value: Any, seed: int = 7) -> Any:
    return made(value).draw(generator(seed), DRAWS)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_draws_follow_the_law(name: str) -> None:
    value, law = CONTINUOUS[name]
    assert stats.kstest(drawn(value), law.cdf).pvalue > 0.01
    through_the_inverse = made(value).inverse(generator(8).random(DRAWS))
    assert stats.kstest(through_the_inverse, law.cdf).pvalue > 0.01


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_figures_are_those_of_the_law(name: str) -> None:
    value, law = CONTINUOUS[name]
    ours = made(value)
    x = law.ppf(np.linspace(0.01, 0.99, 50))
    assert np.allclose(ours.cdf(x), law.cdf(x))
    assert np.allclose(ours.inverse(law.cdf(x)), x)
    assert ours.mean == pytest.approx(law.mean())
    assert ours.variance == pytest.approx(law.var())
    for order in (1, 2):
        part = law.expect(lambda y, order=order: y**order, ub=x[30])
        assert float(ours.moment(order, x[30])) == pytest.approx(part, rel=1e-6)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_mean_and_variance_of_what_is_drawn(name: str) -> None:
    value, law = CONTINUOUS[name]
    sample = drawn(value)
    assert abs(sample.mean() - law.mean()) < 4 * law.std() / math.sqrt(DRAWS)
    assert sample.var() == pytest.approx(law.var(), rel=0.1)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_ones(name: str) -> None:
    value, law = DISCRETE[name]
    sample, ours = drawn(value), made(value)
    mean = sum(v * p for v, p in law.items())
    assert ours.mean == pytest.approx(mean)
    assert ours.variance == pytest.approx(sum((v - mean) ** 2 * p for v, p in law.items()), abs=1e-9)
    below = 0.0
    for value, share in sorted(law.items())[:6]:
        below += share
        assert float(ours.cdf(value)) == pytest.approx(below)
        assert abs(np.mean(sample == value) - share) < 4 * math.sqrt(share * (1 - share) / DRAWS) + 1e-12
    assert set(np.unique(sample)) <= set(law)


@pytest.mark.parametrize("value", CUT, ids=str)
def test_truncated_as_if_drawn_again(value: dict[str, Any]) -> None:
    ours, factor = made(value), value.get("times", 1)
    inner = {name: rest for name, rest in value.items() if name not in ("at_least", "at_most", "times")}
    again = made(inner).draw(generator(3), 10 * DRAWS) * factor
    kept = again[(again >= value.get("at_least", -math.inf)) & (again <= value.get("at_most", math.inf))]
    sample = ours.draw(generator(4), DRAWS)
    assert stats.ks_2samp(sample, kept).pvalue > 0.01
    assert stats.kstest(sample, ours.cdf).pvalue > 0.01
    assert sample.min() >= ours.support[0] and sample.max() <= ours.support[1]
    assert ours.mean is not None and abs(kept.mean() - ours.mean) < 4 * kept.std() / math.sqrt(kept.size)
    assert ours.variance == pytest.approx(kept.var(), rel=0.15)


def test_none_where_there_is_no_moment() -> None:
    assert made({"pareto": {"shape": 1, "least": 1}}).mean is None
    two = made({"pareto": {"shape": 1.5, "least": 1}})
    assert two.mean == pytest.approx(3) and two.variance is None
    assert made({"pareto": {"shape": 0.9, "least": 1}, "at_most": 10}).mean is not None


def test_seeds_repeat_and_streams_differ() -> None:
    law = Exponential(1)
    assert np.array_equal(law.draw(generator(1, 2, 3), 50), law.draw(generator(1, 2, 3), 50))
    others = [law.draw(generator(*seed), DRAWS) for seed in ((1, 2, 3), (1, 2, 4), (1, 3, 2), (2, 2, 3))]
    assert np.all(np.abs(np.corrcoef(others) - np.eye(4)) < 0.02)


@pytest.mark.parametrize(
    ("value", "law"),
    [
        ({"exponential": 2}, stats.expon(scale=2)),
        (4, stats.uniform(0, 4)),
        ({"uniform": {"least": 0, "most": 1}}, stats.beta(1, 2)),
        ({"pareto": {"shape": 2.5, "least": 1}}, None),
    ],
    ids=["exponential", "number", "uniform", "pareto"],
)
def test_what_is_left_of_an_interval(value: Any, law: Any) -> None:
    left = made(value).residual(generator(5), DRAWS)
    if law is None:  # below the least the density is 1 / mean; the tail is one power heavier
        assert np.mean(left < 1) == pytest.approx(0.6, abs=0.01)
        assert np.mean(left > 10) == pytest.approx(0.4 * 10**-1.5, rel=0.15)
    else:
        assert stats.kstest(left, law.cdf).pvalue > 0.01


def test_scaling_scales_bounds_too() -> None:
    twice = times(made({"exponential": 2, "at_most": 3}), 2)
    plain = made({"exponential": 4, "at_most": 6})
    assert twice.mean == pytest.approx(plain.mean) and twice.support == plain.support


# --- gap tables ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [v for n, (v, _) in CONTINUOUS.items() if n != "normal"], ids=str)
@pytest.mark.parametrize("entries", [1, 7, 4096])
def test_a_gap_table_has_a_mean_of_exactly_one(value: Any, entries: int) -> None:
    table = gap_table(made(value), entries)
    assert len(table) == entries and sum(table) == entries << 20 and table == sorted(table)


def test_the_poisson_table_is_exponential() -> None:
    poisson = parse_arrivals("s.yaml", "arrivals", "poisson")
    assert poisson is not None
    table = np.array(gap_table(poisson)) / 2**20
    assert stats.kstest(table, stats.expon.cdf).statistic < 0.001
    assert table.var() == pytest.approx(1, rel=0.01)
    assert parse_arrivals("s.yaml", "arrivals", "even") is None


# --- files ---------------------------------------------------------------------------------------------------------


def test_empirical_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "sizes.csv").write_text("value,weight\n# measured\n64, 3\n\n1518,1\n")
    ours = parse("s.yaml", "size", {"empirical": "sizes.csv"}, folder=tmp_path)
    assert ours.mean == pytest.approx((3 * 64 + 1518) / 4)
    (tmp_path / "plain.csv").write_text("1\n2\n2\n")
    plain = parse("s.yaml", "size", {"empirical": {"file": "plain.csv"}}, folder=tmp_path)
    assert plain.mean == pytest.approx(5 / 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no values"),
        ("value\n", "no values"),
        ("1\nmany\n", "line 2 = 'many': not a number"),
        ("1,\n", "line 1 = '': not a number"),
        ("1,2,3\n", "more than two columns"),
        ("1\n-2\n", "line 2 = -2.0: negative"),
        ("1,-2\n", "negative"),
        ("1,0\n2,0\n", "all weights are 0"),
        ("nan\n", "not a number"),
        (None, "cannot be read"),
    ],
)
def test_bad_files(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "f.csv").write_text(text)
    with pytest.raises(BadInput, match=said) as caught:
        parse("s.yaml", "size", {"empirical": "f.csv"}, folder=tmp_path)
    assert "f.csv" in str(caught.value)


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "key", "said"),
    [
        ({"zipf": {"s": 1}}, "gap", "allowed: uniform, exponential"),
        ({}, "gap", "one distribution"),
        ({"gamma": {"mean": 1, "sd": 1}, "normal": {"mean": 1, "sd": 1}}, "gap", "one distribution"),
        ("often", "gap", "not a finite number"),
        (True, "gap", "not a finite number"),
        (math.inf, "gap", "not a finite number"),
        (math.nan, "gap", "not a finite number"),
        (10**400, "gap", "not a finite number"),
        ({"constant": None}, "gap.constant.value", "not a finite number"),
        ({"pareto": 3}, "gap.pareto", "not a mapping"),
        ({"pareto": {"shape": 3}}, "gap.pareto", "shape and least or shape and mean"),
        ({"pareto": {"shape": 1, "mean": 3}}, "gap.pareto.shape", "infinite mean"),
        ({"exponential": {"mean": 1, "rate": 1}}, "gap.exponential", "mean or rate"),
        ({"exponential": {"mean": 0}}, "gap.exponential.mean", "> 0"),
        ({"geometric": {"p": 1.5}}, "gap.geometric.p", "<= 1"),
        ({"geometric": 0.5}, "gap.geometric.mean", ">= 1"),
        ({"lognormal": {"mu": 1, "sigma": -1}}, "gap.lognormal.sigma", "> 0"),
        ({"uniform": {"least": 3, "most": 3}}, "gap.uniform", "least must be below most"),
        ({"uniform": {"least": 3, "most": 5}, "at_least": 6}, "gap", "fewer than 1 in"),
        ({"uniform": {"least": 3, "most": 5}, "times": 0}, "gap.times", "> 0"),
        ({"empirical": {"values": []}}, "gap.empirical.values", "no values"),
        ({"empirical": {"values": [1, "x"]}}, "gap.empirical.values.1", "not a finite number"),
        ({"empirical": {"values": [1, -1]}}, "gap.empirical.values.1", "negative"),
        ({"empirical": {"values": [1, 2], "weights": [1]}}, "gap.empirical.weights", "wrong number of weights"),
        ({"empirical": {"weights": [1]}}, "gap.empirical", "file, or values"),
    ],
    ids=str,
)
def test_bad_ones_are_told(value: Any, key: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        made(value)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"pareto": {"shape": 1, "least": 1}}, "no finite mean"),
        ({"normal": {"mean": 5, "sd": 1}}, "values below 0"),
        (-1, "values below 0"),
        (0, "must be above 0"),
    ],
    ids=str,
)
def test_what_a_gap_needs(value: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse("s.yaml", "gap", value, need_mean=True, at_least=0)


@pytest.mark.parametrize("value", ["often", 3, None, {"pareto": {"shape": 1, "least": 1}}])
def test_bad_arrivals(value: Any) -> None:
    with pytest.raises(BadInput):
        parse_arrivals("s.yaml", "arrivals", value)
