// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sender. User space runs `send` once for each frame through BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES: the
 * frame that it leaves in the page goes out of the interface in the devmap. A run that has nothing due returns
 * XDP_DROP, which gives the page back; that is how it waits.
 *
 * A leg's frame stands in its slot. Rules, stamp and checksums change it there, each from what stood there before,
 * then it is copied whole: pages are recycled, and whatever took the last frame may have written into it.
 */
#include "pktswarm.h"
#include "send.h"

#define SPINS 256 /* looks at the clock in one run: up to 8 us, then an interrupt or a signal has its turn */
#define FRAMES_A_READING 4 /* of the clock, which is dear; a divisor of every batch but 1 */

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} egress SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* as many as there are legs */
	__type(key, __u32);
	__type(value, struct leg);
} legs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* as many as all legs have sizes */
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* MAX_PARTS of each slot, where any is sent in fragments */
	__type(key, __u32);
	__type(value, struct part);
} parts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the lists of all rules, one behind another */
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* of all traces, one behind another */
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
	__uint(max_entries, 1); /* of all paces, one behind another */
	__type(key, __u32);
	__type(value, struct step);
} steps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the tables of random gaps, one behind another */
	__type(key, __u32);
	__type(value, __u64);
} gaps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the frames of each user, sent as far as is known, of all legs one behind another */
	__type(key, __u32);
	__type(value, __u64);
} users SEC(".maps");

struct state state;

/* 1 where frames go out one by one (BPF_PROG_RUN's batch): then waiting here holds no earlier frame back. */
const volatile __u32 may_spin SEC(".rodata.settings") = 0;

/* 1: stamps tell TAI, which PTP steers. Linux before 6.1 cannot; at 0 its verifier does not look at that call. */
const volatile __u32 stamp_tai SEC(".rodata.settings") = 0;

/* --- which leg, and when ------------------------------------------------------------------------------------------ */

static __always_inline __u64 due_of(__u32 index)
{
	return state.due_ns[index & (MAX_LEGS - 1)];
}

/* Sets when a leg is due, and plays its matches of the tournament again. */
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

/* For how long nobody looked, although a frame was due. */
static __always_inline void note_absence(__u64 due_ns, __u64 now)
{
	__u64 since = due_ns > state.last_ns ? due_ns : state.last_ns;

	if (now > since && now - since > state.longest_absence_ns)
		state.longest_absence_ns = now - since;
}

/*
 * The time once `due_ns` has come, 0 if it has not. A frame that is not due soon is not waited for: user space then
 * sleeps, as soon as the runs that it asked for are over.
 */
static __always_inline __u64 wait(__u64 due_ns)
{
	__u64 now;

	/* In a batch frames follow each other at once: a reading stands for four of them, none of another batch. */
	if (!may_spin && due_ns <= state.last_ns && (state.runs - 1) % FRAMES_A_READING)
		return state.last_ns;
	now = bpf_ktime_get_ns();
	note_absence(due_ns, now);
	if (may_spin && (now + state.soon_ns >= due_ns || due_ns == state.surely_ns))
		for (int i = 0; now < due_ns && i < SPINS; i++)
			now = bpf_ktime_get_ns();
	state.last_ns = now;
	return now < due_ns ? 0 : now;
}

/* The due time `frames` later. */
static __always_inline __u64 later(struct leg *leg, __u64 due_ns, __u64 frames)
{
	/* `frames` is 1 but after a pause: whole nanoseconds and the rest apart, so that neither overflows. */
	__u64 gap = leg->gap;
	__u64 fraction = leg->fraction + (gap & ((1 << GAP_FRACTION_BITS) - 1)) * frames;

	leg->fraction = fraction & ((1 << GAP_FRACTION_BITS) - 1);
	return due_ns + (gap >> GAP_FRACTION_BITS) * frames + (fraction >> GAP_FRACTION_BITS);
}

/* x * factor / 2^shift, cut off; the product may have 96 bits. */
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

/* `due_ns`, or the end of the step if that comes first: the rest of the gap belongs to the next step. */
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

/* Enters the next step of a pace. Returns when the leg is due then. One a run, so that many short ones need no loop. */
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

static __always_inline struct record *next_record(struct leg *leg)
{
	__u32 key = leg->first_record + leg->record;

	return bpf_map_lookup_elem(&records, &key);
}

/* When a trace's next frame is due, the one before it being done. */
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

