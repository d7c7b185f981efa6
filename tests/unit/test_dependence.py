"""Dependence: every estimator against noise of known exponent, and warnings where an exponent says nothing."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pktswarm.traffic.capture.files import Packet, write_pcap, write_pcapng
from pktswarm.traffic.dependence import (
    ESTIMATORS,
    STARTS,
    Dependence,
    analyse,
    five_cases,
    read_arrivals,
    repeated,
    scaled,
)
from pktswarm.traffic.dependence.arrivals import MIN_PACKETS, chosen_bin_ns, counts
from pktswarm.traffic.dependence.autocorrelation import autocorrelation
from pktswarm.traffic.dependence.calibration import calibration
from pktswarm.traffic.dependence.cases import period_ns
from pktswarm.traffic.dependence.estimate import Series
from pktswarm.traffic.dependence.gaps import gaps
from pktswarm.traffic.dependence.noise import autocovariance, fractional_noise
from pktswarm.traffic.dependence.report import LEAST_BINS
from pktswarm.traffic.dependence.wavelet import logscale
from pktswarm.traffic.errors import BadInput

MS = 1_000_000
HURSTS = (0.5, 0.6, 0.7, 0.8, 0.9)
LENGTH, SEEDS = 1024, 60

Integers = NDArray[np.int64]


def noise(hurst: float, length: int, rows: int, seed: int = 1) -> NDArray[np.float64]:
    return fractional_noise(hurst, length, np.random.default_rng(seed).standard_normal((rows, 2 * length)))


def poisson(packets: int, seed: int = 1, gap_ns: float = 1e6) -> Integers:
    return np.cumsum(np.random.default_rng(seed).exponential(gap_ns, packets)).astype(np.int64)


def with_counts(per_bin: NDArray[np.int64], bin_ns: int = 100 * MS, seed: int = 1) -> Integers:
    """Arrivals with so many in each bin, anywhere in it."""
    starts = np.repeat(np.arange(len(per_bin), dtype=np.int64) * bin_ns, per_bin)
    return np.sort(starts + np.random.default_rng(seed).integers(0, bin_ns, len(starts)))


# --- Noise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hurst", [0.2, *HURSTS])
def test_the_noise_is_normal_and_has_the_autocovariance_of_the_exponent(hurst: float) -> None:
    rows = noise(hurst, 64, 20_000)
    expected = autocovariance(hurst, 64)
    for lag in (0, 1, 7, 63):
        products = rows[:, 0] * rows[:, lag]
        assert abs(products.mean() - expected[lag]) < 4.5 * products.std() / np.sqrt(len(rows)), lag
    assert stats.kstest(rows[:, 5], "norm").pvalue > 1e-4


def test_sums_of_the_noise_are_self_similar() -> None:
    """Equation 2.3: the sum of m values has variance m^2H."""
    sums = noise(0.8, 256, 4000).sum(axis=1)
    assert np.log(sums.var()) / np.log(256) / 2 == pytest.approx(0.8, abs=0.01)


# --- Estimators ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hurst", HURSTS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_interval_covers_the_true_exponent_as_often_as_it_says(name: str, hurst: float) -> None:
    estimates = [ESTIMATORS[name](Series(one, 0.1)) for one in noise(hurst, LENGTH, SEEDS, seed=round(hurst * 100))]
    seen = np.array([[one.hurst, one.low, one.high] for one in estimates], np.float64)
    covered = int(((seen[:, 1] <= hurst) & (hurst <= seen[:, 2])).sum())
    # With 95 % each, fewer would come up by chance once in two thousand times; more than enough is no interval.
    assert covered >= stats.binom.ppf(5e-4, SEEDS, 0.95)
    assert abs(seen[:, 0].mean() - hurst) < 4 * seen[:, 0].std() / np.sqrt(SEEDS) + 0.01
    assert (seen[:, 2] - seen[:, 1]).mean() < 6 * seen[:, 0].std()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_interval_narrows_with_the_length(name: str) -> None:
    widths = []
    for length in (256, 4096):
        one = ESTIMATORS[name](Series(noise(0.7, length, 1)[0], 0.1))
        assert one.low is not None and one.high is not None
        widths.append(one.high - one.low)
    assert widths[1] < 0.6 * widths[0]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimates_and_their_diagrams_know_no_unit(name: str) -> None:
    counts_ = 1000 + 100 * noise(0.75, 512, 1)[0]
    one, other = ESTIMATORS[name](Series(counts_, 0.1)), ESTIMATORS[name](Series(7 * counts_, 0.001))
    assert one.hurst == pytest.approx(other.hurst, abs=1e-6)
    assert one.diagram is not None and other.diagram is not None and one.scales_s and other.scales_s
    assert one.scales_s[1] == pytest.approx(100 * other.scales_s[1])
    assert one.diagram.x.shape == one.diagram.y.shape == one.diagram.fitted.shape
    assert np.isfinite(one.diagram.y).all() and np.isfinite(one.diagram.fitted).any()


def test_all_agree_on_long_range_dependent_arrivals() -> None:
    rate = np.maximum(400 + 120 * noise(0.8, 2048, 1)[0], 0)
    report = analyse(with_counts(np.random.default_rng(3).poisson(rate)), bin_ns=100 * MS)
    assert [one.name for one in report.estimates] == list(ESTIMATORS)
    for one in report.estimates:
        assert one.low is not None and one.high is not None and one.low <= 0.8 <= one.high
    assert report.warnings == []


def test_poisson_arrivals_have_an_exponent_of_a_half() -> None:
    outside = 0
    for seed in range(5):
        report = analyse(poisson(40_000, seed))
        assert report.dispersion == pytest.approx(1, abs=0.1)
        assert report.gaps.variation == pytest.approx(1, abs=0.05)
        assert report.gaps.ks_exponential < stats.kstwo.ppf(0.9999, 39_999)
        assert report.warnings == []
        for one in report.estimates:
            assert one.hurst == pytest.approx(0.5, abs=0.15)
            outside += not (one.low or 0) <= 0.5 <= (one.high or 0)
    assert outside <= 5, "of 20 intervals of 95 %"


def test_the_least_scale_is_where_the_diagram_becomes_straight() -> None:
    """Independent counts under slow dependence: the smallest scales know nothing of it."""
    rate = np.maximum(8 + 4 * np.repeat(noise(0.9, 1024, 1)[0], 8), 0)
    times = with_counts(np.random.default_rng(2).poisson(rate), 10 * MS)
    chosen = analyse(times, bin_ns=10 * MS)
    forced = analyse(times, bin_ns=10 * MS, from_ns=10 * MS)
    assert chosen.least_scale_s > forced.least_scale_s == 0.01
    wavelet = {one.name: one for one in forced.estimates}["wavelet"]
    assert wavelet.doubts and any(warning.startswith("wavelet: ") for warning in forced.warnings)


def test_the_calibration_answers_outside_of_its_grid_with_its_ends() -> None:
    from pktswarm.traffic.dependence import rescaled_range

    made = calibration(rescaled_range.raw, 64)
    assert made.hurst(-5) == (0.05, 0.05, 0.05)
    assert made.hurst(5) == (0.99, 0.99, 0.99)


def test_the_haar_transform_keeps_the_energy() -> None:
    values = noise(0.6, 256, 1)[0]
    diagram = logscale(values)
    energy = sum((d**2).sum() for d in diagram.top)
    sums = values
    while len(sums) > 1:
        details, sums = (sums[::2] - sums[1::2]) / np.sqrt(2), (sums[::2] + sums[1::2]) / np.sqrt(2)
        energy += (details**2).sum() if len(details) >= 4 else 0
    assert energy + sums[0] ** 2 == pytest.approx((values**2).sum())
    assert diagram.details.tolist() == [128, 64, 32, 16, 8, 4]


# --- What disturbs ---------------------------------------------------------------------------------------------------


def words(report: Dependence) -> set[str]:
    return {warning.split(":")[0] for warning in report.warnings}


def test_a_periodic_stream_is_warned_about() -> None:
    jitter = np.random.default_rng(1).integers(-20_000, 20_000, 20_000)
    report = analyse(np.sort(np.arange(20_000, dtype=np.int64) * MS + jitter))
    assert any("periodic: the gaps are all near 1,000,000 ns" in warning for warning in report.warnings)


def test_several_periodic_streams_at_once_are_warned_about() -> None:
    """Their gaps look random and their exponent high: three paced streams were seen at H = 0.92."""
    streams = [np.arange(6000, dtype=np.int64) * gap_ns + 137 for gap_ns in (1_000_000, 1_000_300, 1_000_700)]
    assert "paced" in words(analyse(np.sort(np.concatenate(streams))))


def test_counts_that_never_change_have_no_exponent() -> None:
    report = analyse(np.arange(8192, dtype=np.int64) * 1000, bin_ns=8000)
    assert [(one.hurst, one.low, one.high) for one in report.estimates] == [(None, None, None)] * 4
    assert report.counts_acf is None and report.gaps_acf is None
    assert "periodic" in words(report)


def test_a_period_in_random_arrivals_is_found_with_its_length() -> None:
    wave = 50 * (1 + 0.4 * np.sin(np.arange(2048) * 2 * np.pi / 16))
    report = analyse(with_counts(np.random.default_rng(1).poisson(wave)), bin_ns=100 * MS)
    found = [match for warning in report.warnings if (match := re.search(r"every ([0-9.]+) s", warning))]
    assert [float(match[1]) for match in found] == [pytest.approx(1.6, rel=0.005)]


@pytest.mark.parametrize("shape", ["slope", "step"])
def test_a_trend_is_told(shape: str) -> None:
    x = np.linspace(0, 1, 2048)
    rate = 50 * (1 + 0.5 * (x if shape == "slope" else x > 0.5))
    report = analyse(with_counts(np.random.default_rng(1).poisson(rate)))
    assert "trend or level shift" in words(report)


def test_a_short_series_is_told() -> None:
    assert "short" in words(analyse(poisson(1000)))
    assert "short" not in words(analyse(poisson(20_000)))


def test_one_burst_is_not_called_dependence() -> None:
    """All arrivals at the start and a few long after: by the exponent no stationary series."""
    rate = np.where(np.arange(1024) < 100, 200, 1)
    report = analyse(with_counts(np.random.default_rng(1).poisson(rate)))
    assert words(report) & {"not stationary", "trend or level shift"}


# --- Gaps, counts and correlation ------------------------------------------------------------------------------------


def test_the_histogram_has_every_gap_once() -> None:
    times = np.concatenate([[0, 0, 0], np.cumsum([1, 10, 99, 100, 5000])])
    seen = gaps(times.astype(np.int64))
    assert (seen.zero, int(seen.packets.sum())) == (2, 5)
    assert (seen.least_ns, seen.largest_ns) == (0, 5000)
    inside = [int(seen.packets[np.searchsorted(seen.edges_ns, gap * 1.0001) - 1]) for gap in (1, 10, 99, 100, 5000)]
    assert all(inside)


def test_counts_are_by_whole_bins_from_the_first_packet_on() -> None:
    assert counts(np.array([100, 101, 109, 110, 135]), 10).tolist() == [3, 1, 0]
    times = poisson(5000)
    bins = counts(times, chosen_bin_ns(times))
    assert len(bins) == 1024 and bins.sum() == 5000


@pytest.mark.parametrize("length", [50, 1000, 300_000])
def test_the_autocorrelation_is_the_plain_formula(length: int) -> None:
    values = np.random.default_rng(1).gamma(2, size=length) + np.sin(np.arange(length))
    acf = autocorrelation(values, 10)
    assert acf is not None
    centred = values - values.mean()
    expected = [(centred[:-k] * centred[k:]).sum() / (centred**2).sum() for k in range(1, 11)]
    assert acf.rho == pytest.approx(expected, abs=1e-9)
    assert acf.sums[-1] == pytest.approx(np.abs(expected).sum())


def test_the_sum_for_independent_values_is_as_said() -> None:
    acf = autocorrelation(np.random.default_rng(1).normal(size=20_000))
    assert acf is not None and acf.sums[-1] == pytest.approx(acf.noise[-1], rel=0.1)
    dependent = autocorrelation(noise(0.9, 20_000, 1)[0])
    assert dependent is not None and dependent.sums[-1] > 5 * dependent.noise[-1]


# --- Cases -----------------------------------------------------------------------------------------------------------


def test_repeated_keeps_every_gap_and_puts_one_mean_gap_between() -> None:
    times = np.array([5, 7, 15])
    assert period_ns(times) == 15
    assert repeated(times, 3).tolist() == [5, 7, 15, 20, 22, 30, 35, 37, 45]


def test_scaled_together_spread_and_by_random_offsets() -> None:
    times = np.array([0, 10, 30, 60])
    assert scaled(times, 2).tolist() == [0, 0, 10, 10, 30, 30, 60, 60]
    assert scaled(times, 2, "spread").tolist() == [0, 10, 30, 40, 50, 60, 70, 100]
    moved = scaled(times, 3, "random_offset", seed=4, offset_ns=8)
    assert len(moved) == 12 and (np.diff(moved) >= 0).all()
    for start, group in zip(times, moved.reshape(4, 3), strict=True):
        assert group[0] == start and (group < start + 8).all()
    assert moved.tolist() == scaled(times, 3, "random_offset", seed=4, offset_ns=8).tolist()
    assert moved.tolist() != scaled(times, 3, "random_offset", seed=5, offset_ns=8).tolist()


def test_random_offsets_are_uniform() -> None:
    times = np.zeros(5000, np.int64)
    offsets = scaled(times, 2, "random_offset", offset_ns=1_000_000)[5000:]
    assert stats.kstest(offsets / 1e6, "uniform").pvalue > 1e-3


def test_the_cases_of_figure_5_7() -> None:
    times = poisson(300)
    names = [case.name for case in five_cases(times, 4, 3)]
    assert names == [
        "as it is",
        "scaled 3, together",
        "repeated 4",
        "repeated 4, scaled 3, together",
        "scaled 3, random_offset",
    ]
    assert [len(case.times_ns) for case in five_cases(times, 4, 3)] == [300, 900, 1200, 3600, 900]
    assert [case.name for case in five_cases(times, 1, 1)] == ["as it is"]
    for start in STARTS:
        assert all((np.diff(case.times_ns) >= 0).all() for case in five_cases(times, 2, 2, start))


def test_scaling_together_skews_the_gaps_and_random_offsets_do_not() -> None:
    """Section 6.3 of the thesis: gaps of zero spoil the distribution, offsets mend it."""
    cases = {case.name: analyse(case.times_ns) for case in five_cases(poisson(3000), 1, 4)}
    together, offset = cases["scaled 4, together"].gaps, cases["scaled 4, random_offset"].gaps
    assert together.zero >= 0.74 * 12_000 and offset.zero < 20
    assert together.ks_exponential > 0.5 > 0.2 > offset.ks_exponential


def test_repeats_are_told_as_such() -> None:
    times = with_counts(np.random.default_rng(1).poisson(20, 512))
    case = list(five_cases(times, 4, 1))[1]
    assert "beyond a pass of" in case.warnings[0]
    assert "periodic" in words(analyse(case.times_ns))


# --- Reading ---------------------------------------------------------------------------------------------------------


def write(path: Path, times: Integers, ng: bool = False) -> Path:
    packets = [Packet(int(time), bytes(60 + number % 7)) for number, time in enumerate(times)]
    path.write_bytes((write_pcapng if ng else write_pcap)(packets))
    return path


@pytest.mark.parametrize("ng", [False, True])
def test_times_are_read_from_captures(tmp_path: Path, ng: bool) -> None:
    times = poisson(500) + 1_700_000_000_000_000_000
    assert (read_arrivals(write(tmp_path / "a.pcap", times, ng)).times_ns == times).all()


@pytest.mark.parametrize(
    ("header", "unit_ns"), [("time_ns", 1), ("x, Time_us", 1000), ("time_s,bytes", 10**9), ("", 10**9)]
)
def test_times_are_read_from_tables(tmp_path: Path, header: str, unit_ns: int) -> None:
    times = np.arange(MIN_PACKETS, dtype=np.int64) * 2 * 10**9
    second = "x" in header
    rows = [f"{7},{time // unit_ns}" if second else f"{time // unit_ns},60" for time in times]
    path = tmp_path / "times.csv"
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n")
    assert (read_arrivals(path).times_ns == times).all()


def test_a_results_folder_is_all_its_captures_or_those_of_one_host(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    one, other = poisson(300, 1), poisson(400, 2)
    write(tmp_path / "captures" / "rx-1-capture-eth1.pcap", one)
    write(tmp_path / "captures" / "rx2-capture-eth1-8100-0005.pcap", other)
    whole = read_arrivals(tmp_path)
    assert (whole.times_ns == np.sort(np.concatenate([one, other]))).all()
    assert "rx-1, rx2 are merged" in whole.notes[0]
    assert (read_arrivals(tmp_path, "rx2").times_ns == other).all()
    with pytest.raises(BadInput, match=r"--host = 'rx3': no capture of this host .*rx-1.*rx2"):
        read_arrivals(tmp_path, "rx3")


def backwards() -> Integers:
    times = poisson(300)
    times[200] = times[199] - 5
    return times


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.pcap", b"GET / HTTP", "is not a capture file"),
        ("a.pcap", b"", "is empty"),
        ("a.pcap", struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1), "0: too few packets"),
        ("a.csv", b"time_s\n1\n2\n", f"2: too few packets .* {MIN_PACKETS} or more"),
        ("a.csv", b"time_s\n1\nx\n", "cannot be read as a table of times"),
        ("a.csv", b"\xff\xfe\n", "cannot be read as a table of times"),
        ("a.csv", b"1\ninf\n", "a time is invalid .allowed: 1970 to 2106"),
        ("a.csv", b"1\nnan\n", "a time is invalid .allowed: 1970 to 2106"),
        ("a.csv", b"time_ns\n-1\n", "a time is invalid .allowed: 1970 to 2106"),
        ("a.csv", b"7\n" * 300, "all packets have the same time"),
        ("a.csv", "\n".join(str(t / 1e9) for t in backwards()).encode(), "time goes backwards at packet 201, by "),
    ],
)
def test_what_cannot_be_analysed_is_told(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadInput, match=message) as caught:
        read_arrivals(path)
    assert str(caught.value).startswith(str(path))


def test_other_things_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no captures"):
        read_arrivals(tmp_path)
    for name in ("none.csv", "none.pcap"):
        with pytest.raises(BadInput, match="there is no such file"):
            read_arrivals(tmp_path / name)
    with pytest.raises(BadInput, match="backwards at packet 201"):
        read_arrivals(write(tmp_path / "b.pcap", backwards()))
    with pytest.raises(BadInput, match="only in a results folder"):
        read_arrivals(write(tmp_path / "c.pcap", poisson(300)), "rx1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimators": ["higuchi"]}, r"--estimator = 'higuchi': unknown .*variance-time, rs, wavelet, whittle"),
        ({"bin_ns": 10 * MS}, f"--bin = '0.01 s': bin out of range .*{LEAST_BINS} bins or more"),
        ({"bin_ns": 1}, "--bin = '1e-09 s': bin out of range"),
        ({"bin_ns": MS // 100, "from_ns": MS // 100}, "--from = '1e-05 s': least scale out of range"),
        ({"from_ns": 300 * MS}, "--from = '0.3 s': least scale out of range"),
    ],
)
def test_options_that_do_not_fit_the_data(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        analyse(poisson(500), **options)
