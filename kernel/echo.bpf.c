// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data network's echo: returns a percentage, up to 500, of a stream's stamped frames to their source, with MAC
 * addresses, IP addresses and ports swapped. It runs behind count.bpf.c, which jumps here with each counted frame, or
 * alone.
 *
 * `echo` reverses a frame and redirects it to the interface that it came from, once, or by broadcast in a map that
 * contains this interface several times. Each copy has a number of its own, so that none counts as a duplicate: where a
 * frame can have several copies, `number` sees each copy right before the device and numbers it; else `echo` does,
 * which has parsed the frame already. `sum_sent` then receives the number of frames that the device accepted. The time
 * in the stamp stays, so the sender of the frame reads the round-trip time on one clock.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "count_frame.h"
#include "echo.h"

#define TAG_BYTES 4

const volatile struct echo_settings settings SEC(".rodata.settings") = {};

struct echo_unexplained unexplained;

/* Stream number in the stamp to its index in `flows`, plus one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} slots SEC(".maps");

/* User space sizes these two maps to the legs before it loads them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct echo_flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* echoes per user, of all legs one after another */
	__type(key, __u32);
	__type(value, __u64);
} users SEC(".maps");

/* The interface `times` times, each with `number`. */
#define COPIES(name, times)                           \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_DEVMAP);    \
		__uint(max_entries, times);           \
		__type(key, __u32);                   \
		__type(value, struct bpf_devmap_val); \
	} name SEC(".maps")

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} straight SEC(".maps");

COPIES(copies_1, 1);
COPIES(copies_2, 2);
COPIES(copies_3, 3);
COPIES(copies_4, 4);
COPIES(copies_5, 5);

/* Numbered frames that the device has not accepted yet, in order. */
struct pending {
	__u32 pushed; /* a running count, modulo 2^32 */
	__u32 popped;
	__u32 slot[PENDING_BACK];
	__u32 user[PENDING_BACK];
	__u32 bytes[PENDING_BACK];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pending);
} pending SEC(".maps");

/* Returns the previous value. */
static __always_inline __u64 take(__u64 *count, __u64 amount)
{
	__u64 before;

	if (!settings.alone)
		return __sync_fetch_and_add(count, amount);
	before = *count;
	*count = before + amount;
	return before;
}

/* Returns the flow of a frame; 0: not test traffic. */
static __always_inline struct echo_flow *find_flow(struct xdp_md *ctx, struct frame *frame, __u32 *slot)
{
	const struct stamp *stamp = parse(ctx, frame) == PARSED ? find_stamp(ctx, frame) : 0;
	__u32 stream, *found;

	if (!stamp || !stamp_holds(stamp))
		return 0;
	stream = bpf_ntohs(stamp->stream);
	found = bpf_map_lookup_elem(&slots, &stream);
	if (!found || !*found)
		return 0;
	*slot = *found - 1;
	return bpf_map_lookup_elem(&flows, slot);
}

/* murmur3's finalizer; 0 stays 0. */
static __always_inline __u32 mixed(__u32 number)
{
	number = (number ^ number >> 16) * 0x85ebca6b;
	number = (number ^ number >> 13) * 0xc2b2ae35;
	return number ^ number >> 16;
}

/*
 * Copies of frame n: exactly the percentage in each hundred frames, distributed evenly. Each hundred starts at another
 * phase of the accumulator; otherwise, of users that send in turn, the same ones would always get their frames back.
 */
static __always_inline __u32 copies_of(__u64 n, const struct echo_flow *flow)
{
	__u64 hundred;
	__u32 begin, rest;

	if (!flow->part)
		return flow->whole; /* divisions are expensive */
	hundred = n / 100;
	begin = (__u64)mixed(hundred) * 100 >> 32;
	rest = (__u32)(n - hundred * 100 + begin) * flow->part % 100;
	return flow->whole + (rest + flow->part >= 100);
}

/* --- reversing a frame -------------------------------------------------------------------------------------------- */

static __always_inline __u32 ip_at(const struct frame *frame)
{
	return ETH_HLEN + (frame->fields.tags & MOST_TAGS) * TAG_BYTES;
}

/*
 * Returns the offset of UDP or TCP, if only Ethernet, tags and one IP header precede it and the payload follows; else
 * 0.
 */
