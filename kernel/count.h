/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The structs that count.bpf.c and its user-space half share. Python's table of the same structs is
 * traffic/counting/kernel_structs.py; tests/lab/test_xdp_receiver_times.py compares the two through the object's BTF.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

#include "count_histogram.h"

/*
 * The header fields of a frame that a receiver can expect, in network byte order, from the innermost IP header (in a
 * tunnel, the user's). A field that the frame lacks is zero.
 */
struct fields {
	__u8 dst_mac[6];
	__u8 src_mac[6];
	__u16 vlan_outer; /* the whole TCI */
	__u16 vlan_inner;
	__u8 tags;
	__u8 ip_version;
	__u8 protocol;
	__u8 tos; /* DSCP and ECN */
	__u8 ttl;
	__u8 labels; /* number of MPLS labels */
	__u16 unused;
	__u16 src_port;
	__u16 dst_port;
	__u32 teid;
	__u8 src_ip[16]; /* IPv4: the first four */
	__u8 dst_ip[16];
};

#define FIELD_WORDS (sizeof(struct fields) / 8)

/* The differences of an altered frame from the expected one: bits of a set, and indices of tally.altered_by. */
enum cause {
	CAUSE_DST_MAC,
	CAUSE_SRC_MAC,
	CAUSE_VLAN,
	CAUSE_PROTOCOL,
	CAUSE_DSCP,
	CAUSE_TTL,
	CAUSE_MPLS,
	CAUSE_SRC_PORT,
	CAUSE_DST_PORT,
	CAUSE_TEID,
	CAUSE_SRC_IP,
	CAUSE_DST_IP,
	CAUSE_LENGTH,
	CAUSE_PAYLOAD,
	CAUSE_STAMP, /* number, time or stream: the packet's number is unknown then */
	CAUSE_CHECKSUM, /* an Internet checksum over the headers is wrong, without another cause */
	CAUSES = 16,
};

/* The Internet checksums that are correct in a leg's frames: bits of a set. */
enum sums {
	SUMS_IP = 1, /* of each IPv4 header */
	SUMS_TRANSPORT = 2, /* of the innermost UDP, TCP or ICMP */
};

/* The expected content of a stamped leg's frames. The offset may be written while frames arrive. */
struct expectation {
	__u64 mask[FIELD_WORDS];
	__u64 value[FIELD_WORDS];
	__s64 offset_ns; /* added to this clock to obtain the sender's */
	__u64 bias_ns; /* error bound of the offset: added in the histogram, where no latency is below zero then */
	__u64 limit; /* all sequence numbers are below it; 0: unknown */
	__u32 payload_bytes; /* 0: any */
	__u32 timed; /* the clocks are comparable: latencies are counted */
	__u32 numbered; /* enum numbered: 0 for legs recognised by their bytes alone */
	__u32 clocked; /* the stamps hold the times at which the frames left */
	__u32 marks; /* number of this leg's words in `marks`, if other nodes count it too; else 0 */
	__u32 first_mark;
	__u32 sums; /* enum sums */
	__u32 by_headers; /* the headers can identify a frame with a damaged stamp as this leg's */
};

/* The origin of the sequence numbers of a leg's frames. */
enum numbered {
	NUMBERED_NOT,
	NUMBERED_BY_US, /* struct stamp */
	NUMBERED_BY_PKTGEN, /* struct pktgen_header, in frames recognised by their bytes */
};

/*
 * How a leg's users are distinguished: user n has first + n * step in a field. The field is the bits under `mask` of
 * one word of struct fields, read as a big-endian number and shifted right.
 */
struct user_rule {
	__u64 first;
	__u64 step;
	__u64 mask;
	__u32 count; /* 0: this leg has no users */
	__u32 base; /* index of the first user in `users`; the entry behind the last user counts the frames of none */
	__u32 word;
	__u32 shift;
};

/*
 * The frames of one user. A user belongs to one leg, so the leg's lock covers it. The size is one cache line: the map
 * begins at a page, so a frame touches one line of it.
 */
struct user {
	__u64 packets;
	__u64 bytes; /* without FCS */
	__u64 distinct;
	__u64 latencies; /* number of frames in the figures below, as in struct tally */
	__s64 latency_sum_ns;
	__s64 latency_min_ns;
	__s64 latency_max_ns;
	__u64 damaged; /* altered frames of this user with an unreadable number */
};

/*
 * The counts of one leg. The lock covers everything, whichever CPU a frame arrives on, and the figures are consistent:
 * packets = distinct + duplicated + too_late + invalid_sequence + damaged.
 */
