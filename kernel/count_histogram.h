/* SPDX-License-Identifier: GPL-2.0-only */
/* The buckets of latency histograms; traffic/counting/latency_histogram.py has the same. */
#pragma once

#include <linux/types.h>

/* Log-linear: exact to 128 ns, then 64 buckets for each power of two, up to 2^40 ns (18 minutes). */
#define HISTOGRAM_BITS 6
#define HISTOGRAM_TOP_BIT 40
#define HISTOGRAM_BUCKETS ((HISTOGRAM_TOP_BIT - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS)

static __always_inline __u32 bucket(__s64 latency_ns)
{
	__u64 rest = latency_ns < 0 ? 0 : latency_ns;
	__u64 value = rest;
	__u32 top = 0, shift;

	if (value >= 1ULL << HISTOGRAM_TOP_BIT)
		return HISTOGRAM_BUCKETS - 1;
	/* The highest bit, without a branch, of which the verifier would follow both ways. */
	shift = (rest > 0xffffffff) << 5; rest >>= shift; top += shift;
	shift = (rest > 0xffff) << 4; rest >>= shift; top += shift;
	shift = (rest > 0xff) << 3; rest >>= shift; top += shift;
	shift = (rest > 0xf) << 2; rest >>= shift; top += shift;
	shift = (rest > 3) << 1; rest >>= shift; top += shift;
	top += rest > 1;
	shift = top > HISTOGRAM_BITS ? top - HISTOGRAM_BITS : 0;
	return (shift << HISTOGRAM_BITS) + (value >> shift);
}
