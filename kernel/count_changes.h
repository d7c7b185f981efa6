/* SPDX-License-Identifier: GPL-2.0-only */
/* What has changed a frame on its way: the causes, by its fields, lengths and checksums. */
#pragma once

#include "count_frame.h"
#include "count_maps.h"

#define MOST_PAYLOAD_BYTES 4096
#define WORDS_OF_A_BLOCK 16
#define BLOCK_BYTES (4 * WORDS_OF_A_BLOCK)
#define MOST_SUMMED_BYTES (MOST_HEADER_BYTES + sizeof(struct stamp_checked) + MOST_PAYLOAD_BYTES)

/* The cause that a byte of struct fields belongs to. */
static const __u8 cause_of[sizeof(struct fields)] = {
	[0 ... 5] = CAUSE_DST_MAC,    [6 ... 11] = CAUSE_SRC_MAC,    [12 ... 16] = CAUSE_VLAN,
	[17 ... 18] = CAUSE_PROTOCOL, [19] = CAUSE_DSCP,	     [20] = CAUSE_TTL,
	[21 ... 23] = CAUSE_MPLS,     [24 ... 25] = CAUSE_SRC_PORT,  [26 ... 27] = CAUSE_DST_PORT,
	[28 ... 31] = CAUSE_TEID,     [32 ... 47] = CAUSE_SRC_IP,    [48 ... 63] = CAUSE_DST_IP,
};

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

/* The sum of `bytes` bytes, a constant multiple of 4, as 32-bit words. */
static __always_inline __u64 sum_words(const __be32 *words, int bytes)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < bytes / 4; i++)
		sum += bpf_ntohl(words[i]);
	return sum;
}

/*
 * The sum of `bytes` bytes from the offset on in 32-bit words, as in the stamp's checksum: the bytes after the last word
 * are one more word. The bytes behind the last whole block come first, so that the verifier checks the loop of blocks
 * once. They need no loop and no call, each of which costs as much as several words. The sum of a payload that ends
 * behind the frame is 0 or too small: its length shows that it was changed.
 */
static __always_inline __u64 sum_of(struct xdp_md *ctx, __u32 offset, __u32 bytes)
{
	const void *end = (void *)(long)ctx->data_end;
	const void *data = (void *)(long)ctx->data;
	__u32 rest = bytes & (BLOCK_BYTES - 1), odd = bytes & 3;
	__u32 rest_at = offset + bytes - rest, last_at = offset + bytes - 4;
	const void *at;
	__u64 sum = 0;

	if (offset > MOST_HEADER_BYTES + sizeof(struct stamp_checked) || rest_at > MOST_SUMMED_BYTES)
		return 0;
	at = data + rest_at;
#pragma unroll
	for (int size = BLOCK_BYTES / 2; size >= 4; size /= 2) {
		if (!(rest & size))
			continue;
		if (at + size > end)
			return 0;
		sum += sum_words(at, size);
		at += size;
	}
	/* The word that ends with the last byte: its first bytes belong to what is before, and are shifted out. */
	if (odd && last_at <= MOST_SUMMED_BYTES + BLOCK_BYTES) {
		at = data + last_at;
		if (at + 4 > end)
			return 0;
		sum += (__u32)(bpf_ntohl(*(const __be32 *)at) << (32 - 8 * odd));
	}
	at = data + offset;
	/* Blocks of words: each has one comparison with the end, and the verifier looks at a sixteenth of the rounds. */
	for (int i = 0; i < MOST_PAYLOAD_BYTES / BLOCK_BYTES && bytes >= BLOCK_BYTES && at + BLOCK_BYTES <= end; i++) {
		sum += sum_words(at, BLOCK_BYTES);
		at += BLOCK_BYTES;
		bytes -= BLOCK_BYTES;
	}
	return sum;
}

/* sum_of() as a global function, as parse_ip(): for callers with which the verifier would check it many times. */
__noinline __u64 sum_from(struct xdp_md *ctx, __u32 offset, __u32 bytes)
{
	return sum_of(ctx, offset, bytes);
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
 * Checks payload and headers of a frame whose payload starts at `at`. With a stamp_checked there, both independently:
 * the headers' checksum is verified with the payload sum of the stamp, so payload damage does not affect it. Else
 * `from` bytes are summed elsewhere, and the rest is verified with the headers. `sum`: that of the headers, see struct
 * cursor; NO_SUM: not checked. A global function for the verifier's sake, as parse_ip(), and one for both, because the
 * loop over the payload is a tenth of its work.
 */
__noinline __u32 changed_payload(struct xdp_md *ctx, __u32 at, __u32 bytes, __u64 sum, __u32 from)
{
	const struct stamp_checked *stamp = (void *)(long)ctx->data;
	__u32 start = from;
	__u32 causes = 0;
	__be32 said = 0;
	__u64 found;

	/* Neither compiler nor verifier knows it where `from` is known: sum_of() is followed once for both cases. */
	asm volatile("%0 &= 31" : "+r"(start));
	if (at > MOST_HEADER_BYTES)
		return 0;
	stamp = (const void *)stamp + at;
	if (from == sizeof(*stamp)) {
		if ((void *)(stamp + 1) > (void *)(long)ctx->data_end || bytes < sizeof(*stamp))
			return 1 << CAUSE_PAYLOAD;
		said = *(__be32 *)((void *)stamp + sizeof(stamp->stamp));
	}
	found = bytes > start ? sum_of(ctx, at + start, bytes - start) : 0;
	if (start != sizeof(*stamp))
		return sum16_of_few(sum + in_memory(found)) != 0xffff ? 1 << CAUSE_CHECKSUM : 0;
	if (!same_sum(said, found))
		causes = 1 << CAUSE_PAYLOAD;
	/*
	 * The sum of the stamp's own words is zero; the checksum counts twice, once for itself and once for the
	 * payload.
	 */
	if (sum != NO_SUM && sum16_of_few(sum + 2ULL * said) != 0xffff)
		causes |= 1 << CAUSE_CHECKSUM;
	return causes;
}

/*
 * Checks payload and checksums. One sum verifies all checksums of the headers, because it shows any damaged bit as
 * well.
 */
static __always_inline __u32 changed_sums(struct xdp_md *ctx, const struct frame *frame, const struct arrival *a,
					  const struct expectation *e)
{
	__u32 sums = e->sums | a->sums, causes = 0, from = 0;
	__u64 sum = NO_SUM;

	if (a->whole)
		return 0;
	if (sums & SUMS_TRANSPORT)
		sum = frame->sum + (sums & SUMS_IP ? frame->ip_sum : 0);
	else if (sums & SUMS_IP && ip_damaged(frame))
		causes = 1 << CAUSE_CHECKSUM;
	if (sums & SUMS_TRANSPORT && !frame->sum)
		causes = 1 << CAUSE_CHECKSUM;
	if (!a->checked && sum == NO_SUM)
		return causes;
	if (a->checked)
		from = sizeof(struct stamp_checked);
	else if (e->numbered == NUMBERED_BY_US) /* the sum of a stamp's words is zero */
		from = sizeof(struct stamp);
	return causes | changed_payload(ctx, frame->payload, frame->payload_bytes, sum, from);
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
