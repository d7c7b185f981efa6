// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the benchmark has of its own in the kernel: the bare redirect, which is this kind of sender's ceiling, and two
 * far ends for a wire, one that counts and one that notes when each frame arrived. build.sh compiles it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} egress SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* as many as frames are expected */
	__type(key, __u32);
	__type(value, __u64);
} times SEC(".maps");

/* One frame after another: a veth pair's end has one queue here, which one processor serves at a time. */
struct {
	__u64 frames;
} arrived;

SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&egress, 0, XDP_DROP);
}

SEC("xdp")
int count(struct xdp_md *ctx)
{
	arrived.frames++;
	return XDP_DROP;
}

SEC("xdp")
int note_time(struct xdp_md *ctx)
{
	__u32 key = arrived.frames++;
	__u64 *time = bpf_map_lookup_elem(&times, &key);

	if (time)
		*time = bpf_ktime_get_ns();
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
