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
	__u16 macs[ETH_ALEN]; /* of it, and of the port, as in a frame */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NEXT_HOPS);
	__type(key, __u32);
	__type(value, struct next_hop);
} next_hops SEC(".maps");

/*
 * Returns the next hop from `from` to `to` when the way out is `out` and the neighbour is known, else 0. `in`: the port that
 * the packet came in at. The kernel's look-up takes as long as everything else here, so its answer serves all packets to that
 * address in the same tick.
 */
static __always_inline const struct next_hop *find_way(struct xdp_md *ctx, __u32 family, const __u32 *from, const __u32 *to,
						       __u32 in, __u32 out)
{
	__u32 key = (to[0] ^ to[3] ^ to[0] >> 24 ^ to[3] >> 24) & (NEXT_HOPS - 1);
	struct next_hop *hop = bpf_map_lookup_elem(&next_hops, &key);
	struct bpf_fib_lookup way = {};
	__u64 tick = bpf_jiffies64();

	if (!hop) /* the verifier does not know that it is there */
		return 0;
	if (hop->tick == tick && hop->family == family && hop->index == out && hop->to[0] == to[0] && hop->to[1] == to[1] &&
	    hop->to[2] == to[2] && hop->to[3] == to[3])
		return hop;
	way.ifindex = in;
	way.family = family;
	for (int i = 0; i < 4; i++) {
		way.ipv6_src[i] = from[i];
		way.ipv6_dst[i] = hop->to[i] = to[i];
	}
	hop->tick = 0;
	if (bpf_fib_lookup(ctx, &way, sizeof(way), 0) != BPF_FIB_LKUP_RET_SUCCESS || way.ifindex != out)
		return 0;
	hop->tick = tick;
	hop->family = family;
	hop->index = out;
	__builtin_memcpy(hop->macs, way.dmac, ETH_ALEN);
	__builtin_memcpy(&hop->macs[ETH_ALEN / 2], way.smac, ETH_ALEN);
	return hop;
}
