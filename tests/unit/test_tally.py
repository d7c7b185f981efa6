"""Figures out of what the kernel keeps: percentiles within a bucket's half width, jitter as by definition."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from traffic import tally
from traffic.counters import CAUSES, HISTOGRAM_BUCKETS, RawTally
from traffic.errors import EngineError
from traffic.tally import LARGEST_ERROR, Tally, bucket, middle, percentile, stamped, unstamped


def histogram(values: Iterable[int]) -> list[int]:
    buckets = [0] * HISTOGRAM_BUCKETS
    for value in values:
        buckets[bucket(value)] += 1
    return buckets


def raw_times(latencies: list[int]) -> RawTally:
    """As the program keeps them, by definition."""
    steps = [b - a for a, b in pairwise(latencies)]
    squares = sum(step * step for step in steps)
    return RawTally(
        packets=len(latencies),
        distinct=len(latencies),
        next=len(latencies),
        latencies=len(latencies),
        latency_sum_ns=sum(latencies),
        latency_min_ns=min(latencies),
        latency_max_ns=max(latencies),
        jitter_pairs=len(steps),
        jitter_sum_ns=sum(steps),
        jitter_squares_low=squares & (1 << 64) - 1,
        jitter_squares_high=squares >> 64,
    )


def test_a_bucket_is_never_further_off_than_one_percent() -> None:
    assert LARGEST_ERROR < 0.01
    for bit in range(40):
        for value in {1 << bit, (1 << bit) + 1, (2 << bit) - 1, random.Random(bit).randrange(1 << bit, 2 << bit)}:
            assert abs(middle(bucket(value)) - value) <= value * LARGEST_ERROR, value


def test_below_128_ns_a_bucket_is_exact() -> None:
    assert [middle(bucket(value)) for value in range(128)] == list(range(128))


def test_buckets_follow_one_another_without_a_gap() -> None:
    found = [bucket(value) for value in range(100_000)]
    assert all(b - a in (0, 1) for a, b in pairwise(found))
    assert bucket((1 << 40) - 1) == HISTOGRAM_BUCKETS - 1
    assert bucket(1 << 50) == HISTOGRAM_BUCKETS - 1
    assert bucket(-5) == 0
    middles = [middle(index) for index in range(HISTOGRAM_BUCKETS)]
    assert middles == sorted(set(middles))
    assert [bucket(value) for value in middles] == list(range(HISTOGRAM_BUCKETS))


@pytest.mark.parametrize("seed", range(4))
def test_percentiles_are_the_nearest_rank_within_the_error(seed: int) -> None:
    draw = random.Random(seed)
    values = sorted(int(draw.lognormvariate(11, 2)) for _ in range(5000))
    buckets = histogram(values)
    for part in (0.5, 0.9, 0.99, 0.999, 1.0):
        true = values[math.ceil(part * len(values)) - 1]
        assert abs(percentile(buckets, part) - true) <= true * LARGEST_ERROR + 1


def test_an_empty_histogram_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no percentiles"):
        percentile([0] * HISTOGRAM_BUCKETS, 0.5)
    assert tally.latency(RawTally(), [0] * HISTOGRAM_BUCKETS) is None
    assert tally.jitter(RawTally()) is None


def test_one_frames_latency_is_all_of_its_percentiles() -> None:
    found = stamped(raw_times([1_000_003]), histogram([1_000_003])).latency
    assert found is not None
    assert {found.min_ns, found.p50_ns, found.p90_ns, found.p99_ns, found.p999_ns, found.max_ns} == {1_000_003}
    assert found.mean_ns == 1_000_003


def test_clocks_that_are_apart_are_told() -> None:
    raw = raw_times([-50, -20, 10])
    raw.negative = 2
    found = stamped(raw, histogram([-50, -20, 10])).latency
    assert found is not None and (found.negative, found.min_ns, found.mean_ns) == (2, -50, -20)
    assert found.p50_ns <= found.max_ns == 10


def test_a_bias_in_the_buckets_is_taken_off_again() -> None:
    """So latencies that clocks apart make negative have percentiles too."""
    found = stamped(raw_times([-50, -20, 10]), histogram([50, 80, 110]), bias_ns=100).latency
    assert found is not None
    assert (found.min_ns, found.p50_ns, found.p90_ns, found.negative) == (-50, -20, 10, 0)


def test_jitter_is_the_standard_deviation_of_the_differences() -> None:
    latencies = [100, 350, 200, 200, 900]
    found = stamped(raw_times(latencies), None).jitter
    assert found is not None and found.pairs == 4
    assert found.sd_ns == pytest.approx(math.sqrt((50**2 + 350**2 + 200**2 + 500**2) / 4))


def test_jitter_holds_where_64_bits_and_floats_would_not() -> None:
    """A constant difference has no deviation, however large; squares of seconds overflow 64 bits."""
    found = stamped(raw_times([n * 3_000_000_000 for n in range(1001)]), None).jitter
    assert found is not None and found.sd_ns == 0
    found = stamped(raw_times([(n % 2) * 4_000_000_000 for n in range(1001)]), None).jitter
    assert found is not None and found.sd_ns == pytest.approx(4e9)


def test_rfc3550s_estimate_is_kept_in_sixteenths() -> None:
    raw = raw_times([0, 160])
    raw.jitter_rfc3550_16 = 160
    found = stamped(raw, None).jitter
    assert found is not None and found.rfc3550_ns == 10.0


def a_raw_tally() -> RawTally:
    raw = RawTally(packets=100, bytes=6000, distinct=90, duplicated=6, too_late=3, astray=1, reordered=4, next=95)
    raw.first_ns, raw.last_ns, raw.altered = 5, 9, 7
    raw.altered_by[CAUSES.index("ttl")], raw.altered_by[CAUSES.index("payload")] = 4, 5
    return raw


def test_lost_is_sent_and_never_received() -> None:
    found = stamped(a_raw_tally(), None)
    assert (found.lost(100), found.missing, found.highest) == (10, 5, 94)
    assert (found.first_ns, found.last_ns, found.latency) == (5, 9, None)
    assert found.altered == 7 and found.altered_by == {"ttl": 4, "payload": 5}


def test_nothing_received_is_everything_lost() -> None:
    found = stamped(RawTally(), None)
    assert (found.lost(10), found.missing, found.highest, found.first_ns) == (10, 0, None, None)


def test_an_unstamped_leg_has_no_figures_that_were_not_measured() -> None:
    found = unstamped(RawTally(packets=3, bytes=180, first_ns=1, last_ns=2))
    assert (found.packets, found.bytes, found.first_ns, found.last_ns) == (3, 180, 1, 2)
    assert found.distinct is found.duplicated is found.altered is found.missing is found.lost(3) is None


def test_counts_that_do_not_add_up_are_an_error() -> None:
    raw = a_raw_tally()
    raw.distinct += 1
    with pytest.raises(EngineError, match="do not add up: packets 100, distinct 91"):
        stamped(raw, None)


def test_a_tally_travels_as_json() -> None:
    latencies = [1000, 2000, 4000]
    for found in (
        stamped(raw_times(latencies), histogram(latencies)),
        stamped(a_raw_tally(), None),
        unstamped(RawTally(packets=1)),
    ):
        assert Tally.from_json(found.to_json()) == found
