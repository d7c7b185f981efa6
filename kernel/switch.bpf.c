// SPDX-License-Identifier: GPL-2.0-only
/*
 * A learning switch (IEEE 802.1D) for the lab: a frame goes from port to port as it is, and never becomes an skb. One
 * program serves all ports of a switch; each port has it attached, and is in `ways`.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "switch.h"

#define VLAN_ID 0x0fff

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MOST_PORTS);
	__type(key, __u32); /* interface number */
	__type(value, __u32); /* the same */
} ways SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MOST_PORTS);
	__type(key, __u32); /* interface number */
	__type(value, struct port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MOST_STATIONS);
	__type(key, struct station);
	__type(value, struct place);
} stations SEC(".maps");

__u32 changes; /* how often a station came or moved: what was decided before holds no more */

/*
 * struct station as one word, in the memory order of a little-endian processor. Made in a register: a word that is read right
 * after its parts were written waits until they are in memory.
 */
static __always_inline __u64 station_of(const __u8 *mac, __u16 vlan)
{
	const __u16 *parts = (const void *)mac;

	return vlan | (__u64)parts[0] << 16 | (__u64)parts[1] << 32 | (__u64)parts[2] << 48;
}

static __always_inline int is_group(__u64 station)
{
	return station >> 16 & 1;
}

static __always_inline void learn(__u64 from, __u32 port, __u64 now_ns)
{
	struct place *known = bpf_map_lookup_elem(&stations, &from);
	struct place here = {.port = port, .seen_ns = now_ns};

	if (!known || known->port != port) {
		bpf_map_update_elem(&stations, &from, &here, BPF_ANY);
		__sync_fetch_and_add(&changes, 1);
	} else if (now_ns - known->seen_ns > REFRESH_NS) {
		known->seen_ns = now_ns;
	}
}

/* The port of a station; 0: unknown, or not seen for too long. */
static __always_inline __u32 port_of(__u64 to, __u64 now_ns)
{
	struct place *known = bpf_map_lookup_elem(&stations, &to);

	return known && now_ns - known->seen_ns < AGEING_NS ? known->port : 0;
}

/*
 * 01:80:c2:00:00:01 to :0f (pause, LACP, LLDP, ...): no bridge forwards them. That of spanning tree (:00) is forwarded as a
 * Linux bridge without spanning tree does.
 */
static __always_inline int is_reserved(const __u8 *mac)
{
	return mac[0] == 0x01 && mac[1] == 0x80 && mac[2] == 0xc2 && !mac[3] && !mac[4] && mac[5] && mac[5] < 0x10;
}

/* Learns, looks up, and remembers the decision for the next frame. */
static __always_inline void decide(struct decision *last, __u64 from, __u64 to, __u32 in, __u64 now)
{
	__u64 now_ns = bpf_ktime_get_coarse_ns();

	if (!is_group(from))
		learn(from, in, now_ns);
	/* Before the table is read: a change meanwhile makes the decision void. */
	last->changes = *(volatile __u32 *)&changes;
	last->out = is_group(to) ? 0 : port_of(to, now_ns);
	last->from = from;
	last->to = to;
	last->made = now;
}

SEC("xdp.frags")
int lab_switch(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u32 in = context->ingress_ifindex;
	struct port *port = bpf_map_lookup_elem(&ports, &in);
	__u64 from, to, now = bpf_jiffies64() >> TICKS_BITS;
	struct ethhdr *ethernet = data;
	struct decision *last;
	__u16 vlan = 0;

	if (!port)
		return XDP_DROP; /* lab/switch/xdp.py has refused such a number */
	if (data + sizeof(*ethernet) > end || is_reserved(ethernet->h_dest)) {
		port->counts.discarded++;
		return XDP_DROP;
	}
	if (ethernet->h_proto == bpf_htons(ETH_P_8021Q) || ethernet->h_proto == bpf_htons(ETH_P_8021AD)) {
		__be16 *tag = (void *)(ethernet + 1);

		if ((void *)(tag + 2) > end) {
			port->counts.discarded++;
			return XDP_DROP;
		}
		vlan = bpf_ntohs(*tag) & VLAN_ID;
	}
	from = station_of(ethernet->h_source, vlan);
	to = station_of(ethernet->h_dest, vlan);
	last = &port->last;
	if (last->from != from || last->to != to || last->changes != changes || last->made != now)
		decide(last, from, to, in, now);
	if (last->out == in) {
		port->counts.filtered++;
		return XDP_DROP;
	}
	if (last->out) {
		port->counts.forwarded++;
		return bpf_redirect_map(&ways, last->out, 0);
	}
	port->counts.flooded++;
	return bpf_redirect_map(&ways, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
}

char LICENSE[] SEC("license") = "GPL";
