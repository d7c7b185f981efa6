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

#include "count.h"
#include "count_frame.h"
#include "count_fragments.h"

/* A number further ahead than this is accepted only when a second frame agrees. */
#define BELIEVED_AHEAD 4096
/* The same for pktgen's numbers, which have no check of their own, and often no checksum. */
#define PKTGEN_BELIEVED_AHEAD 64
/* Relative drift of two free-running clocks: up to 2^-13 (122 ppm). */
#define DRIFT_SHIFT 13
#define JITTER_MOST 0xffffffffULL
#define MOST_PAYLOAD_BYTES 4096
#define WORDS_OF_A_BLOCK 16
#define BLOCK_BYTES (4 * WORDS_OF_A_BLOCK)
#define MOST_SUMMED_BYTES (MOST_HEADER_BYTES + sizeof(struct stamp_checked) + MOST_PAYLOAD_BYTES)

const volatile struct settings settings SEC(".rodata.settings") = {};

/* The cause that a byte of struct fields belongs to. */
static const __u8 cause_of[sizeof(struct fields)] = {
	[0 ... 5] = CAUSE_DST_MAC,    [6 ... 11] = CAUSE_SRC_MAC,    [12 ... 16] = CAUSE_VLAN,
	[17 ... 18] = CAUSE_PROTOCOL, [19] = CAUSE_DSCP,	     [20] = CAUSE_TTL,
	[21 ... 23] = CAUSE_MPLS,     [24 ... 25] = CAUSE_SRC_PORT,  [26 ... 27] = CAUSE_DST_PORT,
	[28 ... 31] = CAUSE_TEID,     [32 ... 47] = CAUSE_SRC_IP,    [48 ... 63] = CAUSE_DST_IP,
};

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

/* For a filter in front of the program below, which jumps to it. */
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

/* The program that continues with a fragment: count_fragment() below. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} fragmented SEC(".maps");

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
};

/* net/core/pktgen.c */
#define PKTGEN_MAGIC 0xbe9be955

/* The frame belongs to no user that is counted. */
#define NOBODY 0xffffffff

struct pktgen_header {
	__be32 magic;
	__be32 sequence; /* from 1 */
	__be32 seconds; /* of CLOCK_REALTIME */
	__be32 microseconds;
};

enum novelty { FRESH, DUPLICATE, TOO_LATE, INVALID };

