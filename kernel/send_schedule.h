/* SPDX-License-Identifier: GPL-2.0-only */
/* Which leg is due next, and when: pace, recorded times, what is left out when it is late. */
#pragma once

#include "send_maps.h"

static __always_inline __u64 due_of(__u32 index)
{
	return state.due_ns[index & (MAX_LEGS - 1)];
}

/* Sets the due time of a leg, and replays its matches of the tournament. */
static __always_inline void set_due(__u32 index, __u64 due_ns)
{
	__u32 node = state.tree_leaves + index;

	state.due_ns[index & (MAX_LEGS - 1)] = due_ns;
	for (node >>= 1; node; node >>= 1) {
		__u32 left, right;

		node &= MAX_LEGS - 1;
		left = state.winner[2 * node];
		right = state.winner[2 * node + 1];
		state.winner[node] = due_of(left) <= due_of(right) ? left : right;
	}
}

/* Records the time since the last run, if a frame was due. */
static __always_inline void note_absence(__u64 due_ns, __u64 now)
{
	__u64 since = due_ns > state.last_ns ? due_ns : state.last_ns;

	if (now > since && now - since > state.longest_absence_ns)
		state.longest_absence_ns = now - since;
}

/*
 * Returns the time if `due_ns` has passed, else 0. It does not wait for a frame that is not due soon: user space then
 * sleeps, after the remaining runs that it asked for.
 */
static __always_inline __u64 wait(__u64 due_ns)
{
	__u64 now;

	/* In a batch frames follow each other immediately, and leave the kernel 16 at a time: a reading serves as many. */
	if (due_ns <= state.last_ns && (state.runs - 1) & settings.reading_mask)
		return state.last_ns;
	now = bpf_ktime_get_ns();
	note_absence(due_ns, now);
	if (!settings.reading_mask && (now + state.soon_ns >= due_ns || due_ns == state.surely_ns))
		for (int i = 0; now < due_ns && i < SPINS; i++)
			now = bpf_ktime_get_ns();
	state.last_ns = now;
	return now < due_ns ? 0 : now;
}

/* The due time `frames` frames later. */
static __always_inline __u64 later(struct leg *leg, __u64 due_ns, __u64 frames)
{
	/*
	 * `frames` is 1 except after a pause: whole nanoseconds and the fraction are multiplied separately, so neither
	 * overflows.
	 */
	__u64 gap = leg->gap;
	__u64 fraction = leg->fraction + (gap & ((1 << GAP_FRACTION_BITS) - 1)) * frames;

	leg->fraction = fraction & ((1 << GAP_FRACTION_BITS) - 1);
	return due_ns + (gap >> GAP_FRACTION_BITS) * frames + (fraction >> GAP_FRACTION_BITS);
}

/* x * factor / 2^shift, truncated; the product can have 96 bits. */
static __always_inline __u64 scale(__u64 x, __u32 factor, __u32 shift)
{
	__u64 high = (x >> 32) * factor, low = (x & 0xffffffff) * factor;

	if (shift < 32)
		return (high << (32 - shift)) + (low >> shift);
	return (high + (low >> 32)) >> ((shift - 32) & 63);
}

/* The gap to a paced leg's next frame: that of the step, or a random one, drawn by its number (splitmix64). */
static __always_inline __u64 draw_gap(struct leg *leg)
{
	__u64 x, *factor;
	__u32 key;

	if (!leg->gaps)
		return leg->gap;
	x = leg->seed + ++leg->drawn * 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	x ^= x >> 31;
	key = leg->first_gap + ((x >> 32) * leg->gaps >> 32);
	factor = bpf_map_lookup_elem(&gaps, &key);
	return factor ? scale(leg->gap, *factor, GAP_TABLE_BITS) : leg->gap;
}

/* Returns `due_ns`, or the end of the step if that is earlier: the rest of the gap belongs to the next step. */
static __always_inline __u64 until_step_ends(struct leg *leg, __u64 due_ns)
{
	if (due_ns < leg->step_end_ns)
		return due_ns;
	leg->left = ((due_ns - leg->step_end_ns) << GAP_FRACTION_BITS) + leg->fraction;
	leg->crossing = 1;
	return leg->step_end_ns;
}

static __always_inline __u64 next_in_pace(struct leg *leg, __u64 due_ns)
{
	__u64 gap = draw_gap(leg);
	__u64 fraction = leg->fraction + (gap & ((1 << GAP_FRACTION_BITS) - 1));

	leg->fraction = fraction & ((1 << GAP_FRACTION_BITS) - 1);
	return until_step_ends(leg, due_ns + (gap >> GAP_FRACTION_BITS) + (fraction >> GAP_FRACTION_BITS));
}

/*
 * Enters the next step of a pace. Returns the leg's due time in it. One step per run, so that short ones need no loop.
 */
