/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The structs that send.bpf.c and its user-space half share. Python's table of the same structs is in traffic/schedule;
 * tests/unit/test_schedule.py compares the two through the object's BTF.
 *
 * Everything is in this machine's byte order, except the bytes of frames.
 */
#pragma once

#include <linux/types.h>

#define MAX_LEGS 256
#define TREE_NODES (2 * MAX_LEGS)
#define MAX_RULES 16
#define MAX_CHECKSUMS 4
/* Space for one frame, and a window beyond its end. A live frame has a page; an skb of the other way out has more. */
#ifdef SEND_BY_TC
#define SLOT_BYTES 16384
#else
#define SLOT_BYTES 4096
#endif
#define WINDOW_BYTES 8
#define NEVER (~0ULL)
#define GAP_FRACTION_BITS 24
#define GAP_TABLE_BITS 20 /* a random gap is the leg's gap times a table entry in units of 2^-20 */
#define MAX_PARTS 8
#define MAX_EDITS 8 /* the size of a struct part is then a multiple of 8 bytes, as maps require */
#define PENDING 256 /* a power of two, larger than the 16 + 1 frames that the kernel queues for a device */

/*
 * The way in which a rule chooses its position among `count`; its value is first + position * step, or table[first +
 * position].
 */
enum rule_mode {
	RULE_COUNT, /* the next position for each frame, or for each stay + 1 frames, cyclically */
	RULE_RANDOM, /* uniformly random */
	RULE_LINKED, /* the position of rule `link`, an earlier one, modulo its own `count`: both change together */
	RULE_USER, /* for a sequence: the record's user */
	RULE_SIZE, /* for a sequence: the frame's bytes; for a length field, `first` is reduced by what it excludes */
};

/*
 * One varying field, within 8 bytes of the frame, its window, read as one big-endian number. `weight`: the increase of
 * each checksum's sum, modulo 0xffff, per increase of that number by one; 0: the checksum does not cover the field.
 * Sums are linear, so one multiplication suffices at any offset, width and nesting.
 */
struct rule {
	__u64 first;
	__u64 step; /* modulo 2^64: a large number is a decrement */
	__u64 count;
	__u64 position;
	__u32 stay; /* for a counter: number of further frames with the same position, */
	__u32 stays; /* and the number of these still to come */
	__u64 mask; /* the field's bits in the window */
	__u16 window; /* offset of its first byte in the frame */
	__u8 shift; /* from the field's last bit to the window's last bit */
	__u8 mode;
	__u8 table; /* whether the values are in the table */
	__u8 link;
	__u16 weight[MAX_CHECKSUMS];
	__u16 unused;
};

/* Random bytes, new for each frame: windows from `start` to a slot's noise_stop. The weights are per window. */
struct noise {
	__u16 start;
	__u16 weight[MAX_CHECKSUMS];
	__u16 unused[3];
};

/*
 * What user space sets before it loads the program. The verifier knows the values: it neither follows nor keeps the
 * branches for what no leg of the schedule has, so most schedules load in a quarter of the time, and run a shorter program.
 */
struct send_settings {
	/*
	 * How many frames in a row share a reading of the clock, a power of two, less one. 0: frames are sent one by one (the
	 * batch of BPF_PROG_RUN), and waiting for one delays no earlier one.
	 */
	__u32 reading_mask;
	__u32 stamp_tai; /* stamps hold TAI, which PTP steers. Linux before 6.1 lacks the call */
	__u32 egress_index; /* by clones: of the interface */
	/*
	 * By clones, counted from 1: a recorded queue of reception, from which the kernel derives that of transmission.
	 * Otherwise it would hash each frame, and the users of a stream would overtake each other in different queues.
	 */
	__u32 egress_queue;
	/* The schedule's: */
	__u32 rules; /* the most that a leg has */
	__u32 modes; /* 1 << enum rule_mode, of all rules */
	__u32 tables; /* a rule has one */
	__u32 sizes; /* a leg has several */
	__u32 noise; /* a slot has some */
	__u32 parts; /* a leg has packets in fragments */
	__u32 traces; /* a leg plays one */
	__u32 sequences; /* a leg has one */
	__u32 steps; /* a leg has a pace */
};

/* The frame of a leg, of one size. */
struct slot {
	__u16 frame_bytes; /* without FCS */
	__u16 noise_stop;
	__u16 noise_windows; /* 0: no noise */
	__u16 parts; /* above 1: it exceeds the MTU and is sent in so many fragments */
	__u8 bytes[SLOT_BYTES];
};

/* The changes of a fragment's headers, in this order (traffic/schedule/fragments.py). */
enum edit_kind {
	EDIT_PLAIN,
	EDIT_SUMMED, /* a checksum covers it: */
	EDIT_SUM, /* that checksum, amended by the changes of the edits before */
};

