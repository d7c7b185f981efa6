/* SPDX-License-Identifier: GPL-2.0-only */
/* Counts packets in fragments (count_fragments.h) once they are whole. Included by count.bpf.c behind what it calls. */
#pragma once

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
	struct arrival a = { .now_ns = clock_ns(), .timed = 1, .bytes = ctx->data_end - ctx->data };
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
