/* SPDX-License-Identifier: GPL-2.0-only */
/* Sequence numbers: which packets are lost, duplicated or reordered (RFC 4737), and which numbers are believed. */
#pragma once

#include "count_maps.h"

/* A number further ahead than this is accepted only when a second frame agrees. */
#define BELIEVED_AHEAD 4096
/* The same for pktgen's numbers, which have no check of their own, and often no checksum. */
#define PKTGEN_BELIEVED_AHEAD 64

enum novelty { FRESH, DUPLICATE, TOO_LATE, INVALID };

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
