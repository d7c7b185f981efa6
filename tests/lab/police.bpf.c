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

#define PAUSE_NS 200000000ULL /* after so long without a frame a burst begins */
#define BURSTS 256

struct burst {
	__u64 first_ns, last_ns; /* when frames came, by the clock that fills the bucket */
	__u64 came, passed;	 /* frames */
};

struct bucket {
	struct bpf_spin_lock lock;
	__u32 bursts; /* that began */
	__u64 filled_ns;
	__u64 at_ns; /* 0: it was never used, and is full */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

struct bursts {
	struct burst all[BURSTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bursts);
} bursts SEC(".maps");

static __always_inline void note_frame(struct bucket *bucket, struct bursts *noted, __u64 now_ns, int verdict)
{
	struct burst *burst;

	if (!bucket->at_ns || now_ns > bucket->at_ns + PAUSE_NS)
		bucket->bursts++;
	burst = &noted->all[(bucket->bursts - 1) % BURSTS];
	if (!burst->came++)
		burst->first_ns = now_ns;
	burst->last_ns = now_ns;
	burst->passed += verdict == XDP_PASS;
}

SEC("xdp")
int police(struct xdp_md *ctx)
{
	__u64 now_ns = bpf_ktime_get_ns(), filled_ns;
	int verdict = XDP_DROP, by_chance;
	struct bucket *bucket;
	struct bursts *noted;
	__u32 key = 0;

	bucket = bpf_map_lookup_elem(&buckets, &key);
	noted = bpf_map_lookup_elem(&bursts, &key);
	if (!bucket || !noted)
		return XDP_DROP;
	by_chance = bpf_get_prandom_u32() < settings.chance;
	bpf_spin_lock(&bucket->lock);
	filled_ns = bucket->at_ns ? bucket->filled_ns : settings.full_ns;
	if (bucket->at_ns && now_ns > bucket->at_ns)
		filled_ns += now_ns - bucket->at_ns;
	if (filled_ns > settings.full_ns)
		filled_ns = settings.full_ns;
	if (!by_chance && filled_ns >= settings.gap_ns) {
		filled_ns -= settings.gap_ns;
		verdict = XDP_PASS;
	}
	note_frame(bucket, noted, now_ns, verdict);
	bucket->filled_ns = filled_ns;
	if (now_ns > bucket->at_ns)
		bucket->at_ns = now_ns;
	bpf_spin_unlock(&bucket->lock);
	return verdict;
}

char LICENSE[] SEC("license") = "GPL";