static __always_inline __u64 clock_ns(void)
{
	return settings.tai ? bpf_ktime_get_tai_ns() : bpf_ktime_get_ns();
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

/* Marks the number in the window. */
static __always_inline enum novelty mark(struct window *w, __u64 sequence)
{
	struct window_word *word = &w->words[(sequence >> 6) & (WINDOW_WORDS - 1)];
	__u64 number = (sequence >> 6) + 1;
	__u64 bit = 1ULL << (sequence & 63);

	if (word->number > number)
		return TOO_LATE;
	if (word->number < number) {
		word->number = number;
		word->seen = 0;
	}
	if (word->seen & bit)
		return DUPLICATE;
	word->seen |= bit;
	return FRESH;
}

/*
 * Whether to accept a number far ahead. One damaged stamp would otherwise move the window to where every later frame
 * counts as too late. As in RFC 3550 A.1 the next frame decides: after a real gap its number is close.
 */
static __always_inline int believed(struct tally *t, struct window *w, struct user *of_candidate, const struct arrival *a,
				    __u64 ahead)
{
	__u64 candidate = t->candidate - 1, sequence = a->sequence;
	__u64 apart = sequence > candidate ? sequence - candidate : candidate - sequence;

	if (!t->candidate || !apart || apart >= ahead) {
		t->candidate = sequence + 1;
		t->candidate_user = a->user;
		return 0;
	}
	t->candidate = 0;
	t->invalid_sequence--;
	t->distinct++;
	if (of_candidate)
		of_candidate->distinct++;
	mark(w, candidate);
	if (candidate >= t->next)
		t->next = candidate + 1;
	return 1;
}

/* mark() for a leg that several nodes count: nothing is too late. */
static __always_inline enum novelty mark_for_good(__u64 *marked, __u64 sequence)
{
	__u64 bit = 1ULL << (sequence & 63);

	if (*marked & bit)
		return DUPLICATE;
	*marked |= bit;
	return FRESH;
}

/*
 * The base of lost, duplicated and reordered (RFC 4737, type-P-reordered). `marked`: the leg's word of marks, if it has
 * them. Its numbers may jump by any distance, because other nodes receive the packets in between.
 */
static __always_inline enum novelty take_number(struct tally *t, struct window *w, __u64 *marked,
					     struct user *of_candidate, const struct arrival *a,
					     const struct expectation *e)
{
	__u64 ahead = e->numbered == NUMBERED_BY_PKTGEN ? PKTGEN_BELIEVED_AHEAD : BELIEVED_AHEAD;
	__u64 sequence = a->sequence;
	enum novelty novelty;

	if ((e->limit && sequence >= e->limit) ||
	    (!marked && sequence >= t->next + ahead && !believed(t, w, of_candidate, a, ahead))) {
		t->invalid_sequence++;
		return INVALID;
	}
	t->candidate = 0;
	novelty = marked ? mark_for_good(marked, sequence) : mark(w, sequence);
	if (novelty == TOO_LATE)
		t->too_late++;
	if (novelty == DUPLICATE)
		t->duplicated++;
	if (novelty != FRESH)
		return novelty;
	t->distinct++;
	if (sequence < t->next)
		t->reordered++;
	else
		t->next = sequence + 1;
	return FRESH;
}

static __always_inline void take_latency(struct tally *t, struct histogram *h, __s64 latency_ns, __u64 bias_ns)
{
	__u32 at = bucket(latency_ns + (__s64)bias_ns);

	if (!t->latencies || latency_ns < t->latency_min_ns)
		t->latency_min_ns = latency_ns;
	if (!t->latencies || latency_ns > t->latency_max_ns)
		t->latency_max_ns = latency_ns;
	t->latencies++;
	t->latency_sum_ns += latency_ns;
	t->negative += latency_ns + (__s64)bias_ns < 0;
	if (at < HISTOGRAM_BUCKETS)
		h->buckets[at]++;
}

/* J(n) is the difference of two transit times, so the clocks' offset cancels out. */
static __always_inline void take_jitter(struct tally *t, __s64 transit_ns)
{
	__s64 difference = nearest(transit_ns - t->transit_ns);
	__u64 size = difference < 0 ? -difference : difference;
	__u64 square;

	if (size > JITTER_MOST) {
		t->jitter_clipped++;
		size = JITTER_MOST;
		difference = difference < 0 ? -(__s64)JITTER_MOST : JITTER_MOST;
	}
	square = size * size;
	t->jitter_pairs++;
	t->jitter_sum_ns += difference;
	t->jitter_squares_low += square;
	t->jitter_squares_high += t->jitter_squares_low < square;
	t->jitter_rfc3550_16 += size - ((t->jitter_rfc3550_16 + 8) >> 4);
}

/* Whether the error bound of the clocks, their drift since the start, and the start of the run allow this latency. */
static __always_inline int possible(const struct expectation *e, const struct arrival *a)
{
	__u64 since_ns = a->now_ns - settings.armed_ns;
	__s64 slack_ns = e->bias_ns + (since_ns >> DRIFT_SHIFT);

	return a->latency_ns >= -slack_ns && a->latency_ns <= (__s64)since_ns + slack_ns;
}

/* Returns whether the frame has a latency. */
static __always_inline int take_time(struct tally *t, struct histogram *h, const struct expectation *e,
				     const struct arrival *a)
{
	if (e->timed && !possible(e, a)) {
		t->impossible++;
		return 0;
	}
	if (e->timed)
		take_latency(t, h, a->latency_ns, e->bias_ns);
	if (t->moments)
		take_jitter(t, a->transit_ns);
	t->transit_ns = a->transit_ns;
	t->moments++;
	return e->timed;
}

static __always_inline void take_frame(struct tally *t, struct arrival *a)
{
	a->number = t->packets++;
	if (!a->number)
		t->first_ns = a->now_ns;
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
	t->altered++;
	for (int i = 0; i < CAUSES; i++)
		t->altered_by[i] += causes >> i & 1;
}

/*
 * The set of causes for header fields that differ from the expected ones. A global function, for the few frames that
 * are changed: the verifier would check its rounds once for each state of the frame before it.
 */
__noinline __u32 causes_of(const struct fields *found, const struct expectation *e)
{
	const __u8 *bytes = (const void *)found;
	const __u8 *mask, *value;
	__u32 causes = 0;

	if (!found || !e)
		return 0;
	mask = (const void *)e->mask;
	value = (const void *)e->value;
	for (int i = 0; i < sizeof(*found); i++)
		/* 1 for any difference, without a branch: the verifier would follow 2^64 paths. */
		causes |= ((((bytes[i] ^ value[i]) & mask[i]) + 255u) >> 8) << cause_of[i];
	return causes;
}

static __always_inline __u32 changed_fields(const struct fields *found, const struct expectation *e)
{
	const __u64 *words = (const void *)found;
	__u64 differs = 0;

	for (int i = 0; i < FIELD_WORDS; i++)
		differs |= (words[i] ^ e->value[i]) & e->mask[i];
	return differs ? causes_of(found, e) : 0;
}

/*
 * The up to three bytes from `at` on, as one more word. A global function, as parse_ip(): the verifier would check it
 * once for each end of the loop in sum_from().
 */
__noinline __u32 tail_of(struct xdp_md *ctx, __u32 at, __u32 bytes)
{
	const void *end = (void *)(long)ctx->data_end;
	const void *place = (void *)(long)ctx->data;
	__u32 tail = 0;

	if (at > MOST_SUMMED_BYTES)
		return 0;
	place += at;
	for (int i = 0; i < 3 && i < bytes && place + 1 <= end; i++)
		tail |= (__u32)*(const __u8 *)place++ << (24 - 8 * i);
	return tail;
}

/* sum_from() of less than a block. */
__noinline __u64 rest_from(struct xdp_md *ctx, __u32 offset, __u32 bytes)
{
	const void *end = (void *)(long)ctx->data_end;
	const void *at = (void *)(long)ctx->data;
	__u64 sum = 0;

	if (offset > MOST_SUMMED_BYTES)
		return 0;
	at += offset;
	for (int i = 0; i < WORDS_OF_A_BLOCK && bytes >= 4 && at + 4 <= end; i++) {
		sum += bpf_ntohl(*(const __be32 *)at);
		at += 4;
		bytes -= 4;
	}
	return bytes ? sum + tail_of(ctx, at - (void *)(long)ctx->data, bytes) : sum;
}

/*
 * The sum of `bytes` bytes from the offset on in 32-bit words, as in the stamp's checksum: the bytes after the last word
 * are one more word.
 */
__noinline __u64 sum_from(struct xdp_md *ctx, __u32 offset, __u32 bytes)
{
	const void *end = (void *)(long)ctx->data_end;
	const void *at = (void *)(long)ctx->data;
	__u64 sum = 0;

	if (offset > MOST_HEADER_BYTES + sizeof(struct stamp_checked))
		return 0;
	at += offset;
	/* Blocks of words: each has one comparison with the end, and the verifier looks at a sixteenth of the rounds. */
	for (int i = 0; i < MOST_PAYLOAD_BYTES / BLOCK_BYTES && bytes >= BLOCK_BYTES && at + BLOCK_BYTES <= end; i++) {
		const __be32 *words = at;
#pragma unroll
		for (int j = 0; j < WORDS_OF_A_BLOCK; j++)
			sum += bpf_ntohl(words[j]);
		at += BLOCK_BYTES;
		bytes -= BLOCK_BYTES;
	}
	return bytes ? sum + rest_from(ctx, at - (void *)(long)ctx->data, bytes) : sum;
}

/* Modulo 2^32 - 1 there are two representations of zero. */
static __always_inline int same_sum(__be32 said, __u64 sum)
{
	return sum32(bpf_ntohl(said)) % 0xffffffff == sum32(sum) % 0xffffffff;
}

/* 16 bits of a sum over payload bytes, as words in memory order. */
static __always_inline __u16 in_memory(__u64 sum)
{
	return bpf_htons(sum16(sum));
}

#define NO_SUM 0

/*
 * Checks payload and headers of a frame with a stamp_checked at `at` independently: the headers' checksum is verified
 * with the payload sum of the stamp, so payload damage does not affect it. `sum`: that of the headers, see struct
 * cursor; NO_SUM: not checked. A global function for the verifier's sake, as parse_ip().
 */
__noinline __u32 changed_payload(struct xdp_md *ctx, __u32 at, __u32 bytes, __u64 sum)
{
	const void *end = (void *)(long)ctx->data_end;
	const void *payload = (void *)(long)ctx->data;
	const struct stamp_checked *stamp;
	__u32 causes = 0;
	__be32 said;

	if (at > MOST_HEADER_BYTES)
		return 0;
	stamp = payload + at;
	if ((void *)(stamp + 1) > end || bytes < sizeof(*stamp))
		return 1 << CAUSE_PAYLOAD;
	said = *(__be32 *)((void *)stamp + sizeof(stamp->stamp));
	if (!same_sum(said, sum_from(ctx, at + sizeof(*stamp), bytes - sizeof(*stamp))))
		causes = 1 << CAUSE_PAYLOAD;
	/*
	 * The sum of the stamp's own words is zero; the checksum counts twice, once for itself and once for the
	 * payload.
	 */
	if (sum != NO_SUM && sum16_of_few(sum + 2ULL * said) != 0xffff)
		causes |= 1 << CAUSE_CHECKSUM;
	return causes;
}

/* Whether a sum over the headers and the payload from `from` on is wrong. */
static __always_inline int wrong_sum(struct xdp_md *ctx, const struct frame *frame, __u64 sum, __u32 from)
{
	if (frame->payload_bytes > from)
		sum += in_memory(sum_from(ctx, frame->payload + from, frame->payload_bytes - from));
	return sum16_of_few(sum) != 0xffff;
}

/*
 * Checks payload and checksums. One sum verifies all checksums of the headers, because it shows any damaged bit as
 * well.
 */
static __always_inline __u32 changed_sums(struct xdp_md *ctx, const struct frame *frame, const struct arrival *a,
					  const struct expectation *e)
{
	__u32 sums = e->sums | a->sums, causes = 0;
	__u64 sum = NO_SUM;

	if (a->whole)
		return 0;
	if (sums & SUMS_TRANSPORT)
		sum = frame->sum + (sums & SUMS_IP ? frame->ip_sum : 0);
	else if (sums & SUMS_IP && ip_damaged(frame))
		causes = 1 << CAUSE_CHECKSUM;
	if (sums & SUMS_TRANSPORT && !frame->sum)
		causes = 1 << CAUSE_CHECKSUM;
	if (a->checked)
		return causes | changed_payload(ctx, frame->payload, frame->payload_bytes, sum);
	if (sum != NO_SUM && wrong_sum(ctx, frame, sum, e->numbered == NUMBERED_BY_US ? sizeof(struct stamp) : 0))
		causes = 1 << CAUSE_CHECKSUM;
	return causes;
}

/* Returns the set of causes that changed the frame. */
static __always_inline __u32 changed(struct xdp_md *ctx, const struct frame *frame, const struct arrival *a,
				     const struct expectation *e)
{
	__u32 causes = changed_fields(&frame->fields, e);

	if (frame->payload + frame->payload_bytes > a->bytes ||
	    (e->payload_bytes && frame->payload_bytes != e->payload_bytes))
		causes |= 1 << CAUSE_LENGTH;
	return causes | changed_sums(ctx, frame, a, e);
}

/*
 * Whether the headers identify a frame's user reliably. Payload damage does not make a checksum of the headers wrong.
 */
static __always_inline int sound(const struct frame *frame, __u32 sums, __u32 causes)
{
	if (!(causes & (1 << CAUSE_CHECKSUM | 1 << CAUSE_STAMP)))
		return 1;
	if (sums & SUMS_IP && ip_damaged(frame))
		return 0;
	return causes & (1 << CAUSE_PAYLOAD | 1 << CAUSE_STAMP);
}

/* A wrong checksum is a cause only where no other cause explains it. */
static __always_inline __u32 explained(__u32 causes)
{
	return causes & ~(1 << CAUSE_CHECKSUM) ? causes & ~(1 << CAUSE_CHECKSUM) : causes;
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

/*
 * Extends pktgen's 32 bits to the number nearest to the next expected one; below the first number, to an invalid one.
 */
static __always_inline __u64 unwrapped(const struct tally *t, const struct arrival *a)
{
	__u32 ahead = (__u32)a->sequence - (__u32)t->next;
	__u64 sequence = t->next + (__s64)(__s32)ahead;

	return sequence >> 63 ? ~0ULL >> 1 : sequence;
}

/*
 * Returns the word of marks with the number; 0 where the leg has none. The leg's limit keeps its numbers within its
 * words.
 */
static __always_inline __u64 *marked_of(const struct expectation *e, __u64 sequence)
{
	__u32 word = e->first_mark + (__u32)(sequence >> 6);

	return e->marks && sequence >> 6 < e->marks ? bpf_map_lookup_elem(&marks, &word) : 0;
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
	timed = novelty == FRESH && e->clocked && !(a->causes & 1 << CAUSE_PAYLOAD) && take_time(t, h, e, a);
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
		bpf_tail_call(ctx, &echo, 0);
	return verdict(a);
}

static __always_inline int fits(const struct row *row, const __u64 *head, __u32 length)
{
	__u64 differs = 0;

	if (length < row->head_bytes || (row->length && length != row->length))
		return 0;
	for (int i = 0; i < HEAD_WORDS; i++)
		differs |= (head[i] & row->mask[i]) ^ row->value[i];
	return !differs;
}

static __always_inline int in_ranges(const struct row *row, const __u64 *head)
{
	for (int i = 0; i < ROW_RANGES && i < row->ranges; i++) {
		const struct range *range = &row->range[i];
		const __u8 *at = (const __u8 *)head;
		__u32 offset = range->offset;
		__u32 number;

		if (offset > HEAD_BYTES - 4)
			return 0;
		at += offset;
		number = (at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]) & range->mask;
		if (number < range->low || number > range->high)
			return 0;
	}
	return 1;
}

/* Returns the leg of an unstamped frame, or of a frame with a damaged stamp. */
__noinline __u32 leg_by_bytes(struct xdp_md *ctx, __u32 is_damaged)
{
	__u64 head[HEAD_WORDS] = {};
	__u32 length = ctx->data_end - ctx->data;
	__u32 size = length;

	if (size > HEAD_BYTES)
		size = HEAD_BYTES;
	/* Otherwise the compiler checks one register and passes another, which the verifier rejects. */
	asm volatile("" : "+r"(size));
	if (size < ETH_HLEN || size > HEAD_BYTES || bpf_xdp_load_bytes(ctx, 0, head, size))
		return NO_LEG;
	for (__u32 i = 0; i < MAX_ROWS && i < settings.rows; i++) {
		__u32 key = i;
		struct row *row = bpf_map_lookup_elem(&rows, &key);

		if (row && fits(row, head, length) && in_ranges(row, head))
			return is_damaged && row->stamped_slot != NO_LEG ? row->stamped_slot : row->slot;
	}
	return NO_LEG;
}

/* For a damaged stamp: the only leg whose headers the frame has. */
struct search {
	const struct frame *frame;
	__u32 found;
	__u32 slot;
};

static long try_leg(__u32 slot, struct search *search)
{
	struct expectation *e = bpf_map_lookup_elem(&expectations, &slot);
	const struct frame *frame = search->frame;
	const __u64 *words = (const void *)&frame->fields;
	__u64 differs = 0;

	if (!e)
		return 1;
	if (!e->by_headers || (e->payload_bytes && e->payload_bytes != frame->payload_bytes))
		return 0;
	for (int i = 0; i < FIELD_WORDS; i++)
		differs |= (words[i] ^ e->value[i]) & e->mask[i];
	if (differs)
		return 0;
	search->slot = slot;
	return ++search->found > 1;
}

static __always_inline __u32 leg_by_headers(const struct frame *frame)
{
	struct search search = { .frame = frame };

	bpf_loop(settings.legs, try_leg, &search, 0);
	return search.found == 1 ? search.slot : NO_LEG;
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
	struct arrival a = { .now_ns = clock_ns(), .bytes = ctx->data_end - ctx->data, .user = NOBODY };
	const struct stamp *stamp = 0;
	struct frame frame = {};
	enum parsed parsed = parse(ctx, &frame);

	if (parsed == PARSED)
		stamp = find_stamp(ctx, &frame);
	a.whole = stamp && is_whole(stamp, &frame);
	a.damaged = stamp && !a.whole && !stamp_holds(stamp);
	if (stamp && !a.damaged && read_stamp(stamp, &a))
		return count_numbered(ctx, &frame, &a);
	a.slot = find_leg(ctx, &frame, a.damaged);
	if (a.slot == NO_LEG) {
		if (parsed == PARSED_FRAGMENT && settings.together_ms)
			bpf_tail_call(ctx, &fragmented, 0);
		if (stamp && !a.damaged)
			count_misdelivered(stamp);
		return pass_unmatched(unmatched_kind_of(parsed, stamp, a.damaged), &a);
	}
	if (a.damaged && is_numbered_by_us(a.slot))
		return count_numbered(ctx, &frame, &a);
	if (!by_pktgen(a.slot))
		return count_by_bytes(&frame, parsed, &a);
	a.damaged = parsed != PARSED || !read_pktgen(ctx, &frame, &a);
	return count_numbered(ctx, &frame, &a);
}

/* --- packets in fragments ------------------------------------------------------------------------------------------ */

/* Whether the stored first fragment belongs to another packet with a reused identification. */
static __always_inline int is_another(const struct assembly *whole, const struct arrival *a, int ours)
{
	if (!whole->slot)
		return 0;
	if (!ours || whole->slot == FOREIGN)
		return !ours != (whole->slot == FOREIGN);
	return whole->slot != a->slot + 1 || whole->sequence != a->sequence || whole->sent_ns != a->sent_ns;
}

/* Whether the checksum over the headers is wrong, as far as a first fragment shows: its stamp has the payload's sum. */
static __always_inline int wrong_first(const struct frame *frame, const struct arrival *a, const struct expectation *e,
				       __be32 said)
{
	if (!(e->sums & SUMS_TRANSPORT) || !a->checked || frame->fields.protocol != IPPROTO_UDP)
		return 0; /* the length of a TCP segment is not in its header */
	return !frame->sum || sum16_of_few(frame->sum + 2ULL * said) != 0xffff;
}

/* Takes what only the first fragment has: the packet's leg and user, and whether its headers are unchanged. */
static __always_inline void take_first(struct assembly *whole, const struct frame *frame, enum parsed parsed,
				       const struct piece *piece, const struct arrival *a, __be32 said)
{
	struct expectation *e = bpf_map_lookup_elem(&expectations, &a->slot);
	__u32 causes;

	if (!e)
		return;
	whole->said = said;
	whole->checked = a->checked;
	whole->stamp_end = frame->payload + sizeof(struct stamp_checked) - piece->place;
	whole->sequence = a->sequence;
	whole->sent_ns = a->sent_ns;
	causes = changed_fields(&frame->fields, e);
	if (e->payload_bytes && frame->payload_bytes != e->payload_bytes)
		causes |= 1 << CAUSE_LENGTH;
	if ((e->sums & SUMS_IP && ip_damaged(frame)) || wrong_first(frame, a, e, said))
		causes |= 1 << CAUSE_CHECKSUM;
	whole->user = user_key(a->slot, frame, parsed == PARSED && sound(frame, e->sums, causes));
	whole->causes = explained(causes);
	whole->payload_end = frame->payload + frame->payload_bytes - piece->extra;
	whole->head_bytes = piece->place - piece->extra;
	whole->slot = a->slot + 1;
}

/* Counts a complete packet as one frame, at the time of its last fragment. */
static __always_inline int count_whole(struct assembly *whole, const struct piece_key *key, struct arrival *a)
{
	struct put_together *together;
	struct expectation *e;

	a->slot = whole->slot - 1;
	a->sequence = whole->sequence;
	a->sent_ns = whole->sent_ns;
	a->causes = whole->causes;
	a->bytes = whole->head_bytes + whole->total_bytes;
	if (whole->payload_end > a->bytes)
		a->causes |= 1 << CAUSE_LENGTH;
	if (whole->checked && !same_sum(whole->said, sum_of_whole(whole)))
		a->causes |= 1 << CAUSE_PAYLOAD;
	together = bpf_map_lookup_elem(&put_together, &a->slot);
	e = bpf_map_lookup_elem(&expectations, &a->slot);
	a->user = whole->user;
	if (!together || !e || take_numbered(a, e))
		return XDP_ABORTED;
	__sync_fetch_and_add(&together->packets, 1);
	__sync_fetch_and_add(&together->frames, whole->frames);
	count_event(FRAGMENTS_WHOLE);
	bpf_map_delete_elem(&assemblies, key);
	return XDP_DROP;
}

/* Reads the checksum of a stamp that has one. A truncated stamp is damaged. */
static __always_inline int read_checksum(struct xdp_md *ctx, const struct stamp *stamp, struct arrival *a, __be32 *said)
{
	const struct stamp_checked *checked = (const void *)stamp;

	if (!a->checked)
		return 1;
	if ((void *)(checked + 1) > (void *)(long)ctx->data_end)
		return 0;
	*said = checked->checksum;
	return 1;
}

/* Returns a fragment's part of the payload sum; for the first one, of the bytes behind the stamp. */
static __always_inline __u64 sum_of_piece(struct xdp_md *ctx, const struct frame *frame, const struct piece *piece)
{
	__u32 at = piece->offset ? piece->place : frame->payload + sizeof(struct stamp_checked);
	__u32 end = piece->place + piece->bytes;

	return at < end ? sum_from(ctx, at, end - at) : 0;
}

/* Continues where count() found a fragment. The fragments before a packet's first one also pass on to the host. */
SEC("xdp")
int count_fragment(struct xdp_md *ctx)
{
	struct arrival a = { .now_ns = clock_ns(), .bytes = ctx->data_end - ctx->data };
	__u64 together_ns = settings.together_ms * 1000000ULL;
	const struct stamp *stamp = 0;
	struct assembly *whole;
	struct piece piece = {};
	struct frame frame = {};
	enum parsed parsed = parse(ctx, &frame);
	__be32 said = 0;
	int ours = 0;

	if (parsed != PARSED_FRAGMENT)
		return XDP_ABORTED;
	if (ip_damaged(&frame)) /* a wrong identification or offset would assign it to another packet */
		return pass_unmatched(UNMATCHED_DAMAGED, &a);
	parsed = parse_piece(ctx, &frame, &piece);
	for (int i = 0; i < MOST_IP_LAYERS && parsed == PARSED_IP; i++)
		parsed = parse_ip(ctx, &frame);
	if (parsed == PARSED_MALFORMED || parsed == PARSED_IP)
		return pass_unmatched(UNMATCHED_MALFORMED, &a);
	if (!piece.offset && parsed == PARSED)
		stamp = find_stamp(ctx, &frame);
	if (stamp && stamp_holds(stamp))
		ours = read_stamp(stamp, &a) && read_checksum(ctx, stamp, &a, &said);
	whole = find(&piece.key, a.now_ns, together_ns);
	if (whole && !piece.offset && is_another(whole, &a, ours)) {
		bpf_map_delete_elem(&assemblies, &piece.key);
		whole = begin(&piece.key, a.now_ns);
	}
	if (!whole)
		return XDP_ABORTED;
	if (!piece.offset && !whole->slot) {
		if (ours)
			take_first(whole, &frame, parsed, &piece, &a, said);
		else {
			whole->slot = FOREIGN;
			count_event(FRAGMENTS_FOREIGN);
		}
	}
	if (add(whole, &piece, whole->slot == FOREIGN ? 0 : sum_of_piece(ctx, &frame, &piece)))
		return count_whole(whole, &piece.key, &a);
	if (whole->slot == FOREIGN)
		return pass_unmatched(UNMATCHED_FRAGMENT, &a);
	return whole->slot ? XDP_DROP : XDP_PASS;
}

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