struct edit {
	__u16 at;
	__be16 value;
	__u16 kind;
};

/*
 * A fragment of a slot's frame: its first bytes, and `bytes` from `start` on. The fragments of slot n begin at n *
 * MAX_PARTS.
 */
struct part {
	__u16 head_bytes;
	__u16 start;
	__u16 bytes;
	__u16 edits;
	struct edit edit[MAX_EDITS];
};

/*
 * One frame of a trace. Its bytes are at `place` in the store, an array of chunks; none crosses a chunk's end, nor
 * begins within SLOT_BYTES of it. Zeros follow where fewer bytes are stored than the frame has.
 */
struct record {
	__u64 due_ns; /* from the start of a pass through the trace */
	__u32 place; /* for a sequence: the frame's user, the position of RULE_USER */
	__u16 stored_bytes;
	__u16 frame_bytes;
};

#define CHUNK_BYTES (1 << 20)

/*
 * Offsets of the parts of a trace's frame that an instance or a stamp changes; 0: the frame lacks the part. With
 * instances or stamps, this struct directly precedes the frame in the store.
 */
struct places {
	__u16 address[2]; /* the last four bytes of the source and of the target */
	__u16 header_sum; /* IPv4's own */
	__u16 port; /* the user's */
	__u16 sum; /* that of TCP, UDP or ICMPv6, which covers the three above */
	__u16 teid;
	__u16 stamp; /* its offset */
	__u8 ends; /* sum of: 1: the source is a server, 2: the target is one, 4: `sum` does not cover the target */
	__u8 zero_is_ones; /* as in struct sum, for `sum` */
};

struct sum {
	__u16 offset;
	__u8 zero_is_ones; /* UDP: 0 would mean no checksum (RFC 768) */
	__u8 unused;
};

/*
 * A step of a leg's pace (traffic/schedule/pace.py). At its start, the rest of the current gap is multiplied by factor
 * / 2^shift, the ratio of its gap to the one before.
 */
struct step {
	__u64 gap; /* 0: silence */
	__u64 until_ns; /* its end, from the start of a pass; NEVER: without end */
	__u32 factor;
	__u32 shift;
};

/*
 * One leg: a stream, built from slots and rules; a trace, played from records; or a sequence, a stream whose records
 * determine time, user and size. User space writes all of it before the start, and only reads the counts while it runs.
 * Times are nanoseconds of CLOCK_MONOTONIC.
 */
struct leg {
	__u64 gap; /* for a timed stream: time between due times, in 2^-24 ns */
	__u64 remaining; /* frames still to be sent, not 0 at the start; NEVER: until stop_ns */
	__u64 stop_ns; /* frames due from this time on are not sent; NEVER: no limit */
	__u64 give_up_ns; /* from this time on nothing is sent; 0: it is held, and user space can change that at any time */
	__u64 late_ns; /* a frame that leaves this much after its due time is late */
	__u64 stretch_ns; /* one that leaves this much after it moves the rest of the schedule; NEVER: none does */
	__u64 most_stretched_ns; /* the schedule is not moved by more than this in all */
	__u64 sequence; /* of the next frame; for a trace: of the next one with a stamp */
	__u64 random; /* the generator's state, not 0 */
	__u32 fraction; /* of the due time, in 2^-24 ns */
	__u32 burst; /* number of frames with the same due time */
	__u32 in_burst;
	__u32 slot; /* its first */
	__u64 pass_ns; /* for a trace or for steps: start of this pass through them, and duration of one */
	__u64 period_ns;
	__u64 step_end_ns; /* end of the current step */
	__u64 left; /* while `crossing`: rest of the gap at the end of the step, in 2^-24 ns */
	__u64 seed; /* of random gaps */
	__u64 drawn; /* number of random gaps drawn */
	__u32 first_record;
	__u32 records; /* of one pass */
	__u32 record; /* the next one, from 0 */
	__u32 users; /* its first index in the map of users */
	__u32 first_step;
	__u32 steps; /* number of steps of its pace; 0: all gaps are equal */
	__u32 step; /* from 0 */
	__u32 first_gap;
	__u32 gaps; /* entries in its table of gaps; 0: gaps are not random */
	__u16 stamp; /* its offset; 0: none. For a trace: 1, and each frame's struct places has its own */
	__u8 timed; /* 0: without due times, at the highest rate */
	__u8 skip; /* late frames are skipped, not sent late */
	__u16 stamp_weight[MAX_CHECKSUMS]; /* of windows that end with its sequence number */
	__u8 rules;
	__u8 sums;
	__u8 sizes; /* above 1: the rule `size` chooses the slot, counted from the first */
	__u8 checked; /* its stamp is a struct stamp_checked; without noise each slot contains its checksum */
	/*
	 * The rule, counted from 1, whose position is a frame's user; 0: users are not counted. A stamped trace has two
	 * users: 0 for frames without a stamp, 1 for those with one.
	 */
	__u8 user_rule;
	__u8 crossing; /* it is due at the end of a step, without a frame */
	__u8 sequence_of_records; /* its records give due times, users and sizes; its slot has the largest frame */
	__u8 shifted; /* an instance of a trace: each frame has a struct places, at which values are added */
	__u32 user; /* of its next frame, by its record */
	__u16 frame_bytes;
	__u16 numbered_with; /* for a trace: the leg whose sequence numbers its stamps use */
	__u32 add_address[2]; /* for an instance: to the addresses of users and of servers */
	__u32 add_teid;
	__u16 add_port;
	__u16 in_parts; /* some of its packets are sent in fragments: `packets` counts those sent completely */
	__u32 part; /* the next fragment of the current packet; 0: none */
	__u32 part_slot; /* the slot of that packet */
	__u32 packet_late; /* and whether it is late */
	__u32 by_time; /* its rate was changed: `remaining` was by the first one, and only stop_ns ends it */
	__u64 failed; /* for the last 64 packets, by number: a fragment was refused or dropped */
	struct sum sum[MAX_CHECKSUMS];
	struct noise noise;
	struct rule size;
	struct rule rule[MAX_RULES];

