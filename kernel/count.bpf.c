// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receiver: counts each leg's frames as they arrive, before the host's stack.
 *
 * The stream number in the payload identifies a stamped frame, at whatever offset the device under test has put it; its
 * bytes identify an unstamped one (traffic.counting.match). Frames that belong to no leg are counted apart and go on to
 * the host.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "count_frame.h"
#include "count_fragments.h"
#include "count_maps.h"
#include "count_numbers.h"
#include "count_times.h"
#include "count_changes.h"
#include "count_matching.h"

/* net/core/pktgen.c */
#define PKTGEN_MAGIC 0xbe9be955

struct pktgen_header {
	__be32 magic;
	__be32 sequence; /* from 1 */
	__be32 seconds; /* of CLOCK_REALTIME */
	__be32 microseconds;
};

static __always_inline __u64 clock_ns(void)
{
	return settings.tai ? bpf_ktime_get_tai_ns() : bpf_ktime_get_ns();
}

/* Frames are not all timed. There is no lock then, under which no helper may be called. */
#define PARTLY_TIMED (settings.timed_every > 1)

static __always_inline __u64 read_clock(void)
{
	return reading.now_ns = clock_ns();
}

/*
 * The arrival time of a frame. To read the clock is a tenth of the cost of a short frame, and what follows from it another
 * one. With `timed_every`, two frames in a row of so many are timed, because jitter is of pairs; and each frame that does
 * not come within the same jiffy as the last reading, so a stream of a low rate has each of its frames timed. The other
 * frames have the time of the last reading, which is less than a jiffy before.
 */
static __always_inline void take_clock(struct arrival *a)
{
	__u64 jiffies;

	if (!PARTLY_TIMED) { /* processors that share a word write nothing to it */
		a->now_ns = clock_ns();
		a->timed = 1;
		return;
	}
	jiffies = bpf_jiffies64();
	if (jiffies == reading.jiffies && (reading.frames++ & (settings.timed_every - 1)) > 1) {
		a->now_ns = reading.now_ns;
		return;
	}
	reading.jiffies = jiffies;
	a->now_ns = read_clock();
	a->timed = 1;
}

/* The program in a map continues; nothing happens where there is none. */
static __always_inline void go_on_in(struct xdp_md *ctx, void *map)
{
#ifndef COUNT_WITHOUT_TAIL_CALLS
	bpf_tail_call(ctx, map, 0);
#endif
}

/* The first of each `pass_on` frames goes on to the capture. */
static __always_inline int verdict(const struct arrival *a)
{
	if (settings.pass_on == 1)
		return XDP_PASS;
	return settings.pass_on && a->number % settings.pass_on == 0 ? XDP_PASS : XDP_DROP;
}

/*
 * The lock costs half as much as everything else. With one receive queue no two frames are counted at once, and where a
 * processor's stores stay in order a reader detects a torn reading.
 */
static __always_inline void lock(struct tally *t)
{
	if (!settings.alone)
		bpf_spin_lock(&t->lock);
}

static __always_inline void unlock(struct tally *t)
{
	if (!settings.alone)
		bpf_spin_unlock(&t->lock);
}

static __always_inline void take_frame(struct tally *t, struct arrival *a)
{
	a->number = t->packets++;
	if (!a->number) {
		if (PARTLY_TIMED && !a->timed)
			a->now_ns = read_clock();
		t->first_ns = a->now_ns;
	}
	barrier(); /* the compiler keeps this order: see struct tally */
	/* Two CPUs can read the clock before either holds the lock. */
	if (a->now_ns > t->last_ns)
		t->last_ns = a->now_ns;
	t->bytes += a->bytes;
}

static __always_inline void take_causes(struct tally *t, __u32 causes)
{
	if (!causes)
		return;
	/* Through memory: the verifier follows the loop once, not once for each cause that it knows. */
	*(volatile __u32 *)&t->scratch = causes;
	causes = *(volatile __u32 *)&t->scratch;
	t->altered++;
	for (int i = 0; i < CAUSES; i++)
		t->altered_by[i] += causes >> i & 1;
}

/* Index of the frame's user in `users`: NOBODY where the leg has none. */
static __always_inline __u32 user_key(__u32 slot, const struct frame *frame, int sound)
{
	struct user_rule *rule;

	if (!settings.users)
		return NOBODY;
	rule = bpf_map_lookup_elem(&user_rules, &slot);
	return rule && rule->count ? user_place(rule, &frame->fields, sound) : NOBODY;
}

static __always_inline struct user *user_at(__u32 key)
{
	return settings.users && key != NOBODY ? bpf_map_lookup_elem(&users, &key) : 0;
}

static __always_inline void take_user(struct user *u, const struct arrival *a)
{
	u->packets++;
	u->bytes += a->bytes;
}

static __always_inline void take_users_latency(struct user *u, __s64 latency_ns)
{
	if (!u->latencies || latency_ns < u->latency_min_ns)
		u->latency_min_ns = latency_ns;
	if (!u->latencies || latency_ns > u->latency_max_ns)
		u->latency_max_ns = latency_ns;
	u->latencies++;
	u->latency_sum_ns += latency_ns;
}

