/* SPDX-License-Identifier: GPL-2.0-only */
/* Packets towards a user: the tunnel to its gNB. */
#pragma once

/* Writes the GTP-U header, with a PDU session container (TS 38.415, 5.5.2.1) where the rule has a QFI. */
static __always_inline void write_gtpu(struct gtpu *gtpu, __u32 teid, __u32 follow, const struct rule *rule)
{
	__u8 *option = (void *)(gtpu + 1);

	gtpu->flags = rule->has_qfi ? 0x34 : 0x30;
	gtpu->type = GTPU_G_PDU;
	gtpu->length = bpf_htons(follow);
	gtpu->teid = teid;
	if (!rule->has_qfi)
		return;
	option[0] = option[1] = option[2] = 0;
	option[3] = PDU_SESSION_CONTAINER;
	option[4] = 1; /* in units of four bytes */
	option[5] = 0; /* downlink PDU session information */
	option[6] = rule->qfi;
	option[7] = 0;
}

/* The next hop to the rule's gNB; 0: unknown. */
static __always_inline const struct next_hop *find_gnb(struct xdp_md *ctx, const struct rule *rule)
{
	__u32 from[4] = { settings.n3_ipv4 };

	if (rule->outer != OUTER_IPV6)
		return find_way(ctx, AF_INET, from, rule->gnb, settings.n6_index, settings.n3_index);
	for (int i = 0; i < 4; i++)
		from[i] = settings.n3_ipv6[i];
	return find_way(ctx, AF_INET6, from, rule->gnb, settings.n6_index, settings.n3_index);
}

/* Writes the tunnel headers into the space before the user's packet. */
static __always_inline int write_tunnel4(struct xdp_md *ctx, const struct rule *rule, const struct next_hop *hop,
					 __u32 teid, __u32 follow)
{
	struct ethhdr *ethernet = place(ctx, 0);
	struct iphdr *ip = (void *)(ethernet + 1);
	struct gtpu *gtpu = (void *)(ip + 1) + sizeof(struct udphdr);

	if ((void *)(gtpu + 2) > (void *)(long)ctx->data_end)
		return -1;
	write_ethernet(ethernet, hop, bpf_htons(ETH_P_IP));
	write_outer4(ip, settings.n3_ipv4, rule->gnb[0], bpf_htons(GTPU_PORT), GTPU_OVERHEAD + follow);
	write_gtpu(gtpu, teid, follow, rule);
	return 0;
}

static __always_inline int write_tunnel6(struct xdp_md *ctx, const struct rule *rule, const struct next_hop *hop,
					 __u32 teid, __u32 follow)
{
	struct ethhdr *ethernet = place(ctx, 0);
	struct ipv6hdr *ip = (void *)(ethernet + 1);
	struct gtpu *gtpu = (void *)(ip + 1) + sizeof(struct udphdr);

	if ((void *)(gtpu + 2) > (void *)(long)ctx->data_end)
		return -1;
	write_ethernet(ethernet, hop, bpf_htons(ETH_P_IPV6));
	write_outer6(ip, settings.n3_ipv6, rule->gnb, bpf_htons(GTPU_PORT), GTPU_OVERHEAD + follow);
	write_gtpu(gtpu, teid, follow, rule);
	return mend_udp6(ctx, GTPU_OVERHEAD + follow);
}

static __always_inline int carry_down(struct xdp_md *ctx, const struct rule *rule, const struct packet *p)
{
	__u32 options = rule->has_qfi ? 8 : 0;
	__u32 ip_bytes = rule->outer == OUTER_IPV6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u32 overhead = ip_bytes + GTPU_OVERHEAD + options;
	__u32 teid = rule->teid;
	const struct next_hop *hop;
	struct fault *fault;
	__u64 number = 0;
	int held = judge(ctx, rule, p, overhead), written;

	if (held)
		return held;
	fault = next_fault(DOWNLINK, &number);
	if (fault && fault->action == FAULT_DROP)
		return drop_of(rule->counts, BY_FAULT);
	if (fault && fault->action == FAULT_TEID)
		teid ^= fault->value;
	hop = find_gnb(ctx, rule);
	if (!hop)
		return no_way(ctx, rule, p, N3);
	if (trim(ctx, p) || bpf_xdp_adjust_head(ctx, -(int)overhead))
		return drop(MALFORMED);
	written = rule->outer == OUTER_IPV6 ? write_tunnel6(ctx, rule, hop, teid, options + p->bytes)
					    : write_tunnel4(ctx, rule, hop, teid, options + p->bytes);
	return written ? drop(MALFORMED) : send(ctx, rule, p, N3, fault, number);
}
