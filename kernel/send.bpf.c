// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sender. User space runs `send` once per frame through BPF_PROG_RUN. There are two ways out of the kernel, each
 * with a header of its own, and this source is compiled for both: live frames of XDP (send_by_xdp.h), and clones of an
 * skb (send_by_tc.h; send_tc.bpf.c). A run with nothing due sends nothing; this is how it waits.
 *
 * The frame of a leg is in its slot. Rules, stamp and checksums change it there, relative to the previous content, then
 * it is copied as a whole: pages are recycled, and a receiver of the last frame may have changed its content.
 */
#include "pktswarm.h"
#include "send.h"

#define SPINS 256 /* clock readings in one run: up to 8 us, then interrupts and signals are served */
#define FRAMES_A_READING 4 /* frames per clock reading, which is expensive; a divisor of every batch but 1 */

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

#ifdef SEND_BY_TC
#include "send_by_tc.h"
#else
#include "send_by_xdp.h"
#endif

/* --- which leg, and when ------------------------------------------------------------------------------------------ */

static __always_inline __u64 due_of(__u32 index)
{
	return state.due_ns[index & (MAX_LEGS - 1)];
}

/* Sets the due time of a leg, and replays its matches of the tournament. */
static __always_inline void set_due(__u32 index, __u64 due_ns)
{
	__u32 node = state.tree_leaves + index;

	state.due_ns[index & (MAX_LEGS - 1)] = due_ns;
	for (node >>= 1; node; node >>= 1) {
		__u32 left, right;

		node &= MAX_LEGS - 1;
		left = state.winner[2 * node];
		right = state.winner[2 * node + 1];
		state.winner[node] = due_of(left) <= due_of(right) ? left : right;
	}
}

/* Records the time since the last run, if a frame was due. */
static __always_inline void note_absence(__u64 due_ns, __u64 now)
{
	__u64 since = due_ns > state.last_ns ? due_ns : state.last_ns;

	if (now > since && now - since > state.longest_absence_ns)
		state.longest_absence_ns = now - since;
}

/*
 * Returns the time if `due_ns` has passed, else 0. It does not wait for a frame that is not due soon: user space then
 * sleeps, after the remaining runs that it asked for.
 */
static __always_inline __u64 wait(__u64 due_ns)
{
	__u64 now;

	/* In a batch frames follow each other immediately: one reading serves four of them, within one batch. */
	if (!settings.may_spin && due_ns <= state.last_ns && (state.runs - 1) % FRAMES_A_READING)
		return state.last_ns;
	now = bpf_ktime_get_ns();
	note_absence(due_ns, now);
	if (settings.may_spin && (now + state.soon_ns >= due_ns || due_ns == state.surely_ns))
		for (int i = 0; now < due_ns && i < SPINS; i++)
			now = bpf_ktime_get_ns();
	state.last_ns = now;
	return now < due_ns ? 0 : now;
}

/* The due time `frames` frames later. */
static __always_inline __u64 later(struct leg *leg, __u64 due_ns, __u64 frames)
{
	/*
	 * `frames` is 1 except after a pause: whole nanoseconds and the fraction are multiplied separately, so neither
	 * overflows.
	 */
	__u64 gap = leg->gap;
	__u64 fraction = leg->fraction + (gap & ((1 << GAP_FRACTION_BITS) - 1)) * frames;

	leg->fraction = fraction & ((1 << GAP_FRACTION_BITS) - 1);
	return due_ns + (gap >> GAP_FRACTION_BITS) * frames + (fraction >> GAP_FRACTION_BITS);
}

/* x * factor / 2^shift, truncated; the product can have 96 bits. */
static __always_inline __u64 scale(__u64 x, __u32 factor, __u32 shift)
{
	__u64 high = (x >> 32) * factor, low = (x & 0xffffffff) * factor;

	if (shift < 32)
		return (high << (32 - shift)) + (low >> shift);
	return (high + (low >> 32)) >> ((shift - 32) & 63);
}

