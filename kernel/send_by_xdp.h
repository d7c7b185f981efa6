/* SPDX-License-Identifier: GPL-2.0-only */
/* The way out by live frames of XDP: BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, redirected to a devmap. */
#pragma once

typedef struct xdp_md frame_context;

#define SEND_SECTION "xdp"
#define NOTHING_SENT XDP_DROP /* returns the page */
#define store_bytes(ctx, offset, from, bytes) bpf_xdp_store_bytes(ctx, offset, from, bytes)

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} egress SEC(".maps");

/* Fails if a live frame has no space for so many bytes. */
static __always_inline int set_size(frame_context *ctx, __u32 bytes)
{
	long there = (long)ctx->data_end - (long)ctx->data;

	return there == bytes ? 0 : bpf_xdp_adjust_tail(ctx, (int)(bytes - there));
}
