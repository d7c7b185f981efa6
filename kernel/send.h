/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What send.bpf.c and its user-space half share. Python's table of the same structs is traffic/schedule/compile.py, which fills
 * them; tests/unit/test_schedule.py compares the two through the object's BTF.
 *
 * Everything is in this machine's byte order but the frames' own bytes.
 */
#pragma once

#include <linux/types.h>

#define MAX_LEGS 256
#define TREE_NODES (2 * MAX_LEGS)
#define MAX_RULES 16
#define MAX_CHECKSUMS 4
#define SLOT_BYTES 4096 /* room for one frame, and a window beyond its end */
#define WINDOW_BYTES 8
#define NEVER (~0ULL)
#define GAP_FRACTION_BITS 24
#define GAP_TABLE_BITS 20 /* random gaps are the leg's gap times an entry of a table in 2^-20 */
#define MAX_PARTS 8
#define MAX_EDITS 8 /* with them a struct part is a multiple of 8 bytes, as a map has it */
#define PENDING 256 /* a power of two, more than the 16 + 1 frames that the kernel queues for a device */

/*
 * How a rule chooses its position among `count`; its value is first + position * step, or table[first + position].
 */
enum rule_mode {
	RULE_COUNT, /* one further with each frame, or with each stay + 1 of them, round and round */
	RULE_RANDOM, /* any, all alike */
	RULE_LINKED, /* where the rule number `link`, an earlier one, stands, modulo its own `count`: both change together */
	RULE_USER, /* of a sequence: the record's user */
	RULE_SIZE, /* of a sequence: the frame's bytes; a length field, `first` is less by what it does not count */
};

/*
 * One varying field. It lies somewhere in 8 bytes of the frame, its window, taken as one big-endian number.
 * `weight`: by how much each checksum's sum grows, modulo 0xffff, when that number grows by one; 0: it does not cover
 * the field. A sum is linear, so one multiplication does it at any offset, width and nesting.
 */
struct rule {
	__u64 first;
	__u64 step; /* modulo 2^64: a decrement is a large one */
	__u64 count;
	__u64 position;
	__u32 stay; /* of a counter: so many further frames have the same position, */
	__u32 stays; /* so many of them are still to come */
	__u64 mask; /* the field's bits in the window */
	__u16 window; /* offset of its first byte in the frame */
	__u8 shift; /* of the field's last bit from the window's last bit */
	__u8 mode;
	__u8 table; /* whether values stand in the table */
	__u8 link;
	__u16 weight[MAX_CHECKSUMS];
	__u16 unused;
};

/* Bytes drawn afresh for each frame: windows from `start` to a slot's noise_stop. The weights are those of each. */
struct noise {
	__u16 start;
	__u16 weight[MAX_CHECKSUMS];
	__u16 unused[3];
};

/* A leg's frame of one size. */
struct slot {
	__u16 frame_bytes; /* without FCS */
	__u16 noise_stop;
	__u16 noise_windows; /* 0: no noise */
	__u16 parts; /* more than 1: it is longer than the MTU, and goes out in so many fragments */
	__u8 bytes[SLOT_BYTES];
};

/* What is changed in a fragment's headers, in this order (traffic/schedule/fragments.py). */
enum edit_kind {
	EDIT_PLAIN,
	EDIT_SUMMED, /* a checksum covers it: */
	EDIT_SUM, /* this one, which is amended by what the edits before it changed */
};

struct edit {
	__u16 at;
	__be16 value;
	__u16 kind;
};

/* A fragment of a slot's frame: its first bytes, and `bytes` from `start` on. Those of slot n begin at n * MAX_PARTS. */
struct part {
	__u16 head_bytes;
	__u16 start;
	__u16 bytes;
	__u16 edits;
	struct edit edit[MAX_EDITS];
};

/*
 * One frame of a trace. Its bytes lie at `place` in the store, an array of chunks; none lies across two of them, nor
 * begins so near a chunk's end that SLOT_BYTES do not fit. Where fewer are stored than the frame has, zeros follow.
 */