/* The gap to a paced leg's next frame: that of the step, or a random one, drawn by its number (splitmix64). */
static __always_inline __u64 draw_gap(struct leg *leg)
{
	__u64 x, *factor;
	__u32 key;

	if (!leg->gaps)
		return leg->gap;
	x = leg->seed + ++leg->drawn * 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	x ^= x >> 31;
	key = leg->first_gap + ((x >> 32) * leg->gaps >> 32);
	factor = bpf_map_lookup_elem(&gaps, &key);
	return factor ? scale(leg->gap, *factor, GAP_TABLE_BITS) : leg->gap;
}

/* Returns `due_ns`, or the end of the step if that is earlier: the rest of the gap belongs to the next step. */
static __always_inline __u64 until_step_ends(struct leg *leg, __u64 due_ns)
{
	if (due_ns < leg->step_end_ns)
		return due_ns;
	leg->left = ((due_ns - leg->step_end_ns) << GAP_FRACTION_BITS) + leg->fraction;
	leg->crossing = 1;
	return leg->step_end_ns;
}

static __always_inline __u64 next_in_pace(struct leg *leg, __u64 due_ns)
{
	__u64 gap = draw_gap(leg);
	__u64 fraction = leg->fraction + (gap & ((1 << GAP_FRACTION_BITS) - 1));

	leg->fraction = fraction & ((1 << GAP_FRACTION_BITS) - 1);
	return until_step_ends(leg, due_ns + (gap >> GAP_FRACTION_BITS) + (fraction >> GAP_FRACTION_BITS));
}

/*
 * Enters the next step of a pace. Returns the leg's due time in it. One step per run, so that short ones need no loop.
 */
static __always_inline __u64 next_step(struct leg *leg)
{
	__u64 begin_ns = leg->step_end_ns;
	struct step *step;
	__u32 key;

	if (++leg->step >= leg->steps) {
		leg->step = 0;
		leg->pass_ns += leg->period_ns;
	}
	key = leg->first_step + leg->step;
	step = bpf_map_lookup_elem(&steps, &key);
	if (!step)
		return NEVER;
	leg->step_end_ns = step->until_ns == NEVER ? NEVER : leg->pass_ns + step->until_ns;
	leg->left = scale(leg->left, step->factor, step->shift);
	leg->gap = step->gap;
	if (!leg->gap)
		return leg->step_end_ns;
	leg->crossing = 0;
	leg->fraction = leg->left & ((1 << GAP_FRACTION_BITS) - 1);
	return until_step_ends(leg, begin_ns + (leg->left >> GAP_FRACTION_BITS));
}

/* A trace, or a sequence. */
static __always_inline int has_records(const struct leg *leg)
{
	return (settings.traces || settings.sequences) && leg->records;
}

static __always_inline int is_sequence(const struct leg *leg)
{
	return settings.sequences && leg->sequence_of_records;
}

static __always_inline int is_trace(const struct leg *leg)
{
	return settings.traces && leg->records && !leg->sequence_of_records;
}

static __always_inline struct record *next_record(struct leg *leg)
{
	__u32 key = leg->first_record + leg->record;

	return bpf_map_lookup_elem(&records, &key);
}

/* Returns the due time of a trace's next frame. */
static __always_inline __u64 next_in_trace(struct leg *leg)
{
	struct record *record;

	if (++leg->record >= leg->records) {
		leg->record = 0;
		leg->pass_ns += leg->period_ns;
	}
	record = next_record(leg);
	return record ? leg->pass_ns + record->due_ns : NEVER;
}

/* Returns the leg's next due time after a frame, sent or skipped. */
static __always_inline __u64 next_due(struct leg *leg, __u64 due_ns, __u64 now)
{
	int recorded = has_records(leg);
	__u64 next_ns = recorded ? next_in_trace(leg) : 0;

	if (leg->remaining != NEVER && --leg->remaining == 0)
		return NEVER;
	if (!leg->timed) /* after all frames due by now: legs without a rate take turns and yield to the others */
		return now;
	if (recorded)
		return next_ns;
	if (++leg->in_burst < leg->burst)
		return due_ns;
	leg->in_burst = 0;
	if (settings.steps && leg->steps)
		return next_in_pace(leg, due_ns);
	return later(leg, due_ns, 1);
}

