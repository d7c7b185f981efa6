/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stamp, which the sender (send.bpf.c) writes and the receiver (count.bpf.c) reads. traffic/stamp.py is the Python
 * table of the same layout; tests/unit/test_stamp.py compares the two through the compiled object's BTF.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define STAMP_PLAIN 0x5053 /* "PS" */
#define STAMP_CHECKED 0x5043 /* "PC": struct stamp_checked, which knows the payload behind it */

/*
 * The first bytes of a stamped frame's payload. 18, so that they fit a 64-byte IPv4 UDP frame:
 * 64 - 4 (FCS) - 14 - 20 - 8. `sequence` counts a leg's frames from 0; its 48 bits last a month at 100 M frames/s, so
 * it never wraps into false loss.
 */
struct stamp {
	__be16 magic;
	__be16 stream; /* the leg's number */
	__be16 sequence_high; /* bits 47 to 32 */
	__be32 sequence_low;
	__be64 time_ns; /* the sender's CLOCK_MONOTONIC (or TAI, where asked) when the frame was written */
} __attribute__((packed));

/*
 * `checksum`: the payload behind this struct as big-endian 32-bit words (the last one padded with zeros), added
 * modulo 2^32 - 1; 0 and 0xffffffff mean the same. payload_sum() adds up, sum32() reduces.
 */
struct stamp_checked {
	struct stamp stamp;
	__be32 checksum;
} __attribute__((packed));

/*
 * Of a recorded packet (traffic/replay/stamps.py). `balance`, which the checksum covers, keeps the 16-bit words of the
 * whole at the sum that the recorded bytes had, so no Internet checksum over them changes, of whatever layer.
 */
struct stamp_balanced {
	struct stamp_checked checked;
	__be16 balance;
} __attribute__((packed));

static __always_inline __u64 stamp_sequence(const struct stamp *stamp)
{
	return (__u64)bpf_ntohs(stamp->sequence_high) << 32 | bpf_ntohl(stamp->sequence_low);
}

/* x modulo 2^32 - 1 (as 0 or as 0xffffffff): 2^32 is 1 there, so it is the sum of its halves. */
static __always_inline __u32 sum32(__u64 x)
{
	x = (x >> 32) + (x & 0xffffffff);
	return (x >> 32) + x;
}

/* x modulo 0xffff (as 0 or as 0xffff): what RFC 1071 calls the sum of its 16-bit words, carries added. */
static __always_inline __u32 sum16(__u64 x)
{
	x = sum32(x);
	x = (x >> 16) + (x & 0xffff);
	return ((x >> 16) + x) & 0xffff;
}

/* Read by nobody: with it the compiler describes the layout in the object's BTF, where the tests find it. */
const struct stamp_balanced stamp_layout SEC(".rodata.stamp") = {};