static __always_inline __u32 transport_at(struct xdp_md *ctx, const struct frame *frame)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 protocol = frame->fields.protocol;
	__u32 at = ip_at(frame), size = sizeof(struct udphdr);

	if (frame->fields.labels)
		return 0;
	if (frame->fields.ip_version == 4) {
		struct iphdr *ip = data + at;

		if ((void *)(ip + 1) > end || ip->protocol != protocol)
			return 0;
		at += ip->ihl * 4;
	} else {
		struct ipv6hdr *ip = data + at;

		if ((void *)(ip + 1) > end || ip->nexthdr != protocol)
			return 0;
		at += sizeof(*ip);
	}
	if (protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = data + at;

		if ((void *)(tcp + 1) > end)
			return 0;
		size = tcp->doff * 4;
	} else if (protocol != IPPROTO_UDP) {
		return 0;
	}
	return at + size == frame->payload ? at : 0;
}

/* Typed: for bytes of unknown alignment the compiler would emit a load each. */
#define SWAP(type, one, other)                        \
	do {                                          \
		type *_one = (void *)(one);           \
		type *_other = (void *)(other);       \
		type _kept = *_one;                   \
		*_one = *_other;                      \
		*_other = _kept;                      \
	} while (0)

/* Checksums stay correct: each covers both parts of a swap. Fails for a frame of another shape. */
static __always_inline int turn_round(struct xdp_md *ctx, const struct frame *frame, __u32 transport)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct udphdr *ports = data + transport; /* the ports of TCP are at the same offset */
	void *ip = data + ip_at(frame);

	if (!transport || (void *)(ports + 1) > end || (void *)(ethernet + 1) > end)
		return -1;
	if (frame->fields.ip_version == 4) {
		struct iphdr *ip4 = ip;

		if ((void *)(ip4 + 1) > end)
			return -1;
		SWAP(__u32, &ip4->saddr, &ip4->daddr);
	} else {
		struct ipv6hdr *ip6 = ip;

		if ((void *)(ip6 + 1) > end)
			return -1;
		SWAP(__u64, &ip6->saddr, &ip6->daddr);
		SWAP(__u64, (void *)&ip6->saddr + 8, (void *)&ip6->daddr + 8);
	}
	SWAP(__u32, ethernet->h_dest, ethernet->h_source);
	SWAP(__u16, ethernet->h_dest + 4, ethernet->h_source + 4);
	SWAP(__u16, &ports->source, &ports->dest);
	return 0;
}

static __always_inline int send_back(__u32 copies)
{
	switch (copies) {
	case 1:
		return bpf_redirect_map(&copies_1, 0, XDP_DROP);
	case 2:
		return bpf_redirect_map(&copies_2, 0, BPF_F_BROADCAST);
	case 3:
		return bpf_redirect_map(&copies_3, 0, BPF_F_BROADCAST);
	case 4:
		return bpf_redirect_map(&copies_4, 0, BPF_F_BROADCAST);
	case 5:
		return bpf_redirect_map(&copies_5, 0, BPF_F_BROADCAST);
	}
	return XDP_DROP;
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* Writes stream and number of the echo. No checksum over the stamp depends on them, see struct stamp. */
static __always_inline int write_number(struct xdp_md *ctx, const struct frame *frame, struct echo_flow *flow)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 at = frame->payload;
	struct stamp *stamp;

	if (at > MOST_HEADER_BYTES)
		return -1;
	stamp = data + at;
	if ((void *)(stamp + 1) > end)
		return -1;
	write_stamp(stamp, (__u64)flow->stream << STAMP_BITS | (take(&flow->made, 1) & STAMP_MASK),
		    bpf_be64_to_cpu(*stamp_time(stamp)));
	return 0;
}

static __always_inline void remember(struct xdp_md *ctx, const struct frame *frame, struct echo_flow *flow, __u32 slot)
{
	__u32 key = 0, place, user = user_place(&flow->users, &frame->fields, !ip_damaged(frame));
	__u32 bytes = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	struct pending *mine;

	/* Computed here: otherwise the compiler keeps the two pointers across the call, which the verifier rejects. */
	asm volatile("" : "+r"(bytes));
	mine = bpf_map_lookup_elem(&pending, &key);
	if (!mine)
		return;
	place = mine->pushed++ & (PENDING_BACK - 1);
	mine->slot[place] = slot;
	mine->user[place] = user;
	mine->bytes[place] = bytes;
}

/* The fields of the reversed frame. */
static __always_inline void turn_fields(struct fields *fields)
{
	SWAP(__u64, fields->src_ip, fields->dst_ip);
	SWAP(__u64, fields->src_ip + 8, fields->dst_ip + 8);
	SWAP(__u16, &fields->src_port, &fields->dst_port);
	for (int i = 0; i < ETH_ALEN; i += 2)
		SWAP(__u16, fields->src_mac + i, fields->dst_mac + i);
}

