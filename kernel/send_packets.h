/* SPDX-License-Identifier: GPL-2.0-only */
/* Writes the next packet of a leg: a stream's, whole or in fragments, or a recorded one. */
#pragma once

#include "send_fields.h"
#include "send_page.h"
#include "send_schedule.h"

#define CHUNK (SLOT_BYTES / 8) /* bytes copied at once: from any start of a frame in a slot, they stay within the slot */

/*
 * Copies a fragment's part of the packet behind the headers. A global function: the verifier checks it once, not once
 * for each state of the frame before it.
 */
__noinline int copy_part(frame_context *ctx, const struct part *part, const struct slot *slot)
{
	__u32 done = 0;

	if (!part || !slot)
		return -1;
	for (int i = 0; i < SLOT_BYTES / CHUNK && done < part->bytes; i++) {
		__u32 from = part->start + done;
		__u64 bytes = part->bytes - done < CHUNK ? part->bytes - done : CHUNK;

		if (from > SLOT_BYTES - CHUNK)
			return -1;
		bytes = ((bytes - 1) & (CHUNK - 1)) + 1;
		if (store_bytes(ctx, part->head_bytes + done, (void *)slot->bytes + from, bytes))
			return -1;
		done += bytes;
	}
	return 0;
}

/* Writes lengths, offset and checksums. Fails if they are not within the frame. */
static __always_inline int edit_part(frame_context *ctx, const struct part *part)
{
	struct shift shift = { .page = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };

	for (int i = 0; i < MAX_EDITS && i < part->edits; i++) {
		const struct edit *edit = &part->edit[i];

		if (edit->kind == EDIT_SUM)
			amend(&shift, edit->at, 0);
		else
			set16(&shift, edit->at, edit->value);
		if (edit->kind != EDIT_SUMMED)
			shift.growth = 0;
	}
	return shift.outside;
}

/* Writes the next fragment of the packet in the slot. Returns the frame's bytes, 0 on failure. Global as copy_part(). */
__noinline __u32 write_part(frame_context *ctx, struct leg *leg, const struct slot *slot)
{
	__u32 key, bytes, padded;
	struct part *part;

	if (!leg || !slot)
		return 0;
	key = leg->part_slot * MAX_PARTS + leg->part;
	part = bpf_map_lookup_elem(&parts, &key);
	if (!part || !part->bytes || !part->head_bytes)
		return 0;
	bytes = part->head_bytes + part->bytes;
	padded = bytes < SMALL_BYTES ? SMALL_BYTES : bytes;
	if (set_size(ctx, padded) || copy(ctx, 0, slot->bytes, part->head_bytes) || copy_part(ctx, part, slot))
		return 0;
	if (padded > bytes && copy(ctx, bytes, zeros, padded - bytes))
		return 0;
	if (edit_part(ctx, part))
		return 0;
	leg->part = leg->part + 1 < slot->parts ? leg->part + 1 : 0;
	return padded;
}

/* Whether a packet's further fragments are to be sent first. */
static __always_inline int in_a_packet(const struct leg *leg)
{
	return settings.parts && leg->part;
}

/* Returns the frame's bytes, 0 on failure. */
static __always_inline __u32 write_stream(frame_context *ctx, struct leg *leg, __u64 now)
{
	__u32 key = leg->slot, bytes;
	struct slot *slot;

	if (in_a_packet(leg))
		key = leg->part_slot;
	else if (settings.sizes && leg->sizes > 1)
		key += choose(leg, &leg->size);
	slot = bpf_map_lookup_elem(&slots, &key);
	if (!slot)
		return 0;
	if (in_a_packet(leg))
		return write_part(ctx, leg, slot);
	bytes = slot->frame_bytes;
	if (is_sequence(leg)) {
		struct record *record = next_record(leg);

		if (!record)
			return 0;
		leg->user = record->place;
		leg->frame_bytes = bytes = record->frame_bytes;
	}
	make(leg, slot, now);
	leg->part_slot = key;
	if (settings.parts && slot->parts > 1)
		return write_part(ctx, leg, slot);
	if (set_size(ctx, bytes))
		return 0;
	if (bytes == SMALL_BYTES)
		return copy_small((void *)(long)ctx->data, (void *)(long)ctx->data_end, slot->bytes) ? 0 : bytes;
	return copy(ctx, 0, slot->bytes, bytes) ? 0 : bytes;
}