struct record {
	__u64 due_ns; /* from the start of a pass through the trace */
	__u32 place; /* of a sequence: whose frame it is, the position of RULE_USER */
	__u16 stored_bytes;
	__u16 frame_bytes;
};

#define CHUNK_BYTES (1 << 20)

/*
 * What is changed in a frame of a trace, by an instance or with a stamp: where it stands; 0: the frame has none. It lies
 * right before the frame in the store, where there are instances or stamps; else anything does.
 */
struct places {
	__u16 address[2]; /* the last four bytes of the source and of the target */
	__u16 header_sum; /* IPv4's own */
	__u16 port; /* the user's */
	__u16 sum; /* TCP's, UDP's or ICMPv6's, which covers the three */
	__u16 teid;
	__u16 stamp; /* where it begins */
	__u8 ends; /* 1: the source is a server, 2: the target is one, 4: `sum` does not cover the target; the sum of these */
	__u8 zero_is_ones; /* struct sum's, of `sum` */
};

struct sum {
	__u16 offset;
	__u8 zero_is_ones; /* UDP: 0 would mean that there is none (RFC 768) */
	__u8 unused;
};

/*
 * A step of a leg's pace (traffic/schedule/pace.py). What is left of a gap when it begins is multiplied with
 * factor / 2^shift, the ratio of its gap to the one before.
 */
struct step {
	__u64 gap; /* 0: silence */
	__u64 until_ns; /* its end, from the start of a pass; NEVER: none */
	__u32 factor;
	__u32 shift;
};

/*
 * One leg: a stream, made from slots and rules, or a trace, which is played from records; or a sequence, a stream whose
 * records tell when, whose and how long. User space writes all of it before the start;
 * while it runs only `gap` (a new rate), and reads the counts. Times are nanoseconds of CLOCK_MONOTONIC.
 */
struct leg {
	__u64 gap; /* of a timed stream: from one frame's due time to the next, in 2^-24 ns */
	__u64 remaining; /* frames still to be sent, not 0 at the start; NEVER: until stop_ns */
	__u64 stop_ns; /* frames that are due from then on are not sent; NEVER: no such time */
	__u64 give_up_ns; /* nor is anything sent from then on */
	__u64 late_ns; /* a frame that leaves so long after its due time is late */
	__u64 sequence; /* of the next frame; of a trace: of the next one with a stamp */
	__u64 random; /* the generator's state, not 0 */
	__u32 fraction; /* of the due time, in 2^-24 ns */
	__u32 burst; /* so many frames have the same due time */
	__u32 in_burst;
	__u32 slot; /* its first */
	__u64 pass_ns; /* of a trace or of steps: when this pass through them began, and how long one takes */
	__u64 period_ns;
	__u64 step_end_ns; /* of the step it is in */
	__u64 left; /* while `crossing`: of the gap at the end of the step, in 2^-24 ns */
	__u64 seed; /* of random gaps */
	__u64 drawn; /* so many of them */
	__u32 first_record;
	__u32 records; /* of one pass */
	__u32 record; /* the next one, from 0 */
	__u32 users; /* its first place in the map of them */
	__u32 first_step;
	__u32 steps; /* of its pace; 0: all gaps are alike */
	__u32 step; /* from 0 */
	__u32 first_gap;
	__u32 gaps; /* in its table of them; 0: they are not random */
	__u16 stamp; /* its offset; 0: none. Of a trace: 1, and each frame's struct places has its own */
	__u8 timed; /* 0: as fast as it goes */
	__u8 skip; /* late frames are skipped, not caught up */
	__u16 stamp_weight[MAX_CHECKSUMS]; /* of windows that end where its sequence number does */
	__u8 rules;
	__u8 sums;
	__u8 sizes; /* more than 1: the rule `size` chooses the slot, counted from the first */
	__u8 checked; /* its stamp is a struct stamp_checked; without noise each slot has its checksum already */
	/* The number from 1 of the rule whose position is a frame's user; 0: users are not counted. A stamped trace has
	 * two of them: 0 for frames without a stamp, 1 for those with one. */
	__u8 user_rule;
	__u8 crossing; /* it is due at the end of a step, and has no frame then */
	__u8 sequence_of_records; /* a stream whose records tell due times, users and sizes; its slot has the largest frame */
	__u8 shifted; /* an instance of a trace: each frame has a struct places, and something is added in it */
	__u32 user; /* of its next frame, as its record tells */
	__u16 frame_bytes;
	__u16 numbered_with; /* of a trace: the leg whose sequence numbers its stamps have */
	__u32 add_address[2]; /* of an instance: to the users' and to the servers' */
	__u32 add_teid;
	__u16 add_port;
	__u16 in_parts; /* some of its packets go out in fragments: `packets` counts those that went out whole */
	__u32 part; /* the next fragment of the packet that is on its way; 0: none is */
	__u32 part_slot; /* whose */
	__u32 packet_late; /* and whether it is late */
	__u64 failed; /* of the last 64 packets, by number: some fragment was refused or dropped */
	struct sum sum[MAX_CHECKSUMS];
	struct noise noise;
	struct rule size;
	struct rule rule[MAX_RULES];