/* Skips all of a stream's frames that are due by now, except the last. Returns the due time of that one. */
static __always_inline __u64 skip_many(struct leg *leg, __u64 due_ns, __u64 now)
{
	__u64 bursts = ((now - due_ns) << 8) / ((leg->gap >> (GAP_FRACTION_BITS - 8)) | 1);
	__u64 missed = bursts * leg->burst;

	if (missed >= leg->remaining)
		return due_ns;
	leg->skipped += missed;
	if (leg->remaining != NEVER)
		leg->remaining -= missed;
	return later(leg, due_ns, bursts);
}

/* Whether a frame is late. */
static __always_inline int late(struct leg *leg, __u64 due_ns, __u64 now)
{
	if (now - due_ns > leg->latest_ns)
		leg->latest_ns = now - due_ns;
	return now - due_ns > leg->late_ns;
}

/* Skips the frame that is due; in a stream with a steady rate, all that are as late. */
static __always_inline int skip(struct leg *leg, __u32 index, __u64 due_ns, __u64 now)
{
	if (!has_records(leg) && !leg->steps)
		due_ns = skip_many(leg, due_ns, now);
	leg->skipped++;
	set_due(index, next_due(leg, due_ns, now));
	return NOTHING_SENT;
}

/* --- the frame ---------------------------------------------------------------------------------------------------- */

struct change {
	struct leg *leg;
	struct slot *slot;
	__u64 sum[MAX_CHECKSUMS]; /* increase of the sums, not reduced */
	__u64 payload; /* and of the stamp's sum of the payload */
};

static __always_inline __u64 draw(struct leg *leg)
{
	__u64 x = leg->random; /* xorshift64* (Vigna, 2014) */

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	leg->random = x;
	return x * 0x2545f4914f6cdd1dULL;
}

/*
 * Writes `bits` under `mask` into a window, and adds the change to the sums. Returns the increase of the sum of the
 * window's two 32-bit words, modulo 2^32 - 1: below 2^33.
 */
static __always_inline __u64 put(struct change *change, __u32 window, __u64 mask, __u64 bits, const __u16 *weight)
{
	__u64 before, after, growth;
	__u64 *place;

	if (window > SLOT_BYTES - WINDOW_BYTES)
		return 0;
	place = (__u64 *)(change->slot->bytes + window);
	before = bpf_be64_to_cpu(*place);
	after = (before & ~mask) | (bits & mask);
	*place = bpf_cpu_to_be64(after);
	/* ~before is -before in this arithmetic. Below 2^33, so that 2^15 of them times a weight fit into 64 bits. */
	growth = (__u64)sum32(after) + sum32(~before);
	for (int i = 0; i < MAX_CHECKSUMS; i++)
		change->sum[i] += growth * weight[i];
	return growth;
}

/* Advances a counter to the next frame. */
static __always_inline void count_on(struct rule *rule)
{
	__u64 next = rule->position + 1;

	if (rule->stays) {
		rule->stays--;
		return;
	}
	rule->stays = rule->stay;
	rule->position = next < rule->count ? next : 0;
}

static __always_inline int has_mode(enum rule_mode mode)
{
	return settings.modes >> mode & 1;
}

/* The next value of a rule. */
static __always_inline __u64 choose(struct leg *leg, struct rule *rule)
{
	__u64 value;

	if (rule->mode == RULE_COUNT) {
		count_on(rule);
	} else if (has_mode(RULE_RANDOM) && rule->mode == RULE_RANDOM) {
		value = draw(leg);
		rule->position = rule->count ? value % rule->count : value;
	} else if (has_mode(RULE_LINKED) && rule->mode == RULE_LINKED) {
		value = leg->rule[rule->link & (MAX_RULES - 1)].position;
		rule->position = value < rule->count ? value : value % rule->count; /* divisions are expensive */
	} else if (settings.sequences) {
		rule->position = rule->mode == RULE_USER ? leg->user : leg->frame_bytes;
	}
	if (settings.tables && rule->table) {
		__u32 key = rule->first + rule->position;
		__u64 *entry = bpf_map_lookup_elem(&table, &key);

		return entry ? *entry : 0;
	}
	return rule->first + rule->position * rule->step;
}

