/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What send.bpf.c and its user-space half share. Python's table of the same structs is traffic/schedule.py, which fills
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
#define PENDING 256 /* a power of two, more than the 16 + 1 frames that the kernel queues for a device */

/*
 * How a rule chooses its position among `count`; its value is first + position * step, or table[first + position].
 */
enum rule_mode {
	RULE_COUNT, /* one further with each frame, round and round */
	RULE_RANDOM, /* any, all alike */
	RULE_LINKED, /* where the rule number `link`, an earlier one, stands: both change together */
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
	__u64 mask; /* the field's bits in the window */
	__u16 window; /* offset of its first byte in the frame */
	__u8 shift; /* of the field's last bit from the window's last bit */
	__u8 mode;
	__u8 table; /* whether values stand in the table */
	__u8 link;
	__u16 weight[MAX_CHECKSUMS];
	__u16 unused;
};

/* Bytes drawn afresh for each frame: from `start` to `stop`, all windows from `start` on having the same weights. */
struct noise {
	__u16 start;
	__u16 stop;
	__u16 windows; /* how many that makes; 0: no noise */
	__u16 unused;
	__u16 weight[MAX_CHECKSUMS];
};

struct sum {
	__u16 offset;
	__u8 zero_is_ones; /* UDP: 0 would mean that there is none (RFC 768) */
	__u8 unused;
};

/*
 * One leg. User space writes all of it before the start; while it runs only `gap` (a new rate), and reads the counts.
 * Times are nanoseconds of CLOCK_MONOTONIC, those before the start counted from the start.
 */
struct leg {
	__u64 gap; /* from one frame's due time to the next, in 2^-24 ns; 0: as fast as it goes */
	__u64 remaining; /* frames still to be sent; NEVER: until stop_ns */
	__u64 stop_ns; /* nothing is sent from then on; NEVER: no such time */
	__u64 late_ns; /* a frame that leaves so long after its due time is late */
	__u64 sequence; /* of the next frame */
	__u64 random; /* the generator's state, not 0 */
	__u32 fraction; /* of the due time, in 2^-24 ns */
	__u32 burst; /* so many frames have the same due time */
	__u32 in_burst;
	__u16 frame_bytes; /* without FCS */
	__u16 stamp; /* its offset; 0: none */
	__u16 stamp_weight[MAX_CHECKSUMS]; /* of windows that end where its sequence number does */
	__u8 skip; /* late frames are skipped, not caught up */
	__u8 rules;
	__u8 sums;
	__u8 unused[5];
	struct sum sum[MAX_CHECKSUMS];
	struct noise noise;
	struct rule rule[MAX_RULES];

	/* Counts. Sent are generated - refused - dropped. */
	__u64 generated; /* given to the kernel to send */
	__u64 refused; /* the kernel would not queue them: the interface is down, or they are longer than its MTU */
	__u64 dropped; /* queued, but the device did not take them: its ring was full */
	__u64 late;
	__u64 skipped;
	__u64 latest_ns; /* the most that a frame was late */
	__u64 first_ns; /* when the first and the last frame were generated */
	__u64 last_ns;
};

/* A frame between its generation and the device's answer. */
struct pending {
	__u32 leg;
};

/* The sender as a whole. */
struct state {
	__u64 start_ns; /* NEVER: not yet */
	__u64 thread; /* who runs the program: pid and tid, as the kernel's first namespace knows them */
	__u64 runs; /* of the program, waiting included */
	__u64 last_ns; /* when it last looked at the clock */
	__u64 longest_pause_ns; /* between two looks: the processor was taken away, or one call to the kernel followed another */
	__u64 device_sent; /* as the device said */
	__u64 device_dropped;
	__u64 unexplained; /* answers of the device that fit no frame of ours: the counts per leg are then not right */
	__s32 error; /* the last one of the device, or of the kernel that refused a frame */
	__u32 finished; /* every leg is over */
	__u32 pushed; /* frames that went into, and came out of, `pending` */
	__u32 popped;
	__u32 tree_leaves; /* a power of two */
	__u32 unused;
	struct pending pending[PENDING];
	/* A tournament: node n has the leg that is due first of those at 2n and 2n + 1; leaf `tree_leaves` + i is leg i. */
	__u64 due_ns[MAX_LEGS];
	__u16 winner[TREE_NODES];
};
