"""Figures out of what the kernel keeps: percentiles within a bucket's half width, jitter as by definition."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from pktswarm.traffic.counting import tally
from pktswarm.traffic.counting.kernel_structs import CAUSES, RawTally
from pktswarm.traffic.counting.latency_histogram import HISTOGRAM_BUCKETS, LARGEST_ERROR, bucket, middle, percentiles
from pktswarm.traffic.counting.tally import (
    REMEMBERED,
    Jitter,
    Latency,
    Tally,
    delays,
    not_received,
    so_far,
    stamped,
    torn,
    unstamped,
)
from pktswarm.traffic.errors import EngineError


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
    parts = (0.5, 0.9, 0.99, 0.999, 1.0)
    for part, found in zip(parts, percentiles(buckets, parts), strict=True):
        true = values[math.ceil(part * len(values)) - 1]
        assert abs(found - true) <= true * LARGEST_ERROR + 1


def test_an_empty_histogram_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no percentiles"):
        percentiles([0] * HISTOGRAM_BUCKETS, (0.5,))
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
    raw = RawTally(
        packets=100, bytes=6000, distinct=90, duplicated=6, too_late=3, invalid_sequence=1, reordered=4, next=95
    )
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


def a_raw_tally_of_its_own_figures() -> RawTally:
    """No two figures are the same, so that none can stand in another's place."""
    raw = RawTally(packets=1007, bytes=60_420, distinct=900, duplicated=60, too_late=30, invalid_sequence=10, damaged=7)
    raw.reordered, raw.altered, raw.next, raw.first_ns, raw.last_ns, raw.impossible = 41, 52, 950, 11, 13, 3
    raw.latencies, raw.latency_sum_ns, raw.latency_min_ns, raw.latency_max_ns, raw.negative = 4, 8_002, 17, 4_000, 2
    raw.jitter_pairs, raw.jitter_sum_ns, raw.jitter_squares_low = 4, 6, 13
    raw.jitter_rfc3550_16, raw.jitter_clipped = 24, 5
    raw.altered_by[CAUSES.index("ttl")] = 52
    return raw


def test_each_figure_has_its_name() -> None:
    buckets = histogram([17, 1_985, 2_000, 4_000])
    assert stamped(a_raw_tally_of_its_own_figures(), buckets) == Tally(
        packets=1007,
        bytes=60_420,
        first_ns=11,
        last_ns=13,
        distinct=900,
        duplicated=60,
        reordered=41,
        too_late=30,
        invalid_sequence=10,
        altered=52,
        altered_by={"ttl": 52},
        highest=949,
        latency=Latency(4, 17, 2_000.5, middle(bucket(1_985)), 4_000, 4_000, 4_000, 4_000, negative=2),
        jitter=Jitter(4, 1.0, 1.5, clipped=5),
        damaged=7,
        impossible=3,
    )


def test_missing_are_the_numbers_up_to_the_highest_that_have_not_come() -> None:
    found = stamped(a_raw_tally_of_its_own_figures(), None)
    assert found.missing == 950 - 900 - 7, "a packet whose number is damaged has come"


def test_what_was_not_counted_is_none_and_what_did_not_happen_is_0() -> None:
    found = Tally(3, 180)
    assert found.to_json() == {
        **dict.fromkeys(("first_ns", "last_ns", "distinct", "duplicated", "reordered", "too_late", "invalid_sequence")),
        **dict.fromkeys(("altered", "altered_by", "highest", "latency", "jitter")),
        **{"packets": 3, "bytes": 180, "damaged": 0, "impossible": 0},
    }
    assert (Latency(1, 2, 3.0, 4, 5, 6, 7, 8).negative, Jitter(1, 2.0, 3.0).clipped) == (0, 0)
    first = RawTally(packets=1, bytes=60, distinct=1, next=1, first_ns=7, last_ns=7)
    assert (stamped(first, None).highest, stamped(first, None).first_ns) == (0, 7)


def test_a_frame_is_remembered_for_as_many_numbers_as_the_program_has_bits() -> None:
    """One word of them may be only partly behind the highest number."""
    assert REMEMBERED == 131_008


