/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Packets in IP fragments (RFC 791, section 3.2; RFC 8200, section 4.5), of a tunnel or of a user: which parts of each
 * packet have arrived. Payload is not stored: the stamp in the first fragment identifies a packet.
 */
#pragma once

#include "count_parse.h"
#include "pktswarm.h"

#define UNIT_BYTES 8 /* unit of fragment offsets */
#define UNIT_WORDS 8
#define MOST_UNITS (64 * UNIT_WORDS)
#define FOREIGN 0xffffffff

/* A fragment, and the packet that it belongs to. */
struct piece_key {
	__u8 src[16];
	__u8 dst[16];
	__u32 teid; /* of the tunnel that carried it */
	__u32 id;
	__u32 protocol;
};

struct piece {
	struct piece_key key;
	__u32 place; /* offset of the fragment's part of the packet in the frame */
	__u32 extra; /* bytes of headers before it that the whole packet lacks: IPv6's fragment header */
	__u32 offset; /* and its offset in the packet's payload */
	__u32 bytes;
	__u32 more; /* more fragments follow */
};

/*
 * A packet of which a fragment has arrived. Several CPUs may add to it: the one that adds the last unit sees everything
 * that the others wrote.
 */
struct assembly {
	__u64 begun_ns;
	__u64 seen[UNIT_WORDS]; /* a bit for each unit */
	__u64 sequence; /* from the first fragment's stamp */
	__u64 sent_ns;
	__u64 first_sum; /* sum of the payload behind the stamp in it, for the stamp's checksum, */
	__u64 rest_sum; /* and of all others, each from its own first byte */
	__be32 said; /* the stamp's checksum, where it is `checked` */
	__u32 checked;
	__u32 slot; /* the leg's slot plus one; 0: no first fragment yet; FOREIGN: no leg */
	__u32 causes;
	__u32 user; /* its index in `users` */
	__u32 payload_end; /* by the headers, in a frame with the whole packet */
	__u32 head_bytes; /* bytes before the packet's payload in the first frame */
	__u32 total_bytes; /* bytes of payload; 0: no last fragment yet */
	__u32 farthest; /* end of the fragment that reaches farthest */
	__u32 units; /* units that have arrived */
	__u32 frames;
	__u32 stamp_end; /* its end in the packet's payload */
	__u32 broken; /* its fragments contradict one another */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* sized before it is loaded */
	__type(key, struct piece_key);
	__type(value, struct assembly);
} assemblies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fragment_events);
} fragment_events SEC(".maps");

/* Indexed by leg. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct put_together);
} put_together SEC(".maps");

static const struct assembly nothing_yet;

static __always_inline void count_event(enum fragments_event event)
{
	__u32 key = 0;
	struct fragment_events *counts = bpf_map_lookup_elem(&fragment_events, &key);

	if (counts)
		counts->events[event]++;
}

/* Skips the IPv4 header at the cursor. Returns its bytes, 0 if it is truncated. */
static __always_inline __u32 take_piece4(struct cursor *c, struct piece *piece)
{
	struct iphdr *ip = c->at;
	__u32 header, word;

	if ((void *)(ip + 1) > c->end)
		return 0;
	header = ip->ihl * 4;
	word = bpf_ntohs(ip->frag_off);
	piece->key.id = ip->id;
	piece->offset = (word & 0x1fff) * UNIT_BYTES;
	piece->more = word & 0x2000;
	c->left = bpf_ntohs(ip->tot_len) - header;
	c->at += header;
	return header;
}

struct fragment6 {
	__u8 next;
	__u8 reserved;
	__be16 offset; /* 13 bits offset, two reserved, one for more fragments */
	__be32 id;
};

/* Skips IPv6's fragment header at the cursor. */
static __always_inline __u32 take_piece6(struct cursor *c, struct fields *f, struct piece *piece)
{
	struct fragment6 *header = TAKE(c, struct fragment6);
	__u32 word;

	if (!header || c->left < sizeof(*header))
		return 0;
	word = bpf_ntohs(header->offset);
	piece->key.id = header->id;
	piece->offset = word & 0xfff8;
	piece->more = word & 1;
	c->left -= sizeof(*header);
	f->protocol = header->next;
	return sizeof(*header);
}

