/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parses a frame up to its payload: Ethernet, 802.1Q/802.1ad tags, MPLS, IPv4, IPv6, UDP, TCP, ICMP, and GTP-U (3GPP TS
 * 29.281) or IP in IP with the same inside. An unknown header is payload.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "pktswarm.h"

/* Headers beyond this length are not parsed. */
#define MOST_HEADER_BYTES 1023
#define MOST_TAGS 3
#define MOST_LABELS 8
#define MOST_IP_LAYERS 3
#define MOST_EXTENSIONS 6
#define GTPU_PORT 2152
#define GTPU_G_PDU 255

/*
 * The position of the parser. `left`: bytes from `at` to the end by the innermost length field, without padding. `sum`:
 * behind an IP header, the sum of its addresses; behind a transport header, the sum of what its checksum covers except
 * the payload, which is a multiple of 0xffff together with the payload's words; 0: there is no checksum. `ip_sum`: the
 * sum of all IPv4 headers, a multiple of 0xffff where their checksums are correct. Words are in memory order (RFC 1071,
 * section 2), sums not reduced.
 */
struct cursor {
	void *at;
	void *end;
	__u64 sum;
	__u64 ip_sum;
	__u32 left;
	__u32 is_part; /* in a packet: `left` is that of a fragment */
};

enum parsed {
	PARSED, /* up to the payload */
	PARSED_IP, /* up to an IP header */
	PARSED_FRAGMENT,
	PARSED_MALFORMED,
};

struct vlan_tag {
	__be16 tci;
	__be16 type;
};

struct gtpu_header {
	__u8 flags; /* version (3 bits), PT, a reserved bit, E, S, PN */
	__u8 type;
	__be16 length;
	__be32 teid;
};

struct gtpu_optional { /* present as a whole when any of E, S, PN is set */
	__be16 sequence;
	__u8 npdu;
	__u8 next_type;
};

struct extension6 {
	__u8 next;
	__u8 size; /* in units of 8 octets, without the first */
};

/* The next header of this type; 0 if the frame ends before it does. */
#define TAKE(c, type)                                             \
	({                                                        \
		type *_header = (c)->at;                          \
		void *_after = _header + 1;                       \
		_after > (c)->end ? (type *)0 : ((c)->at = _after, _header); \
	})