static __always_inline int send_back_once(struct xdp_md *ctx, struct frame *frame, struct echo_flow *flow, __u32 slot)
{
	turn_fields(&frame->fields);
	if (write_number(ctx, frame, flow))
		return XDP_DROP;
	remember(ctx, frame, flow, slot);
	return bpf_redirect_map(&straight, 0, XDP_DROP);
}

SEC("xdp")
int echo(struct xdp_md *ctx)
{
	struct frame frame = {};
	__u32 slot, copies, transport;
	struct echo_flow *flow = find_flow(ctx, &frame, &slot);

	if (!flow)
		return settings.counted ? XDP_DROP : XDP_PASS;
	transport = transport_at(ctx, &frame);
	if (turn_round(ctx, &frame, transport)) {
		take(&flow->left, 1);
		return XDP_DROP;
	}
	copies = copies_of(take(&flow->received, 1), flow);
	take(&flow->due, copies);
	if (settings.single)
		return copies ? send_back_once(ctx, &frame, flow, slot) : XDP_DROP;
	return send_back(copies);
}

SEC("xdp/devmap")
int number(struct xdp_md *ctx)
{
	struct frame frame = {};
	__u32 slot;
	struct echo_flow *flow = find_flow(ctx, &frame, &slot);

	if (!flow || write_number(ctx, &frame, flow))
		return XDP_DROP;
	remember(ctx, &frame, flow, slot);
	return XDP_PASS;
}

/* --- answers of the device ---------------------------------------------------------------------------------------- */

/* A global function: the verifier checks it once, not once for each frame of a bulk and each outcome before it. */
__noinline int count(struct pending *mine, int is_sent)
{
	struct echo_flow *flow;
	__u32 place, slot, user;
	__u64 *frames;

	if (!mine)
		return 0;
	place = mine->popped++ & (PENDING_BACK - 1);
	slot = mine->slot[place];
	user = mine->user[place];
	flow = bpf_map_lookup_elem(&flows, &slot);
	frames = bpf_map_lookup_elem(&users, &user);
	if (!flow || !frames)
		return 0;
	if (!is_sent) {
		take(&flow->dropped, 1);
		return 0;
	}
	take(&flow->sent, 1);
	take(&flow->sent_bytes, mine->bytes[place]);
	take(frames, 1);
	return 0;
}

static __always_inline struct pending *waiting(void)
{
	__u32 key = 0;
	struct pending *mine = bpf_map_lookup_elem(&pending, &key);

	return mine && mine->pushed != mine->popped ? mine : 0;
}

/*
 * trace_xdp_devmap_xmit(from_dev, to_dev, sent, drops, err). The kernel gives a bulk to the device, which accepts
 * frames from the front, and then calls this; on this processor no frame of another program is between a frame of ours
 * and this call. `number` has seen exactly the bulk. `echo` can have numbered the frame that made a full bulk leave.
 */
SEC("raw_tracepoint/xdp_devmap_xmit")
int sum_sent(struct bpf_raw_tracepoint_args *ctx)
{
	__s32 sent = ctx->args[2], drops = ctx->args[3];
	struct pending *mine = waiting();
	__u32 here, answered = sent + drops;

	if (!mine)
		return 0;
	here = mine->pushed - mine->popped;
	if (sent < 0 || drops < 0 || answered > FRAMES_A_BULK || answered > here || here - answered > settings.single) {
		__sync_fetch_and_add(&unexplained.answers, 1);
		unexplained.sent = sent;
		unexplained.dropped = drops;
		unexplained.pending = here;
		mine->popped = mine->pushed;
		return 0;
	}
	for (int i = 0; i < FRAMES_A_BULK && i < answered; i++)
		count(mine, i < sent);
	return 0;
}

/* trace_xdp_redirect_err(dev, xdp, target, err, …): the frame numbered last was not queued. */
SEC("raw_tracepoint/xdp_redirect_err")
int sum_refused(struct bpf_raw_tracepoint_args *ctx)
{
	struct pending *mine = settings.single ? waiting() : 0;
	struct echo_flow *flow;
	__u32 slot;

	if (!mine)
		return 0;
	slot = mine->slot[--mine->pushed & (PENDING_BACK - 1)];
	flow = bpf_map_lookup_elem(&flows, &slot);
	if (flow)
		take(&flow->dropped, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