/* Counts a packet with a number; `causes` are its changes. Fails where a map has no such leg. */
static __always_inline int take_numbered(struct arrival *a, const struct expectation *e)
{
	struct tally *t = bpf_map_lookup_elem(&tallies, &a->slot);
	struct window *w = bpf_map_lookup_elem(&windows, &a->slot);
	struct histogram *h = bpf_map_lookup_elem(&histograms, &a->slot);
	struct user *u = user_at(a->user), *of_candidate = 0;
	enum novelty novelty;
	__u64 *marked;
	int timed;

	if (!t || !w || !h)
		return -1;
	if (settings.users && t->candidate) /* no map lookup is allowed under the lock */
		of_candidate = user_at(t->candidate_user);
	marked = marked_of(e, a->sequence);
	a->transit_ns = a->now_ns - a->sent_ns;
	a->latency_ns = nearest(a->transit_ns + e->offset_ns);
	lock(t);
	take_frame(t, a);
	take_causes(t, a->causes);
	if (e->numbered == NUMBERED_BY_PKTGEN)
		a->sequence = unwrapped(t, a);
	novelty = take_number(t, w, marked, of_candidate, a, e);
	/* RFC 7679: a duplicate has the delay of the first frame; a frame with a damaged payload has none. */
	timed = novelty == FRESH && a->timed && e->clocked && !(a->causes & 1 << CAUSE_PAYLOAD) && take_time(t, h, e, a);
	if (u) {
		take_user(u, a);
		u->distinct += novelty == FRESH;
		if (timed)
			take_users_latency(u, a->latency_ns);
	}
	barrier();
	t->done++;
	unlock(t);
	return 0;
}

/* Counts a frame of this leg with an unreadable number as received, and nothing else. */
static __always_inline int count_damaged(const struct frame *frame, struct arrival *a, const struct expectation *e)
{
	struct tally *t = bpf_map_lookup_elem(&tallies, &a->slot);
	struct user *u = user_at(user_key(a->slot, frame, sound(frame, e->sums, 1 << CAUSE_STAMP)));

	if (!t)
		return XDP_ABORTED;
	lock(t);
	take_frame(t, a);
	take_causes(t, 1 << CAUSE_STAMP);
	t->damaged++;
	if (u) {
		take_user(u, a);
		u->damaged++;
	}
	barrier();
	t->done++;
	unlock(t);
	return verdict(a);
}

static __always_inline int count_numbered(struct xdp_md *ctx, const struct frame *frame, struct arrival *a)
{
	struct expectation *e = bpf_map_lookup_elem(&expectations, &a->slot);

	if (!e)
		return XDP_ABORTED;
	if (a->damaged)
		return count_damaged(frame, a, e);
	a->causes = changed(ctx, frame, a, e);
	a->user = user_key(a->slot, frame, sound(frame, e->sums | a->sums, a->causes));
	a->causes = explained(a->causes);
	if (take_numbered(a, e))
		return XDP_ABORTED;
	if (settings.echo)
		go_on_in(ctx, &echo);
	return verdict(a);
}

static __always_inline int count_by_bytes(const struct frame *frame, enum parsed parsed, struct arrival *a)
{
	struct tally *t = bpf_map_lookup_elem(&tallies, &a->slot);
	struct user *u = user_at(user_key(a->slot, frame, parsed == PARSED));

	if (!t)
		return XDP_ABORTED;
	lock(t);
	take_frame(t, a);
	if (u)
		take_user(u, a);
	barrier();
	t->done++;
	unlock(t);
	return verdict(a);
}

static __always_inline int pass_unmatched(enum unmatched_kind kind, const struct arrival *a)
{
	__u32 key = 0;
	struct unmatched *s = bpf_map_lookup_elem(&unmatched, &key);

	if (s) {
		s->packets[kind]++;
		s->bytes[kind] += a->bytes;
		s->last_ns = a->now_ns;
	}
	return XDP_PASS;
}

/* A switch that floods delivers frames of other receivers. */
static __always_inline void count_misdelivered(const struct stamp *stamp)
{
	__u32 stream = bpf_ntohs(stamp->stream);
	__u64 *packets = bpf_map_lookup_elem(&misdelivered, &stream);

	if (packets)
		__sync_fetch_and_add(packets, 1);
}

static __always_inline int read_stamp(const struct stamp *stamp, struct arrival *a)
{
	__u64 number = bpf_be64_to_cpu(*stamp_number(stamp));
	__u32 stream = number >> STAMP_BITS;
	__u32 *slot = bpf_map_lookup_elem(&slots, &stream);

	if (!slot || !*slot)
		return 0;
	a->slot = *slot - 1;
	a->sequence = number & STAMP_MASK;
	a->sent_ns = bpf_be64_to_cpu(*stamp_time(stamp)) & STAMP_MASK;
	a->checked = stamp->magic != bpf_htons(STAMP_PLAIN);
	a->sums = stamp->magic == bpf_htons(STAMP_SUMMED) ? SUMS_IP | SUMS_TRANSPORT : 0;
	return 1;
}

