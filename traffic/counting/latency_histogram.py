"""The buckets of latency histograms: exact below 128 ns, then 64 for each power of two.

kernel/count_histogram.h has the same.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

HISTOGRAM_BITS, HISTOGRAM_TOP_BIT = 6, 40
"""The width of a bucket is at most 1/2**HISTOGRAM_BITS of its values; the last one has all from 2**HISTOGRAM_TOP_BIT ns
on, 18 minutes."""
HISTOGRAM_BUCKETS = (HISTOGRAM_TOP_BIT - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS
LARGEST_ERROR = 0.5 / (1 << HISTOGRAM_BITS)
"""Largest relative error of a percentile: half a bucket, whose width is at most 1/64 of its values."""


def bucket(value_ns: int) -> int:
    """The bucket of a latency: exact below 128 ns, then 64 buckets for each power of two."""
    shift = max(0, max(value_ns, 0).bit_length() - 1 - HISTOGRAM_BITS)
    return min((shift << HISTOGRAM_BITS) + (max(value_ns, 0) >> shift), HISTOGRAM_BUCKETS - 1)


def middle(index: int) -> int:
    """The representative value of a bucket: at most LARGEST_ERROR from any value in it."""
    shift = max(0, (index >> HISTOGRAM_BITS) - 1)
    low = (index - (shift << HISTOGRAM_BITS)) << shift
    return low + ((1 << shift) >> 1)


def percentiles(buckets: Sequence[int], parts: Iterable[float]) -> list[int]:
    """The percentile of each part by nearest rank: the least value that so many of all values do not exceed. ValueError
    where there are no values."""
    up_to = list(accumulate(buckets))
    if not up_to or not up_to[-1]:
        raise ValueError("an empty histogram has no percentiles")
    return [middle(bisect_left(up_to, max(1, math.ceil(part * up_to[-1])))) for part in parts]
