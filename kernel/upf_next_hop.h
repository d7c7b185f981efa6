/* SPDX-License-Identifier: GPL-2.0-only */
/* The next hop of a packet, from the kernel's routing and neighbour tables. */
#pragma once

#include "upf_gtpu.h"

#define NEXT_HOPS 64 /* a power of two */

/* The next hop to an address, as the kernel found it in this tick of its clock (1 to 10 ms). */
struct next_hop {
	__u64 tick; /* 0: none */
	__u32 to[4];
	__u32 family;
	__u32 index; /* of the port */
	__u8 macs[2 * ETH_ALEN]; /* of it, and of the port */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NEXT_HOPS);
	__type(key, __u32);
	__type(value, struct next_hop);
} next_hops SEC(".maps");

/*
 * Looks up the next hop; returns 0 when the way out is `index` and the neighbour is known. The kernel's look-up takes as
 * long as everything else here, so its answer serves all packets to that address in the same tick.
 */
static __always_inline int find_way(struct xdp_md *ctx, struct bpf_fib_lookup *way, __u32 index)
{
	__u32 key = (way->ipv6_dst[0] ^ way->ipv6_dst[3] ^ way->ipv6_dst[0] >> 24 ^ way->ipv6_dst[3] >> 24) & (NEXT_HOPS - 1);
	struct next_hop *hop = bpf_map_lookup_elem(&next_hops, &key);
	__u64 tick = bpf_jiffies64();

	if (!hop) /* the verifier does not know that it is there */
		return -1;
	if (hop->tick == tick && hop->family == way->family && hop->index == index &&
	    hop->to[0] == way->ipv6_dst[0] && hop->to[1] == way->ipv6_dst[1] &&
	    hop->to[2] == way->ipv6_dst[2] && hop->to[3] == way->ipv6_dst[3]) {
		__builtin_memcpy(way->dmac, hop->macs, ETH_ALEN);
		__builtin_memcpy(way->smac, hop->macs + ETH_ALEN, ETH_ALEN);
		return 0;
	}
	hop->tick = 0;
	__builtin_memcpy(hop->to, way->ipv6_dst, sizeof(hop->to)); /* which the look-up overwrites */
	if (bpf_fib_lookup(ctx, way, sizeof(*way), 0) != BPF_FIB_LKUP_RET_SUCCESS || way->ifindex != index)
		return -1;
	hop->tick = tick;
	hop->family = way->family;
	hop->index = index;
	__builtin_memcpy(hop->macs, way->dmac, ETH_ALEN);
	__builtin_memcpy(hop->macs + ETH_ALEN, way->smac, ETH_ALEN);
	return 0;
}
