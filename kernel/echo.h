/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The structs that echo.bpf.c and its user-space half share. Python's table of the same structs is
 * traffic/counting/echo.py; tests/unit/test_echo.py compares the two through the object's BTF.
 */
#pragma once

#include "count.h"

#define FRAMES_A_BULK 16 /* DEV_MAP_BULK_SIZE: the most frames that the kernel gives to a device at once */
#define PENDING_BACK 32 /* a power of two, larger than a bulk and the frame that follows a full one */

/* A stream that is echoed. The echo is another leg, whose number is in its stamps. */
struct echo_flow {
	__u64 received;
	__u64 left; /* received too, but not UDP or TCP in plain IP: without an echo */
	__u64 due; /* echoes due for the frames received */
	__u64 made; /* echoes made, which numbers them from 0 */
	__u64 sent; /* echoes that the device accepted */
	__u64 sent_bytes; /* without FCS */
	__u64 dropped; /* echoes that it did not accept */
	__u16 whole; /* copies of each frame */
	__u16 part; /* frames of each hundred with one more copy */
	__u32 stream; /* stream number of the echo */
	struct user_rule users; /* by the addresses of the echo */
};

/* Fixed before the program is loaded. */
struct echo_settings {
	__u32 alone; /* frames arrive one after another, so nothing needs to be atomic: see struct settings */
	__u32 counted; /* only frames that count.bpf.c has counted arrive, and end here */
	__u32 single; /* no frame has more than one copy, so frames get their numbers on arrival */
};

/* Contradictory answers of a device: their number, and the values of the last one. */
struct echo_unexplained {
	__u64 answers;
	__u32 sent;
	__u32 dropped;
	__u32 pending; /* frames on their way to it */
	__u32 unused;
};
