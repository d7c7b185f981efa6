/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What count.bpf.c and its user-space half share. Python's table of the same structs is traffic/counting/kernel_structs.py;
 * tests/lab/test_xdp_receiver_times.py compares the two through the object's BTF.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

/*
 * The header fields of a frame that a receiver can expect, in network byte order, from the innermost IP header
 * (the user's own, where there is a tunnel). What a frame does not have is zero.
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
	__u8 labels; /* how many MPLS labels */
	__u16 unused;
	__u16 src_port;
	__u16 dst_port;
	__u32 teid;
	__u8 src_ip[16]; /* IPv4: the first four */
	__u8 dst_ip[16];
};

#define FIELD_WORDS (sizeof(struct fields) / 8)

/* What of an altered frame was not as expected: bits of a set, and indices of tally.altered_by. */
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
	CAUSE_STAMP, /* number, time or stream: which number it was is not known then */
	CAUSE_CHECKSUM, /* an Internet checksum over the headers is wrong, and no other cause explains it */
	CAUSES = 16,
};

/* Which Internet checksums a leg's frames have right: bits of a set. */
enum sums {
	SUMS_IP = 1, /* of each IPv4 header */
	SUMS_TRANSPORT = 2, /* of the innermost UDP, TCP or ICMP */
};

/* What is expected of a stamped leg. Its offset may be written while frames arrive. */
struct expectation {
	__u64 mask[FIELD_WORDS];
	__u64 value[FIELD_WORDS];
	__s64 offset_ns; /* added to this clock to make it the sender's */
	__u64 bias_ns; /* how far off that may be: added in the histogram, where nothing then is below zero */
	__u64 limit; /* sequence numbers are below it; 0: not known */
	__u32 payload_bytes; /* 0: any */
	__u32 timed; /* the clocks are comparable: count latencies */
	__u32 numbered; /* enum numbered: 0 for legs that are counted by their bytes alone */
	__u32 clocked; /* the stamps' times are when the frames left */
	__u32 marks; /* other nodes count it too: so many words of `marks` say which numbers came here; 0: no others do */
	__u32 first_mark;
	__u32 sums; /* enum sums */
	__u32 by_headers; /* a frame whose stamp is damaged may be known as this leg's by its headers */
};

/* Whose sequence numbers a leg's frames have. */
enum numbered {
	NUMBERED_NOT,
	NUMBERED_BY_US, /* struct stamp */
	NUMBERED_BY_PKTGEN, /* struct pktgen_header, in frames known by their bytes */
};

/*
 * How a leg's users are told apart: user n has first + n * step in a field. The field is the bits under `mask` of one
 * word of struct fields, taken as a big-endian number and shifted right.
 */
struct user_rule {
	__u64 first;
	__u64 step;
	__u64 mask;
	__u32 count; /* 0: this leg has no users */
	__u32 base; /* the first one's place in `users`; the place behind the last one's has all that are no user */
	__u32 word;
	__u32 shift;
};

/*
 * One user's frames. A user belongs to one leg, so the leg's lock covers it; minimum and maximum need no more.
 * A cache line long: the map begins at a page, so a frame touches one line of it.
 */
struct user {
	__u64 packets;
	__u64 bytes; /* without FCS */
	__u64 distinct;
	__u64 latencies; /* how many frames the figures below are of, as in struct tally */
	__s64 latency_sum_ns;
	__s64 latency_min_ns;
	__s64 latency_max_ns;
	__u64 damaged; /* altered frames of this user whose number is not known */
};

/*
 * Of one leg. Everything is under the lock, whichever CPUs the frames come in on, and the figures belong together:
 * packets = distinct + duplicated + too_late + astray + damaged.
 */
struct tally {
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 done; /* as packets, but written last and read first */
	__u64 bytes; /* without FCS */
	__u64 distinct;
	__u64 duplicated;
	__u64 reordered;
	__u64 too_late; /* further behind than the window remembers: a duplicate or not, nobody knows */
	__u64 invalid_sequence; /* a number that cannot be, or one far ahead that no second frame confirmed */
	__u64 damaged; /* the stamp does not verify: altered frames of this leg of which nobody knows the number */
	__u64 altered;
	__u64 altered_by[CAUSES];
	__u64 next; /* one above the highest number so far */
	__u64 candidate; /* one above a number that is far ahead; believed when the next frame agrees */
	__u64 candidate_user; /* whose it was, as a place in `users` */
	__u64 first_ns;
	__u64 last_ns;
	/* Of the first frame of each number, if its payload is whole: */
	__u64 latencies; /* how many frames the figures below are of */
	__s64 latency_sum_ns;
	__s64 latency_min_ns;
	__s64 latency_max_ns;
	__u64 negative; /* latencies below zero although biased: they stand in the histogram as zero */
	__u64 impossible; /* times outside of what the clocks' bound and the run's begin allow: they make no latency */
	__u64 moments; /* frames that the figures below are of, the first one included */
	__s64 transit_ns; /* of the last one: this clock less the sender's, whatever is between the two */
	__u64 jitter_pairs;
	__s64 jitter_sum_ns;
	__u64 jitter_squares_low; /* 128 bits: squares of nanoseconds overflow 64 in seconds */
	__u64 jitter_squares_high;
	__u64 jitter_clipped; /* differences of over 4.29 s, taken as that */
	__u64 jitter_rfc3550_16; /* sixteen times the estimate, RFC 3550 A.8 */
	__u64 packets; /* written first and read last: where nothing is locked, figures in which it is above done are torn */
};

