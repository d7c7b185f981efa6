/* SPDX-License-Identifier: GPL-2.0-only */
/* The settings and maps of the counter, which nodes/receivers/xdp_program.py fills and reads; and one frame's data. */
#pragma once

#include "count.h"

const volatile struct settings settings SEC(".rodata.settings") = {};

/* The data of one frame. */
struct arrival {
	__u64 now_ns;
	__u64 bytes;
	__u64 number; /* number of its leg's packets before it */
	__u64 sequence;
	__u64 sent_ns; /* its low 48 bits, except for pktgen */
	__s64 transit_ns; /* modulo 2^48 */
	__s64 latency_ns; /* if the clocks are comparable */
	__u32 slot;
	__u32 causes;
	__u32 user; /* its index in `users`, or NOBODY */
	__u32 checked; /* its stamp has a checksum of the payload */
	__u32 sums; /* enum sums: those that its stamp declares correct */
	__u32 damaged; /* its number is unreadable */
	__u32 whole; /* it consists of headers and stamp only */
	__u32 timed; /* the clock was read for this frame: see take_clock() */
};

/* The last reading of the clock, where frames are not all timed. Frames come one after another then. */
struct {
	__u64 now_ns;
	__u64 jiffies; /* of the kernel at that time */
	__u32 frames; /* so far, modulo 2^32 */
} reading;

/* The frame belongs to no user that is counted. */
#define NOBODY 0xffffffff

/* Stream number in the stamp to its index in the maps below, plus one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} slots SEC(".maps");

/* User space sizes these maps to the legs before it loads them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct expectation);
} expectations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct window);
} windows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct histogram);
} histograms SEC(".maps");

/*
 * A bit per sequence number, in 64-bit words, of the legs that several nodes count: the union shows what was received.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} marks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct user_rule);
} user_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct user);
} users SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unmatched);
} unmatched SEC(".maps");

/* Frames of other receivers' streams of this run, by the stream in the stamp. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} misdelivered SEC(".maps");

/* For a filter in front of count(), which jumps to it. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} counting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filtered);
} filtered SEC(".maps");

/* The program that echoes counted frames of an echoed stream. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} echo SEC(".maps");

/* The program that continues with a fragment: count_fragment() of count_whole.h. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} fragmented SEC(".maps");
