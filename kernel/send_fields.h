/* SPDX-License-Identifier: GPL-2.0-only */
/* The next frame of a leg, made of its last one: fields that vary, stamp, checksums. */
#pragma once

#include "pktswarm.h"
#include "send_maps.h"

struct change {
	struct leg *leg;
	struct slot *slot;
	__u64 sum[MAX_CHECKSUMS]; /* increase of the sums, not reduced */
	__u64 payload; /* and of the stamp's sum of the payload */
};

static __always_inline __u64 draw(struct leg *leg)
{
	__u64 x = leg->random; /* xorshift64* (Vigna, 2014) */

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	leg->random = x;
	return x * 0x2545f4914f6cdd1dULL;
}

/*
 * Writes `bits` under `mask` into a window, and adds the change to the sums. Returns the increase of the sum of the
 * window's two 32-bit words, modulo 2^32 - 1: below 2^33.
 */
static __always_inline __u64 put(struct change *change, __u32 window, __u64 mask, __u64 bits, const __u16 *weight)
{
	__u64 before, after, growth;
	__u64 *place;

	if (window > SLOT_BYTES - WINDOW_BYTES)
		return 0;
	place = (__u64 *)(change->slot->bytes + window);
	before = bpf_be64_to_cpu(*place);
	after = (before & ~mask) | (bits & mask);
	*place = bpf_cpu_to_be64(after);
	/* ~before is -before in this arithmetic. Below 2^33, so that 2^15 of them times a weight fit into 64 bits. */
	growth = (__u64)sum32(after) + sum32(~before);
	for (int i = 0; i < MAX_CHECKSUMS; i++)
		change->sum[i] += growth * weight[i];
	return growth;
}

/* Advances a counter to the next frame. */
static __always_inline void count_on(struct rule *rule)
{
	__u64 next = rule->position + 1;

	if (rule->stays) {
		rule->stays--;
		return;
	}
	rule->stays = rule->stay;
	rule->position = next < rule->count ? next : 0;
}

static __always_inline int has_mode(enum rule_mode mode)
{
	return settings.modes >> mode & 1;
}

/* The next value of a rule. */
static __always_inline __u64 choose(struct leg *leg, struct rule *rule)
{
	__u64 value;

	if (rule->mode == RULE_COUNT) {
		count_on(rule);
	} else if (has_mode(RULE_RANDOM) && rule->mode == RULE_RANDOM) {
		value = draw(leg);
		rule->position = rule->count ? value % rule->count : value;
	} else if (has_mode(RULE_LINKED) && rule->mode == RULE_LINKED) {
		value = leg->rule[rule->link & (MAX_RULES - 1)].position;
		rule->position = value < rule->count ? value : value % rule->count; /* divisions are expensive */
	} else if (settings.sequences) {
		rule->position = rule->mode == RULE_USER ? leg->user : leg->frame_bytes;
	}
	if (settings.tables && rule->table) {
		__u32 key = rule->first + rule->position;
		__u64 *entry = bpf_map_lookup_elem(&table, &key);

		return entry ? *entry : 0;
	}
	return rule->first + rule->position * rule->step;
}

/* Writes the stamp. Its changes add up to zero in any checksum over it: see struct stamp. */
static __always_inline void stamp(struct leg *leg, struct slot *slot, __u64 now)
{
	struct stamp *stamp = (void *)slot->bytes + leg->stamp;
	__u64 stream;

	if (leg->stamp > SLOT_BYTES - sizeof(*stamp))
		return;
	stream = bpf_be64_to_cpu(*stamp_number(stamp)) & ~STAMP_MASK;
	write_stamp(stamp, stream | (leg->sequence & STAMP_MASK), now);
}

#ifndef SEND_WITHOUT_NOISE
/* Draws one window of noise; the last one ends with the noise. */
static long draw_window(__u32 index, struct change *change)
{
	struct leg *leg = change->leg;
	__u32 window = leg->noise.start + index * WINDOW_BYTES;
	__u32 left = change->slot->noise_stop - window;
	__u64 mask = left < WINDOW_BYTES ? ~(~0ULL >> (left & 7) * 8) : ~0ULL;

	/* The windows begin with the checked payload, so their words are its words. */
	change->payload += put(change, window, mask, draw(leg), leg->noise.weight);
	return 0;
}

/* Updates the stamp's checksum after noise: the previous one plus the increase of the payload's sum. */
static __always_inline void check_payload(struct change *change)
{
	struct leg *leg = change->leg;
	__u32 window = leg->stamp + sizeof(struct stamp_checked) - WINDOW_BYTES;
	__u64 before;

	if (window > SLOT_BYTES - WINDOW_BYTES)
		return;
	before = bpf_be64_to_cpu(*(__u64 *)(change->slot->bytes + window));
	put(change, window, 0xffffffff, sum32((before & 0xffffffff) + change->payload), leg->stamp_weight);
}
#endif

static __always_inline void mend(struct change *change, const struct sum *sum, __u64 growth)
{
	__be16 *place;
	__u16 value;

	if (!growth || sum->offset > SLOT_BYTES - 2)
		return;
	place = (__be16 *)(change->slot->bytes + sum->offset);
	/* An increase of zero is 0xffff, never 0: so is the new sum. */
	value = ~sum16(growth + (__u16)~bpf_ntohs(*place));
	*place = bpf_htons(!value && sum->zero_is_ones ? 0xffff : value);
}

/* Builds a stream's next frame in its slot. */
static __always_inline void make(struct leg *leg, struct slot *slot, __u64 now)
{
	struct change change = { .leg = leg, .slot = slot };

	for (int i = 0; i < MAX_RULES && i < settings.rules && i < leg->rules; i++) {
		struct rule *rule = &leg->rule[i];

		put(&change, rule->window, rule->mask, choose(leg, rule) << rule->shift, rule->weight);
	}
#ifndef SEND_WITHOUT_NOISE
	if (settings.noise && slot->noise_windows) {
		bpf_loop(slot->noise_windows, draw_window, &change, 0);
		if (leg->checked)
			check_payload(&change);
	}
#endif
	if (leg->stamp)
		stamp(leg, slot, settings.stamp_tai ? bpf_ktime_get_tai_ns() : now);
	for (int i = 0; i < MAX_CHECKSUMS && i < leg->sums; i++)
		mend(&change, &leg->sum[i], change.sum[i]);
}
