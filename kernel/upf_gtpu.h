/* SPDX-License-Identifier: GPL-2.0-only */
/* Parses a frame up to the user's packet in it, and GTP-U's own messages (3GPP TS 29.281). */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "upf.h"

#define GTPU_PORT 2152
#define MOST_EXTENSIONS 6
#define MOST_OFFSET 1023
#define PDU_SESSION_CONTAINER 0x85
#define CHUNK_BYTES 128 /* bytes per step of a checksum; a power of two */
#define MOST_CHUNKS 72 /* for 9000 bytes */

enum gtpu_type { GTPU_ECHO_REQUEST = 1, GTPU_ECHO_RESPONSE = 2, GTPU_ERROR = 26, GTPU_END_MARKER = 254, GTPU_G_PDU = 255 };

struct gtpu {
	__u8 flags; /* version (3 bits), PT, a reserved bit, E, S, PN */
	__u8 type;
	__be16 length; /* of the bytes behind these eight */
	__be32 teid;
};

struct gtpu_options { /* present as a whole when any of E, S, PN is set */
	__be16 sequence;
	__u8 npdu;
	__u8 next_type;
};

#define GTPU_OVERHEAD (sizeof(struct udphdr) + sizeof(struct gtpu))

/* The parsed parts of a frame. `at`: the current offset; `left`: bytes from there by the headers before it. */
struct packet {
	__u32 at;
	__u32 left;
	__u32 direction;
	__u32 frame_bytes;
	/* GTP-U */
	__u32 outer; /* its IP version; 0: the header is truncated */
	__u32 outer_src[4]; /* IPv4: the first */
	__u32 outer_dst[4];
	__u32 teid;
	__u32 gtpu_type;
	__u32 sequence;
	__u32 source_port; /* big-endian as in the frame, except the type */
	/* the user's IP packet */
	__u32 version;
	__u32 bytes;
	__u32 ue4;
	__u32 ue6[2];
	__u32 remote;
	__u32 has_port;
	__u32 port;
	__u32 protocol;
	__u32 to[4]; /* destination */
	__u32 from[4];
};

enum found { FOUND, FOUND_MALFORMED, FOUND_FRAGMENT, FOUND_OTHER };

static __always_inline void *place(struct xdp_md *ctx, __u32 at)
{
	return (void *)(long)ctx->data + at;
}

#define FITS(ctx, header) ((void *)((header) + 1) <= (void *)(long)(ctx)->data_end)

/* Skips an outer IPv4 header; p->left becomes the length that it states. */
static __always_inline int take_outer4(struct xdp_md *ctx, struct packet *p)
{
	struct iphdr *ip = place(ctx, ETH_HLEN);
	__u32 total, header;

	if (!FITS(ctx, ip))
		return FOUND_MALFORMED;
	p->outer = OUTER_IPV4;
	p->outer_src[0] = ip->saddr;
	p->outer_dst[0] = ip->daddr;
	if (ip->protocol != IPPROTO_UDP)
		return FOUND_OTHER;
	if (ip->frag_off & bpf_htons(0x3fff))
		return FOUND_FRAGMENT;
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	p->frame_bytes = bpf_xdp_get_buff_len(ctx);
	if (header < sizeof(*ip) || total < header || ETH_HLEN + total > p->frame_bytes)
		return FOUND_MALFORMED;
	p->at = ETH_HLEN + header;
	p->left = total - header;
	return FOUND;
}

/* Skips an outer IPv6 header. The kernel handles one with extension headers; lab/upf returns the content. */
static __always_inline int take_outer6(struct xdp_md *ctx, struct packet *p)
{
	struct ipv6hdr *ip = place(ctx, ETH_HLEN);

	if (!FITS(ctx, ip))
		return FOUND_MALFORMED;
	p->outer = OUTER_IPV6;
	__builtin_memcpy(p->outer_src, &ip->saddr, 16);
	__builtin_memcpy(p->outer_dst, &ip->daddr, 16);
	if (ip->nexthdr == IPPROTO_FRAGMENT)
		return FOUND_FRAGMENT;
	if (ip->nexthdr != IPPROTO_UDP)
		return FOUND_OTHER;
	p->at = ETH_HLEN + sizeof(*ip);
	p->left = bpf_ntohs(ip->payload_len);
	p->frame_bytes = bpf_xdp_get_buff_len(ctx);
	return p->at + p->left > p->frame_bytes ? FOUND_MALFORMED : FOUND;
}

/*
 * The sum (RFC 1071) of the UDP datagram of `bytes` behind an outer IPv6 header, with its pseudo header (RFC 8200,
 * 8.1): 0xffff if its checksum is correct. Negative: the frame is truncated.
 */
