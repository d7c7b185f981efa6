// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data path of the lab's UPF: forwards between GTP-U on N3 and plain IP on N6 in XDP, by the rules that its control
 * plane (lab/upf) received over N4. The kernel's routing and neighbour tables determine the next hop. The TTL of a
 * packet stays.
 */
#include "upf_gtpu.h"

#define AF_INET 2
#define AF_INET6 10
#define POLICER_TRIES 8

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_COUNTS);
	__type(key, __u32); /* TEID */
	__type(value, struct rules);
} uplink SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_COUNTS);
	__type(key, __u32); /* UE address */
	__type(value, struct rules);
} downlink4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_COUNTS);
	__type(key, __u64); /* UE /64 prefix */
	__type(value, struct rules);
} downlink6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MOST_COUNTS);
	__type(key, __u32);
	__type(value, struct dropped);
} dropped SEC(".maps");

/* MOST_COUNTS for each processor (OWN_COUNTS): user space sets the number of entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MOST_COUNTS);
	__type(key, __u32);
	__type(value, struct sent);
} sent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MOST_COUNTS);
	__type(key, __u32);
	__type(value, struct policer);
} policers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* one for each processor: user space sets the number */
	__type(key, __u32);
	__type(value, struct totals);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct fault_key);
	__type(value, struct fault);
} faults SEC(".maps");

/* Packets of each direction since faults were set; the third entry: whether there are any. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} fault_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

const volatile struct settings settings SEC(".rodata.settings") = {};
/* Unused: it makes the compiler describe the layout in the object's BTF, which a test reads. */
const struct event_head event_layout SEC(".rodata.event") = {};

static __always_inline void note(enum total what)
{
	__u32 processor = bpf_get_smp_processor_id();
	struct totals *here = bpf_map_lookup_elem(&totals, &processor);

	if (here)
		here->packets[what]++;
}

static __always_inline int drop(enum total why)
{
	note(why);
	return XDP_DROP;
}

static __always_inline int drop_of(__u32 index, enum reason why)
{
	struct dropped *mine = bpf_map_lookup_elem(&dropped, &index);

	if (mine)
		__sync_fetch_and_add(&mine->packets[why], 1);
	return XDP_DROP;
}

static __always_inline int to_me(struct xdp_md *ctx, const volatile __u8 *mac)
{
	const volatile __u16 *mine = (const volatile void *)mac;
	struct ethhdr *ethernet = place(ctx, 0);
	const __u16 *to = (void *)ethernet;

	return FITS(ctx, ethernet) && !((to[0] ^ mine[0]) | (to[1] ^ mine[1]) | (to[2] ^ mine[2]));
}