	/* Counts. Sent are generated - refused - dropped. */
	__u64 generated; /* given to the kernel to send */
	__u64 refused; /* the kernel would not queue them: the interface is down, or they are longer than its MTU */
	__u64 dropped; /* queued, but the device did not take them: its ring was full */
	__u64 generated_bytes; /* without FCS */
	__u64 failed_bytes; /* of the refused and the dropped */
	__u64 late; /* of the generated, less the refused and the dropped */
	__u64 skipped;
	__u64 latest_ns; /* the most that a frame was late */
	__u64 first_ns; /* when the first and the last frame were generated */
	__u64 last_ns;
	__u64 packets; /* of a leg in parts, where the others count frames */
	__u64 packet_bytes; /* theirs, each as in one frame, without FCS */
};

#define PENDING_LATE 0x8000

/* A frame between its generation and the device's answer. */
struct pending {
	__u16 leg;
	__u16 bytes; /* and PENDING_LATE, if it is late */
	__u32 user; /* its place in the map of users, where the leg counts them */
	__u16 whole_bytes; /* of a leg in parts: those of its packet, */
	__u16 packet; /* and the packet's number modulo 64, more than can be pending */
};

/* The sender as a whole. */
#define TURN_LONG 0
#define TURN_OF_ONE 1 /* the call sends one frame: the next sender waits for this processor, in the midst of its own */
#define TURN_OVER 2 /* it has */

struct state {
	__u64 start_ns; /* NEVER: not yet */
	__u64 runs; /* of the program, waiting included */
	__u64 calls; /* of the kernel's, counted by user space */
	__u64 soon_ns; /* nearer than that a frame is waited for */
	__u64 surely_ns; /* when the frame is due that is waited for however far away it is; 0: none */
	__u64 last_ns; /* when it last looked at the clock */
	__u64 longest_absence_ns; /* with a frame due: the processor was taken away, or a call to the kernel took its time */
	__u64 device_sent; /* as the device said */
	__u64 device_dropped;
	__u64 unexplained; /* answers of the device that fit no frame of ours: the counts per leg are then not right */
	__s32 error; /* the last one of the device, or of the kernel that refused a frame */
	__u32 finished; /* every leg is over */
	__u32 pushed; /* frames that went into, and came out of, `pending` */
	__u32 popped;
	__u32 tree_leaves; /* a power of two */
	__u32 cpu; /* where the pending frames were made */
	__u32 broken; /* a frame could not be written: what user space filled in does not hold together */
	struct pending pending[PENDING];
	__u32 turn; /* TURN_…: whether a call to the kernel may go on behind its first frame */
	/* A tournament: node n has the leg that is due first of those at 2n and 2n + 1; leaf `tree_leaves` + i is leg i. */
	__u64 due_ns[MAX_LEGS];
	__u16 winner[TREE_NODES];
};
