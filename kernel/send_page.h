/* SPDX-License-Identifier: GPL-2.0-only */
/* Writes a frame to the page that the kernel sends, and changes it there. Needs the way out: send_by_xdp.h or _tc.h. */
#pragma once

#include "send_maps.h"

#define SMALL_BYTES 60 /* RFC 2544's smallest frame, sent at the highest rate: a helper call is expensive there */

static __always_inline int copy_small(void *page, void *end, const void *frame)
{
	if (page + SMALL_BYTES > end)
		return -1;
	__builtin_memcpy(page, frame, SMALL_BYTES);
	return 0;
}

/* `bytes` is 1 to SLOT_BYTES; the mask states this so that verifiers as old as that of Linux 6.1 follow. */
static __always_inline int copy(frame_context *ctx, __u32 offset, const __u8 *from, __u64 bytes)
{
	bytes = ((bytes - 1) & (SLOT_BYTES - 1)) + 1;
	return store_bytes(ctx, offset, (void *)from, bytes);
}

static const __u8 zeros[SLOT_BYTES];

/*
 * Changes in the page. Words are added in memory order: the sum of RFC 1071, section 2, is independent of the byte
 * order.
 */
struct shift {
	void *page;
	void *end;
	__u64 growth; /* increase of the sums, not reduced */
	__u32 outside; /* an offset beyond the frame */
};

static __always_inline void *place_of(struct shift *shift, __u32 at, __u32 bytes)
{
	void *place = shift->page + (at & (SLOT_BYTES - 1));

	if (place + bytes <= shift->end)
		return place;
	shift->outside = 1;
	return 0;
}

static __always_inline void add32(struct shift *shift, __u32 at, __u32 amount)
{
	__u32 *place = place_of(shift, at, sizeof(*place)), before;

	if (!place)
		return;
	before = *place;
	*place = bpf_htonl(bpf_ntohl(before) + amount);
	shift->growth += (__u64)*place + ~before;
}

static __always_inline void set16(struct shift *shift, __u32 at, __be16 value)
{
	__u16 *place = place_of(shift, at, sizeof(*place)), before;

	if (!place)
		return;
	before = *place;
	*place = value;
	shift->growth += value + (__u16)~before;
}

static __always_inline void add16(struct shift *shift, __u32 at, __u16 amount)
{
	__u16 *place = place_of(shift, at, sizeof(*place)), before;

	if (!place)
		return;
	before = *place;
	*place = bpf_htons(bpf_ntohs(before) + amount);
	shift->growth += *place + (__u16)~before;
}

static __always_inline void amend(struct shift *shift, __u32 at, int zero_is_ones)
{
	__u16 *place = place_of(shift, at, sizeof(*place)), value;

	if (!place)
		return;
	value = ~sum16(shift->growth + (__u16)~*place);
	*place = !value && zero_is_ones ? 0xffff : value;
}