/* Reads number and time of a frame that its bytes identify as pktgen's. */
static __always_inline int read_pktgen(struct xdp_md *ctx, const struct frame *frame, struct arrival *a)
{
	const struct pktgen_header *header = (void *)(long)ctx->data;
	__u32 at = frame->payload;

	if (at > MOST_HEADER_BYTES)
		return 0;
	header = (void *)header + at;
	if ((void *)(header + 1) > (void *)(long)ctx->data_end || header->magic != bpf_htonl(PKTGEN_MAGIC))
		return 0;
	a->sequence = bpf_ntohl(header->sequence) - 1;
	a->sent_ns = bpf_ntohl(header->seconds) * 1000000000ULL + bpf_ntohl(header->microseconds) * 1000ULL;
	return 1;
}

/* Whether the leg's frames have pktgen's numbers. */
static __always_inline int by_pktgen(__u32 slot)
{
	struct expectation *e = settings.pktgen ? bpf_map_lookup_elem(&expectations, &slot) : 0;

	return e && e->numbered == NUMBERED_BY_PKTGEN;
}

static __always_inline enum unmatched_kind unmatched_kind_of(enum parsed parsed, const struct stamp *stamp, int is_damaged)
{
	if (parsed == PARSED_FRAGMENT)
		return UNMATCHED_FRAGMENT;
	if (parsed == PARSED_MALFORMED)
		return UNMATCHED_MALFORMED;
	if (is_damaged)
		return UNMATCHED_DAMAGED;
	return stamp ? UNMATCHED_STREAM : UNMATCHED_OTHER;
}

static __always_inline int is_numbered_by_us(__u32 slot)
{
	struct expectation *e = bpf_map_lookup_elem(&expectations, &slot);

	return e && e->numbered == NUMBERED_BY_US;
}

/* Finds the leg of a frame without a readable stamp: by its bytes, then as one with a damaged stamp. */
static __always_inline __u32 find_leg(struct xdp_md *ctx, const struct frame *frame, int is_damaged)
{
	__u32 slot = settings.rows ? leg_by_bytes(ctx, is_damaged) : NO_LEG;

	return slot == NO_LEG && is_damaged ? leg_by_headers(frame) : slot;
}

/*
 * Whether a frame that ends with its stamp is intact, with one sum over stamp and headers. The stamp has a weight that
 * is no power of 2, so no damaged bit of it compensates one of the headers.
 */
static __always_inline int is_whole(const struct stamp *stamp, const struct frame *frame)
{
	return stamp->magic == bpf_htons(STAMP_PLAIN) && frame->payload_bytes == sizeof(*stamp) && frame->sum &&
	       sum16_of_few(frame->sum + frame->ip_sum + 3 * stamp_sum(stamp)) == 0xffff;
}

SEC("xdp")
int count(struct xdp_md *ctx)
{
	struct arrival a = { .bytes = ctx->data_end - ctx->data, .user = NOBODY };
	const struct stamp *stamp = 0;
	struct frame frame = {};
	enum parsed parsed;

	take_clock(&a);
	parsed = parse(ctx, &frame);
	if (parsed == PARSED)
		stamp = find_stamp(ctx, &frame);
	a.whole = stamp && is_whole(stamp, &frame);
	a.damaged = stamp && !a.whole && !stamp_holds(stamp);
	if (stamp && !a.damaged && read_stamp(stamp, &a))
		return count_numbered(ctx, &frame, &a);
	a.slot = find_leg(ctx, &frame, a.damaged);
	if (a.slot == NO_LEG) {
		if (parsed == PARSED_FRAGMENT && settings.together_ms)
			go_on_in(ctx, &fragmented);
		if (stamp && !a.damaged)
			count_misdelivered(stamp);
		return pass_unmatched(unmatched_kind_of(parsed, stamp, a.damaged), &a);
	}
	if (!a.damaged || !is_numbered_by_us(a.slot)) {
		if (!by_pktgen(a.slot))
			return count_by_bytes(&frame, parsed, &a);
		a.damaged = parsed != PARSED || !read_pktgen(ctx, &frame, &a);
	}
	return count_numbered(ctx, &frame, &a); /* in one place for both, which the verifier checks once */
}

#include "count_whole.h"

/*
 * Copies the tally of the slot in the frame's first word over the frame, for a reader without the lock: run by
 * BPF_PROG_RUN, attached to nothing. It loads the words in the order of struct tally, from `done` to `packets`. The
 * lookup of the bpf system call does not: the processor's string copy has no order, and a torn reading stays unseen.
 */
SEC("xdp")
int copy_tally(struct xdp_md *ctx)
{
	__u64 *copy = (void *)(long)ctx->data;
	const volatile __u64 *words;
	struct tally *t;

	if ((void *)((struct tally *)copy + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	t = bpf_map_lookup_elem(&tallies, copy);
	if (!t)
		return XDP_ABORTED;
	words = (const volatile __u64 *)t;
	for (int i = offsetof(struct tally, done) / sizeof(*copy); i < sizeof(*t) / sizeof(*copy); i++)
		copy[i] = words[i];
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
