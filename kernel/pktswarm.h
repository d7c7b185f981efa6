/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stamp: the sender (send.bpf.c) writes it, the receiver (count.bpf.c) reads it. traffic/frames/stamp.py is the
 * Python table of the same layout; tests/unit/test_stamp.py compares the two through the compiled object's BTF.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define STAMP_PLAIN 0x5053 /* "PS" */
#define STAMP_CHECKED 0x5043 /* "PC": struct stamp_checked, with a checksum of the payload behind it */
#define STAMP_SUMMED 0x5055 /* "PU": the same, in a recorded packet whose Internet checksums are all correct */

/*
 * The first bytes of a stamped frame's payload: 18, the space in a 64-byte IPv4 UDP frame, 64 - 4 (FCS) - 14 - 20 - 8.
 * `sequence` counts a leg's frames from 0; 48 bits last a month at 100 M frames/s, so it does not wrap.
 *
 * `check` makes the sum of the nine 16-bit words 0xffff (RFC 1071): a receiver detects any damaged bit of the stamp,
 * whatever the rest of the frame is. No Internet checksum over a stamp depends on the number and the time in it.
 */
struct stamp {
	__be16 magic;
	__be16 stream; /* the leg's number */
	__be16 sequence_high; /* bits 47 to 32 */
	__be32 sequence_low;
	__be16 check;
	__be16 time_high; /* the sender's CLOCK_MONOTONIC in ns (TAI, if asked for) when it wrote the frame: the low */
	__be32 time_low; /* 48 bits, which wrap after 78 hours */
} __attribute__((packed));

/* Two words of the stamp, as big-endian numbers: the compiler would load a packed struct byte by byte. */
#define STAMP_NUMBER 2 /* stream (16 bits), sequence number (48) */
#define STAMP_TIME 10 /* check (16 bits), time (48) */
#define STAMP_BITS 48
#define STAMP_MASK ((1ULL << STAMP_BITS) - 1)

/*
 * `checksum`: the sum modulo 2^32 - 1 of the payload behind this struct as big-endian 32-bit words (the last one padded
 * with zeros); 0 and 0xffffffff are equal. payload_sum() adds, sum32() reduces.
 */
struct stamp_checked {
	struct stamp stamp;
	__be32 checksum;
} __attribute__((packed));

/*
 * The stamp of a recorded packet (traffic/replay/stamps.py). `balance`, which the checksum covers, keeps the sum of the
 * 16-bit words of the stamped bytes as recorded, so no Internet checksum over them changes, of whatever layer.
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

/* x modulo 2^32 - 1 (as 0 or as 0xffffffff): the sum of its halves, because 2^32 is congruent to 1. */
static __always_inline __u32 sum32(__u64 x)
{
	x = (x >> 32) + (x & 0xffffffff);
	return (x >> 32) + x;
}

/* x modulo 0xffff (as 0 or as 0xffff): the sum of its 16-bit words with the carries added (RFC 1071). */
static __always_inline __u32 sum16(__u64 x)
{
	x = sum32(x);
	x = (x >> 16) + (x & 0xffff);
	return ((x >> 16) + x) & 0xffff;
}

/* sum16() of a number below 2^47: the sum of a few hundred 32-bit words. */
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

/*
 * The sum of the stamp's words, not reduced. The words are in memory order: the sum of RFC 1071 is independent of it.
 */
static __always_inline __u64 stamp_sum(const struct stamp *stamp)
{
	return *(__u16 *)stamp + halves(*stamp_number(stamp)) + halves(*stamp_time(stamp));
}

/* Whether the check verifies: a damaged bit makes it fail. */
static __always_inline int stamp_holds(const struct stamp *stamp)
{
	return sum16_of_few(stamp_sum(stamp)) == 0xffff;
}

/* Writes number, time and check. `number`: stream and sequence number, see STAMP_NUMBER. */
static __always_inline void write_stamp(struct stamp *stamp, __u64 number, __u64 time_ns)
{
	__u64 *check_and_time = stamp_time(stamp);

	*stamp_number(stamp) = bpf_cpu_to_be64(number);
	*check_and_time = bpf_cpu_to_be64(time_ns & STAMP_MASK);
	*check_and_time |= bpf_cpu_to_be64((__u64)bpf_ntohs(~sum16_of_few(stamp_sum(stamp))) << STAMP_BITS);
}

/* A difference of times modulo 2^48, as the value nearest to zero. */
static __always_inline __s64 nearest(__u64 difference_ns)
{
	return (__s64)(difference_ns << (64 - STAMP_BITS)) >> (64 - STAMP_BITS);
}

/* Unused: it makes the compiler describe the layout in the object's BTF, which a test reads. */
const struct stamp_balanced stamp_layout SEC(".rodata.stamp") = {};
