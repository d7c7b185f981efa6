/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stamp, which the sender (send.bpf.c) writes and the receiver (count.bpf.c) reads. traffic/frames/stamp.py is the Python
 * table of the same layout; tests/unit/test_stamp.py compares the two through the compiled object's BTF.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define STAMP_PLAIN 0x5053 /* "PS" */
#define STAMP_CHECKED 0x5043 /* "PC": struct stamp_checked, which knows the payload behind it */
#define STAMP_SUMMED 0x5055 /* "PU": the same, in a recorded packet whose Internet checksums are all right */

/*
 * The first bytes of a stamped frame's payload. 18, so that they fit a 64-byte IPv4 UDP frame:
 * 64 - 4 (FCS) - 14 - 20 - 8. `sequence` counts a leg's frames from 0; its 48 bits last a month at 100 M frames/s, so
 * it never wraps into false loss.
 *
 * `check` makes the sum of the nine 16-bit words 0xffff (RFC 1071), so a receiver sees any damaged bit of the stamp,
 * whatever else the frame has or lacks. No Internet checksum over a stamp depends on the number and the time in it.
 */
struct stamp {
	__be16 magic;
	__be16 stream; /* the leg's number */
	__be16 sequence_high; /* bits 47 to 32 */
	__be32 sequence_low;
	__be16 check;
	__be16 time_high; /* the sender's CLOCK_MONOTONIC in ns (or TAI, where asked) when the frame was written, its low */
	__be32 time_low; /* 48 bits: they come round after 78 hours */
} __attribute__((packed));

/* Two words of it, as big-endian numbers: the compiler would load a packed struct byte by byte. */
#define STAMP_NUMBER 2 /* stream (16 bits), sequence number (48) */
#define STAMP_TIME 10 /* check (16 bits), time (48) */
#define STAMP_BITS 48
#define STAMP_MASK ((1ULL << STAMP_BITS) - 1)

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

static __always_inline __u64 *stamp_number(const struct stamp *stamp)
{
	return (__u64 *)((void *)stamp + STAMP_NUMBER);
}

static __always_inline __u64 *stamp_time(const struct stamp *stamp)
{
	return (__u64 *)((void *)stamp + STAMP_TIME);
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

/* The same, of up to 47 bits: a few hundred words of 32 bits. */
static __always_inline __u32 sum16_of_few(__u64 x)
{
	x = (x >> 16) + (x & 0xffff);
	x = (x >> 16) + (x & 0xffff);
	return ((x >> 16) + x) & 0xffff;
}

static __always_inline __u64 halves(__u64 x)
{
	return (x >> 32) + (__u32)x;
}

/* The stamp's words added up, not reduced. As they stand in memory: RFC 1071 has the sum in either byte order. */
static __always_inline __u64 stamp_sum(const struct stamp *stamp)
{
	return *(__u16 *)stamp + halves(*stamp_number(stamp)) + halves(*stamp_time(stamp));
}

/* Whether every bit of it is as it was written, as far as 16 bits tell. */
static __always_inline int stamp_holds(const struct stamp *stamp)
{
	return sum16_of_few(stamp_sum(stamp)) == 0xffff;
}

/* Writes number and time, and the check that they need. `number`: stream and sequence number, see STAMP_NUMBER. */
static __always_inline void write_stamp(struct stamp *stamp, __u64 number, __u64 time_ns)
{
	__u64 *check_and_time = stamp_time(stamp);

	*stamp_number(stamp) = bpf_cpu_to_be64(number);
	*check_and_time = bpf_cpu_to_be64(time_ns & STAMP_MASK);
	*check_and_time |= bpf_cpu_to_be64((__u64)bpf_ntohs(~sum16_of_few(stamp_sum(stamp))) << STAMP_BITS);
}

/* A difference of times modulo 2^48, taken as the one nearest to zero. */
static __always_inline __s64 nearest(__u64 difference_ns)
{
	return (__s64)(difference_ns << (64 - STAMP_BITS)) >> (64 - STAMP_BITS);
}

/* Read by nobody: with it the compiler describes the layout in the object's BTF, where the tests find it. */
const struct stamp_balanced stamp_layout SEC(".rodata.stamp") = {};
