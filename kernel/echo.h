/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What echo.bpf.c and its user-space half share. Python's table of the same structs is traffic/counting/echo.py;
 * tests/unit/test_echo.py compares the two through the object's BTF.
 */
#pragma once

#include "count.h"

#define FRAMES_A_BULK 16 /* DEV_MAP_BULK_SIZE: so many redirected frames the kernel hands to a device at once, at most */
#define PENDING_BACK 32 /* a power of two, more than a bulk and the frame that comes when it is full */

/* A stream whose frames go back. What goes back is another leg, and has that one's number in its stamps. */
struct echo_flow {
	__u64 received;
	__u64 left; /* came as well, but are no UDP or TCP in plain IP: nothing goes back for them */
	__u64 due; /* how many were to go back for those received */
	__u64 made; /* how many got a number, from 0 */
	__u64 sent; /* how many of these the device took */
	__u64 sent_bytes; /* without FCS */
	__u64 dropped; /* how many it did not take */
	__u16 whole; /* how often each frame goes back */
	__u16 part; /* how many of a hundred once more */
	__u32 stream; /* the number of what goes back */
	struct user_rule users; /* by the addresses of what goes back */
};

/* Fixed before the program is loaded. */
struct echo_settings {
	__u32 alone; /* frames come one after another, so nothing needs to be atomic: see struct settings */
	__u32 counted; /* only what count.bpf.c has counted comes here, and ends here */
	__u32 single; /* no stream goes back more than once, so frames get their numbers as they come */
};

/* What a device said that cannot be; of the last time the figures. */
struct echo_unexplained {
	__u64 answers;
	__u32 sent;
	__u32 dropped;
	__u32 pending; /* so many frames were on their way to it */
	__u32 unused;
};