/* After a frame, sent or skipped: when the leg's next one is due. */
static __always_inline __u64 next_due(struct leg *leg, __u64 due_ns, __u64 now)
{
	__u64 next_ns = leg->records ? next_in_trace(leg) : 0;

	if (leg->remaining != NEVER && --leg->remaining == 0)
		return NEVER;
	if (!leg->timed) /* after all that were due by now, so legs without a rate take turns and yield to the others */
		return now;
	if (leg->records)
		return next_ns;
	if (++leg->in_burst < leg->burst)
		return due_ns;
	leg->in_burst = 0;
	if (leg->steps)
		return next_in_pace(leg, due_ns);
	return later(leg, due_ns, 1);
}

/* Passes over as many of a stream's frames as have been due since, but for the last. Returns that one's due time. */
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

/* Skips the frame that is due, and of a stream with a steady rate all that are as late. */
static __always_inline int skip(struct leg *leg, __u32 index, __u64 due_ns, __u64 now)
{
	if (!leg->records && !leg->steps)
		due_ns = skip_many(leg, due_ns, now);
	leg->skipped++;
	set_due(index, next_due(leg, due_ns, now));
	return XDP_DROP;
}

/* --- the frame ---------------------------------------------------------------------------------------------------- */

struct change {
	struct leg *leg;
	struct slot *slot;
	__u64 sum[MAX_CHECKSUMS]; /* by how much the sums have grown, not reduced */
	__u64 payload; /* and the stamp's sum of the payload */
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
 * Puts `bits` under `mask` into a window, and adds what that changes in the sums. Returns by how much the window's two
 * 32-bit words have grown, modulo 2^32 - 1: below 2^33.
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
	/* ~before is -before in this arithmetic. Below 2^33, so that 2^15 of them times a weight fit 64 bits. */
	growth = (__u64)sum32(after) + sum32(~before);
	for (int i = 0; i < MAX_CHECKSUMS; i++)
		change->sum[i] += growth * weight[i];
	return growth;
}

/* Where a counter stands in the next frame. */
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

/* The next value of a rule. */
static __always_inline __u64 choose(struct leg *leg, struct rule *rule)
{
	__u64 value;

	if (rule->mode == RULE_COUNT) {
		count_on(rule);
	} else if (rule->mode == RULE_RANDOM) {
		value = draw(leg);
		rule->position = rule->count ? value % rule->count : value;
	} else if (rule->mode == RULE_LINKED) {
		value = leg->rule[rule->link & (MAX_RULES - 1)].position;
		rule->position = value < rule->count ? value : value % rule->count; /* divisions are dear */
	} else {
		rule->position = rule->mode == RULE_USER ? leg->user : leg->frame_bytes;
	}
	if (rule->table) {
		__u32 key = rule->first + rule->position;
		__u64 *entry = bpf_map_lookup_elem(&table, &key);

		return entry ? *entry : 0;
	}
	return rule->first + rule->position * rule->step;
}

/* What changes in it adds up to nothing in any checksum over it: see struct stamp. */
static __always_inline void stamp(struct leg *leg, struct slot *slot, __u64 now)
{
	struct stamp *stamp = (void *)slot->bytes + leg->stamp;
	__u64 stream;

	if (leg->stamp > SLOT_BYTES - sizeof(*stamp))
		return;
	stream = bpf_be64_to_cpu(*stamp_number(stamp)) & ~STAMP_MASK;
	write_stamp(stamp, stream | (leg->sequence & STAMP_MASK), now);
}

/* Draws one window of noise; the last one is cut off where the noise ends. */
static long draw_window(__u32 index, struct change *change)
{
	struct leg *leg = change->leg;
	__u32 window = leg->noise.start + index * WINDOW_BYTES;
	__u32 left = change->slot->noise_stop - window;
	__u64 mask = left < WINDOW_BYTES ? ~(~0ULL >> (left & 7) * 8) : ~0ULL;

	/* The windows begin where the checked payload does, so its words are theirs. */
	change->payload += put(change, window, mask, draw(leg), leg->noise.weight);
	return 0;
}

/* The stamp's checksum after noise: what it was, and what the payload has grown by. */
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

