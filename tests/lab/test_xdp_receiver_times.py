"""The counting program's latency and jitter, and the structs that both sides share."""

from __future__ import annotations

import ctypes
import os
import re
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.counting.kernel_structs import (
    CAUSE_SLOTS,
    CAUSES,
    SHARED,
    UNMATCHED_KINDS,
)
from pktswarm.traffic.counting.latency_histogram import bucket, percentiles
from xdp_bench import (
    Bench,
    fed,
    noise_ns,
    structs,
)
from xdp_frames import (
    ROOT,
    a_leg,
    stamped,
)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]


def test_latency_and_jitter_follow_the_stamps(bench: Callable[..., Bench]) -> None:
    leg, one = a_leg(), bench(a_leg())
    least = [1_000_000 * (n % 100) for n in range(1000)]
    most = fed(one, least, lambda n, time_ns: stamped(leg, n, time_ns))
    found = one.tally()
    assert found.latency is not None and found.jitter is not None
    assert found.latency.frames == 1000
    assert 0 < found.latency.min_ns <= min(most)
    assert max(least) <= found.latency.max_ns <= max(most)
    # A percentile is the middle of a bucket, at most 0.8 % off.
    for ours, place in ((found.latency.p50_ns, 499), (found.latency.p90_ns, 899)):
        assert 0.992 * sorted(least)[place] <= ours <= 1.008 * sorted(most)[place]
    steps, noise = [b - a for a, b in pairwise(least)], noise_ns(least, most)
    assert found.jitter.pairs == 999
    assert abs(found.jitter.sd_ns - statistics.pstdev(steps)) <= statistics.fmean(e * e for e in noise) ** 0.5
    estimate = bound = 0.0
    for step, error in zip(steps, noise, strict=True):
        estimate += (abs(step) - estimate) / 16
        bound += (error - bound) / 16
    assert abs(found.jitter.rfc3550_ns - estimate) <= bound


def test_a_duplicate_has_no_latency(bench: Callable[..., Bench]) -> None:
    leg, one = a_leg(), bench(a_leg())
    one.feed([stamped(leg, 0, 1), stamped(leg, 0, 1)])
    found = one.tally()
    assert found.latency and found.latency.frames == 1 and found.jitter is None


def test_without_a_clock_offset_no_latency_is_invented(bench: Callable[..., Bench]) -> None:
    leg = a_leg()
    one = bench(leg, offsets_ns={})
    one.feed(stamped(leg, n, time.monotonic_ns()) for n in range(3))
    assert one.tally().distinct == 3 and one.tally().latency is None


def test_both_sides_have_the_same_structs(program: Path) -> None:
    found = structs(program)
    for name, ours in SHARED.items():
        size, members = found[name]
        assert size == ctypes.sizeof(ours), name
        assert members == {field[0]: getattr(ours, field[0]).offset for field in ours._fields_}, name
    header = (ROOT / "kernel/count.h").read_text()
    assert re.findall(r"^\tCAUSE_(\w+),", header, re.M) == [name.upper() for name in CAUSES]
    assert f"CAUSES = {CAUSE_SLOTS}," in header
    assert len(re.findall(r"^\tUNMATCHED_(\w+),", header, re.M)) == len(UNMATCHED_KINDS)


def test_python_counts_a_latency_where_the_program_does(bench: Callable[..., Bench]) -> None:
    leg, one = a_leg(), bench(a_leg())
    # So long ago that the program's own time makes no difference to the bucket.
    one.feed(stamped(leg, n, time.monotonic_ns() - 10_000_000_000) for n in range(50))
    buckets = one.receiver.figures.buckets(0)
    found = one.tally().latency
    assert found is not None and sum(buckets) == 50
    assert buckets[bucket(found.min_ns)] > 0 and buckets[bucket(found.max_ns)] > 0
    (median_ns,) = percentiles(buckets, (0.5,))
    assert abs(median_ns - found.mean_ns) <= 0.01 * found.mean_ns
