// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device under test: carries every frame from one interface to another, and does to the listed ones what the list
 * says. Compiled by kernel/build.sh; tests/lab/device.py loads it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../../kernel/pktswarm.h"

#define PLACES 4
#define CHANGED_BYTES 8

enum action { DROP = 1, CHANGE = 2 };
enum done { SEEN, DROPPED, CHANGED, FAILED, DONE };

/* By the stamp; a frame without one by how many of its kind came before it, with stream NO_STREAM. */
#define NO_STREAM 0xffffffff

struct fault_key {
	__u64 number;
	__u32 stream;
	__u32 zero;
};

struct fault {
	__u32 action;
	__u32 offset;
	__u8 flip[CHANGED_BYTES]; /* these bits, from `offset` on */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct fault_key);
	__type(value, struct fault);
} faults SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} way_out SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DONE);
	__type(key, __u32);
	__type(value, __u64);
} done SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} unstamped SEC(".maps");

/* Where a stamp may begin. */
const volatile __u32 places[PLACES] SEC(".rodata.places") = {};

static __always_inline void note(enum done what)
{
	__u32 key = what;
	__u64 *count = bpf_map_lookup_elem(&done, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline __u64 next_unstamped(void)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&unstamped, &key);

	return count ? __sync_fetch_and_add(count, 1) : 0;
}

static __always_inline void identify(struct xdp_md *ctx, struct fault_key *key)
{
	struct stamp stamp = {};

	for (int i = 0; i < PLACES; i++) {
		if (!places[i] || bpf_xdp_load_bytes(ctx, places[i], &stamp, sizeof(stamp)))
			continue;
		if (stamp.magic != bpf_htons(STAMP_PLAIN) && stamp.magic != bpf_htons(STAMP_CHECKED) &&
		    stamp.magic != bpf_htons(STAMP_SUMMED))
			continue;
		key->stream = bpf_ntohs(stamp.stream);
		key->number = (__u64)bpf_ntohs(stamp.sequence_high) << 32 | bpf_ntohl(stamp.sequence_low);
		return;
	}
	key->stream = NO_STREAM;
	key->number = next_unstamped();
}

static __always_inline int change(struct xdp_md *ctx, const struct fault *fault)
{
	__u8 bytes[CHANGED_BYTES];

	if (bpf_xdp_load_bytes(ctx, fault->offset, bytes, sizeof(bytes)))
		return -1;
	for (int i = 0; i < CHANGED_BYTES; i++)
		bytes[i] ^= fault->flip[i];
	return bpf_xdp_store_bytes(ctx, fault->offset, bytes, sizeof(bytes));
}

SEC("xdp")
int device(struct xdp_md *ctx)
{
	struct fault_key key = {};
	struct fault *fault;

	note(SEEN);
	identify(ctx, &key);
	fault = bpf_map_lookup_elem(&faults, &key);
	if (fault && fault->action == DROP) {
		note(DROPPED);
		return XDP_DROP;
	}
	if (fault)
		note(change(ctx, fault) ? FAILED : CHANGED);
	return bpf_redirect_map(&way_out, 0, XDP_DROP);
}

char LICENSE[] SEC("license") = "GPL";