/* Gives `bytes` of the frame from `at` on to the control plane. Returns 0 on success. */
__noinline int tell(struct xdp_md *ctx, const struct event_head *head, __u32 at, __u32 bytes)
{
	__u32 last = bytes - 1;
	struct event *event;

	if (!head || last >= EVENT_BYTES)
		return -1;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return -1;
	event->head = *head;
	event->head.frame_bytes = bytes;
	event->head.time_ns = bpf_ktime_get_ns();
	if (bpf_xdp_load_bytes(ctx, at, event->frame, (last & (EVENT_BYTES - 1)) + 1)) {
		bpf_ringbuf_discard(event, 0);
		return -1;
	}
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Whether the packet conforms to the rate. A global function, which the verifier checks once. */
__noinline int conforms(__u32 index, __u32 bytes)
{
	struct policer *policer = bpf_map_lookup_elem(&policers, &index);
	__u64 cost, due, now, from;

	if (!policer || !policer->byte_cost)
		return 0;
	cost = bytes * policer->byte_cost >> 12;
	for (int i = 0; i < POLICER_TRIES; i++) {
		due = *(volatile __u64 *)&policer->due;
		now = bpf_ktime_get_ns() << 8;
		from = due > now ? due : now;
		if (from - now > policer->burst)
			return 0;
		if (__sync_val_compare_and_swap(&policer->due, due, from + cost) == due)
			return 1;
	}
	return 0;
}

static __always_inline int matches(const struct rule *rule, const struct packet *p)
{
	if (p->outer && !(rule->outer & p->outer))
		return 0;
	if (rule->check_ue && p->version == 4 && !(rule->check_ue & 1 && rule->ue4 == p->ue4))
		return 0;
	if (rule->check_ue && p->version == 6 &&
	    !(rule->check_ue & 2 && rule->ue6[0] == p->ue6[0] && rule->ue6[1] == p->ue6[1]))
		return 0;
	if (rule->protocol && rule->protocol != p->protocol)
		return 0;
	if (rule->remote_mask && (p->version != 4 || (p->remote & rule->remote_mask) != rule->remote))
		return 0;
	if (rule->port_first || rule->port_last != 0xffff)
		return p->has_port && rule->port_first <= p->port && p->port <= rule->port_last;
	return 1;
}

static __always_inline struct rule *choose(struct rules *rules, const struct packet *p)
{
	for (int i = 0; i < MOST_RULES && i < rules->count; i++)
		if (matches(&rules->rule[i], p))
			return &rules->rule[i];
	return 0;
}

/* Returns the fault for the next packet of this direction, and the packet's number. */
static __always_inline struct fault *next_fault(__u32 direction, __u64 *number)
{
	struct fault_key key = { .direction = direction };
	__u32 any = 2;
	__u64 *count = bpf_map_lookup_elem(&fault_numbers, &any);

	if (!count || !*count)
		return 0;
	count = bpf_map_lookup_elem(&fault_numbers, &direction);
	if (!count)
		return 0;
	*number = key.number = __sync_fetch_and_add(count, 1);
	return bpf_map_lookup_elem(&faults, &key);
}

/* A packet that this rule does not send on: drops it, or passes it to the control plane to buffer and report. */
static __always_inline int hold_back(struct xdp_md *ctx, const struct rule *rule, const struct packet *p)
{
	struct event_head head = { .kind = EVENT_BUFFERED };

	if (!(rule->action & (BUFFER | NOTIFY)))
		return drop_of(rule->counts, BY_RULE);
	head.counts = rule->counts;
	head.value = rule->action;
	return drop_of(rule->counts, tell(ctx, &head, p->at, p->bytes) ? NO_ROOM : BUFFERED);
}

#include "upf_next_hop.h"

static __always_inline int no_way(struct xdp_md *ctx, const struct rule *rule, const struct packet *p, enum port port)
{
	struct event_head head = { .kind = EVENT_NO_NEIGHBOUR, .port = port, .counts = rule->counts };

	tell(ctx, &head, p->at, p->bytes);
	return drop_of(rule->counts, NO_NEIGHBOUR);
}

static __always_inline void write_ethernet(struct ethhdr *ethernet, const struct next_hop *hop, __be16 type)
{
	__u16 *macs = (void *)ethernet;

	for (int i = 0; i < ETH_ALEN; i++)
		macs[i] = hop->macs[i];
	ethernet->h_proto = type;
}

static __always_inline void count_sent(const struct rule *rule, const struct packet *p, enum port port)
{
	__u32 processor = bpf_get_smp_processor_id(), owner = processor < OWN_COUNTS ? processor : OWN_COUNTS;
	__u32 key = owner * MOST_COUNTS + rule->counts;
	struct sent *here = bpf_map_lookup_elem(&sent, &key);

	if (here && owner < OWN_COUNTS) {
		here->packets++;
		here->bytes += p->bytes;
	} else if (here) {
		__sync_fetch_and_add(&here->packets, 1);
		__sync_fetch_and_add(&here->bytes, p->bytes);
	}
	note(port == N6 ? FORWARDED_UPLINK : FORWARDED_DOWNLINK);
}

/* Passes a finished frame to the control plane to send later. */
static __always_inline int send_later(struct xdp_md *ctx, const struct rule *rule, const struct packet *p, enum port port,
				      const struct fault *fault, __u64 number)
{
	struct event_head head = { .port = port, .counts = rule->counts, .number = number, .value = fault->value };

	head.kind = fault->action == FAULT_DELAY ? EVENT_DELAYED : EVENT_HELD;
	if (tell(ctx, &head, 0, bpf_xdp_get_buff_len(ctx)))
		return drop_of(rule->counts, NO_ROOM);
	count_sent(rule, p, port);
	return XDP_DROP;
}

/* The control plane sends the frames that were held for this one. */
static __always_inline void release(struct xdp_md *ctx, const struct rule *rule, enum port port, __u64 number)
{
	struct event_head head = { .kind = EVENT_RELEASE, .port = port, .counts = rule->counts, .number = number };

	tell(ctx, &head, 0, 1);
}

/* Sends the finished frame. */
static __always_inline int send(struct xdp_md *ctx, const struct rule *rule, const struct packet *p, enum port port,
				const struct fault *fault, __u64 number)
{
	if (fault && fault->action >= FAULT_DELAY)
		return send_later(ctx, rule, p, port, fault, number);
	count_sent(rule, p, port);
	if (fault && fault->release)
		release(ctx, rule, port, number);
	return bpf_redirect_map(&ports, port, XDP_DROP);
}

/* Checks gate, action, MTU and rate, in this order; 0: the packet may pass. */
static __always_inline int judge(struct xdp_md *ctx, const struct rule *rule, const struct packet *p, __u32 overhead)
{
	if (rule->gate_closed)
		return drop_of(rule->counts, BY_GATE);
	if (!(rule->action & FORWARD))
		return hold_back(ctx, rule, p);
	if (p->bytes + overhead > settings.mtu)
		return drop_of(rule->counts, TOO_BIG);
	for (int i = 0; i < MOST_POLICERS; i++)
		if (rule->policers[i] && !conforms(rule->policers[i], p->bytes))
			return drop_of(rule->counts, BY_RATE);
	return 0;
}

/* Removes what follows the user's packet: Ethernet's padding. */
static __always_inline int trim(struct xdp_md *ctx, const struct packet *p)
{
	int surplus = p->frame_bytes - (p->at + p->bytes);

	return surplus ? bpf_xdp_adjust_tail(ctx, -surplus) : 0;
}

static __always_inline int carry_up(struct xdp_md *ctx, const struct rule *rule, const struct packet *p)
{
	const struct next_hop *hop;
	struct ethhdr *ethernet;
	struct fault *fault;
	__u64 number = 0;
	int held = judge(ctx, rule, p, 0);

	if (held)
		return held;
	fault = next_fault(UPLINK, &number);
	if (fault && fault->action == FAULT_DROP)
		return drop_of(rule->counts, BY_FAULT);
	hop = find_way(ctx, p->version == 4 ? AF_INET : AF_INET6, p->from, p->to, settings.n3_index, settings.n6_index);
	if (!hop)
		return no_way(ctx, rule, p, N6);
	if (trim(ctx, p) || bpf_xdp_adjust_head(ctx, p->at - ETH_HLEN))
		return drop(MALFORMED);
	ethernet = place(ctx, 0);
	if (!FITS(ctx, ethernet))
		return drop(MALFORMED);
	write_ethernet(ethernet, hop, p->version == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6));
	return send(ctx, rule, p, N6, fault, number);
}

