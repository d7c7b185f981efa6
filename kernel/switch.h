/* SPDX-License-Identifier: GPL-2.0-only */
/* The limits and structs of the lab's switch (switch.bpf.c). Its user-space half is lab/switch. */
#pragma once

#include <linux/types.h>

#define MOST_PORTS 512 /* a port is named by its interface number, which is below */
#define MOST_STATIONS 16384
#define AGEING_NS 300000000000ULL /* IEEE 802.1D, 7.9.2 */
#define REFRESH_NS 1000000000ULL /* how long the time of an entry stays as it is */
#define TICKS_BITS 8 /* a decision is used again for 256 ticks of the kernel: 0.26 to 2.6 s */

struct station {
	__u16 vlan; /* 0: untagged */
	__u8 mac[6];
};

/* Where a station was seen last. */
struct place {
	__u32 port;
	__u32 unused;
	__u64 seen_ns; /* of the kernel's coarse clock */
};

/* The frames that came in at a port. */
struct port_counts {
	__u64 forwarded; /* to the port of the destination */
	__u64 flooded; /* to all other ports: broadcast, multicast, an unknown destination */
	__u64 filtered; /* the destination is at the port that they came from */
	__u64 discarded; /* truncated, or for the switch itself (IEEE 802.1D, 7.12.6) */
};

/* What was decided for the last frame of a port: the next one mostly has the same addresses. */
struct decision {
	__u64 from, to; /* struct station, as one word */
	__u32 out; /* 0: to all other ports */
	__u32 changes; /* of the table at that time */
	__u64 made; /* ticks of the kernel >> TICKS_BITS */
};

/* A port, for each processor. */
struct port {
	struct port_counts counts;
	struct decision last;
};