static __always_inline void mend(struct change *change, const struct sum *sum, __u64 growth)
{
	__be16 *place;
	__u16 value;

	if (!growth || sum->offset > SLOT_BYTES - 2)
		return;
	place = (__be16 *)(change->slot->bytes + sum->offset);
	/* What has grown is 0 as 0xffff, never as 0: so is the new sum. */
	value = ~sum16(growth + (__u16)~bpf_ntohs(*place));
	*place = bpf_htons(!value && sum->zero_is_ones ? 0xffff : value);
}

/* Makes a stream's next frame in its slot. */
static __always_inline void make(struct leg *leg, struct slot *slot, __u64 now)
{
	struct change change = { .leg = leg, .slot = slot };

	for (int i = 0; i < MAX_RULES && i < leg->rules; i++) {
		struct rule *rule = &leg->rule[i];

		put(&change, rule->window, rule->mask, choose(leg, rule) << rule->shift, rule->weight);
	}
	if (slot->noise_windows)
		bpf_loop(slot->noise_windows, draw_window, &change, 0);
	if (leg->checked && slot->noise_windows)
		check_payload(&change);
	if (leg->stamp)
		stamp(leg, slot, stamp_tai ? bpf_ktime_get_tai_ns() : now);
	for (int i = 0; i < MAX_CHECKSUMS && i < leg->sums; i++)
		mend(&change, &leg->sum[i], change.sum[i]);
}

/* --- the page ----------------------------------------------------------------------------------------------------- */

#define SMALL_BYTES 60 /* RFC 2544's smallest frame, the one that runs at the highest rate: a helper call is dear there */

static __always_inline int copy_small(void *page, void *end, const void *frame)
{
	if (page + SMALL_BYTES > end)
		return -1;
	__builtin_memcpy(page, frame, SMALL_BYTES);
	return 0;
}

/* Fails where live frames have no room for so many. */
static __always_inline int set_size(struct xdp_md *ctx, __u32 bytes)
{
	long there = (long)ctx->data_end - (long)ctx->data;

	return there == bytes ? 0 : bpf_xdp_adjust_tail(ctx, (int)(bytes - there));
}

/* `bytes` is from 1 to SLOT_BYTES; the mask says so in a way that verifiers as old as Linux 6.1's follow. */
static __always_inline int copy(struct xdp_md *ctx, __u32 offset, const __u8 *from, __u64 bytes)
{
	bytes = ((bytes - 1) & (SLOT_BYTES - 1)) + 1;
	return bpf_xdp_store_bytes(ctx, offset, (void *)from, bytes);
}

static const __u8 zeros[SLOT_BYTES];

/*
 * Changes in the page. Words are added up as they stand in memory: RFC 1071, section 2, has the sum the same in either
 * byte order.
 */
