/* SPDX-License-Identifier: GPL-2.0-only */
/* The answer to each clone: the result of the call that sends it. Included by send.bpf.c behind what it calls. */
#pragma once

/*
 * linux/netdevice.h: NET_XMIT_SUCCESS; above it NET_XMIT_DROP, and NET_XMIT_CN: the qdisc dropped this frame (that of an
 * interface without carrier) or one before it (that of a full queue drops from its head). One frame is lost either way.
 */
#define TAKEN 0

/* A ring or a qdisc that takes none of so many frames does not empty: a leg without a rate does not repeat them. */
#define MOST_DROPPED_IN_ROW (1 << 16)

static __always_inline void refuse_one(long error)
{
	struct leg *leg;
	__u32 index;
	int packet;

	leg = fail(--state.pushed, &index, &packet);
	if (leg)
		leg->refused++;
	state.error = error;
}

static __always_inline int hand_over(frame_context *ctx)
{
	__s32 refuses;
	long result;

	ctx->queue_mapping = settings.egress_queue;
	result = bpf_clone_redirect(ctx, settings.egress_index, 0);
	if (result == TAKEN) {
		state.device_sent++;
		state.popped++;
		state.dropped_in_row = 0;
	} else if (result > 0) {
		state.device_dropped++;
		refuses = ++state.dropped_in_row > MOST_DROPPED_IN_ROW;
		drop_one(0, &refuses);
	} else {
		refuse_one(result);
	}
	return ONE_SENT;
}
