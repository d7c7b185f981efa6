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
"""Magic, sequence number, seconds, microseconds: pktgen silently enlarges a frame without room for them."""
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
"""Fields with a fixed value; a scenario can give no other."""
AT_LEAST_1 = ("threads", "burst")
OPTIONS = {"threads", "clone_skb", "burst", "flags", "imix_weights", "flows", "flowlen", "delay_ns"}
FLAGS = {"IPSRC_RND", "IPDST_RND", "UDPSRC_RND", "UDPDST_RND", "UDPCSUM", "MACSRC_RND", "MACDST_RND", "FLOW_SEQ"}
FLAGS |= {"NO_TIMESTAMP", "QUEUE_MAP_RND", "QUEUE_MAP_CPU", "NODE"}
"""Without MPLS_RND, VID_RND and SVID_RND: their values are in no header list, so no receiver could match the frames."""
MAX_GAP_NS = 1_000_000_000
"""pktgen sleeps through a whole gap: a longer one would delay a stop, and one packet would follow it."""
NEVER_DRAWN = [IPv4Network(net) for net in ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32")]
"""pktgen draws a random destination again while it is in one of these: a range within them hangs its thread."""


def unable(leg: Leg) -> str:
    """Why pktgen cannot send this leg; empty when it can. traffic.frames.check has checked its frame."""
    if leg.kind != "stream":
        return "sends streams only"
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
        return "cannot send svlan: every VLAN tag has TPID 0x8100, also the outer one of two vlan headers"
    inner = names[1:-2]
    ends = names[:1] == ["ethernet"] and names[-2:] in (["ipv4", "udp"], ["ipv6", "udp"])
    tags = inner in ([], ["vlan"], ["vlan", "vlan"])
    labels = 0 < len(inner) <= MAX_LABELS and set(inner) == {"mpls"}
    if len(names) >= 3 and ends and (tags or labels):
        return ""
    return (
        f"cannot send {'/'.join(names) or 'a frame without headers'} (allowed: ethernet, "
        f"then up to 2 vlan or {MAX_LABELS} mpls, then ipv4 or ipv6, then udp)"
    )


def _wrong_field(name: str, key: str, value: Any) -> str:
    """Why pktgen cannot send a field as it is written."""
    if isinstance(value, dict):
        if "off_by" in value:
            return f"cannot send a wrong {name}.{key}"
        if (name, key) not in VARYING:
            return f"cannot vary {name}.{key}"
        if set(value) not in ({"increment"}, {"random"}):
            return f"cannot vary {name}.{key} by {', '.join(value)} (allowed: increment by 1, or random)"
        return ""
    fixed = FIXED.get((name, key))
    if fixed is not None and HEADERS[name].fields[key].parse(value) != fixed:
        return f"{name}.{key} = {value}: must be {fixed}"
    if fixed is None and key not in SETTABLE[name] and not (name == "udp" and key == "checksum" and value == 0):
        return f"cannot set {name}.{key}"
    return ""


def _wrong_header(name: str, fields: Fields) -> str:
    """Why pktgen cannot send a header whose fields it can send one by one."""
    if name in ("ethernet", "ipv4", "ipv6") and "dst" not in fields:
        return f"needs {name}.dst"
    match name:
        case "ethernet":
            if any(value.last - value.first >= MAX_MACS for value in fields.values()):
                return f"a range of MAC addresses has at most {MAX_MACS} addresses"
        case "ipv4":
            return _wrong_ipv4(fields)
        case "ipv6":
            return _wrong_block(fields["dst"])
        case "udp":
            if any(value.varies and value.last > LAST_PORT_OF_RANGE for value in fields.values()):
                return f"a range of ports ends at {LAST_PORT_OF_RANGE} at most"
    return ""


def _wrong_ipv4(fields: Fields) -> str:
    source, target = fields.get("src"), fields["dst"]
    if source is not None and source.kind == "random" and source.last == 2**32 - 1:
        return "a random range of addresses ends at 255.255.255.254 at most"
    first, last = IPv4Address(target.first), IPv4Address(target.last)
    if target.kind == "random" and any(first <= net[-1] and net[0] <= last for net in NEVER_DRAWN):
        return f"cannot draw loopback, multicast, zero or broadcast addresses, which {first} to {last} contains"
    return ""


def _wrong_block(target: Value) -> str:
    """pktgen draws an IPv6 destination as (random OR first) AND last: right only for an aligned power of two."""
    span = target.first ^ target.last
    aligned = span & (span + 1) == 0 and target.first & span == 0 and target.first != 0
    if not target.varies or (target.kind == "random" and aligned):
        return ""
    first, last = IPv6Address(target.first), IPv6Address(target.last)
    return f"ipv6.dst {target.kind} {first} to {last}: must be random, in an aligned block of a power of two"


def _wrong_payload(leg: Leg) -> str:
    payload = leg.frame.get("payload")
    return f"payload {payload!r}: must be left out, pktgen writes its own" if payload else ""


def _wrong_options(options: Mapping[str, Any]) -> str:
    for key, value in options.items():
        if key not in OPTIONS:
            return f"unknown option {key!r} (allowed: {', '.join(sorted(OPTIONS))})"
        if key == "flags":
            unknown = [flag for flag in value if flag not in FLAGS]
            if unknown:
                return f"unknown flag {unknown[0]!r} (allowed: {', '.join(sorted(FLAGS))})"
        elif key == "imix_weights":
            if not 1 <= len(value) <= MAX_IMIX or any(len(pair) != 2 or min(pair) < 1 for pair in value):
                return f"option imix_weights must be 1 to {MAX_IMIX} pairs of a size and a weight, each 1 or more"
        elif not isinstance(value, int) or isinstance(value, bool) or value < (key in AT_LEAST_1):
            return f"option {key} = {value!r}: must be a whole number from {int(key in AT_LEAST_1)}"
    if options.get("flows", 0) > MAX_FLOWS:
        return f"option flows = {options['flows']}: the maximum is {MAX_FLOWS}"
    return ""


def _wrong_mix(leg: Leg) -> str:
    if leg.sizes and "imix_weights" in leg.options:
        return "option imix_weights and several size_bytes exclude each other"
    if leg.sizes and leg.sizes_in_turn:
        return "cannot send sizes in turn"
    return f"{len(leg.sizes)} frame sizes: the maximum is {MAX_IMIX}" if len(leg.sizes) > MAX_IMIX else ""


def _wrong_size(leg: Leg) -> str:
    least = sum(HEADERS[name].size_bytes for name, _ in headers_of(leg)) + PAYLOAD_HEADER_BYTES + FCS_BYTES
    smallest = min(sizes_bytes(leg))
    if smallest < least:
        return f"frames of {smallest} bytes: the minimum with these headers is {least} bytes, FCS included"
    return ""


def _wrong_pace(leg: Leg) -> str:
    if leg.rate_pps is not None and "delay_ns" in leg.options:
        return "a rate and option delay_ns exclude each other"
    count, in_burst, in_threads = count_of(leg), burst(leg), threads(leg)
    if count is not None and count % in_burst:
        return f"{count} packets: must be a multiple of option burst = {in_burst}"
    if count is not None and count < in_burst * in_threads:
        return f"{count} packets are too few for {in_threads} threads" + (
            f" with burst {in_burst}" if in_burst > 1 else ""
        )
    if gap_ns(leg) > MAX_GAP_NS:
        return f"the gap between bursts of one thread is {gap_ns(leg)} ns: the maximum is {MAX_GAP_NS} ns"
    return ""


def _wrong_copies(leg: Leg) -> str:
    copies = max(int(leg.options.get("clone_skb", 0)), burst(leg))
    if copies <= 1:
        return ""
    varied = [f"{name}.{key}" for name, fields in header_values(leg) for key in fields if fields[key].varies]
    if varied:
        return f"{varied[0]} would not vary: clone_skb or burst sends each frame {copies} times"
    if size_weights(leg):
        return "several sizes exclude clone_skb and burst"
    return ""
