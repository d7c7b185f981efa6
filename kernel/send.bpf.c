// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sender. User space runs `send` once per frame through BPF_PROG_RUN. There are two ways out of the kernel, each
 * with a header of its own, and this source is compiled for both: live frames of XDP (send_by_xdp.h), and clones of an
 * skb (send_by_tc.h; send_tc.bpf.c). A run with nothing due sends nothing; this is how it waits.
 *
 * The frame of a leg is in its slot. Rules, stamp and checksums change it there, relative to the previous content, then
 * it is copied as a whole: pages are recycled, and a receiver of the last frame may have changed its content.
 */
#include "pktswarm.h"
#include "send_maps.h"

#define SPINS 256 /* clock readings in one run: up to 8 us, then interrupts and signals are served */
#define HELD_NS 10000000 /* a leg that is held looks so often */

#ifdef SEND_BY_TC
#include "send_by_tc.h"
#else
#include "send_by_xdp.h"
#endif

#include "send_schedule.h"
#include "send_fields.h"
#include "send_page.h"
#include "send_packets.h"

/* --- the run ------------------------------------------------------------------------------------------------------ */

static __always_inline void count_user(__u32 user, __s64 frames)
{
	__u64 *count = bpf_map_lookup_elem(&users, &user);

	if (count)
		*count += frames;
}

/* Counts a frame of a leg in parts. Its packet counts as sent once all of its frames are pending, until one fails. */
static __always_inline void note_part(struct leg *leg, struct pending *pending, int is_late)
{
	__u32 key = leg->part_slot;
	struct slot *slot = bpf_map_lookup_elem(&slots, &key);
	__u64 number = leg->sequence;

	pending->packet = number & 63;
	pending->whole_bytes = slot ? slot->frame_bytes : 0;
	if (leg->part)
		return;
	if (!(leg->failed >> (number & 63) & 1)) {
		leg->packets++;
		leg->packet_bytes += pending->whole_bytes;
		leg->late += is_late;
		if (leg->user_rule)
			count_user(pending->user, 1);
	}
	leg->sequence++;
	leg->failed &= ~(1ULL << (leg->sequence & 63));
}

static __always_inline void note(struct leg *leg, __u32 index, __u32 bytes, int is_late, __u64 now)
{
	struct pending *pending = &state.pending[state.pushed & (PENDING - 1)];

	if (state.pushed == state.popped) {
		state.cpu = bpf_get_smp_processor_id();
		/*
		 * First: on the processor that this thread has just left, `ours` can be called for another program's
		 * frames.
		 */
		barrier();
	}
	state.pushed++;
	pending->leg = index;
	pending->bytes = is_late ? bytes | PENDING_LATE : bytes;
	if (leg->user_rule)
		pending->user = leg->users + leg->rule[(leg->user_rule - 1) & (MAX_RULES - 1)].position;
	if (!leg->generated++)
		leg->first_ns = now;
	leg->generated_bytes += bytes;
	leg->last_ns = now;
	if (settings.parts && leg->in_parts) {
		note_part(leg, pending, is_late);
		return;
	}
	leg->late += is_late;
	if (leg->user_rule)
		count_user(pending->user, 1);
	if (!is_trace(leg))
		leg->sequence++;
}

/* Gives the frame to the kernel; it is the one noted last. */
static __always_inline int hand_over(frame_context *ctx);

static __always_inline int send_one(frame_context *ctx, struct leg *leg, __u32 index, __u64 due_ns, __u64 now)
{
	int is_late = leg->timed && late(leg, due_ns, now);
	__u32 bytes;

	/* A packet is late, or skipped, as a whole. */
	if (in_a_packet(leg))
		is_late = leg->packet_late;
	else if (is_late && leg->skip)
		return skip(leg, index, due_ns, now);
	if (is_trace(leg))
		bytes = write_trace(ctx, leg, now);
	else
		bytes = write_stream(ctx, leg, now);
	if (!bytes) {
		state.broken = 1;
		return NOTHING_SENT;
	}
	leg->packet_late = is_late;
	note(leg, index, bytes, is_late, now);
	if (!in_a_packet(leg)) { /* otherwise its next fragment is due now */
		if (is_late)
			due_ns = stretch(leg, due_ns, now);
		set_due(index, next_due(leg, due_ns, now));
	}
	return hand_over(ctx);
}

