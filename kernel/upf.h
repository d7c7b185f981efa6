/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The structs that the data path (upf.bpf.c) and the control plane (lab/upf/datapath.py) of the lab's UPF share;
 * tests/unit/test_upf_layout.py compares the two through the compiled object's BTF.
 */
#pragma once

#include <linux/types.h>

#define MOST_RULES 4 /* PDRs of one TEID, or of one UE address */
#define MOST_POLICERS 2 /* a QER of its flow, and one of its session */
#define MOST_COUNTS 262144 /* PDRs, and with them policers and keys */
#define OWN_COUNTS 15 /* so many processors have counts of their own (4 MiB each), the others share a further one */
#define EVENT_BYTES 2048

enum direction { UPLINK, DOWNLINK };
enum port { N3, N6 };

/* The outer IP versions of a tunnel: bits as in an F-TEID (TS 29.244, 8.2.3). */
enum outer { OUTER_IPV4 = 1, OUTER_IPV6 = 2 };

/* Apply Action, TS 29.244 8.2.26 */
enum apply_action { DROP = 1, FORWARD = 2, BUFFER = 4, NOTIFY = 8 };

/* The reason why a session's packet was not sent on. */
enum reason { BY_GATE, BY_RATE, BY_RULE, TOO_BIG, NO_NEIGHBOUR, BY_FAULT, BUFFERED, NO_ROOM, REASONS };

enum total {
	FORWARDED_UPLINK, FORWARDED_DOWNLINK,
	UNKNOWN_TEID, UNKNOWN_UE, NO_RULE, MALFORMED, FRAGMENT,
	ECHO_REQUEST, ECHO_RESPONSE, ERROR_INDICATION_SENT, ERROR_INDICATION_SEEN, END_MARKER_SEEN, OTHER_GTPU,
	TOTALS,
};

/*
 * A PDR with its FAR and its QERs. Addresses and TEIDs are big-endian; ports and the rest are in this machine's order.
 */
struct rule {
	__u32 remote; /* SDF filter: the far side's IPv4 address, */
	__u32 remote_mask; /* 0: any, IPv6 too; */
	__u16 port_first; /* its port, 0 to 65535: any; */
	__u16 port_last;
	__u8 protocol; /* 0: any */
	__u8 action;
	__u8 gate_closed;
	__u8 has_qfi; /* downlink with the PDU session container */
	__u8 qfi;
	__u8 check_ue; /* uplink: the user's own address must be one of these two */
	__u8 outer; /* uplink: accepted outer versions (one or both); downlink: the one to use */
	__u8 zero;
	__u32 ue4;
	__u32 ue6[2]; /* its /64 prefix */
	__u32 counts; /* index */
	__u32 policers[MOST_POLICERS]; /* indices, 0: none */
	__u32 gnb[4]; /* outer header creation; IPv4: the first */
	__u32 teid;
};

/* In the order of precedence. One entry of the hash, which the kernel replaces as a whole. */
struct rules {
	__u32 count;
	struct rule rule[MOST_RULES];
};

struct dropped {
	__u64 packets[REASONS];
};

/* Sent on by one processor, which mostly is the only one that writes it: addition in memory that others share is slow. */
struct sent {
	__u64 packets;
	__u64 bytes; /* of the users' IP packets */
};

/* Each processor has one of these too. */
struct totals {
	__u64 packets[TOTALS];
	__u64 unused[3]; /* up to a multiple of a cache line */
};

/*
 * A token bucket by the virtual scheduling algorithm (ITU-T I.371, annex A): one number, changed by one
 * compare-and-exchange. `due` is the due time of the next packet at the rate, in 1/256 ns.
 */
struct policer {
	__u64 due;
	__u64 byte_cost; /* 2^-20 ns per byte; 0: nothing passes */
	__u64 burst; /* the most that a packet may precede its due time, in 1/256 ns */
};

enum fault_action { FAULT_NONE, FAULT_DROP, FAULT_TEID, FAULT_DELAY, FAULT_HOLD };

struct fault_key {
	__u64 number; /* number among its direction's packets to be sent on, from 0 */
	__u32 direction;
	__u32 zero;
};

struct fault {
	__u32 action;
	__u32 release; /* held packets follow this one */
	__u64 value; /* delay in ns; XOR mask of the TEID (big-endian); or number of packets that it is held for */
};

enum event_kind { EVENT_BUFFERED, EVENT_DELAYED, EVENT_HELD, EVENT_RELEASE, EVENT_NO_NEIGHBOUR };

struct event_head {
	__u32 kind;
	__u32 port; /* the port that the frame leaves by */
	__u32 counts;
	__u32 frame_bytes;
	__u64 number;
	__u64 value;
	__u64 time_ns; /* CLOCK_MONOTONIC */
};

struct event {
	struct event_head head;
	__u8 frame[EVENT_BYTES]; /* EVENT_BUFFERED: the user's packet; EVENT_NO_NEIGHBOUR: a packet to that neighbour */
};

struct settings {
	__u32 n3_index;
	__u32 n6_index;
	__u32 n3_ipv4; /* big-endian */
	__u32 n6_ipv4;
	__u32 n3_ipv6[4]; /* all zero: none */
	__u32 mtu;
	__u8 n3_mac[6];
	__u8 n6_mac[6];
};