__noinline int sum_udp6(struct xdp_md *ctx, __u32 bytes)
{
	__u32 at = ETH_HLEN + __builtin_offsetof(struct ipv6hdr, saddr);
	__u32 left = 2 * sizeof(struct in6_addr) + bytes;
	__u32 sum = bpf_htonl(bytes + IPPROTO_UDP);
	__u32 chunk[CHUNK_BYTES / 4];

	for (int i = 0; i < MOST_CHUNKS && left >= CHUNK_BYTES; i++) {
		if (bpf_xdp_load_bytes(ctx, at, chunk, CHUNK_BYTES))
			return -1;
		sum = bpf_csum_diff(0, 0, chunk, CHUNK_BYTES, sum);
		at += CHUNK_BYTES;
		left -= CHUNK_BYTES;
	}
	if (left >= CHUNK_BYTES)
		return -1;
	if (left) {
		__builtin_memset(chunk, 0, CHUNK_BYTES);
		left = (left - 1) & (CHUNK_BYTES - 1);
		if (bpf_xdp_load_bytes(ctx, at, chunk, left + 1))
			return -1;
		sum = bpf_csum_diff(0, 0, chunk, CHUNK_BYTES, sum);
	}
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/*
 * Finds GTP-U behind an outer IP header and a UDP header to port 2152. Over IPv6 the checksum must be present and
 * correct.
 */
__noinline int find_gtpu(struct xdp_md *ctx, struct packet *p)
{
	struct ethhdr *ethernet = place(ctx, 0);
	struct udphdr *udp;
	__u32 bytes;
	int found;

	if (!p || !FITS(ctx, ethernet))
		return FOUND_MALFORMED;
	found = ethernet->h_proto == bpf_htons(ETH_P_IP) ? take_outer4(ctx, p) : take_outer6(ctx, p);
	if (found != FOUND)
		return found;
	udp = place(ctx, p->at & MOST_OFFSET);
	if (!FITS(ctx, udp))
		return FOUND_MALFORMED;
	if (udp->dest != bpf_htons(GTPU_PORT))
		return FOUND_OTHER;
	bytes = bpf_ntohs(udp->len);
	if (bytes < sizeof(*udp) || bytes > p->left)
		return FOUND_MALFORMED;
	p->source_port = udp->source;
	p->at += sizeof(*udp);
	p->left = bytes - sizeof(*udp);
	if (p->outer == OUTER_IPV6 && (!udp->check || sum_udp6(ctx, bytes) != 0xffff))
		return FOUND_MALFORMED;
	return FOUND;
}

/* Skips extension headers: each begins with its length in units of 4 bytes and ends with the type of the next. */
static __always_inline int skip_extensions(struct xdp_md *ctx, struct packet *p, __u32 next)
{
	for (int i = 0; i < MOST_EXTENSIONS && next; i++) {
		__u8 *size = place(ctx, p->at & MOST_OFFSET), *last;
		__u32 bytes, behind;

		if (!FITS(ctx, size) || !*size)
			return FOUND_MALFORMED;
		bytes = *size * 4;
		behind = bytes - 1;
		asm volatile("" : "+r"(behind)); /* against a detour that the verifier rejects */
		last = size + (behind & MOST_OFFSET);
		if (!FITS(ctx, last) || bytes > p->left || p->at + bytes > MOST_OFFSET)
			return FOUND_MALFORMED;
		next = *last;
		p->at += bytes;
		p->left -= bytes;
	}
	return next ? FOUND_MALFORMED : FOUND;
}

/* Skips a GTP-U header with its optional fields. */
__noinline int take_gtpu(struct xdp_md *ctx, struct packet *p)
{
	struct gtpu_options *options;
	struct gtpu *gtpu;

	if (!p || p->at > MOST_OFFSET)
		return FOUND_MALFORMED;
	gtpu = place(ctx, p->at);
	if (!FITS(ctx, gtpu) || p->left < sizeof(*gtpu) || gtpu->flags >> 4 != 3)
		return FOUND_MALFORMED;
	if (bpf_ntohs(gtpu->length) > p->left - sizeof(*gtpu))
		return FOUND_MALFORMED;
	p->left = bpf_ntohs(gtpu->length);
	p->teid = gtpu->teid;
	p->gtpu_type = gtpu->type;
	p->at += sizeof(*gtpu);
	if (!(gtpu->flags & 7))
		return FOUND;
	options = (void *)(gtpu + 1);
	if (!FITS(ctx, options) || p->left < sizeof(*options))
		return FOUND_MALFORMED;
	p->sequence = options->sequence;
	p->at += sizeof(*options);
	p->left -= sizeof(*options);
	return gtpu->flags & 4 ? skip_extensions(ctx, p, options->next_type) : FOUND;
}

static __always_inline int take_user4(struct xdp_md *ctx, struct packet *p)
{
	struct iphdr *ip = place(ctx, p->at);
	__be16 *ports;
	__u32 header;

	if (!FITS(ctx, ip))
		return FOUND_MALFORMED;
	header = ip->ihl * 4;
	p->bytes = bpf_ntohs(ip->tot_len);
	if (header < sizeof(*ip) || p->bytes < header || p->bytes > p->left)
		return FOUND_MALFORMED;
	p->version = 4;
	p->protocol = ip->protocol;
	p->from[0] = ip->saddr;
	p->to[0] = ip->daddr;
	p->ue4 = p->direction == UPLINK ? ip->saddr : ip->daddr;
	p->remote = p->direction == UPLINK ? ip->daddr : ip->saddr;
	ports = (void *)ip + header;
	if (!(ip->frag_off & bpf_htons(0x1fff)) && p->bytes >= header + 4 && (void *)(ports + 2) <= (void *)(long)ctx->data_end) {
		p->has_port = ip->protocol == IPPROTO_UDP || ip->protocol == IPPROTO_TCP;
		p->port = bpf_ntohs(p->direction == UPLINK ? ports[1] : ports[0]);
	}
	return FOUND;
}

static __always_inline int take_user6(struct xdp_md *ctx, struct packet *p)
{
	struct ipv6hdr *ip = place(ctx, p->at);
	__be16 *ports = (void *)(ip + 1);

	if (!FITS(ctx, ip))
		return FOUND_MALFORMED;
	p->bytes = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (p->bytes > p->left)
		return FOUND_MALFORMED;
	p->version = 6;
	p->protocol = ip->nexthdr;
	__builtin_memcpy(p->from, &ip->saddr, 16);
	__builtin_memcpy(p->to, &ip->daddr, 16);
	p->ue6[0] = p->direction == UPLINK ? p->from[0] : p->to[0];
	p->ue6[1] = p->direction == UPLINK ? p->from[1] : p->to[1];
	if (p->bytes >= sizeof(*ip) + 4 && (void *)(ports + 2) <= (void *)(long)ctx->data_end) {
		p->has_port = p->protocol == IPPROTO_UDP || p->protocol == IPPROTO_TCP;
		p->port = bpf_ntohs(p->direction == UPLINK ? ports[1] : ports[0]);
	}
	return FOUND;
}

/* Parses the user's IP packet at p->at. */
__noinline int take_user(struct xdp_md *ctx, struct packet *p)
{
	__u8 *first;

	if (!p || p->at > MOST_OFFSET)
		return FOUND_MALFORMED;
	first = place(ctx, p->at);
	if (!FITS(ctx, first))
		return FOUND_MALFORMED;
	if (*first >> 4 == 4)
		return take_user4(ctx, p);
	return *first >> 4 == 6 ? take_user6(ctx, p) : FOUND_MALFORMED;
}

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

static __always_inline void write_udp(struct udphdr *udp, __be16 port, __u32 bytes)
{
	udp->source = bpf_htons(GTPU_PORT);
	udp->dest = port;
	udp->len = bpf_htons(bytes);
	udp->check = 0;
}

/* Writes an IPv4 header of 20 bytes and a UDP header without a checksum, which is optional (TS 29.281). */
static __always_inline void write_outer4(struct iphdr *ip, __u32 from, __u32 to, __be16 port, __u32 udp_bytes)
{
	__u32 sum = 0;

	ip->version = 4;
	ip->ihl = 5;
	ip->tos = 0;
	ip->tot_len = bpf_htons(sizeof(*ip) + udp_bytes);
	ip->id = 0;
	ip->frag_off = bpf_htons(0x4000); /* don't fragment */
	ip->ttl = 64;
	ip->protocol = IPPROTO_UDP;
	ip->check = 0;
	ip->saddr = from;
	ip->daddr = to;
	for (int i = 0; i < 10; i++)
		sum += ((__u16 *)ip)[i];
	ip->check = fold(sum);
	write_udp((void *)(ip + 1), port, udp_bytes);
}

/* Writes an IPv6 header and a UDP header; the checksum is completed when everything that it covers is written. */
static __always_inline void write_outer6(struct ipv6hdr *ip, const volatile __u32 *from, const __u32 *to, __be16 port,
					 __u32 udp_bytes)
{
	*(__be32 *)ip = bpf_htonl(6 << 28);
	ip->payload_len = bpf_htons(udp_bytes);
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = 64;
	for (int i = 0; i < 4; i++) {
		ip->saddr.in6_u.u6_addr32[i] = from[i];
		ip->daddr.in6_u.u6_addr32[i] = to[i];
	}
	write_udp((void *)(ip + 1), port, udp_bytes);
}

/*
 * Completes the UDP checksum. RFC 6935 lets tunnels omit it, but by default a receiver then drops the packet (RFC 8200,
 * 8.1).
 */
static __always_inline int mend_udp6(struct xdp_md *ctx, __u32 udp_bytes)
{
	int sum = sum_udp6(ctx, udp_bytes);
	struct udphdr *udp = place(ctx, ETH_HLEN + sizeof(struct ipv6hdr));

	if (sum < 0 || !FITS(ctx, udp))
		return -1;
	udp->check = sum == 0xffff ? 0xffff : ~sum;
	return 0;
}