	/* Counts. Sent = generated - refused - dropped. */
	__u64 generated; /* given to the kernel to send */
	__u64 refused; /* the kernel did not queue them: the interface is down, or they exceed its MTU */
	__u64 dropped; /* queued, but the device did not accept them: its ring was full */
	__u64 generated_bytes; /* without FCS */
	__u64 failed_bytes; /* of the refused and the dropped */
	__u64 late; /* of the generated, less the refused and the dropped */
	__u64 skipped;
	__u64 latest_ns; /* the largest delay of a frame */
	__u64 stretched_ns; /* by which its schedule has been moved */
	__u64 first_ns; /* time of the first and of the last frame generated */
	__u64 last_ns;
	__u64 packets; /* for a leg in parts, whose other counts are frames */
	__u64 packet_bytes; /* bytes of these packets, each as one frame, without FCS */
};

#define PENDING_LATE 0x8000

/* A frame between its generation and the device's answer. */
struct pending {
	__u16 leg;
	__u16 bytes; /* with PENDING_LATE, if it is late */
	__u32 user; /* its index in the map of users, if the leg counts them */
	__u16 whole_bytes; /* for a leg in parts: bytes of its packet, */
	__u16 packet; /* and the packet's number modulo 64, more than can be pending */
};

/* The sender as a whole. */
#define TURN_LONG 0
#define TURN_OF_ONE 1 /* the call sends one frame, because the next sender waits for this processor in its own call */
#define TURN_OVER 2 /* that frame is sent */

struct state {
	__u64 start_ns; /* NEVER: not yet */
	__u64 runs; /* of the program in this call, including waiting: user space clears it before each */
	__u64 calls; /* calls into the kernel, counted by user space */
	__u64 soon_ns; /* a frame due within this time is waited for */
	__u64 surely_ns; /* due time of a frame that is waited for at any distance; 0: none */
	__u64 last_ns; /* last reading of the clock */
	__u64 longest_absence_ns; /* with a frame due: processor taken away, or a slow call into the kernel */
	__u64 device_sent; /* as the device reported */
	__u64 device_dropped;
	__u64 unexplained; /* device answers without a pending frame: the counts per leg are unreliable then */
	__s32 error; /* the last error of the device, or of the kernel that refused a frame */
	__u32 finished; /* every leg is over */
	__u32 pushed; /* frames put into, and taken out of, `pending` */
	__u32 popped;
	__u32 tree_leaves; /* a power of two */
	__u32 cpu; /* the processor on which the pending frames were built */
	__u32 broken; /* a frame was not built: the data of user space is inconsistent */
	struct pending pending[PENDING];
	__u32 turn; /* TURN_…: whether a call into the kernel continues after its first frame */
	__u32 held; /* a leg was held once: what is due first need not be a frame */
	/*
	 * A tournament: node n holds the leg that is due first of those at 2n and 2n + 1; leaf `tree_leaves` + i is leg
	 * i.
	 */
	__u64 due_ns[MAX_LEGS];
	__u16 winner[TREE_NODES];
	__u64 dropped_in_row; /* by the way out by clones, since the last frame that was taken */
};