static __always_inline __u64 next_step(struct leg *leg)
{
	__u64 begin_ns = leg->step_end_ns;
	struct step *step;
	__u32 key;

	if (++leg->step >= leg->steps) {
		leg->step = 0;
		leg->pass_ns += leg->period_ns;
	}
	key = leg->first_step + leg->step;
	step = bpf_map_lookup_elem(&steps, &key);
	if (!step)
		return NEVER;
	leg->step_end_ns = step->until_ns == NEVER ? NEVER : leg->pass_ns + step->until_ns;
	leg->left = scale(leg->left, step->factor, step->shift);
	leg->gap = step->gap;
	if (!leg->gap)
		return leg->step_end_ns;
	leg->crossing = 0;
	leg->fraction = leg->left & ((1 << GAP_FRACTION_BITS) - 1);
	return until_step_ends(leg, begin_ns + (leg->left >> GAP_FRACTION_BITS));
}

/* A trace, or a sequence. */
static __always_inline int has_records(const struct leg *leg)
{
	return (settings.traces || settings.sequences) && leg->records;
}

static __always_inline int is_sequence(const struct leg *leg)
{
	return settings.sequences && leg->sequence_of_records;
}

static __always_inline int is_trace(const struct leg *leg)
{
	return settings.traces && leg->records && !leg->sequence_of_records;
}

static __always_inline struct record *next_record(struct leg *leg)
{
	__u32 key = leg->first_record + leg->record;

	return bpf_map_lookup_elem(&records, &key);
}

/* Returns the due time of a trace's next frame. */
static __always_inline __u64 next_in_trace(struct leg *leg)
{
	struct record *record;

	if (++leg->record >= leg->records) {
		leg->record = 0;
		leg->pass_ns += leg->period_ns;
	}
	record = next_record(leg);
	return record ? leg->pass_ns + record->due_ns : NEVER;
}

/* Returns the leg's next due time after a frame, sent or skipped. */
static __always_inline __u64 next_due(struct leg *leg, __u64 due_ns, __u64 now)
{
	int recorded = has_records(leg);
	__u64 next_ns = recorded ? next_in_trace(leg) : 0;

	if (leg->remaining != NEVER && --leg->remaining == 0) {
		if (!leg->by_time)
			return NEVER;
		leg->remaining = NEVER;
	}
	if (!leg->timed) /* after all frames due by now: legs without a rate take turns and yield to the others */
		return now;
	if (recorded)
		return next_ns;
	if (++leg->in_burst < leg->burst)
		return due_ns;
	leg->in_burst = 0;
	if (settings.steps && leg->steps)
		return next_in_pace(leg, due_ns);
	return later(leg, due_ns, 1);
}

/* Skips all of a stream's frames that are due by now, except the last. Returns the due time of that one. */
static __always_inline __u64 skip_many(struct leg *leg, __u64 due_ns, __u64 now)
{
	__u64 bursts = ((now - due_ns) << 8) / ((leg->gap >> (GAP_FRACTION_BITS - 8)) | 1);
	__u64 missed = bursts * leg->burst;

	if (missed >= leg->remaining)
		return due_ns;
	leg->skipped += missed;
	if (leg->remaining != NEVER)
		leg->remaining -= missed;
	return later(leg, due_ns, bursts);
}

/* Moves the passes and steps of a leg; the caller moves its due time. */
static __always_inline void move(struct leg *leg, __u64 by_ns)
{
	leg->pass_ns += by_ns;
	if (leg->step_end_ns != NEVER)
		leg->step_end_ns += by_ns;
}

/* A leg that is held looks again later. All that it would do is moved by that time, but for its end. */
static __always_inline void hold(struct leg *leg, __u32 index, __u64 due_ns, __u64 now)
{
	__u64 by_ns = now + HELD_NS - due_ns;

	state.held = 1;
	move(leg, by_ns);
	set_due(index, due_ns + by_ns);
}

/* After a long delay the schedule continues from now, its end included: a burst would be another load. */
static __always_inline __u64 stretch(struct leg *leg, __u64 due_ns, __u64 now)
{
	__u64 by_ns = now - due_ns;

	if (by_ns < leg->stretch_ns || leg->stretched_ns + by_ns > leg->most_stretched_ns)
		return due_ns;
	leg->stretched_ns += by_ns;
	move(leg, by_ns);
	return now;
}

/* Whether a frame is late. */
static __always_inline int late(struct leg *leg, __u64 due_ns, __u64 now)
{
	if (now - due_ns > leg->latest_ns)
		leg->latest_ns = now - due_ns;
	return now - due_ns > leg->late_ns;
}

/* Skips the frame that is due; in a stream with a steady rate, all that are as late. */
static __always_inline int skip(struct leg *leg, __u32 index, __u64 due_ns, __u64 now)
{
	if (!has_records(leg) && !leg->steps)
		due_ns = skip_many(leg, due_ns, now);
	leg->skipped++;
	set_due(index, next_due(leg, due_ns, now));
	return NOTHING_SENT;
}