/* Writes the stamp. Its changes add up to zero in any checksum over it: see struct stamp. */
static __always_inline void stamp(struct leg *leg, struct slot *slot, __u64 now)
{
	struct stamp *stamp = (void *)slot->bytes + leg->stamp;
	__u64 stream;

	if (leg->stamp > SLOT_BYTES - sizeof(*stamp))
		return;
	stream = bpf_be64_to_cpu(*stamp_number(stamp)) & ~STAMP_MASK;
	write_stamp(stamp, stream | (leg->sequence & STAMP_MASK), now);
}

#ifndef SEND_WITHOUT_NOISE
/* Draws one window of noise; the last one ends with the noise. */
static long draw_window(__u32 index, struct change *change)
{
	struct leg *leg = change->leg;
	__u32 window = leg->noise.start + index * WINDOW_BYTES;
	__u32 left = change->slot->noise_stop - window;
	__u64 mask = left < WINDOW_BYTES ? ~(~0ULL >> (left & 7) * 8) : ~0ULL;

	/* The windows begin with the checked payload, so their words are its words. */
	change->payload += put(change, window, mask, draw(leg), leg->noise.weight);
	return 0;
}

/* Updates the stamp's checksum after noise: the previous one plus the increase of the payload's sum. */
static __always_inline void check_payload(struct change *change)
{
	struct leg *leg = change->leg;
	__u32 window = leg->stamp + sizeof(struct stamp_checked) - WINDOW_BYTES;
	__u64 before;

	if (window > SLOT_BYTES - WINDOW_BYTES)
		return;
	before = bpf_be64_to_cpu(*(__u64 *)(change->slot->bytes + window));
	put(change, window, 0xffffffff, sum32((before & 0xffffffff) + change->payload), leg->stamp_weight);
}
#endif

static __always_inline void mend(struct change *change, const struct sum *sum, __u64 growth)
{
	__be16 *place;
	__u16 value;

	if (!growth || sum->offset > SLOT_BYTES - 2)
		return;
	place = (__be16 *)(change->slot->bytes + sum->offset);
	/* An increase of zero is 0xffff, never 0: so is the new sum. */
	value = ~sum16(growth + (__u16)~bpf_ntohs(*place));
	*place = bpf_htons(!value && sum->zero_is_ones ? 0xffff : value);
}

/* Builds a stream's next frame in its slot. */
static __always_inline void make(struct leg *leg, struct slot *slot, __u64 now)
{
	struct change change = { .leg = leg, .slot = slot };

	for (int i = 0; i < MAX_RULES && i < settings.rules && i < leg->rules; i++) {
		struct rule *rule = &leg->rule[i];

		put(&change, rule->window, rule->mask, choose(leg, rule) << rule->shift, rule->weight);
	}
#ifndef SEND_WITHOUT_NOISE
	if (settings.noise && slot->noise_windows) {
		bpf_loop(slot->noise_windows, draw_window, &change, 0);
		if (leg->checked)
			check_payload(&change);
	}
#endif
	if (leg->stamp)
		stamp(leg, slot, settings.stamp_tai ? bpf_ktime_get_tai_ns() : now);
	for (int i = 0; i < MAX_CHECKSUMS && i < leg->sums; i++)
		mend(&change, &leg->sum[i], change.sum[i]);
}

/* --- the page ----------------------------------------------------------------------------------------------------- */

#define SMALL_BYTES 60 /* RFC 2544's smallest frame, sent at the highest rate: a helper call is expensive there */

static __always_inline int copy_small(void *page, void *end, const void *frame)
{
	if (page + SMALL_BYTES > end)
		return -1;
	__builtin_memcpy(page, frame, SMALL_BYTES);
	return 0;
}

