/* SPDX-License-Identifier: GPL-2.0-only */
/* Which leg an unstamped frame belongs to, by its bytes (traffic/counting/match.py). */
#pragma once

#include "count_frame.h"
#include "count_maps.h"

static __always_inline int fits(const struct row *row, const __u64 *head, __u32 length)
{
	__u64 differs = 0;

	if (length < row->head_bytes || (row->length && length != row->length))
		return 0;
	for (int i = 0; i < HEAD_WORDS; i++)
		differs |= (head[i] & row->mask[i]) ^ row->value[i];
	return !differs;
}

static __always_inline int in_ranges(const struct row *row, const __u64 *head)
{
	for (int i = 0; i < ROW_RANGES && i < row->ranges; i++) {
		const struct range *range = &row->range[i];
		const __u8 *at = (const __u8 *)head;
		__u32 offset = range->offset;
		__u32 number;

		if (offset > HEAD_BYTES - 4)
			return 0;
		at += offset;
		number = (at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]) & range->mask;
		if (number < range->low || number > range->high)
			return 0;
	}
	return 1;
}

/* Returns the leg of an unstamped frame, or of a frame with a damaged stamp. */
__noinline __u32 leg_by_bytes(struct xdp_md *ctx, __u32 is_damaged)
{
	__u64 head[HEAD_WORDS] = {};
	__u32 length = ctx->data_end - ctx->data;
	__u32 size = length;

	if (size > HEAD_BYTES)
		size = HEAD_BYTES;
	/* Otherwise the compiler checks one register and passes another, which the verifier rejects. */
	asm volatile("" : "+r"(size));
	if (size < ETH_HLEN || size > HEAD_BYTES || bpf_xdp_load_bytes(ctx, 0, head, size))
		return NO_LEG;
	for (__u32 i = 0; i < MAX_ROWS && i < settings.rows; i++) {
		__u32 key = i;
		struct row *row = bpf_map_lookup_elem(&rows, &key);

		if (row && fits(row, head, length) && in_ranges(row, head))
			return is_damaged && row->stamped_slot != NO_LEG ? row->stamped_slot : row->slot;
	}
	return NO_LEG;
}

/* Whether a frame has the headers of the leg in a slot. */
__noinline int has_headers_of(const struct frame *frame, __u32 slot)
{
	struct expectation *e = bpf_map_lookup_elem(&expectations, &slot);
	const __u64 *words;
	__u64 differs = 0;

	if (!frame || !e || !e->by_headers || (e->payload_bytes && e->payload_bytes != frame->payload_bytes))
		return 0;
	words = (const void *)&frame->fields;
	for (int i = 0; i < FIELD_WORDS; i++)
		differs |= (words[i] ^ e->value[i]) & e->mask[i];
	return !differs;
}

/*
 * For a damaged stamp: the only leg whose headers the frame has. As global functions, both are checked once by the
 * verifier; without bpf_loop(), whose callback a kernel that interprets the program refuses. A turn is 15 of the
 * verifier's 1,000,000 steps.
 */
__noinline __u32 leg_by_headers(const struct frame *frame)
{
	__u32 found = 0, last = 0;

	for (__u32 slot = 0; slot < settings.legs; slot++) {
		__u32 fits = has_headers_of(frame, slot);

		asm volatile("" : "+r"(fits)); /* a compiler that knows 0 or 1 makes a branch: the verifier follows both */
		found += fits;
		last += (slot - last) * fits;
	}
	return found == 1 ? last : NO_LEG;
}
