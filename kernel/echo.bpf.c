// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data network's echo: of a stream's stamped frames so many percent, up to 500, go back to where they came from,
 * with MAC addresses, IP addresses and ports swapped. It stands behind count.bpf.c, which jumps here with each frame
 * that it has counted, or by itself.
 *
 * `echo` turns a frame round and redirects it to the interface that it came from, once, or by broadcast in a map that
 * has this interface several times. `number` sees each copy right before the device does, and gives it a number of its
 * own, so that no copy is taken for a duplicate. `told_sent` then hears how many of these the device took. The time in
 * the stamp stays: who sent the frame reads the round trip from it with one clock.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "count_frame.h"
#include "echo.h"

#define TAG_BYTES 4

const volatile struct echo_settings settings SEC(".rodata.settings") = {};

__u64 unexplained; /* answers of a device that are not of as many frames as were handed to it */

/* A stream's number in the stamp to its place in `flows`, plus one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} slots SEC(".maps");

/* These two are sized to the legs before they are loaded. */
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
	__uint(max_entries, 1); /* what went back to each user, of all legs one behind another */
	__type(key, __u32);
	__type(value, __u64);
} users SEC(".maps");

/* The interface so many times, each with `number`. */
#define COPIES(name, times)                           \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_DEVMAP);    \
		__uint(max_entries, times);           \
		__type(key, __u32);                   \
		__type(value, struct bpf_devmap_val); \
	} name SEC(".maps")

COPIES(copies_1, 1);
COPIES(copies_2, 2);
COPIES(copies_3, 3);
COPIES(copies_4, 4);
COPIES(copies_5, 5);

/* What `number` has seen of the frames that the device is about to be given. */
struct bulk {
	__u32 frames;
	__u32 slot[FRAMES_A_BULK];
	__u32 user[FRAMES_A_BULK];
	__u32 bytes[FRAMES_A_BULK];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bulk);
} bulks SEC(".maps");

/* Returns what it was before. */
static __always_inline __u64 take(__u64 *count, __u64 amount)
{
	__u64 before;

	if (!settings.alone)
		return __sync_fetch_and_add(count, amount);
	before = *count;
	*count = before + amount;
	return before;
}

/* The flow that a frame belongs to; 0: it is no test traffic. */
static __always_inline struct echo_flow *find_flow(struct xdp_md *ctx, struct frame *frame, __u32 *slot)
{
	const struct stamp *stamp = parse(ctx, frame) == PARSED ? find_stamp(ctx, frame) : 0;
	__u32 stream, *found;

	if (!stamp)
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
 * Copies of frame n: exactly the percentage in each hundred frames, as evenly as can be. Each hundred begins at another
 * place of the accumulator's round, or of users who take turns always the same ones would have their frames back.
 */
static __always_inline __u32 copies_of(__u64 n, const struct echo_flow *flow)
{
	__u64 hundred;
	__u32 begin, rest;

	if (!flow->part)
		return flow->whole; /* divisions are dear */
	hundred = n / 100;
	begin = (__u64)mixed(hundred) * 100 >> 32;
	rest = (__u32)(n - hundred * 100 + begin) * flow->part % 100;
	return flow->whole + (rest + flow->part >= 100);
}

/* --- turning a frame round ---------------------------------------------------------------------------------------- */

static __always_inline __u32 ip_at(const struct frame *frame)
{
	return ETH_HLEN + (frame->fields.tags & MOST_TAGS) * TAG_BYTES;
}

/* Where UDP or TCP begins, if only Ethernet, tags and one IP header stand before it and the payload follows; else 0. */
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

/* Typed: of bytes of unknown alignment the compiler would make a load each. */
#define SWAP(type, one, other)                        \
	do {                                          \
		type *_one = (void *)(one);           \
		type *_other = (void *)(other);       \
		type _kept = *_one;                   \
		*_one = *_other;                      \
		*_other = _kept;                      \
	} while (0)

/* Checksums stay right: each covers both of what changes places. Fails where the frame has not that shape. */
static __always_inline int turn_round(struct xdp_md *ctx, const struct frame *frame)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 transport = transport_at(ctx, frame);
	struct ethhdr *ethernet = data;
	struct udphdr *ports = data + transport; /* TCP's are at the same place */
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

SEC("xdp")
int echo(struct xdp_md *ctx)
{
	struct frame frame = {};
	__u32 slot, copies;
	struct echo_flow *flow = find_flow(ctx, &frame, &slot);

	if (!flow)
		return settings.counted ? XDP_DROP : XDP_PASS;
	if (turn_round(ctx, &frame)) {
		take(&flow->left, 1);
		return XDP_DROP;
	}
	copies = copies_of(take(&flow->received, 1), flow);
	take(&flow->due, copies);
	return send_back(copies);
}

/* --- each copy ---------------------------------------------------------------------------------------------------- */

/* Stream and number of its own, in a frame that is turned round; the checksum follows (RFC 1624). */
static __always_inline int write_number(struct xdp_md *ctx, const struct frame *frame, struct echo_flow *flow)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 transport = transport_at(ctx, frame), at = frame->payload + __builtin_offsetof(struct stamp, stream);
	int is_udp = frame->fields.protocol == IPPROTO_UDP;
	__u32 sum_at = is_udp ? __builtin_offsetof(struct udphdr, check) : __builtin_offsetof(struct tcphdr, check);
	__u64 *place, before;
	__u16 *sum, value;

	if (!transport || at > MOST_HEADER_BYTES)
		return -1;
	place = data + at;
	sum = data + transport + sum_at;
	if ((void *)(place + 1) > end || (void *)(sum + 1) > end)
		return -1;
	before = *place;
	*place = bpf_cpu_to_be64((__u64)flow->stream << 48 | (take(&flow->made, 1) & ((1ULL << 48) - 1)));
	if (is_udp && !*sum)
		return 0; /* it has none */
	value = ~sum16((__u64)sum32(*place) + sum32(~before) + (__u16)~*sum);
	*sum = !value && is_udp ? 0xffff : value;
	return 0;
}