struct tally {
	struct bpf_spin_lock lock;
	__u32 scratch;
	__u64 done; /* equal to packets, but written last and read first: see copy_tally() */
	__u64 bytes; /* without FCS */
	__u64 distinct;
	__u64 duplicated;
	__u64 reordered;
	__u64 too_late; /* older than the window: may be duplicates */
	__u64 invalid_sequence; /* a number beyond the limit, or one far ahead that no second frame confirmed */
	__u64 damaged; /* the stamp does not verify: altered frames of this leg with an unreadable number */
	__u64 altered;
	__u64 altered_by[CAUSES];
	__u64 next; /* the highest number so far, plus one */
	__u64 candidate; /* a number far ahead, plus one; accepted when the next frame agrees */
	__u64 candidate_user; /* index of its user in `users` */
	__u64 first_ns;
	__u64 last_ns;
	/* Over the first frame of each number, if its payload is whole: */
	__u64 latencies; /* number of frames in the figures below */
	__s64 latency_sum_ns;
	__s64 latency_min_ns;
	__s64 latency_max_ns;
	__u64 negative; /* latencies below zero despite the bias: counted as zero in the histogram */
	__u64 impossible; /* times that the clocks' error bound and the run's start exclude: without a latency */
	__u64 moments; /* number of timed frames, including the first */
	__u64 moment_distinct; /* `distinct` at the last of them */
	__s64 transit_ns; /* of the last timed frame: this clock less the sender's, with the offset in it */
	__u64 jitter_pairs;
	__s64 jitter_sum_ns;
	__u64 jitter_squares_low; /* 128 bits: squares of nanoseconds overflow 64 in seconds */
	__u64 jitter_squares_high;
	__u64 jitter_clipped; /* differences above 4.29 s, counted as 4.29 s */
	__u64 jitter_rfc3550_16; /* sixteen times the estimate, RFC 3550 A.8 */
	__u64 packets; /* written first and read last: without a lock, packets above done mark a torn reading */
};

/*
 * The sequence numbers seen. Each word holds the block of 64 numbers that it stands for, so a jump clears nothing: the
 * first frame of a higher block takes the word over. A duplicate is detected exactly unless a number 64 * (WINDOW_WORDS
 * - 1) ahead of it has arrived before.
 */
#define WINDOW_WORDS 2048

struct window_word {
	__u64 number; /* sequence number / 64 + 1; 0: none yet */
	__u64 seen;
};

struct window {
	struct window_word words[WINDOW_WORDS];
};

struct histogram {
	__u64 buckets[HISTOGRAM_BUCKETS];
};

/*
 * The bytes that identify an unstamped leg: traffic.counting.match.Match. The first row that fits determines the leg.
 */
#define HEAD_BYTES 160
#define HEAD_WORDS (HEAD_BYTES / 8)
#define ROW_RANGES 4
#define MAX_ROWS 64
#define NO_LEG 0xffffffff

struct range {
	__u32 offset; /* offset of the four bytes that contain it, as a number in network order */
	__u32 mask;
	__u32 low; /* both as masked, not shifted */
	__u32 high;
};

struct row {
	__u64 mask[HEAD_WORDS];
	__u64 value[HEAD_WORDS];
	__u32 head_bytes; /* a shorter frame does not fit */
	__u32 length; /* without FCS; 0: any */
	__u32 slot; /* NO_LEG: a leg of another receiver */
	__u32 stamped_slot; /* slot of the trace's stamped frames, which count a damaged stamp; NO_LEG: none */
	__u32 ranges;
	__u32 unused;
	struct range range[ROW_RANGES];
};

/* Frames that belong to no leg. They pass on to the host. */
enum unmatched_kind {
	UNMATCHED_OTHER, /* ARP, SSH: not test traffic */
	UNMATCHED_STREAM, /* a stamp of a stream that is not expected here */
	UNMATCHED_FRAGMENT, /* of an IP packet: its payload is incomplete */
	UNMATCHED_MALFORMED, /* truncated headers */
	UNMATCHED_DAMAGED, /* a stamp that does not verify, of an unknown stream; a fragment with a damaged header */
	STRANGERS,
};

struct unmatched {
	__u64 packets[STRANGERS];
	__u64 bytes[STRANGERS];
	__u64 last_ns;
};

/* Fixed before the program is loaded. */
struct settings {
	__u64 armed_ns; /* start of counting: no frame of the run was sent before */
	__u32 legs; /* number of entries */
	__u32 rows;
	__u32 pass_on; /* of each leg, one frame in `pass_on` goes on to the host, for a capture; 0: none */
	__u32 alone; /* frames arrive one after another and need no lock: native XDP on a single receive queue, ordered stores */
	__u32 tai; /* the stamps' clock is TAI, not CLOCK_MONOTONIC (kernel 6.1) */
	__u32 users; /* some leg has users */
	__u32 pktgen; /* some leg has the numbers of pktgen */
	__u32 echo; /* counted frames go on to echo.bpf.c */
	__u32 together_ms; /* time within which all fragments of a packet arrive; 0: packets are not reassembled */
	__u32 timed_every; /* of so many frames in a row two are timed, a power of 2: see take_clock(); 1: each is */
};

/* Events of packets that came in fragments. Incomplete packets: those begun, less foreign and whole ones. */
enum fragments_event {
	FRAGMENTS_BEGUN,
	FRAGMENTS_FOREIGN, /* the first fragment belongs to no leg */
	FRAGMENTS_WHOLE,
	FRAGMENTS_AGAIN, /* a duplicate fragment */
	FRAGMENTS_TOO_LONG, /* a fragment beyond MOST_UNITS */
	FRAGMENTS_EVENTS,
};

struct fragment_events {
	__u64 events[FRAGMENTS_EVENTS];
};

/* Packets of one flow that arrived in fragments, and the number of these fragments. */
struct put_together {
	__u64 packets;
	__u64 frames;
};

/* Frames that a filter in front (traffic/capture/ebpf.py) rejected. They pass on to the host. */
struct filtered {
	__u64 packets;
	__u64 bytes;
};
