// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device under test that lets so many packets through a second: a token bucket. What is above drops, and by chance
 * a share of all packets before it. Compiled by kernel/build.sh; tests/lab/police.py loads it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct settings {
	__u64 gap_ns;  /* a token's worth: time that fills the bucket with one */
	__u64 full_ns; /* when it takes no more */
	__u64 chance;  /* of a drop, in 2**-32 */
};

const volatile struct settings settings SEC(".rodata.settings") = {};

struct bucket {
	struct bpf_spin_lock lock;
	__u64 filled_ns;
	__u64 at_ns; /* 0: it was never used, and is full */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

SEC("xdp")
int police(struct xdp_md *ctx)
{
	__u64 now_ns = bpf_ktime_get_ns(), filled_ns;
	struct bucket *bucket;
	int verdict = XDP_DROP;
	__u32 key = 0;

	bucket = bpf_map_lookup_elem(&buckets, &key);
	if (!bucket || bpf_get_prandom_u32() < settings.chance)
		return XDP_DROP;
	bpf_spin_lock(&bucket->lock);
	filled_ns = bucket->at_ns ? bucket->filled_ns : settings.full_ns;
	if (now_ns > bucket->at_ns) {
		if (bucket->at_ns)
			filled_ns += now_ns - bucket->at_ns;
		bucket->at_ns = now_ns;
	}
	if (filled_ns > settings.full_ns)
		filled_ns = settings.full_ns;
	if (filled_ns >= settings.gap_ns) {
		filled_ns -= settings.gap_ns;
		verdict = XDP_PASS;
	}
	bucket->filled_ns = filled_ns;
	bpf_spin_unlock(&bucket->lock);
	return verdict;
}

char LICENSE[] SEC("license") = "GPL";
