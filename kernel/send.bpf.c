// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sender. User space runs `send` once for each frame through BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES: the
 * frame that it leaves in the page goes out of the interface in the devmap. A run that has nothing due returns
 * XDP_DROP, which gives the page back; that is how it waits.
 *
 * A leg's frame stands in its slot. Rules, stamp and checksums change it there, each from what stood there before,
 * then it is copied whole: pages are recycled, and whatever took the last frame may have written into it.
 */
#include "pktswarm.h"
#include "send.h"

#define SPINS 64 /* looks at the clock in one run: a microsecond or two, then a signal must be able to end it */

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} egress SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* as many as there are legs */
	__type(key, __u32);
	__type(value, struct leg);
} legs SEC(".maps");

struct slot {
	__u8 bytes[SLOT_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* as many as there are legs */
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the lists of all rules, one behind another */
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

struct state state;

/* 1 where frames go out one by one (BPF_PROG_RUN's batch): then waiting here holds no earlier frame back. */
const volatile __u32 may_spin = 0;

/* --- which leg, and when ------------------------------------------------------------------------------------------ */

static __always_inline __u64 due_of(__u32 index)
{
	return state.due_ns[index & (MAX_LEGS - 1)];
}

/* Sets when a leg is due, and plays its matches of the tournament again. */
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

/* The time once `due_ns` has come, 0 if it has not. */
static __always_inline __u64 wait(__u64 due_ns)
{
	__u64 now = bpf_ktime_get_ns();

	for (int i = 0; may_spin && now < due_ns && i < SPINS; i++)
		now = bpf_ktime_get_ns();
	if (state.last_ns && now - state.last_ns > state.longest_pause_ns)
		state.longest_pause_ns = now - state.last_ns;
	state.last_ns = now;
	return now < due_ns ? 0 : now;
}

/* The due time `frames` later. */
static __always_inline __u64 later(struct leg *leg, __u64 due_ns, __u64 frames)
{
	/* `frames` is 1 but after a pause: whole nanoseconds and the rest apart, so that neither overflows. */
	__u64 gap = leg->gap;
	__u64 fraction = leg->fraction + (gap & ((1 << GAP_FRACTION_BITS) - 1)) * frames;

	leg->fraction = fraction & ((1 << GAP_FRACTION_BITS) - 1);
	return due_ns + (gap >> GAP_FRACTION_BITS) * frames + (fraction >> GAP_FRACTION_BITS);
}

/* Passes over the frames that should have left by now, all but the one due last. Returns the due time of that one. */
static __always_inline __u64 skip_late(struct leg *leg, __u64 due_ns, __u64 now)
{
	__u64 missed = ((now - due_ns) << 8) / ((leg->gap >> (GAP_FRACTION_BITS - 8)) | 1);

	missed *= leg->burst;
	if (missed >= leg->remaining)
		missed = leg->remaining - 1;
	leg->skipped += missed;
	if (leg->remaining != NEVER)
		leg->remaining -= missed;
	return later(leg, due_ns, missed / leg->burst);
}

/* Counts how late a paced leg is. Returns the due time of the frame that goes now. */
static __always_inline __u64 judge_lateness(struct leg *leg, __u64 due_ns, __u64 now)
{
	if (now - due_ns > leg->latest_ns)
		leg->latest_ns = now - due_ns;
	if (now - due_ns <= leg->late_ns)
		return due_ns;
	if (leg->skip)
		return skip_late(leg, due_ns, now);
	leg->late++;
	return due_ns;
}

/* After a frame: when the leg's next one is due. */
static __always_inline __u64 next_due(struct leg *leg, __u64 due_ns, __u64 now)
{
	if (leg->remaining != NEVER && --leg->remaining == 0)
		return NEVER;
	if (!leg->gap) /* after all that were due by now, so legs without a rate take turns and yield to the others */
		return now;
	if (++leg->in_burst < leg->burst)
		return due_ns;
	leg->in_burst = 0;
	return later(leg, due_ns, 1);
}

/* --- the frame ---------------------------------------------------------------------------------------------------- */

struct change {
	struct leg *leg;
	__u8 *frame;
	__u64 sum[MAX_CHECKSUMS]; /* by how much the sums have grown, not reduced */
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

/* Puts `bits` under `mask` into a window, and adds what that changes in the sums. */
static __always_inline void put(struct change *change, __u32 window, __u64 mask, __u64 bits, const __u16 *weight)
{
	__u64 before, after, growth;
	__u64 *place;

	if (window > SLOT_BYTES - WINDOW_BYTES)
		return;
	place = (__u64 *)(change->frame + window);
	before = bpf_be64_to_cpu(*place);
	after = (before & ~mask) | (bits & mask);
	*place = bpf_cpu_to_be64(after);
	/* ~before is -before in this arithmetic. Below 2^33, so that 2^15 of them times a weight fit 64 bits. */
	growth = (__u64)sum32(after) + sum32(~before);
	for (int i = 0; i < MAX_CHECKSUMS; i++)
		change->sum[i] += growth * weight[i];
}

static __always_inline void step(struct change *change, struct rule *rule)
{
	__u64 value;

	if (rule->mode == RULE_COUNT) {
		value = rule->position + 1;
		rule->position = value < rule->count ? value : 0;
	} else if (rule->mode == RULE_RANDOM) {
		value = draw(change->leg);
		rule->position = rule->count ? value % rule->count : value;
	} else {
		rule->position = change->leg->rule[rule->link & (MAX_RULES - 1)].position;
	}
	value = rule->first + rule->position * (rule->table ? 1 : rule->step);
	if (rule->table) {
		__u32 key = value;
		__u64 *entry = bpf_map_lookup_elem(&table, &key);

		value = entry ? *entry : 0;
	}
	put(change, rule->window, rule->mask, value << rule->shift, rule->weight);
}

static __always_inline void stamp(struct change *change, __u64 now)
{
	struct leg *leg = change->leg;
	__u32 number = leg->stamp + __builtin_offsetof(struct stamp, stream);
	__u32 time = leg->stamp + __builtin_offsetof(struct stamp, time_ns);

	put(change, number, (1ULL << 48) - 1, leg->sequence, leg->stamp_weight);
	put(change, time, ~0ULL, now, leg->stamp_weight);
}

/* Draws one window of noise; the last one is cut off where the noise ends. */
static long draw_window(__u32 index, struct change *change)
{
	struct leg *leg = change->leg;
	__u32 window = leg->noise.start + index * WINDOW_BYTES;
	__u32 left = leg->noise.stop - window;
	__u64 mask = left < WINDOW_BYTES ? ~(~0ULL >> (left & 7) * 8) : ~0ULL;

	put(change, window, mask, draw(leg), leg->noise.weight);
	return 0;
}

static __always_inline void mend(struct change *change, const struct sum *sum, __u64 growth)
{
	__be16 *place;
	__u32 total;
	__u16 value;

	if (!growth || sum->offset > SLOT_BYTES - 2)
		return;
	place = (__be16 *)(change->frame + sum->offset);
	total = sum16(growth + (__u16)~bpf_ntohs(*place));
	value = total ? ~total : 0;
	*place = bpf_htons(!value && sum->zero_is_ones ? 0xffff : value);
}

static __always_inline void make(struct leg *leg, __u8 *frame, __u64 now)
{
	struct change change = { .leg = leg, .frame = frame };

	for (int i = 0; i < MAX_RULES && i < leg->rules; i++)
		step(&change, &leg->rule[i]);
	if (leg->noise.windows)
		bpf_loop(leg->noise.windows, draw_window, &change, 0);
	if (leg->stamp)
		stamp(&change, now);
	for (int i = 0; i < MAX_CHECKSUMS; i++)
		if (i < leg->sums)
			mend(&change, &leg->sum[i], change.sum[i]);
}

#define SMALL_BYTES 60 /* RFC 2544's smallest frame, the one that runs at the highest rate: a helper call is dear there */

static __always_inline int copy_small(void *page, void *end, const void *frame)
{
	if (page + SMALL_BYTES > end)
		return -1;
	__builtin_memcpy(page, frame, SMALL_BYTES);
	return 0;
}

/* Copies the frame into the page. Fails where live frames have no room for it. */
static __always_inline int copy(struct xdp_md *ctx, const struct leg *leg, const __u8 *frame)
{
	__u32 bytes = leg->frame_bytes;
	long there = (long)ctx->data_end - (long)ctx->data;

	if (there != bytes && bpf_xdp_adjust_tail(ctx, (int)(bytes - there)))
		return -1;
	if (bytes == SMALL_BYTES)
		return copy_small((void *)(long)ctx->data, (void *)(long)ctx->data_end, frame);
	if (bytes < 1 || bytes > SLOT_BYTES)
		return -1;
	return bpf_xdp_store_bytes(ctx, 0, (void *)frame, bytes);
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static __always_inline void note(struct leg *leg, __u32 index, __u64 now)
{
	if (!leg->generated++)
		leg->first_ns = now;
	leg->last_ns = now;
	leg->sequence++;
	state.pending[state.pushed++ & (PENDING - 1)].leg = index;
}

static __always_inline int send_one(struct xdp_md *ctx, struct leg *leg, __u32 index, __u64 due_ns, __u64 now)
{
	struct slot *slot = bpf_map_lookup_elem(&slots, &index);

	if (!slot)
		return XDP_ABORTED;
	if (leg->gap)
		due_ns = judge_lateness(leg, due_ns, now);
	make(leg, slot->bytes, now);
	if (copy(ctx, leg, slot->bytes)) {
		state.error = -90; /* EMSGSIZE */
		return XDP_ABORTED;
	}
	note(leg, index, now);
	set_due(index, next_due(leg, due_ns, now));
	return bpf_redirect_map(&egress, 0, XDP_DROP);
}

SEC("xdp")
int send(struct xdp_md *ctx)
{
	__u32 index = state.winner[1];
	__u64 due_ns = due_of(index);
	struct leg *leg;
	__u64 now;

	state.runs++;
	if (!state.thread)
		state.thread = bpf_get_current_pid_tgid();
	if (due_ns == NEVER) {
		state.finished = state.start_ns != NEVER;
		return XDP_DROP;
	}
	now = wait(due_ns);
	if (!now)
		return XDP_DROP;
	leg = bpf_map_lookup_elem(&legs, &index);
	if (!leg)
		return XDP_ABORTED;
	if (now >= leg->stop_ns) {
		set_due(index, NEVER);
		return XDP_DROP;
	}
	return send_one(ctx, leg, index, due_ns, now);
}

/* --- what became of the frames ------------------------------------------------------------------------------------ */

/*
 * The kernel queues redirected frames in order and hands them to the device 16 at a time; a device takes them from the
 * front, and what it did not take is dropped. So the order of `pending` tells whose the dropped ones are.
 *
 * Other frames may be redirected on this thread: a device under test that shares the processor forwards in a software
 * interrupt on top of it. None of ours is pending then, because interrupts of that kind are held off until the batch
 * has been flushed.
 */
static __always_inline int ours(void)
{
	return state.pushed != state.popped && state.thread == bpf_get_current_pid_tgid();
}

/*
 * Of the frame that was queued first. A full ring empties again: a leg without a rate, which has no due times to keep,
 * then sends one more instead, even if it had just ended. Where the device refuses that would go on for ever.
 */
static long drop_one(__u32 round, __s32 *error)
{
	__u32 index = state.pending[state.popped++ & (PENDING - 1)].leg;
	struct leg *leg = bpf_map_lookup_elem(&legs, &index);

	if (!leg)
		return 1;
	leg->dropped++;
	if (!*error && !leg->gap && leg->remaining != NEVER && leg->remaining++ == 0)
		set_due(index, state.start_ns);
	return 0;
}

/* trace_xdp_devmap_xmit(from_dev, to_dev, sent, drops, err) */
SEC("raw_tracepoint/xdp_devmap_xmit")
int told_sent(struct bpf_raw_tracepoint_args *ctx)
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

/* trace_xdp_redirect_err(dev, xdp, target, err, …): the frame made last was not queued. */
SEC("raw_tracepoint/xdp_redirect_err")
int told_refused(struct bpf_raw_tracepoint_args *ctx)
{
	struct leg *leg;
	__u32 index;

	if (!ours())
		return 0;
	index = state.pending[--state.pushed & (PENDING - 1)].leg;
	state.error = (__s32)ctx->args[3];
	leg = bpf_map_lookup_elem(&legs, &index);
	if (leg)
		leg->refused++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
