/* SPDX-License-Identifier: GPL-2.0-only */
/* The settings, state and maps of the sender, which nodes/senders/xdp_program.py fills. */
#pragma once

#include "send.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* one for each leg */
	__type(key, __u32);
	__type(value, struct leg);
} legs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* one for each size of each leg */
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* MAX_PARTS for each slot, if any is sent in fragments */
	__type(key, __u32);
	__type(value, struct part);
} parts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the tables of all rules, one after another */
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* those of all traces, one after another */
	__type(key, __u32);
	__type(value, struct record);
} records SEC(".maps");

struct chunk {
	__u8 bytes[CHUNK_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct chunk);
} store SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* those of all paces, one after another */
	__type(key, __u32);
	__type(value, struct step);
} steps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the tables of random gaps, one after another */
	__type(key, __u32);
	__type(value, __u64);
} gaps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* frames sent per user, as far as known, of all legs one after another */
	__type(key, __u32);
	__type(value, __u64);
} users SEC(".maps");

struct state state;

const volatile struct send_settings settings SEC(".rodata.settings") = {};
