/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Packets that come in fragments of IP (RFC 791, section 3.2; RFC 8200, section 4.5), a tunnel's own or the user's: what
 * of each has come so far. The payload stays where it is: a packet is known by the stamp in its first fragment.
 */
#pragma once

#include "count_parse.h"
#include "pktswarm.h"

#define UNIT_BYTES 8 /* in which offsets are counted */
#define UNIT_WORDS 8
#define MOST_UNITS (64 * UNIT_WORDS)
#define FOREIGN 0xffffffff

/* One fragment, and the packet that it is of. */
struct piece_key {
	__u8 src[16];
	__u8 dst[16];
	__u32 teid; /* of the tunnel that it came through */
	__u32 id;
	__u32 protocol;
};

struct piece {
	struct piece_key key;
	__u32 place; /* where the fragment's part of the packet begins in the frame */
	__u32 extra; /* bytes of headers before it that the whole packet would not have: IPv6's fragment header */
	__u32 offset; /* and where in the packet's own payload */
	__u32 bytes;
	__u32 more; /* it is not the last one */
};

/* A packet of which something has come. Several CPUs may add to it: who adds the last unit sees all that others wrote. */
struct assembly {
	__u64 begun_ns;
	__u64 seen[UNIT_WORDS]; /* a bit for each unit */
	__u64 sequence; /* from the first fragment's stamp */
	__u64 sent_ns;
	__u64 first_sum; /* of the payload behind the stamp in it, as the stamp's checksum wants, */
	__u64 rest_sum; /* and of all others, each from its own first byte on */
	__be32 said; /* the stamp's checksum, where it is `checked` */
	__u32 checked;
	__u32 slot; /* the leg's, plus one; 0: the first fragment is not there yet; FOREIGN: it is of no leg */
	__u32 causes;
	__u32 user; /* its place in `users` */
	__u32 payload_end; /* by the headers, in a frame that held the whole packet */
	__u32 head_bytes; /* what stands before the packet's payload in the first frame */
	__u32 total_bytes; /* of the payload; 0: the last fragment is not there yet */
	__u32 farthest; /* where the one ends that reaches farthest into it */
	__u32 units; /* of those that have come */
	__u32 frames;
	__u32 stamp_end; /* where it ends in the packet's payload */
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
	__type(value, struct fragments_told);
} fragments_told SEC(".maps");

/* By leg. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct put_together);
} put_together SEC(".maps");

static const struct assembly nothing_yet;

static __always_inline void tell(enum fragments_event what)
{
	__u32 key = 0;
	struct fragments_told *told = bpf_map_lookup_elem(&fragments_told, &key);

	if (told)
		told->events[what]++;
}

/* Past the IPv4 header at the cursor. Returns its bytes, 0 where it is not all there. */
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
	__be16 offset; /* 13 bits, two spare ones, and whether more follow */
	__be32 id;
};

/* Past IPv6's fragment header at the cursor. */
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

/* From where parse() came upon a fragment: which one it is; of a first one goes on to what its packet carries. */
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
	piece->extra = header == sizeof(struct fragment6) ? header : 0; /* IPv4's header has 20 bytes or more */
	piece->place = frame->payload + header; /* not by c.at: the compiler keeps half a pointer then */
	piece->bytes = c.left;
	if (!c.left || c.left > length || piece->place + c.left > length || (piece->more && c.left % UNIT_BYTES))
		return PARSED_MALFORMED;
	return piece->offset ? PARSED_FRAGMENT : note(ctx, frame, &c, take_transport(&c, &frame->fields));
}

static __always_inline struct assembly *begin(const struct piece_key *key, __u64 now_ns)
{
	struct assembly *whole;

	if (bpf_map_update_elem(&assemblies, key, &nothing_yet, BPF_NOEXIST) == 0)
		tell(FRAGMENTS_BEGUN);
	whole = bpf_map_lookup_elem(&assemblies, key);
	if (whole && !whole->begun_ns)
		whole->begun_ns = now_ns;
	return whole;
}

/* What has come of the packet. One that is not whole after `together_ns` never will be: ids come round again. */
static __always_inline struct assembly *find(const struct piece_key *key, __u64 now_ns, __u64 together_ns)
{
	struct assembly *whole = bpf_map_lookup_elem(&assemblies, key);

	if (whole && whole->begun_ns && now_ns > whole->begun_ns + together_ns) {
		bpf_map_delete_elem(&assemblies, key);
		whole = 0;
	}
	return whole ? whole : begin(key, now_ns);
}

/* Notes units as come. 1: all of them are new, 0: none is, -1: some are. */
static __always_inline int cover(struct assembly *whole, __u32 from, __u32 to)
{
	__u64 fresh = 0, again = 0;

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
 * Of the payload behind the stamp. Later fragments begin at multiples of 8 bytes, so the words of all are shifted by the
 * same number of bytes against those of the stamp's checksum; modulo 2^32 - 1 that turns their sum round by as many.
 */
static __always_inline __u64 sum_of_whole(const struct assembly *whole)
{
	__u32 rest = sum32(whole->rest_sum);
	__u32 bits = -whole->stamp_end % 4 * 8;

	return whole->first_sum + (bits ? rest >> bits | rest << (32 - bits) : rest);
}

/* Whether the packet is whole with this fragment, which has `sum`. */
static __always_inline int add(struct assembly *whole, const struct piece *piece, __u64 sum)
{
	__u32 end = piece->offset + piece->bytes;
	__u32 from = piece->offset / UNIT_BYTES, to = (end + UNIT_BYTES - 1) / UNIT_BYTES;
	__u32 units;
	int told;

	if (to > MOST_UNITS) {
		tell(FRAGMENTS_TOO_LONG);
		return 0;
	}
	told = cover(whole, from, to);
	if (!told) {
		tell(FRAGMENTS_AGAIN);
		return 0;
	}
	if (told < 0 || (!piece->more && whole->total_bytes && whole->total_bytes != end))
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
	if (whole->farthest > whole->total_bytes) /* a stray would make up for one that is missing */
		return 0;
	return units == (whole->total_bytes + UNIT_BYTES - 1) / UNIT_BYTES;
}
