"""Limits of pktgen: why it cannot send a leg."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Any

from pktswarm.traffic.frames.headers import HEADERS
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule.pktgen import (
    TTL,
    Fields,
    Value,
    burst,
    count_of,
    gap_ns,
    header_values,
    headers_of,
    size_weights,
    sizes_bytes,
    threads,
)

PAYLOAD_HEADER_BYTES = 16
"""Magic, sequence number, seconds, microseconds: pktgen silently enlarges a frame that has no room for them."""
MAX_LABELS = 16
MAX_IMIX = 20
MAX_FLOWS = 65536
LAST_PORT_OF_RANGE = 65534
MAX_MACS = 2**32 - 1

SETTABLE = {
    "ethernet": {"src", "dst"},
    "vlan": {"id", "priority", "dei"},
    "mpls": {"label", "tc", "ttl"},
    "ipv4": {"src", "dst", "tos", "dscp", "ecn"},
    "ipv6": {"src", "dst", "traffic_class"},
    "udp": {"src", "dst"},
}
VARYING = {("ethernet", "src"), ("ethernet", "dst"), ("ipv4", "src"), ("ipv4", "dst"), ("ipv6", "dst")}
VARYING |= {("udp", "src"), ("udp", "dst")}
FIXED = {
    ("ipv4", "version"): 4,
    ("ipv4", "header_words"): 5,
    ("ipv4", "df"): 0,
    ("ipv4", "mf"): 0,
    ("ipv4", "fragment"): 0,
    ("ipv4", "ttl"): TTL,
    ("ipv6", "version"): 6,
    ("ipv6", "flow_label"): 0,
    ("ipv6", "hop_limit"): TTL,
}
"""What pktgen always sends: a scenario may say it, but nothing else."""
OPTIONS = {"threads", "clone_skb", "burst", "flags", "imix_weights", "flows", "flowlen", "delay_ns"}
FLAGS = {"IPSRC_RND", "IPDST_RND", "UDPSRC_RND", "UDPDST_RND", "UDPCSUM", "MACSRC_RND", "MACDST_RND", "FLOW_SEQ"}
FLAGS |= {"NO_TIMESTAMP", "QUEUE_MAP_RND", "QUEUE_MAP_CPU", "NODE"}
"""Not MPLS_RND, VID_RND, SVID_RND: what they draw is in no header list, so no receiver would know its frames."""
MAX_GAP_NS = 1_000_000_000
"""pktgen sleeps through the gap whatever it is told: a longer one would delay a stop, and one packet would follow."""
NEVER_DRAWN = [IPv4Network(net) for net in ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32")]
"""pktgen draws a random destination anew while it falls into one of these: a range of nothing else hangs its thread."""


def unable(leg: Leg) -> str:
    """Why pktgen cannot send this leg, whose frame traffic.frames.build has checked; empty when it can."""
    if leg.kind != "stream":
        return "pktgen sends streams, not traces"
    given = headers_of(leg)
    checks: list[Callable[[], str]] = [
        lambda: _wrong_stack([name for name, _ in given]),
        lambda: _first(_wrong_field(name, key, value) for name, fields in given for key, value in fields.items()),
        lambda: _first(_wrong_header(name, fields) for name, fields in header_values(leg)),
        lambda: _wrong_payload(leg),
        lambda: _wrong_options(leg.options),
        lambda: _wrong_mix(leg),
        lambda: _wrong_size(leg),
        lambda: _wrong_pace(leg),
        lambda: _wrong_copies(leg),
    ]
    return _first(check() for check in checks)


def _first(reasons: Iterable[str]) -> str:
    return next((reason for reason in reasons if reason), "")


def _wrong_stack(names: list[str]) -> str:
    if "svlan" in names:
        return "pktgen tags every VLAN with 0x8100, not 802.1ad's 0x88a8 (two vlan headers give 0x8100 twice)"
    inner = names[1:-2]
    ends = names[:1] == ["ethernet"] and names[-2:] in (["ipv4", "udp"], ["ipv6", "udp"])
    tags = inner in ([], ["vlan"], ["vlan", "vlan"])
    labels = 0 < len(inner) <= MAX_LABELS and set(inner) == {"mpls"}
    if len(names) >= 3 and ends and (tags or labels):
        return ""
    return (
        f"pktgen cannot build {'/'.join(names) or 'a frame without headers'}: only ethernet, "
        f"then up to 2 vlan or {MAX_LABELS} mpls, then ipv4 or ipv6, then udp"
    )


def _wrong_field(name: str, key: str, value: Any) -> str:
    """Of a field as it was written."""
    if isinstance(value, dict):
        if "off_by" in value:
            return f"pktgen cannot send a wrong {name}.{key}"
        if (name, key) not in VARYING:
            return f"pktgen cannot vary {name}.{key}"
        if set(value) not in ({"increment"}, {"random"}):
            return f"pktgen cannot vary {name}.{key} by {', '.join(value)}: only increment (by 1) or random"
        return ""
    fixed = FIXED.get((name, key))
    if fixed is not None and HEADERS[name].fields[key].parse(value) != fixed:
        return f"pktgen sends {name}.{key} = {fixed}, not {value}"
    if fixed is None and key not in SETTABLE[name] and not (name == "udp" and key == "checksum" and value == 0):
        return f"pktgen cannot set {name}.{key}"
    return ""


def _wrong_header(name: str, fields: Fields) -> str:
    """Of a header whose fields are right one by one: what pktgen needs, and the ends of its ranges."""
    if name in ("ethernet", "ipv4", "ipv6") and "dst" not in fields:
        return f"pktgen needs {name}.dst"
    match name:
        case "ethernet":
            if any(value.last - value.first >= MAX_MACS for value in fields.values()):
                return f"pktgen's MAC ranges hold {MAX_MACS} addresses at most"
        case "ipv4":
            return _wrong_ipv4(fields)
        case "ipv6":
            return _wrong_block(fields["dst"])
        case "udp":
            if any(value.varies and value.last > LAST_PORT_OF_RANGE for value in fields.values()):
                return f"pktgen's port ranges end at {LAST_PORT_OF_RANGE}"
    return ""


def _wrong_ipv4(fields: Fields) -> str:
    source, target = fields.get("src"), fields["dst"]
    if source is not None and source.kind == "random" and source.last == 2**32 - 1:
        return "pktgen's random ranges end at 255.255.255.254"
    first, last = IPv4Address(target.first), IPv4Address(target.last)
    if target.kind == "random" and any(first <= net[-1] and net[0] <= last for net in NEVER_DRAWN):
        return f"pktgen never draws loopback, multicast, zero or broadcast addresses: {first} to {last} has some"
    return ""


def _wrong_block(target: Value) -> str:
    """pktgen draws an IPv6 destination as (random OR first) AND last: right only for an aligned power of two."""
    span = target.first ^ target.last
    aligned = span & (span + 1) == 0 and target.first & span == 0 and target.first != 0
    if not target.varies or (target.kind == "random" and aligned):
        return ""
    first, last = IPv6Address(target.first), IPv6Address(target.last)
    return f"pktgen varies ipv6.dst only at random over an aligned power of two, not {target.kind} {first} to {last}"


def _wrong_payload(leg: Leg) -> str:
    payload = leg.frame.get("payload")
    return f"pktgen writes a payload of its own, not {payload!r}" if payload else ""


def _wrong_options(options: Mapping[str, Any]) -> str:
    for key, value in options.items():
        if key not in OPTIONS:
            return f"pktgen has no option {key!r} (there are {', '.join(sorted(OPTIONS))})"
        if key == "flags":
            unknown = [flag for flag in value if flag not in FLAGS]
            if unknown:
                return f"pktgen has no flag {unknown[0]!r} (there are {', '.join(sorted(FLAGS))})"
        elif key == "imix_weights":
            if not 1 <= len(value) <= MAX_IMIX or any(len(pair) != 2 or min(pair) < 1 for pair in value):
                return f"pktgen's option imix_weights is 1 to {MAX_IMIX} pairs of a size and a weight, each 1 or more"
        elif not isinstance(value, int) or isinstance(value, bool) or value < (key in ("threads", "burst")):
            return f"pktgen's option {key} is a whole number, not {value!r}"
    if options.get("flows", 0) > MAX_FLOWS:
        return f"pktgen has {MAX_FLOWS} flows at most"
    return ""


def _wrong_mix(leg: Leg) -> str:
    if leg.sizes and "imix_weights" in leg.options:
        return "pktgen's option imix_weights does not go with several size_bytes"
    if leg.sizes and leg.sizes_in_turn:
        return "pktgen does not send its sizes in turn"
    return f"pktgen mixes {MAX_IMIX} sizes at most, not {len(leg.sizes)}" if len(leg.sizes) > MAX_IMIX else ""


def _wrong_size(leg: Leg) -> str:
    least = sum(HEADERS[name].size_bytes for name, _ in headers_of(leg)) + PAYLOAD_HEADER_BYTES + FCS_BYTES
    smallest = min(sizes_bytes(leg))
    if smallest < least:
        return f"pktgen's smallest frame with these headers has {least} bytes (FCS included), not {smallest}"
    return ""


def _wrong_pace(leg: Leg) -> str:
    if leg.rate_pps is not None and "delay_ns" in leg.options:
        return "a rate and pktgen's option delay_ns exclude each other"
    count, in_burst, in_threads = count_of(leg), burst(leg), threads(leg)
    if count is not None and count % in_burst:
        return f"pktgen sends whole bursts: {count} packets are not a multiple of burst {in_burst}"
    if count is not None and count < in_burst * in_threads:
        return f"{count} packets are too few for {in_threads} threads" + (
            f" with burst {in_burst}" if in_burst > 1 else ""
        )
    if gap_ns(leg) > MAX_GAP_NS:
        return f"pktgen's gaps are {MAX_GAP_NS} ns at most, not {gap_ns(leg)} (of one thread, between its bursts)"
    return ""


def _wrong_copies(leg: Leg) -> str:
    copies = max(int(leg.options.get("clone_skb", 0)), burst(leg))
    if copies <= 1:
        return ""
    varied = [f"{name}.{key}" for name, fields in header_values(leg) for key in fields if fields[key].varies]
    if varied:
        return f"with clone_skb or burst pktgen sends each frame {copies} times over: {varied[0]} would not vary"
    if size_weights(leg):
        return "pktgen's imix_weights do not go with clone_skb or burst"
    return ""
