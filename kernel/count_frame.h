/* SPDX-License-Identifier: GPL-2.0-only */
/* A frame: its parts, its leg by the stamp in its payload, and the user that its header fields identify. */
#pragma once

#include "count_parse.h"
#include "pktswarm.h"

/* Parses UDP on IPv4 on Ethernet, the most frequent case, without a call. Returns whether the frame is one. */
static __always_inline int parse_plain(struct xdp_md *ctx, struct frame *frame)
{
	struct cursor c = { .at = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	struct ethhdr *ethernet = TAKE(&c, struct ethhdr);
	struct iphdr *ip = c.at;
	struct udphdr *udp;
	struct fields *f = &frame->fields;
	__u32 ip_left;

	if (!ethernet || ethernet->h_proto != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > c.end || ip->ihl != 5)
		return 0;
	__builtin_memcpy(f->dst_mac, ethernet->h_dest, 2 * ETH_ALEN);
	if (take_ipv4(&c, f) != PARSED || f->protocol != IPPROTO_UDP)
		return 0;
	c.at = udp = (void *)(ip + 1); /* a constant offset, which the verifier can follow */
	ip_left = c.left;
	if (take_udp_alone(&c, f) != PARSED)
		return 0;
	sum_udp(&c, f, udp, ip_left);
	frame->payload = ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr);
	frame->payload_bytes = c.left;
	frame->sum = c.sum;
	frame->ip_sum = c.ip_sum;
	return 1;
}

static __always_inline enum parsed parse(struct xdp_md *ctx, struct frame *frame)
{
	enum parsed found;

	if (parse_plain(ctx, frame))
		return PARSED;
	found = parse_link(ctx, frame);
	for (int i = 0; i < MOST_IP_LAYERS && found == PARSED_IP; i++)
		found = parse_ip(ctx, frame);
	return found == PARSED_IP ? PARSED_MALFORMED : found;
}

/* Whether an IPv4 header of the frame is damaged. */
static __always_inline int ip_damaged(const struct frame *frame)
{
	return frame->ip_sum && sum16_of_few(frame->ip_sum) != 0xffff;
}

/* The stamp at the start of the payload, 0 if there is none. */
static __always_inline const struct stamp *find_stamp(struct xdp_md *ctx, const struct frame *frame)
{
	const struct stamp *stamp = (void *)(long)ctx->data;
	__u32 at = frame->payload;

	if (at > MOST_HEADER_BYTES || frame->payload_bytes < sizeof(*stamp))
		return 0;
	stamp = (void *)stamp + at;
	if ((void *)(stamp + 1) > (void *)(long)ctx->data_end)
		return 0;
	if (stamp->magic != bpf_htons(STAMP_PLAIN) && stamp->magic != bpf_htons(STAMP_CHECKED) &&
	    stamp->magic != bpf_htons(STAMP_SUMMED))
		return 0;
	return stamp;
}

/*
 * The user's index in the map of all users. A frame of no user belongs to the index behind them, and so does a frame
 * whose headers are not `sound`: a damaged bit can turn the field into that of another user.
 */
static __always_inline __u32 user_place(const struct user_rule *rule, const struct fields *fields, int sound)
{
	const __u64 *words = (const void *)fields;
	__u64 place = bpf_be64_to_cpu(words[rule->word & (FIELD_WORDS - 1)]) >> (rule->shift & 63);
	__u32 key = rule->count;

	place = (place & rule->mask) - rule->first;
	if (rule->step > 1)
		place = place % rule->step ? key : place / rule->step;
	if (sound && place < key)
		key = place;
	return rule->base + key;
}