/*
 * The sequence numbers seen. Each word tells which 64 numbers it stands for, so nothing has to be cleared on a jump:
 * a word is taken over by the first frame of a higher number. A frame is told apart exactly unless one
 * 64 * (WINDOW_WORDS - 1) numbers ahead of it has come before.
 */
#define WINDOW_WORDS 2048

struct window_word {
	__u64 number; /* sequence number / 64 + 1; 0: none yet */
	__u64 seen;
};

struct window {
	struct window_word words[WINDOW_WORDS];
};

/* Log-linear: exact to 128 ns, then 64 buckets for each power of two, up to 2^40 ns (18 minutes). */
#define HISTOGRAM_BITS 6
#define HISTOGRAM_TOP_BIT 40
#define HISTOGRAM_BUCKETS ((HISTOGRAM_TOP_BIT - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS)

struct histogram {
	__u64 buckets[HISTOGRAM_BUCKETS];
};

/* How an unstamped leg is known: traffic.counting.match.Match. The first row that fits has the frame. */
#define HEAD_BYTES 160
#define HEAD_WORDS (HEAD_BYTES / 8)
#define ROW_RANGES 4
#define MAX_ROWS 64
#define NO_LEG 0xffffffff

struct range {
	__u32 offset; /* the four bytes that hold it, as a number in network order */
	__u32 mask;
	__u32 low; /* both as masked, not shifted */
	__u32 high;
};

struct row {
	__u64 mask[HEAD_WORDS];
	__u64 value[HEAD_WORDS];
	__u32 head_bytes; /* a shorter frame does not fit */
	__u32 length; /* without FCS; 0: any */
	__u32 slot; /* NO_LEG: another receiver's, so no leg of ours has it */
	__u32 stamped_slot; /* the stamped frames of the same trace: a damaged stamp is one of theirs; NO_LEG: there are none */
	__u32 ranges;
	__u32 unused;
	struct range range[ROW_RANGES];
};

/* Frames that no leg has. They pass on to the host. */
enum unmatched_kind {
	UNMATCHED_OTHER, /* ARP, SSH: not test traffic */
	UNMATCHED_STREAM, /* a stamp of a stream that is not expected here */
	UNMATCHED_FRAGMENT, /* of an IP packet: its payload is not all here */
	UNMATCHED_MALFORMED, /* headers that end before they should */
	UNMATCHED_DAMAGED, /* a stamp that does not verify, of nobody knows which stream; a fragment with a damaged header */
	STRANGERS,
};

struct unmatched {
	__u64 packets[STRANGERS];
	__u64 bytes[STRANGERS];
};

/* Fixed before the program is loaded. */
struct settings {
	__u64 armed_ns; /* when counting began: no frame of the run was sent before */
	__u32 legs; /* how many there are */
	__u32 rows;
	__u32 pass_on; /* of each leg one frame in so many goes on to the host, where a capture takes it; 0: none */
	__u32 alone; /* frames come one after another, so nothing needs a lock: native XDP on a single receive queue */
	__u32 tai; /* the stamps' clock is TAI, not CLOCK_MONOTONIC (kernel 6.1) */
	__u32 users; /* some leg has users */
	__u32 pktgen; /* some leg has pktgen's numbers */
	__u32 echo; /* counted frames go on to echo.bpf.c */
	__u32 together_ms; /* fragments of a packet come within that; 0: they are not put together */
	__u32 unused;
};

/* What became of packets that came in fragments. Never whole are those begun, less foreign and whole ones. */
enum fragments_event {
	FRAGMENTS_BEGUN,
	FRAGMENTS_FOREIGN, /* of no leg, by their first fragment */
	FRAGMENTS_WHOLE,
	FRAGMENTS_AGAIN, /* a fragment that had come already */
	FRAGMENTS_TOO_LONG, /* a fragment further behind than is remembered */
	FRAGMENTS_EVENTS,
};

struct fragments_told {
	__u64 events[FRAGMENTS_EVENTS];
};

/* Of one leg: the packets that came in fragments, and in how many. */
struct put_together {
	__u64 packets;
	__u64 frames;
};

/* Frames that a filter in front (traffic/capture/ebpf.py) kept from being counted. They pass on to the host. */
struct filtered {
	__u64 packets;
	__u64 bytes;
};
