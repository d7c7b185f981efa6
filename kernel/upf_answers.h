/* SPDX-License-Identifier: GPL-2.0-only */
/* Messages of GTP-U that the data path answers itself (TS 29.281): Echo, Error Indication. */
#pragma once

/* Sends a GTP-U message with these information elements to the source of this frame. */
static __always_inline int answer(struct xdp_md *ctx, const struct packet *p, const __u32 ip_bytes, __u8 type,
				  __be16 port, const void *elements, const __u32 bytes)
{
	__u32 udp_bytes = GTPU_OVERHEAD + sizeof(struct gtpu_options) + bytes;
	int surplus = bpf_xdp_get_buff_len(ctx) - (ETH_HLEN + ip_bytes + udp_bytes);
	struct gtpu_options *options;
	struct ethhdr *ethernet;
	struct gtpu *gtpu;
	__u8 mac[ETH_ALEN];

	if (surplus && bpf_xdp_adjust_tail(ctx, -surplus))
		return XDP_DROP;
	ethernet = place(ctx, 0);
	gtpu = place(ctx, ETH_HLEN + ip_bytes + sizeof(struct udphdr));
	options = (void *)(gtpu + 1);
	if ((void *)(options + 1) + bytes > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(mac, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(ethernet->h_dest, ethernet->h_source, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, mac, ETH_ALEN);
	if (ip_bytes == sizeof(struct iphdr))
		write_outer4((void *)(ethernet + 1), p->outer_dst[0], p->outer_src[0], port, udp_bytes);
	else
		write_outer6((void *)(ethernet + 1), p->outer_dst, p->outer_src, port, udp_bytes);
	gtpu->flags = 0x32;
	gtpu->type = type;
	gtpu->length = bpf_htons(sizeof(*options) + bytes);
	gtpu->teid = 0;
	options->sequence = type == GTPU_ECHO_RESPONSE ? p->sequence : 0;
	options->npdu = 0;
	options->next_type = 0;
	__builtin_memcpy(options + 1, elements, bytes);
	if (ip_bytes == sizeof(struct ipv6hdr) && mend_udp6(ctx, udp_bytes))
		return XDP_DROP;
	return bpf_redirect_map(&ports, N3, XDP_DROP);
}

/* TS 29.281, 7.2.2: Recovery, always 0. */
static __always_inline int answer_echo(struct xdp_md *ctx, const struct packet *p)
{
	__u8 recovery[2] = { 14, 0 };

	note(ECHO_REQUEST);
	if (p->outer == OUTER_IPV6)
		return answer(ctx, p, sizeof(struct ipv6hdr), GTPU_ECHO_RESPONSE, p->source_port, recovery, 2);
	return answer(ctx, p, sizeof(struct iphdr), GTPU_ECHO_RESPONSE, p->source_port, recovery, 2);
}

/* TS 29.281, 7.3.1: Tunnel Endpoint Identifier Data I, GTP-U Peer Address. */
static __always_inline int answer_error(struct xdp_md *ctx, const struct packet *p)
{
	__u8 elements[24] = { 16, [5] = 133 };
	__u32 is6 = p->outer == OUTER_IPV6;

	note(UNKNOWN_TEID);
	__builtin_memcpy(elements + 1, &p->teid, 4);
	elements[7] = is6 ? 16 : 4;
	__builtin_memcpy(elements + 8, p->outer_dst, 16);
	note(ERROR_INDICATION_SENT);
	if (is6)
		return answer(ctx, p, sizeof(struct ipv6hdr), GTPU_ERROR, bpf_htons(GTPU_PORT), elements, 24);
	return answer(ctx, p, sizeof(struct iphdr), GTPU_ERROR, bpf_htons(GTPU_PORT), elements, 12);
}

static __always_inline int take_message(struct xdp_md *ctx, const struct packet *p)
{
	switch (p->gtpu_type) {
	case GTPU_ECHO_REQUEST:
		return answer_echo(ctx, p);
	case GTPU_ECHO_RESPONSE:
		return drop(ECHO_RESPONSE);
	case GTPU_ERROR:
		return drop(ERROR_INDICATION_SEEN);
	case GTPU_END_MARKER:
		return drop(END_MARKER_SEEN);
	}
	return drop(OTHER_GTPU);
}