SEC(SEND_SECTION)
int send(frame_context *ctx)
{
	__u32 index = state.winner[1];
	__u64 due_ns = due_of(index);
	__u64 now, give_up_ns;
	struct leg *leg;
	int over;

	state.runs++;
	if (state.turn == TURN_OVER)
		return NOTHING_SENT;
	if (due_ns == NEVER) {
		/* Frames of this batch that the device has not accepted yet may have to be replaced: see drop_one. */
		state.finished = state.start_ns != NEVER && state.pushed == state.popped;
		return NOTHING_SENT;
	}
	now = wait(due_ns);
	if (!now)
		return NOTHING_SENT;
	leg = bpf_map_lookup_elem(&legs, &index);
	if (!leg)
		return NOTHING_SENT;
	give_up_ns = *(volatile __u64 *)&leg->give_up_ns; /* once: user space may change it meanwhile */
	over = due_ns - leg->stretched_ns >= leg->stop_ns;
	if (!in_a_packet(leg) && (over || now >= give_up_ns)) {
		if (give_up_ns || over)
			set_due(index, NEVER);
		else
			hold(leg, index, due_ns, now);
		return NOTHING_SENT;
	}
	if (settings.steps && leg->crossing) {
		set_due(index, next_step(leg));
		return NOTHING_SENT;
	}
	if (state.turn == TURN_OF_ONE)
		state.turn = TURN_OVER;
	return send_one(ctx, leg, index, due_ns, now);
}

/* --- answers of the device ---------------------------------------------------------------------------------------- */

/* For a leg in parts: whether no other fragment of the packet has failed before. */
static __always_inline int fail_part(struct leg *leg, const struct pending *pending)
{
	__u64 bit = 1ULL << (pending->packet & 63);

	if (leg->failed & bit)
		return 0;
	leg->failed |= bit;
	if (pending->packet == (leg->sequence & 63)) /* the packet is incomplete, and not counted yet */
		return 1;
	leg->packets--;
	leg->packet_bytes -= pending->whole_bytes;
	leg->late -= !!(pending->bytes & PENDING_LATE);
	if (leg->user_rule)
		count_user(pending->user, -1);
	return 1;
}

/* `packet`: whether this frame is the first loss of its packet. */
static __always_inline struct leg *fail(__u32 number, __u32 *index, int *packet)
{
	struct pending *pending = &state.pending[number & (PENDING - 1)];
	struct leg *leg;

	*index = pending->leg;
	leg = bpf_map_lookup_elem(&legs, index);
	if (!leg)
		return leg;
	leg->failed_bytes += pending->bytes & ~PENDING_LATE;
	*packet = 1;
	if (settings.parts && leg->in_parts) {
		*packet = fail_part(leg, pending);
		return leg;
	}
	leg->late -= !!(pending->bytes & PENDING_LATE);
	if (leg->user_rule)
		count_user(pending->user, -1);
	return leg;
}

/*
 * Counts the frame that was queued first as dropped. A full ring empties again: a leg without a rate, which has no due
 * times, then sends one more frame instead, even if it had ended. A device that refuses would make this endless, so it
 * does not apply there.
 */
static long drop_one(__u32 round, __s32 *error)
{
	__u32 index;
	int packet;
	struct leg *leg = fail(state.popped++, &index, &packet);

	if (!leg)
		return 1;
	leg->dropped++;
	if (packet && !*error && !leg->timed && leg->remaining != NEVER && leg->remaining++ == 0)
		set_due(index, leg->last_ns);
	return 0;
}

#ifdef SEND_BY_TC
#include "answers_of_tc.h"
#else
#include "answers_of_xdp.h"
#endif

char LICENSE[] SEC("license") = "GPL";