/* `bytes` is 1 to SLOT_BYTES; the mask states this so that verifiers as old as that of Linux 6.1 follow. */
static __always_inline int copy(frame_context *ctx, __u32 offset, const __u8 *from, __u64 bytes)
{
	bytes = ((bytes - 1) & (SLOT_BYTES - 1)) + 1;
	return store_bytes(ctx, offset, (void *)from, bytes);
}

static const __u8 zeros[SLOT_BYTES];

/*
 * Changes in the page. Words are added in memory order: the sum of RFC 1071, section 2, is independent of the byte
 * order.
 */
struct shift {
	void *page;
	void *end;
	__u64 growth; /* increase of the sums, not reduced */
	__u32 outside; /* an offset beyond the frame */
};

static __always_inline void *place_of(struct shift *shift, __u32 at, __u32 bytes)
{
	void *place = shift->page + (at & (SLOT_BYTES - 1));

	if (place + bytes <= shift->end)
		return place;
	shift->outside = 1;
	return 0;
}

static __always_inline void add32(struct shift *shift, __u32 at, __u32 amount)
{
	__u32 *place = place_of(shift, at, sizeof(*place)), before;

	if (!place)
		return;
	before = *place;
	*place = bpf_htonl(bpf_ntohl(before) + amount);
	shift->growth += (__u64)*place + ~before;
}

static __always_inline void set16(struct shift *shift, __u32 at, __be16 value)
{
	__u16 *place = place_of(shift, at, sizeof(*place)), before;

	if (!place)
		return;
	before = *place;
	*place = value;
	shift->growth += value + (__u16)~before;
}

static __always_inline void add16(struct shift *shift, __u32 at, __u16 amount)
{
	__u16 *place = place_of(shift, at, sizeof(*place)), before;

	if (!place)
		return;
	before = *place;
	*place = bpf_htons(bpf_ntohs(before) + amount);
	shift->growth += *place + (__u16)~before;
}

static __always_inline void amend(struct shift *shift, __u32 at, int zero_is_ones)
{
	__u16 *place = place_of(shift, at, sizeof(*place)), value;

	if (!place)
		return;
	value = ~sum16(shift->growth + (__u16)~*place);
	*place = !value && zero_is_ones ? 0xffff : value;
}

/* --- fragments ---------------------------------------------------------------------------------------------------- */

#define CHUNK (SLOT_BYTES / 8) /* bytes copied at once: from any start of a frame in a slot, they stay within the slot */

/*
 * Copies a fragment's part of the packet behind the headers. A global function: the verifier checks it once, not once
 * for each state of the frame before it.
 */
__noinline int copy_part(frame_context *ctx, const struct part *part, const struct slot *slot)
{
	__u32 done = 0;

	if (!part || !slot)
		return -1;
	for (int i = 0; i < SLOT_BYTES / CHUNK && done < part->bytes; i++) {
		__u32 from = part->start + done;
		__u64 bytes = part->bytes - done < CHUNK ? part->bytes - done : CHUNK;

		if (from > SLOT_BYTES - CHUNK)
			return -1;
		bytes = ((bytes - 1) & (CHUNK - 1)) + 1;
		if (store_bytes(ctx, part->head_bytes + done, (void *)slot->bytes + from, bytes))
			return -1;
		done += bytes;
	}
	return 0;
}

/* Writes lengths, offset and checksums. Fails if they are not within the frame. */
static __always_inline int edit_part(frame_context *ctx, const struct part *part)
{
	struct shift shift = { .page = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };

	for (int i = 0; i < MAX_EDITS && i < part->edits; i++) {
		const struct edit *edit = &part->edit[i];

		if (edit->kind == EDIT_SUM)
			amend(&shift, edit->at, 0);
		else
			set16(&shift, edit->at, edit->value);
		if (edit->kind != EDIT_SUMMED)
			shift.growth = 0;
	}
	return shift.outside;
}