#include "upf_downlink.h"
#include "upf_answers.h"

/* Whether the outer destination is another host. */
static __always_inline int to_another(const struct packet *p)
{
	__u32 differs = 0;

	if (p->outer == OUTER_IPV4)
		return p->outer_dst[0] != settings.n3_ipv4;
	for (int i = 0; i < 4; i++)
		differs |= p->outer_dst[i] ^ settings.n3_ipv6[i];
	return p->outer && differs;
}

SEC("xdp.frags")
int upf_n3(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = place(ctx, 0);
	struct packet p = { .direction = UPLINK };
	struct rules *rules;
	struct rule *rule;
	int found;

	if (!to_me(ctx, settings.n3_mac) || !FITS(ctx, ethernet))
		return XDP_PASS;
	if (ethernet->h_proto != bpf_htons(ETH_P_IP) && ethernet->h_proto != bpf_htons(ETH_P_IPV6))
		return XDP_PASS;
	found = find_gtpu(ctx, &p);
	if (found == FOUND_OTHER || to_another(&p))
		return XDP_PASS;
	if (found == FOUND_FRAGMENT) { /* the kernel reassembles it, and lab/upf returns the whole packet here */
		note(FRAGMENT);
		return XDP_PASS;
	}
	if (found != FOUND)
		return drop(MALFORMED);
	if (take_gtpu(ctx, &p) != FOUND)
		return drop(MALFORMED);
	if (p.gtpu_type != GTPU_G_PDU)
		return take_message(ctx, &p);
	rules = bpf_map_lookup_elem(&uplink, &p.teid);
	if (!rules)
		return answer_error(ctx, &p);
	if (take_user(ctx, &p) != FOUND)
		return drop(MALFORMED);
	rule = choose(rules, &p);
	return rule ? carry_up(ctx, rule, &p) : drop(NO_RULE);
}

/* For no user: for the UPF's host itself, or for every host (neighbour discovery). */
static __always_inline int is_own(const struct packet *p)
{
	if (p->version == 4)
		return p->to[0] == settings.n6_ipv4;
	return (p->to[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000) ||
	       (p->to[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

SEC("xdp.frags")
int upf_n6(struct xdp_md *ctx)
{
	struct packet p = { .direction = DOWNLINK, .at = ETH_HLEN };
	struct ethhdr *ethernet = place(ctx, 0);
	struct rules *rules;
	struct rule *rule;

	if (!to_me(ctx, settings.n6_mac) || !FITS(ctx, ethernet))
		return XDP_PASS;
	if (ethernet->h_proto != bpf_htons(ETH_P_IP) && ethernet->h_proto != bpf_htons(ETH_P_IPV6))
		return XDP_PASS;
	p.frame_bytes = bpf_xdp_get_buff_len(ctx);
	p.left = p.frame_bytes - ETH_HLEN;
	if (take_user(ctx, &p) != FOUND)
		return drop(MALFORMED);
	if (is_own(&p))
		return XDP_PASS;
	rules = p.version == 4 ? bpf_map_lookup_elem(&downlink4, &p.ue4) : bpf_map_lookup_elem(&downlink6, p.ue6);
	if (!rules)
		return drop(UNKNOWN_UE);
	rule = choose(rules, &p);
	return rule ? carry_down(ctx, rule, &p) : drop(NO_RULE);
}

char LICENSE[] SEC("license") = "GPL";