/* Continues where parse() found a fragment: identifies it; for a first fragment, parses what its packet carries. */
__noinline int parse_piece(struct xdp_md *ctx, struct frame *frame, struct piece *piece)
{
	struct cursor c = { .at = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	__u32 length = ctx->data_end - ctx->data, header;

	if (!frame || !piece || frame->payload > MOST_HEADER_BYTES)
		return PARSED_MALFORMED;
	c.at += frame->payload;
	c.left = frame->payload_bytes;
	c.is_part = 1;
	c.sum = frame->sum;
	__builtin_memcpy(piece->key.src, frame->fields.src_ip, 32);
	piece->key.teid = frame->fields.teid;
	header = frame->fields.ip_version == 4 ? take_piece4(&c, piece) : take_piece6(&c, &frame->fields, piece);
	if (!header)
		return PARSED_MALFORMED;
	piece->key.protocol = frame->fields.protocol;
	piece->extra = header == sizeof(struct fragment6) ? header : 0; /* IPv4's header has at least 20 bytes */
	piece->place = frame->payload + header; /* not by c.at: the compiler then spills half of a pointer */
	piece->bytes = c.left;
	if (!c.left || c.left > length || piece->place + c.left > length || (piece->more && c.left % UNIT_BYTES))
		return PARSED_MALFORMED;
	return piece->offset ? PARSED_FRAGMENT : note(ctx, frame, &c, take_transport(&c, &frame->fields));
}

static __always_inline struct assembly *begin(const struct piece_key *key, __u64 now_ns)
{
	struct assembly *whole;

	if (bpf_map_update_elem(&assemblies, key, &nothing_yet, BPF_NOEXIST) == 0)
		count_event(FRAGMENTS_BEGUN);
	whole = bpf_map_lookup_elem(&assemblies, key);
	if (whole && !whole->begun_ns)
		whole->begun_ns = now_ns;
	return whole;
}

/* Finds the state of a packet. One that is incomplete after `together_ns` stays so: identifications are reused. */
static __always_inline struct assembly *find(const struct piece_key *key, __u64 now_ns, __u64 together_ns)
{
	struct assembly *whole = bpf_map_lookup_elem(&assemblies, key);

	if (whole && whole->begun_ns && now_ns > whole->begun_ns + together_ns) {
		bpf_map_delete_elem(&assemblies, key);
		whole = 0;
	}
	return whole ? whole : begin(key, now_ns);
}

/*
 * Marks units as received. 1: all of them are new, 0: none is, -1: some are. A global function for the verifier's sake,
 * as parse_ip().
 */
__noinline int cover(struct assembly *whole, __u32 from, __u32 to)
{
	__u64 fresh = 0, again = 0;

	if (!whole)
		return 0;
	for (int i = 0; i < UNIT_WORDS; i++) {
		__u32 low = from > 64 * i ? from - 64 * i : 0;
		__u32 high = to > 64 * i ? to - 64 * i : 0;
		__u64 bits, before;

		if (low >= 64 || !high)
			continue;
		bits = ~0ULL << low;
		if (high < 64)
			bits &= ~(~0ULL << high);
		before = __sync_fetch_and_or(&whole->seen[i], bits);
		fresh |= bits & ~before;
		again |= bits & before;
	}
	return again ? fresh ? -1 : 0 : 1;
}

/*
 * The sum of the payload behind the stamp. Later fragments begin at multiples of 8 bytes, so the words of all of them
 * are shifted by the same number of bytes against those of the stamp's checksum; modulo 2^32 - 1 this rotates their sum
 * by as many.
 */
static __always_inline __u64 sum_of_whole(const struct assembly *whole)
{
	__u32 rest = sum32(whole->rest_sum);
	__u32 bits = -whole->stamp_end % 4 * 8;

	return whole->first_sum + (bits ? rest >> bits | rest << (32 - bits) : rest);
}

/* Adds a fragment, which has `sum`. Returns whether the packet is complete with it. */
static __always_inline int add(struct assembly *whole, const struct piece *piece, __u64 sum)
{
	__u32 end = piece->offset + piece->bytes;
	__u32 from = piece->offset / UNIT_BYTES, to = (end + UNIT_BYTES - 1) / UNIT_BYTES;
	__u32 units;
	int fresh;

	if (to > MOST_UNITS) {
		count_event(FRAGMENTS_TOO_LONG);
		return 0;
	}
	fresh = cover(whole, from, to);
	if (!fresh) {
		count_event(FRAGMENTS_AGAIN);
		return 0;
	}
	if (fresh < 0 || (!piece->more && whole->total_bytes && whole->total_bytes != end))
		whole->broken = 1;
	if (!piece->more)
		whole->total_bytes = end;
	if (end > whole->farthest)
		whole->farthest = end;
	if (piece->offset)
		__sync_fetch_and_add(&whole->rest_sum, sum);
	else
		whole->first_sum = sum;
	__sync_fetch_and_add(&whole->frames, 1);
	units = __sync_fetch_and_add(&whole->units, to - from) + to - from;
	if (!whole->slot || whole->slot == FOREIGN || whole->broken || !whole->total_bytes)
		return 0;
	if (whole->farthest > whole->total_bytes) /* a foreign fragment would replace a missing one */
		return 0;
	return units == (whole->total_bytes + UNIT_BYTES - 1) / UNIT_BYTES;
}