def test_samples_have_what_needs_no_more_than_reading() -> None:
    raw = a_raw_tally_of_its_own_figures()
    read = {"packets": 1007, "bytes": 60_420}
    numbers = {"distinct": 900, "duplicated": 60, "reordered": 41, "altered": 52, "missing": 950 - 900 - 7}
    times = {"latency_packets": 4, "latency_sum_ns": 8_002, "latency_min_ns": 17, "latency_max_ns": 4_000}
    assert so_far(raw, numbered=False, timed=True) == read
    assert so_far(raw, numbered=True, timed=False) == read | numbers
    assert so_far(raw, numbered=True, timed=True) == read | numbers | times
    raw.latencies = 0
    assert so_far(raw, numbered=True, timed=True) == read | numbers
    raw.invalid_sequence += 1
    assert so_far(raw, numbered=False, timed=False) == read
    with pytest.raises(EngineError, match=r"packets 1007, .* invalid_sequence 11, damaged 7$"):
        so_far(raw, numbered=True, timed=False)


def test_a_read_in_the_midst_of_a_frame_is_seen() -> None:
    raw = a_raw_tally_of_its_own_figures()
    raw.done = raw.packets
    assert not torn(raw, stamped=True) and not torn(raw, stamped=False)
    raw.distinct += 1
    assert torn(raw, stamped=True) and not torn(raw, stamped=False)
    raw.distinct, raw.done = raw.distinct - 1, raw.packets - 1
    assert torn(raw, stamped=True) and torn(raw, stamped=False)


@pytest.mark.parametrize(
    ("sent", "distinct", "damaged", "expected"),
    [(100, 90, 0, 10), (100, 90, 4, 6), (100, 90, 10, 0), (100, 90, 11, 0), (100, 101, 5, -1), (100, 100, 5, 0)],
)
def test_a_packet_whose_number_is_damaged_is_received(sent: int, distinct: int, damaged: int, expected: int) -> None:
    assert not_received(sent, distinct, damaged) == expected
    assert Tally(distinct + damaged, 0, distinct=distinct, damaged=damaged).lost(sent) == expected


def test_latencies_are_shifted_by_a_constant() -> None:
    found = Latency(9, 10, 20.5, 30, 40, 50, 60, 70, negative=2).shifted(-15)
    assert found == Latency(9, -5, 5.5, 15, 25, 35, 45, 55, negative=2)


def test_delays_are_what_percentiles_are_made_of() -> None:
    raw = RawTally(latencies=5, latency_min_ns=-40, latency_max_ns=900)
    buckets = histogram([55, 60, 60, 500, 1_007])
    assert delays(raw, buckets, bias_ns=100) == [[-40, 1], [-40, 2], [middle(bucket(500)) - 100, 1], [900, 1]]
    assert delays(raw, [0] * HISTOGRAM_BUCKETS) == []
    raw = RawTally(latencies=2, latency_min_ns=50, latency_max_ns=70)
    assert delays(raw, histogram([50, 70])) == [[50, 1], [70, 1]]


def test_a_tally_and_its_histogram_may_be_read_at_two_moments() -> None:
    """A sample is of running counts: one of the two may have a first frame that the other has not."""
    assert tally.latency(RawTally(latencies=1), [0] * HISTOGRAM_BUCKETS) is None
    assert tally.latency(RawTally(), histogram([5])) is None
    both = tally.latency(raw_times([5, 9]), histogram([5, 9]))
    assert both is not None and (both.p50_ns, both.p90_ns) == (5, 9)


def test_percentiles_stay_between_the_least_and_the_largest() -> None:
    """The middles of their buckets may lie outside: of the two it is one below the least, one above the largest."""
    least, largest = 1_015_700, 1_984_000
    assert middle(bucket(least)) < least and middle(bucket(largest)) > largest
    found = stamped(raw_times([least, least, largest]), histogram([least, least, largest])).latency
    assert found is not None and (found.p50_ns, found.p999_ns) == (least, largest)


def test_the_first_rank_is_the_least_value() -> None:
    buckets = histogram([3, 5, 5])
    assert percentiles(buckets, (0, 1e-9, 0.33, 0.34, 1)) == [3, 3, 3, 5, 5]