/* Writes the next fragment of the packet in the slot. Returns the frame's bytes, 0 on failure. Global as copy_part(). */
__noinline __u32 write_part(frame_context *ctx, struct leg *leg, const struct slot *slot)
{
	__u32 key, bytes, padded;
	struct part *part;

	if (!leg || !slot)
		return 0;
	key = leg->part_slot * MAX_PARTS + leg->part;
	part = bpf_map_lookup_elem(&parts, &key);
	if (!part || !part->bytes || !part->head_bytes)
		return 0;
	bytes = part->head_bytes + part->bytes;
	padded = bytes < SMALL_BYTES ? SMALL_BYTES : bytes;
	if (set_size(ctx, padded) || copy(ctx, 0, slot->bytes, part->head_bytes) || copy_part(ctx, part, slot))
		return 0;
	if (padded > bytes && copy(ctx, bytes, zeros, padded - bytes))
		return 0;
	if (edit_part(ctx, part))
		return 0;
	leg->part = leg->part + 1 < slot->parts ? leg->part + 1 : 0;
	return padded;
}

/* Whether a packet's further fragments are to be sent first. */
static __always_inline int in_a_packet(const struct leg *leg)
{
	return settings.parts && leg->part;
}

/* Returns the frame's bytes, 0 on failure. */
static __always_inline __u32 write_stream(frame_context *ctx, struct leg *leg, __u64 now)
{
	__u32 key = leg->slot, bytes;
	struct slot *slot;

	if (in_a_packet(leg))
		key = leg->part_slot;
	else if (settings.sizes && leg->sizes > 1)
		key += choose(leg, &leg->size);
	slot = bpf_map_lookup_elem(&slots, &key);
	if (!slot)
		return 0;
	if (in_a_packet(leg))
		return write_part(ctx, leg, slot);
	bytes = slot->frame_bytes;
	if (is_sequence(leg)) {
		struct record *record = next_record(leg);

		if (!record)
			return 0;
		leg->user = record->place;
		leg->frame_bytes = bytes = record->frame_bytes;
	}
	make(leg, slot, now);
	leg->part_slot = key;
	if (settings.parts && slot->parts > 1)
		return write_part(ctx, leg, slot);
	if (set_size(ctx, bytes))
		return 0;
	if (bytes == SMALL_BYTES)
		return copy_small((void *)(long)ctx->data, (void *)(long)ctx->data_end, slot->bytes) ? 0 : bytes;
	return copy(ctx, 0, slot->bytes, bytes) ? 0 : bytes;
}

/* The changes of an instance: the same as those of traffic/replay/shift.py, byte for byte. */
#define NOT_COVERED 4

/* Unused: it makes the compiler describe the layout in the object's BTF, which a test reads. */
const struct places places_layout SEC(".rodata.places") = {};

/* Fails if the offsets are not within the frame. */
static __always_inline int change_instance(frame_context *ctx, struct leg *leg, const struct places *places)
{
	struct shift shift = { .page = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };

	if (places->address[1])
		add32(&shift, places->address[1], leg->add_address[places->ends >> 1 & 1]);
	if (places->ends & NOT_COVERED) /* only IPv6, which has no header_sum */
		shift.growth = 0;
	if (places->address[0])
		add32(&shift, places->address[0], leg->add_address[places->ends & 1]);
	if (places->header_sum)
		amend(&shift, places->header_sum, 0);
	if (places->port)
		add16(&shift, places->port, leg->add_port);
	if (places->sum)
		amend(&shift, places->sum, places->zero_is_ones);
	if (places->teid)
		add32(&shift, places->teid, leg->add_teid);
	return shift.outside;
}

/* Stamps a trace's frame, which follows its struct places. Sequence numbers count the frames sent. */
static __always_inline int stamp_trace(frame_context *ctx, struct leg *leg, const struct places *places, __u64 now)
{
	__u32 key = leg->numbered_with, at;
	struct leg *numbered = bpf_map_lookup_elem(&legs, &key);
	__u64 made[3] = {}; /* the stamp's 64-bit words are aligned in it, as the stack requires */
	struct stamp *stamp = (void *)made + 6;
	__u64 stream;

	/* Read after the call: the verifier of Linux 6.1 does not relate the check below to a value kept across it. */
	asm volatile("" ::: "memory");
	at = places->stamp;
	leg->rule[0].position = !!at;
	if (!at)
		return 0;
	if (!numbered || at > SLOT_BYTES - sizeof(*stamp))
		return -1;
	if (settings.stamp_tai)
		now = bpf_ktime_get_tai_ns();
	__builtin_memcpy(stamp, (const __u8 *)(places + 1) + at, STAMP_TIME);
	stream = bpf_be64_to_cpu(*stamp_number(stamp)) & ~STAMP_MASK;
	write_stamp(stamp, stream | (numbered->sequence++ & STAMP_MASK), now);
	return store_bytes(ctx, at, stamp, sizeof(*stamp));
}