static __always_inline int is_tag(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/* Skips the tags; `type` becomes the type of what follows. */
static __always_inline enum parsed take_tags(struct cursor *c, struct fields *f, __be16 *type)
{
	for (int i = 0; i < MOST_TAGS && is_tag(*type); i++) {
		struct vlan_tag *tag = TAKE(c, struct vlan_tag);

		if (!tag)
			return PARSED_MALFORMED;
		if (i == 0)
			f->vlan_outer = tag->tci;
		else if (i == 1)
			f->vlan_inner = tag->tci;
		f->tags++;
		*type = tag->type;
	}
	return PARSED;
}

/* Skips the label stack; only the first four bits behind it identify what follows. */
static __always_inline enum parsed take_labels(struct cursor *c, struct fields *f)
{
	for (int i = 0; i < MOST_LABELS; i++) {
		__be32 *label = TAKE(c, __be32);

		if (!label)
			return PARSED_MALFORMED;
		f->labels++;
		if (*label & bpf_htonl(0x100))
			return PARSED;
	}
	return PARSED_MALFORMED;
}

/* Returns the IP version at the cursor, 0 if there is none. */
static __always_inline __u8 ip_version(struct cursor *c)
{
	__u8 *first = c->at;

	if ((void *)(first + 1) > c->end)
		return 0;
	return *first >> 4;
}

/* The sum of an IPv4 or TCP header, both of 5 to 15 words of 32 bits. The frame has the first five. */
static __always_inline __u64 sum_header(const void *header, const void *end, __u32 words)
{
	const __u32 *word = header;
	__u64 sum = 0;

	for (int i = 0; i < 5; i++)
		sum += word[i];
	for (int i = 5; i < 15 && i < words && (void *)(word + i + 1) <= end; i++)
		sum += word[i];
	return sum;
}

static __always_inline enum parsed take_ipv4(struct cursor *c, struct fields *f)
{
	struct iphdr *ip = c->at;
	__u32 header, total;

	if ((void *)(ip + 1) > c->end)
		return PARSED_MALFORMED;
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (header < sizeof(*ip) || total < header)
		return PARSED_MALFORMED;
	c->ip_sum += sum_header(ip, c->end, ip->ihl);
	c->sum = (__u64)ip->saddr + ip->daddr;
	f->ip_version = 4;
	f->protocol = ip->protocol;
	f->tos = ip->tos;
	f->ttl = ip->ttl;
	__builtin_memset(f->src_ip, 0, 32);
	__builtin_memcpy(f->src_ip, &ip->saddr, 4);
	__builtin_memcpy(f->dst_ip, &ip->daddr, 4);
	if (ip->frag_off & bpf_htons(0x3fff))
		return PARSED_FRAGMENT;
	c->at += header;
	c->left = total - header;
	return PARSED;
}

/* Skips hop-by-hop, routing and destination options (RFC 8200, section 4). */
static __always_inline enum parsed take_extensions6(struct cursor *c, struct fields *f)
{
	for (int i = 0; i < MOST_EXTENSIONS; i++) {
		struct extension6 *extension = c->at;
		__u32 size;

		if (f->protocol == IPPROTO_FRAGMENT)
			return PARSED_FRAGMENT;
		if (f->protocol != IPPROTO_HOPOPTS && f->protocol != IPPROTO_ROUTING && f->protocol != IPPROTO_DSTOPTS)
			return PARSED;
		if ((void *)(extension + 1) > c->end)
			return PARSED_MALFORMED;
		size = (extension->size + 1) * 8;
		if (size > c->left)
			return PARSED_MALFORMED;
		f->protocol = extension->next;
		c->at += size;
		c->left -= size;
	}
	return PARSED_MALFORMED;
}

static __always_inline enum parsed take_ipv6(struct cursor *c, struct fields *f)
{
	struct ipv6hdr *ip = TAKE(c, struct ipv6hdr);
	const __u32 *addresses = (const void *)&ip->saddr;

	if (!ip)
		return PARSED_MALFORMED;
	f->ip_version = 6;
	f->protocol = ip->nexthdr;
	f->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	f->ttl = ip->hop_limit;
	__builtin_memcpy(f->src_ip, &ip->saddr, 16);
	__builtin_memcpy(f->dst_ip, &ip->daddr, 16);
	c->sum = 0;
	for (int i = 0; i < 8; i++)
		c->sum += addresses[i];
	c->left = bpf_ntohs(ip->payload_len);
	return take_extensions6(c, f);
}

/* Skips what follows the fixed GTP-U header. Each extension ends with the type of the next. */
static __always_inline enum parsed take_gtpu_options(struct cursor *c, __u8 flags)
{
	struct gtpu_optional *optional = TAKE(c, struct gtpu_optional);
	__u8 next;

	if (!optional)
		return PARSED_MALFORMED;
	next = flags & 4 ? optional->next_type : 0;
	for (int i = 0; i < MOST_EXTENSIONS && next; i++) {
		__u8 *size = c->at;
		__u8 *after;

		if ((void *)(size + 1) > c->end || !*size)
			return PARSED_MALFORMED;
		after = c->at + *size * 4;
		if ((void *)after > c->end)
			return PARSED_MALFORMED;
		next = after[-1];
		c->at = after;
	}
	return next ? PARSED_MALFORMED : PARSED_IP;
}

/* Skips a GTP-U header that carries a user's packet; anything else on that port is payload. */
static __always_inline enum parsed take_gtpu(struct cursor *c, struct fields *f)
{
	struct gtpu_header *gtpu = c->at;

	if ((void *)(gtpu + 1) > c->end || gtpu->flags >> 4 != 3 || gtpu->type != GTPU_G_PDU)
		return PARSED;
	f->teid = gtpu->teid;
	c->at = gtpu + 1;
	return gtpu->flags & 7 ? take_gtpu_options(c, gtpu->flags) : PARSED_IP;
}

/*
 * The sum of a pseudo header without the addresses; `length`: of header and payload (RFC 768, RFC 9293, RFC 8200 8.1).
 */
static __always_inline __u64 pseudo_header(const struct fields *f, __u32 length)
{
	return bpf_htons(f->protocol) + bpf_htons(length);
}

/* Returns PARSED_IP where the payload may be a user's packet. */
static __always_inline enum parsed take_udp_alone(struct cursor *c, struct fields *f)
{
	struct udphdr *udp = TAKE(c, struct udphdr);

	if (!udp || bpf_ntohs(udp->len) < sizeof(*udp))
		return PARSED_MALFORMED;
	f->src_port = udp->source;
	f->dst_port = udp->dest;
	c->left = bpf_ntohs(udp->len) - sizeof(*udp);
	return udp->dest == bpf_htons(GTPU_PORT) ? PARSED_IP : PARSED;
}

/* `ip_left`: bytes behind the IP header by its length field, which shows a wrong UDP length. */
static __always_inline void sum_udp(struct cursor *c, const struct fields *f, const struct udphdr *udp, __u32 ip_left)
{
	const __u32 *words = (const void *)udp;

	c->sum += pseudo_header(f, c->is_part ? bpf_ntohs(udp->len) : ip_left) + words[0] + words[1];
	if (!udp->check)
		c->sum = 0;
}

static __always_inline enum parsed take_udp(struct cursor *c, struct fields *f)
{
	const struct udphdr *udp = c->at;
	__u32 ip_left = c->left;
	enum parsed found = take_udp_alone(c, f);

	if (found == PARSED_IP)
		found = take_gtpu(c, f);
	if (found == PARSED)
		sum_udp(c, f, udp, ip_left);
	return found;
}

static __always_inline enum parsed take_tcp(struct cursor *c, struct fields *f)
{
	struct tcphdr *tcp = c->at;
	__u32 header;

	if ((void *)(tcp + 1) > c->end)
		return PARSED_MALFORMED;
	header = tcp->doff * 4;
	if (header < sizeof(*tcp) || header > c->left)
		return PARSED_MALFORMED;
	f->src_port = tcp->source;
	f->dst_port = tcp->dest;
	c->sum += pseudo_header(f, c->left) + sum_header(tcp, c->end, tcp->doff);
	c->at += header;
	c->left -= header;
	return PARSED;
}

/* Parses echo messages up to their data. Only ICMPv6 has a pseudo header (RFC 4443, section 2.3). */
static __always_inline enum parsed take_icmp(struct cursor *c, const struct fields *f)
{
	__u64 *icmp = TAKE(c, __u64);

	if (!icmp || c->left < 8)
		return PARSED_MALFORMED;
	c->sum = sum32(*icmp) + (f->protocol == IPPROTO_ICMPV6 ? c->sum + pseudo_header(f, c->left) : 0);
	c->left -= 8;
	return PARSED;
}

/* Skips the transport header. */
static __always_inline enum parsed take_transport(struct cursor *c, struct fields *f)
{
	f->src_port = 0;
	f->dst_port = 0;
	switch (f->protocol) {
	case IPPROTO_UDP:
		return take_udp(c, f);
	case IPPROTO_TCP:
		return take_tcp(c, f);
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return take_icmp(c, f);
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
		return PARSED_IP;
	}
	return PARSED;
}

/* Skips an IP header and the header that it carries. */
static __always_inline enum parsed take_ip(struct cursor *c, struct fields *f)
{
	__u8 version = ip_version(c);
	enum parsed found = PARSED_MALFORMED;

	if (version == 4)
		found = take_ipv4(c, f);
	else if (version == 6)
		found = take_ipv6(c, f);
	return found == PARSED ? take_transport(c, f) : found;
}

static __always_inline enum parsed take_link(struct cursor *c, struct fields *f)
{
	struct ethhdr *ethernet = TAKE(c, struct ethhdr);
	enum parsed found;
	__be16 type;

	if (!ethernet)
		return PARSED_MALFORMED;
	__builtin_memcpy(f->dst_mac, ethernet->h_dest, 2 * ETH_ALEN);
	type = ethernet->h_proto;
	found = take_tags(c, f, &type);
	if (found == PARSED && type == bpf_htons(ETH_P_MPLS_UC)) {
		found = take_labels(c, f);
		type = ip_version(c) == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	}
	if (found != PARSED)
		return found;
	c->left = c->end - c->at;
	return type == bpf_htons(ETH_P_IP) || type == bpf_htons(ETH_P_IPV6) ? PARSED_IP : PARSED;
}

/* Where the payload starts, its length by the innermost length field, and the headers before it. */
struct frame {
	struct fields fields;
	__u64 sum; /* both as struct cursor has them */
	__u64 ip_sum;
	__u32 payload;
	__u32 payload_bytes;
};

/* Set where the kernel has no types of its own and checks a global function at each call: nodes/libbpf.py, load(). */
const volatile __u32 checked_by_call SEC(".rodata.calls") = 0;

/*
 * Does nothing. As it could write to the frame, the verifier forgets what it knows of it, and looks once at what follows,
 * not once for each path through a function that it checks at each call.
 */
__noinline int forget(struct frame *frame)
{
	asm volatile("" ::: "memory");
	return frame ? 0 : 1;
}

static __always_inline int note(struct xdp_md *ctx, struct frame *frame, const struct cursor *c, enum parsed found)
{
	__u32 payload = c->at - (void *)(long)ctx->data;

	/* No frame is that long. The verifier drops a path here that is like an earlier one, now without the position. */
	asm volatile("" : "+r"(payload));
	if (payload > 0xffff)
		return PARSED_MALFORMED;
	frame->payload = payload;
	frame->payload_bytes = c->left;
	frame->sum = c->sum;
	frame->ip_sum += c->ip_sum;
	if (checked_by_call) /* a call costs as much as several words of a sum */
		forget(frame);
	return found;
}

/*
 * The two steps of parsing are global functions: the verifier checks each once, not once per path through the code
 * before it.
 */
__noinline int parse_link(struct xdp_md *ctx, struct frame *frame)
{
	struct cursor c = { .at = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };

	if (!frame)
		return PARSED_MALFORMED;
	return note(ctx, frame, &c, take_link(&c, &frame->fields));
}

__noinline int parse_ip(struct xdp_md *ctx, struct frame *frame)
{
	struct cursor c = { .at = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };

	if (!frame || frame->payload > MOST_HEADER_BYTES)
		return PARSED_MALFORMED;
	c.at += frame->payload;
	return note(ctx, frame, &c, take_ip(&c, &frame->fields));
}