/* The changes of an instance: the same as those of traffic/replay/shift.py, byte for byte. */
#define NOT_COVERED 4

/* Unused: it makes the compiler describe the layout in the object's BTF, which a test reads. */
const struct places places_layout SEC(".rodata.places") = {};

/* Fails if the offsets are not within the frame. */
static __always_inline int change_instance(frame_context *ctx, struct leg *leg, const struct places *places)
{
	struct shift shift = { .page = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };

	if (places->address[1])
		add32(&shift, places->address[1], leg->add_address[places->ends >> 1 & 1]);
	if (places->ends & NOT_COVERED) /* only IPv6, which has no header_sum */
		shift.growth = 0;
	if (places->address[0])
		add32(&shift, places->address[0], leg->add_address[places->ends & 1]);
	if (places->header_sum)
		amend(&shift, places->header_sum, 0);
	if (places->port)
		add16(&shift, places->port, leg->add_port);
	if (places->sum)
		amend(&shift, places->sum, places->zero_is_ones);
	if (places->teid)
		add32(&shift, places->teid, leg->add_teid);
	return shift.outside;
}

/* Stamps a trace's frame, which follows its struct places. Sequence numbers count the frames sent. */
static __always_inline int stamp_trace(frame_context *ctx, struct leg *leg, const struct places *places, __u64 now)
{
	__u32 key = leg->numbered_with, at;
	struct leg *numbered = bpf_map_lookup_elem(&legs, &key);
	__u64 made[3] = {}; /* the stamp's 64-bit words are aligned in it, as the stack requires */
	struct stamp *stamp = (void *)made + 6;
	__u64 stream;

	/* Read after the call: the verifier of Linux 6.1 does not relate the check below to a value kept across it. */
	asm volatile("" ::: "memory");
	at = places->stamp;
	leg->rule[0].position = !!at;
	if (!at)
		return 0;
	if (!numbered || at > SLOT_BYTES - sizeof(*stamp))
		return -1;
	if (settings.stamp_tai)
		now = bpf_ktime_get_tai_ns();
	__builtin_memcpy(stamp, (const __u8 *)(places + 1) + at, STAMP_TIME);
	stream = bpf_be64_to_cpu(*stamp_number(stamp)) & ~STAMP_MASK;
	write_stamp(stamp, stream | (numbered->sequence++ & STAMP_MASK), now);
	return store_bytes(ctx, at, stamp, sizeof(*stamp));
}

static __always_inline __u32 write_trace(frame_context *ctx, struct leg *leg, __u64 now)
{
	struct record *record = next_record(leg);
	__u32 key, offset, stored, bytes;
	const struct places *places;
	struct chunk *chunk;

	if (!record)
		return 0;
	key = record->place / CHUNK_BYTES;
	offset = record->place % CHUNK_BYTES;
	chunk = bpf_map_lookup_elem(&store, &key);
	if (!chunk || offset < sizeof(*places) || offset > CHUNK_BYTES - SLOT_BYTES)
		return 0;
	places = (const void *)(chunk->bytes + offset - sizeof(*places));
	stored = record->stored_bytes;
	bytes = record->frame_bytes;
	if (set_size(ctx, bytes) || copy(ctx, 0, chunk->bytes + offset, stored))
		return 0;
	if (stored < bytes && copy(ctx, stored, zeros, bytes - stored))
		return 0;
	if (leg->shifted && change_instance(ctx, leg, places))
		return 0;
	return leg->stamp && stamp_trace(ctx, leg, places, now) ? 0 : bytes;
}