static __always_inline __u32 write_trace(frame_context *ctx, struct leg *leg, __u64 now)
{
	struct record *record = next_record(leg);
	__u32 key, offset, stored, bytes;
	const struct places *places;
	struct chunk *chunk;

	if (!record)
		return 0;
	key = record->place / CHUNK_BYTES;
	offset = record->place % CHUNK_BYTES;
	chunk = bpf_map_lookup_elem(&store, &key);
	if (!chunk || offset < sizeof(*places) || offset > CHUNK_BYTES - SLOT_BYTES)
		return 0;
	places = (const void *)(chunk->bytes + offset - sizeof(*places));
	stored = record->stored_bytes;
	bytes = record->frame_bytes;
	if (set_size(ctx, bytes) || copy(ctx, 0, chunk->bytes + offset, stored))
		return 0;
	if (stored < bytes && copy(ctx, stored, zeros, bytes - stored))
		return 0;
	if (leg->shifted && change_instance(ctx, leg, places))
		return 0;
	return leg->stamp && stamp_trace(ctx, leg, places, now) ? 0 : bytes;
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static __always_inline void count_user(__u32 user, __s64 frames)
{
	__u64 *count = bpf_map_lookup_elem(&users, &user);

	if (count)
		*count += frames;
}

/* Counts a frame of a leg in parts. Its packet counts as sent once all of its frames are pending, until one fails. */
static __always_inline void note_part(struct leg *leg, struct pending *pending, int is_late)
{
	__u32 key = leg->part_slot;
	struct slot *slot = bpf_map_lookup_elem(&slots, &key);
	__u64 number = leg->sequence;

	pending->packet = number & 63;
	pending->whole_bytes = slot ? slot->frame_bytes : 0;
	if (leg->part)
		return;
	if (!(leg->failed >> (number & 63) & 1)) {
		leg->packets++;
		leg->packet_bytes += pending->whole_bytes;
		leg->late += is_late;
		if (leg->user_rule)
			count_user(pending->user, 1);
	}
	leg->sequence++;
	leg->failed &= ~(1ULL << (leg->sequence & 63));
}

static __always_inline void note(struct leg *leg, __u32 index, __u32 bytes, int is_late, __u64 now)
{
	struct pending *pending = &state.pending[state.pushed & (PENDING - 1)];

	if (state.pushed == state.popped) {
		state.cpu = bpf_get_smp_processor_id();
		/*
		 * First: on the processor that this thread has just left, `ours` can be called for another program's
		 * frames.
		 */
		barrier();
	}
	state.pushed++;
	pending->leg = index;
	pending->bytes = is_late ? bytes | PENDING_LATE : bytes;
	if (leg->user_rule)
		pending->user = leg->users + leg->rule[(leg->user_rule - 1) & (MAX_RULES - 1)].position;
	if (!leg->generated++)
		leg->first_ns = now;
	leg->generated_bytes += bytes;
	leg->last_ns = now;
	if (settings.parts && leg->in_parts) {
		note_part(leg, pending, is_late);
		return;
	}
	leg->late += is_late;
	if (leg->user_rule)
		count_user(pending->user, 1);
	if (!is_trace(leg))
		leg->sequence++;
}

/* Gives the frame to the kernel; it is the one noted last. */
static __always_inline int hand_over(frame_context *ctx);

static __always_inline int send_one(frame_context *ctx, struct leg *leg, __u32 index, __u64 due_ns, __u64 now)
{
	int is_late = leg->timed && late(leg, due_ns, now);
	__u32 bytes;

	/* A packet is late, or skipped, as a whole. */
	if (in_a_packet(leg))
		is_late = leg->packet_late;
	else if (is_late && leg->skip)
		return skip(leg, index, due_ns, now);
	if (is_trace(leg))
		bytes = write_trace(ctx, leg, now);
	else
		bytes = write_stream(ctx, leg, now);
	if (!bytes) {
		state.broken = 1;
		return NOTHING_SENT;
	}
	leg->packet_late = is_late;
	note(leg, index, bytes, is_late, now);
	if (!in_a_packet(leg)) /* otherwise its next fragment is due now */
		set_due(index, next_due(leg, due_ns, now));
	return hand_over(ctx);
}

SEC(SEND_SECTION)
int send(frame_context *ctx)
{
	__u32 index = state.winner[1];
	__u64 due_ns = due_of(index);
	struct leg *leg;
	__u64 now;

	state.runs++;
	if (state.turn == TURN_OVER)
		return NOTHING_SENT;
	if (due_ns == NEVER) {
		/* Frames of this batch that the device has not accepted yet may have to be replaced: see drop_one. */
		state.finished = state.start_ns != NEVER && state.pushed == state.popped;
		return NOTHING_SENT;
	}
	now = wait(due_ns);
	if (!now)
		return NOTHING_SENT;
	leg = bpf_map_lookup_elem(&legs, &index);
	if (!leg)
		return NOTHING_SENT;
	if (!in_a_packet(leg) && (due_ns >= leg->stop_ns || now >= leg->give_up_ns)) {
		set_due(index, NEVER);
		return NOTHING_SENT;
	}
	if (settings.steps && leg->crossing) {
		set_due(index, next_step(leg));
		return NOTHING_SENT;
	}
	if (state.turn == TURN_OF_ONE)
		state.turn = TURN_OVER;
	return send_one(ctx, leg, index, due_ns, now);
}

/* --- answers of the device ---------------------------------------------------------------------------------------- */

/* For a leg in parts: whether no other fragment of the packet has failed before. */
static __always_inline int fail_part(struct leg *leg, const struct pending *pending)
{
	__u64 bit = 1ULL << (pending->packet & 63);

	if (leg->failed & bit)
		return 0;
	leg->failed |= bit;
	if (pending->packet == (leg->sequence & 63)) /* the packet is incomplete, and not counted yet */
		return 1;
	leg->packets--;
	leg->packet_bytes -= pending->whole_bytes;
	leg->late -= !!(pending->bytes & PENDING_LATE);
	if (leg->user_rule)
		count_user(pending->user, -1);
	return 1;
}

/* `packet`: whether this frame is the first loss of its packet. */
static __always_inline struct leg *fail(__u32 number, __u32 *index, int *packet)
{
	struct pending *pending = &state.pending[number & (PENDING - 1)];
	struct leg *leg;

	*index = pending->leg;
	leg = bpf_map_lookup_elem(&legs, index);
	if (!leg)
		return leg;
	leg->failed_bytes += pending->bytes & ~PENDING_LATE;
	*packet = 1;
	if (settings.parts && leg->in_parts) {
		*packet = fail_part(leg, pending);
		return leg;
	}
	leg->late -= !!(pending->bytes & PENDING_LATE);
	if (leg->user_rule)
		count_user(pending->user, -1);
	return leg;
}

/*
 * Counts the frame that was queued first as dropped. A full ring empties again: a leg without a rate, which has no due
 * times, then sends one more frame instead, even if it had ended. A device that refuses would make this endless, so it
 * does not apply there.
 */
static long drop_one(__u32 round, __s32 *error)
{
	__u32 index;
	int packet;
	struct leg *leg = fail(state.popped++, &index, &packet);

	if (!leg)
		return 1;
	leg->dropped++;
	if (packet && !*error && !leg->timed && leg->remaining != NEVER && leg->remaining++ == 0)
		set_due(index, leg->last_ns);
	return 0;
}

#ifdef SEND_BY_TC
#include "answers_of_tc.h"
#else
#include "answers_of_xdp.h"
#endif

char LICENSE[] SEC("license") = "GPL";
