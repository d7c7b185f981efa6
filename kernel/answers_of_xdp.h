/* SPDX-License-Identifier: GPL-2.0-only */
/* The answers of the device to live frames, from two tracepoints. Included by send.bpf.c behind what it calls. */
#pragma once

static __always_inline int hand_over(frame_context *ctx)
{
	return bpf_redirect_map(&egress, 0, XDP_DROP);
}

/*
 * The kernel queues redirected frames in order and gives them to the device 16 at a time; a device accepts frames from
 * the front, and the rest is dropped. So the order of `pending` determines the legs of the dropped frames.
 *
 * The tracepoint is global to the machine. While frames of ours are pending, nothing else redirects on this processor:
 * software interrupts, in which a device under test would forward, and other threads are held off until the batch is
 * flushed. (The thread's number would not distinguish the two, and XDP programs can read it only since Linux 6.10.)
 */
static __always_inline int ours(void)
{
	if (state.pushed == state.popped)
		return 0;
	barrier(); /* written before it, see note() */
	return state.cpu == bpf_get_smp_processor_id();
}

/* trace_xdp_devmap_xmit(from_dev, to_dev, sent, drops, err) */
SEC("raw_tracepoint/xdp_devmap_xmit")
int sum_sent(struct bpf_raw_tracepoint_args *ctx)
{
	__s32 sent = ctx->args[2], drops = ctx->args[3], error = ctx->args[4];

	if (!ours())
		return 0;
	if (sent < 0 || drops < 0 || (__u32)(sent + drops) > state.pushed - state.popped) {
		state.unexplained++;
		return 0;
	}
	state.device_sent += sent;
	state.device_dropped += drops;
	state.popped += sent;
	if (error)
		state.error = error;
	if (drops)
		bpf_loop(drops, drop_one, &error, 0);
	return 0;
}

/* trace_xdp_redirect_err(dev, xdp, target, err, …): the frame built last was not queued. */
SEC("raw_tracepoint/xdp_redirect_err")
int sum_refused(struct bpf_raw_tracepoint_args *ctx)
{
	struct leg *leg;
	__u32 index;
	int packet;

	if (!ours())
		return 0;
	leg = fail(--state.pushed, &index, &packet);
	if (leg)
		leg->refused++;
	state.error = (__s32)ctx->args[3];
	return 0;
}
