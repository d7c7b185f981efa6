/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The way out by clones: BPF_PROG_RUN of a SCHED_CLS program has one skb for all of its runs, whose clones go through
 * dev_queue_xmit() of the interface, as any packet does. The kernel copies the skb's bytes before the program can
 * change them again, so a clone that still waits in a ring keeps its own.
 */
#pragma once

typedef struct __sk_buff frame_context;

#define SEND_SECTION "tc"
#define NOTHING_SENT XDP_DROP /* these two are only reported by BPF_PROG_RUN, as the verdicts of the other way out */
#define ONE_SENT XDP_REDIRECT
#define store_bytes(ctx, offset, from, bytes) bpf_skb_store_bytes(ctx, offset, from, bytes, 0)

/* Fails if the kernel has no memory for so many bytes; they stay linear. */
static __always_inline int set_size(frame_context *ctx, __u32 bytes)
{
	return ctx->len == bytes ? 0 : bpf_skb_change_tail(ctx, bytes, 0);
}