struct shift {
	void *page;
	void *end;
	__u64 growth; /* of the sums, not reduced */
	__u32 outside; /* a place beyond the frame */
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

#define CHUNK 512 /* copied at once: from any place in a slot where a frame may begin, it stays within the slot */

/* What a fragment has of its packet behind the headers. */
static __always_inline int copy_part(struct xdp_md *ctx, const struct part *part, const struct slot *slot)
{
	__u32 done = 0;

	for (int i = 0; i < SLOT_BYTES / CHUNK && done < part->bytes; i++) {
		__u32 from = part->start + done;
		__u64 bytes = part->bytes - done < CHUNK ? part->bytes - done : CHUNK;

		if (from > SLOT_BYTES - CHUNK)
			return -1;
		bytes = ((bytes - 1) & (CHUNK - 1)) + 1;
		if (bpf_xdp_store_bytes(ctx, part->head_bytes + done, (void *)slot->bytes + from, bytes))
			return -1;
		done += bytes;
	}
	return 0;
}

/* Lengths, offset and checksums. Fails where they are not within the frame. */
static __always_inline int edit_part(struct xdp_md *ctx, const struct part *part)
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

/* Sends the next fragment of the packet in the slot. Returns the frame's bytes, 0 if that fails. */
static __always_inline __u32 write_part(struct xdp_md *ctx, struct leg *leg, const struct slot *slot)
{
	__u32 key = leg->part_slot * MAX_PARTS + leg->part;
	struct part *part = bpf_map_lookup_elem(&parts, &key);
	__u32 bytes, padded;

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

/* Returns the frame's bytes, 0 if that fails. */
static __always_inline __u32 write_stream(struct xdp_md *ctx, struct leg *leg, __u64 now)
{
	__u32 key = leg->part ? leg->part_slot : leg->slot + (leg->sizes > 1 ? choose(leg, &leg->size) : 0);
	struct slot *slot = bpf_map_lookup_elem(&slots, &key);
	__u32 bytes;

	if (!slot)
		return 0;
	if (leg->part)
		return write_part(ctx, leg, slot);
	bytes = slot->frame_bytes;
	if (leg->sequence_of_records) {
		struct record *record = next_record(leg);

		if (!record)
			return 0;
		leg->user = record->place;
		leg->frame_bytes = bytes = record->frame_bytes;
	}
	make(leg, slot, now);
	leg->part_slot = key;
	if (slot->parts > 1)
		return write_part(ctx, leg, slot);
	if (set_size(ctx, bytes))
		return 0;
	if (bytes == SMALL_BYTES)
		return copy_small((void *)(long)ctx->data, (void *)(long)ctx->data_end, slot->bytes) ? 0 : bytes;
	return copy(ctx, 0, slot->bytes, bytes) ? 0 : bytes;
}

/*
 * An instance's changes. traffic/replay/shift.py does the same, and what it makes is what has to come out.
 */
#define NOT_COVERED 4

/* Read by nobody: it puts the struct's layout into the object, where a test looks. */
const struct places places_layout SEC(".rodata.places") = {};

/* Fails where the places are not within the frame. */
static __always_inline int change_instance(struct xdp_md *ctx, struct leg *leg, const struct places *places)
{
	struct shift shift = { .page = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };

	if (places->address[1])
		add32(&shift, places->address[1], leg->add_address[places->ends >> 1 & 1]);
	if (places->ends & NOT_COVERED) /* of IPv6 only, which has no header_sum */
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

/* Stamps a trace's frame, which follows its places. Numbers go by the frames sent. */
static __always_inline int stamp_trace(struct xdp_md *ctx, struct leg *leg, const struct places *places, __u64 now)
{
	__u32 key = leg->numbered_with, at;
	struct leg *numbered = bpf_map_lookup_elem(&legs, &key);
	__u64 made[3] = {}; /* the stamp lies in it where its 64-bit words are aligned, as the stack's have to be */
	struct stamp *stamp = (void *)made + 6;
	__u64 stream;

	/* Read behind the call: Linux 6.1 does not see that what is checked below is what was kept across it. */
	asm volatile("" ::: "memory");
	at = places->stamp;
	leg->rule[0].position = !!at;
	if (!at)
		return 0;
	if (!numbered || at > SLOT_BYTES - sizeof(*stamp))
		return -1;
	if (stamp_tai)
		now = bpf_ktime_get_tai_ns();
	__builtin_memcpy(stamp, (const __u8 *)(places + 1) + at, STAMP_TIME);
	stream = bpf_be64_to_cpu(*stamp_number(stamp)) & ~STAMP_MASK;
	write_stamp(stamp, stream | (numbered->sequence++ & STAMP_MASK), now);
	return bpf_xdp_store_bytes(ctx, at, stamp, sizeof(*stamp));
}

static __always_inline __u32 write_trace(struct xdp_md *ctx, struct leg *leg, __u64 now)
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

/* A frame of a leg in parts. Its packet counts as sent once all of its frames are on their way, until one fails. */
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
		/* First: on the processor that this thread has just left, `ours` may be asked of another's frames. */
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
	if (leg->in_parts) {
		note_part(leg, pending, is_late);
		return;
	}
	leg->late += is_late;
	if (leg->user_rule)
		count_user(pending->user, 1);
	if (!leg->records || leg->sequence_of_records)
		leg->sequence++;
}

static __always_inline int send_one(struct xdp_md *ctx, struct leg *leg, __u32 index, __u64 due_ns, __u64 now)
{
	int is_late = leg->timed && late(leg, due_ns, now);
	__u32 bytes;

	/* A packet is late, or skipped, as a whole. */
	if (leg->part)
		is_late = leg->packet_late;
	else if (is_late && leg->skip)
		return skip(leg, index, due_ns, now);
	if (leg->records && !leg->sequence_of_records)
		bytes = write_trace(ctx, leg, now);
	else
		bytes = write_stream(ctx, leg, now);
	if (!bytes) {
		state.broken = 1;
		return XDP_DROP;
	}
	leg->packet_late = is_late;
	note(leg, index, bytes, is_late, now);
	if (!leg->part) /* else its next fragment is due, now */
		set_due(index, next_due(leg, due_ns, now));
	return bpf_redirect_map(&egress, 0, XDP_DROP);
}

SEC("xdp")
int send(struct xdp_md *ctx)
{
	__u32 index = state.winner[1];
	__u64 due_ns = due_of(index);
	struct leg *leg;
	__u64 now;

	state.runs++;
	if (state.turn == TURN_OVER)
		return XDP_DROP;
	if (due_ns == NEVER) {
		/* Frames of this batch that the device is yet to take may have to be made up for: see drop_one. */
		state.finished = state.start_ns != NEVER && state.pushed == state.popped;
		return XDP_DROP;
	}
	now = wait(due_ns);
	if (!now)
		return XDP_DROP;
	leg = bpf_map_lookup_elem(&legs, &index);
	if (!leg)
		return XDP_DROP;
	if (!leg->part && (due_ns >= leg->stop_ns || now >= leg->give_up_ns)) {
		set_due(index, NEVER);
		return XDP_DROP;
	}
	if (leg->crossing) {
		set_due(index, next_step(leg));
		return XDP_DROP;
	}
	if (state.turn == TURN_OF_ONE)
		state.turn = TURN_OVER;
	return send_one(ctx, leg, index, due_ns, now);
}

/* --- what became of the frames ------------------------------------------------------------------------------------ */

/*
 * The kernel queues redirected frames in order and hands them to the device 16 at a time; a device takes them from the
 * front, and what it did not take is dropped. So the order of `pending` tells whose the dropped ones are.
 *
 * The tracepoint is the whole machine's. While frames of ours are pending nothing else redirects on this processor:
 * software interrupts, in which a device under test would forward, and other threads are held off until the batch has
 * been flushed. (The thread's number would not tell the two apart, and XDP programs learn it only from Linux 6.10 on.)
 */
static __always_inline int ours(void)
{
	if (state.pushed == state.popped)
		return 0;
	barrier(); /* written before that, see note */
	return state.cpu == bpf_get_smp_processor_id();
}

/* Of a leg in parts: whether no other fragment of the packet has failed before. */
static __always_inline int fail_part(struct leg *leg, const struct pending *pending)
{
	__u64 bit = 1ULL << (pending->packet & 63);

	if (leg->failed & bit)
		return 0;
	leg->failed |= bit;
	if (pending->packet == (leg->sequence & 63)) /* it is still on its way, and has not been counted */
		return 1;
	leg->packets--;
	leg->packet_bytes -= pending->whole_bytes;
	leg->late -= !!(pending->bytes & PENDING_LATE);
	if (leg->user_rule)
		count_user(pending->user, -1);
	return 1;
}

/* `packet`: whether a packet is lost with the frame that was not before. */
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
	if (leg->in_parts) {
		*packet = fail_part(leg, pending);
		return leg;
	}
	leg->late -= !!(pending->bytes & PENDING_LATE);
	if (leg->user_rule)
		count_user(pending->user, -1);
	return leg;
}

/*
 * Of the frame that was queued first. A full ring empties again: a leg without a rate, which has no due times to keep,
 * then sends one more instead, even if it had just ended. Where the device refuses that would go on for ever.
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

/* trace_xdp_devmap_xmit(from_dev, to_dev, sent, drops, err) */
SEC("raw_tracepoint/xdp_devmap_xmit")
int sum_sent(struct bpf_raw_tracepoint_args *ctx)
{
	__s32 sent = ctx->args[2], drops = ctx->args[3], error = ctx->args[4];

	if (!ours())
		return 0;
	if (sent < 0 || drops < 0 || (__u32)(sent + drops) > state.pushed - state.popped) {
		state.unexplained++;
		return 0;
	}
	state.device_sent += sent;
	state.device_dropped += drops;
	state.popped += sent;
	if (error)
		state.error = error;
	if (drops)
		bpf_loop(drops, drop_one, &error, 0);
	return 0;
}

/* trace_xdp_redirect_err(dev, xdp, target, err, …): the frame made last was not queued. */
SEC("raw_tracepoint/xdp_redirect_err")
int sum_refused(struct bpf_raw_tracepoint_args *ctx)
{
	struct leg *leg;
	__u32 index;
	int packet;

	if (!ours())
		return 0;
	leg = fail(--state.pushed, &index, &packet);
	if (leg)
		leg->refused++;
	state.error = (__s32)ctx->args[3];
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
