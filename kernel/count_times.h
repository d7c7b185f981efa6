/* SPDX-License-Identifier: GPL-2.0-only */
/* Latency and jitter of a leg, from the times in the stamps. */
#pragma once

#include "count_histogram.h"
#include "count_maps.h"

/* Relative drift of two free-running clocks: up to 2^-13 (122 ppm). */
#define DRIFT_SHIFT 13
#define JITTER_MOST 0xffffffffULL

static __always_inline void take_latency(struct tally *t, struct histogram *h, __s64 latency_ns, __u64 bias_ns)
{
	__u32 at = bucket(latency_ns + (__s64)bias_ns);

	if (!t->latencies || latency_ns < t->latency_min_ns)
		t->latency_min_ns = latency_ns;
	if (!t->latencies || latency_ns > t->latency_max_ns)
		t->latency_max_ns = latency_ns;
	t->latencies++;
	t->latency_sum_ns += latency_ns;
	t->negative += latency_ns + (__s64)bias_ns < 0;
	if (at < HISTOGRAM_BUCKETS)
		h->buckets[at]++;
}

/* J(n) is the difference of two transit times, so the clocks' offset cancels out. */
static __always_inline void take_jitter(struct tally *t, __s64 transit_ns)
{
	__s64 difference = nearest(transit_ns - t->transit_ns);
	__u64 size = difference < 0 ? -difference : difference;
	__u64 square;

	if (size > JITTER_MOST) {
		t->jitter_clipped++;
		size = JITTER_MOST;
		difference = difference < 0 ? -(__s64)JITTER_MOST : JITTER_MOST;
	}
	square = size * size;
	t->jitter_pairs++;
	t->jitter_sum_ns += difference;
	t->jitter_squares_low += square;
	t->jitter_squares_high += t->jitter_squares_low < square;
	t->jitter_rfc3550_16 += size - ((t->jitter_rfc3550_16 + 8) >> 4);
}

/* Whether the error bound of the clocks, their drift since the start, and the start of the run allow this latency. */
static __always_inline int possible(const struct expectation *e, const struct arrival *a)
{
	__u64 since_ns = a->now_ns - settings.armed_ns;
	__s64 slack_ns = e->bias_ns + (since_ns >> DRIFT_SHIFT);

	return a->latency_ns >= -slack_ns && a->latency_ns <= (__s64)since_ns + slack_ns;
}

/* Returns whether the frame has a latency. */
static __always_inline int take_time(struct tally *t, struct histogram *h, const struct expectation *e,
				     const struct arrival *a)
{
	if (e->timed && !possible(e, a)) {
		t->impossible++;
		return 0;
	}
	if (e->timed)
		take_latency(t, h, a->latency_ns, e->bias_ns);
	/* Where not all are timed, a pair is two packets without another one of the leg between them. */
	if (t->moments && (settings.timed_every < 2 || t->distinct == t->moment_distinct + 1))
		take_jitter(t, a->transit_ns);
	t->transit_ns = a->transit_ns;
	if (settings.timed_every > 1)
		t->moment_distinct = t->distinct;
	t->moments++;
	return e->timed;
}