static __always_inline void remember(__u32 slot, __u32 user, __u32 bytes)
{
	__u32 key = 0;
	struct bulk *bulk = bpf_map_lookup_elem(&bulks, &key);
	__u32 place;

	if (!bulk)
		return;
	place = bulk->frames++;
	if (place >= FRAMES_A_BULK)
		return;
	bulk->slot[place] = slot;
	bulk->user[place] = user;
	bulk->bytes[place] = bytes;
}

SEC("xdp/devmap")
int number(struct xdp_md *ctx)
{
	struct frame frame = {};
	__u32 slot;
	struct echo_flow *flow = find_flow(ctx, &frame, &slot);

	if (!flow || write_number(ctx, &frame, flow))
		return XDP_DROP;
	remember(slot, user_place(&flow->users, &frame.fields, PARSED), ctx->data_end - ctx->data);
	return XDP_PASS;
}

/* --- what became of them ------------------------------------------------------------------------------------------ */

static __always_inline void count(struct bulk *bulk, __u32 place, int is_sent)
{
	__u32 slot = bulk->slot[place], user = bulk->user[place];
	struct echo_flow *flow = bpf_map_lookup_elem(&flows, &slot);
	__u64 *frames = bpf_map_lookup_elem(&users, &user);

	if (!flow || !frames)
		return;
	if (!is_sent) {
		take(&flow->dropped, 1);
		return;
	}
	take(&flow->sent, 1);
	take(&flow->sent_bytes, bulk->bytes[place]);
	take(frames, 1);
}

/*
 * trace_xdp_devmap_xmit(from_dev, to_dev, sent, drops, err). The kernel runs `number` over a bulk, hands the bulk to the
 * device, which takes frames from the front, and then tells this: nothing comes between on this processor. So a bulk
 * without frames is another program's.
 */
SEC("raw_tracepoint/xdp_devmap_xmit")
int told_sent(struct bpf_raw_tracepoint_args *ctx)
{
	__s32 sent = ctx->args[2], drops = ctx->args[3];
	__u32 key = 0, frames;
	struct bulk *bulk = bpf_map_lookup_elem(&bulks, &key);

	if (!bulk || !bulk->frames)
		return 0;
	frames = bulk->frames;
	bulk->frames = 0;
	if (sent < 0 || drops < 0 || frames > FRAMES_A_BULK || sent + drops != frames) {
		__sync_fetch_and_add(&unexplained, 1);
		return 0;
	}
	for (int i = 0; i < FRAMES_A_BULK && i < frames; i++)
		count(bulk, i, i < sent);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
