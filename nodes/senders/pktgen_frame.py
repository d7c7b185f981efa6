"""A leg as pktgen's device commands, and why pktgen could not send it. Pure: nothing here touches the kernel.

pktgen (net/core/pktgen.c, Documentation/networking/pktgen.rst) builds Ethernet, at most two 802.1Q tags or a stack of
MPLS labels, IPv4 or IPv6, UDP, and a payload of its own. What it cannot vary or set is refused by `unable`.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Any

from traffic.task import FCS_BYTES, Leg

Headers = list[tuple[str, dict[str, Any]]]

HEADER_BYTES = {"ethernet": 14, "vlan": 4, "mpls": 4, "ipv4": 20, "ipv6": 40, "udp": 8}
PAYLOAD_HEADER_BYTES = 16
"""Magic, sequence number, seconds, microseconds: pktgen silently enlarges a frame that has no room for them."""
TTL = 32
"""Written by pktgen into every IPv4 TTL and IPv6 hop limit."""
MAX_LABELS = 16
MAX_IMIX = 20
MAX_FLOWS = 65536
FIELDS = {
    "ethernet": {"src", "dst"},
    "vlan": {"id", "priority"},
    "mpls": {"label", "tc", "ttl"},
    "ipv4": {"src", "dst", "tos", "ttl"},
    "ipv6": {"src", "dst", "traffic_class", "hop_limit"},
    "udp": {"src", "dst"},
}
VARYING = {("ethernet", "src"), ("ethernet", "dst"), ("ipv4", "src"), ("ipv4", "dst"), ("ipv6", "dst")}
VARYING |= {("udp", "src"), ("udp", "dst")}
OPTIONS = {"threads", "clone_skb", "burst", "flags", "imix_weights", "flows", "flowlen", "delay_ns"}
FLAGS = {"IPSRC_RND", "IPDST_RND", "UDPSRC_RND", "UDPDST_RND", "UDPCSUM", "MACSRC_RND", "MACDST_RND", "TXSIZE_RND"}
FLAGS |= {"MPLS_RND", "VID_RND", "SVID_RND", "FLOW_SEQ", "NO_TIMESTAMP", "QUEUE_MAP_RND", "QUEUE_MAP_CPU", "NODE"}
UNREACHABLE = [IPv4Network(net) for net in ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32")]
"""pktgen draws a random destination anew while it falls into one of these: a range of nothing else hangs its thread."""


def headers_of(leg: Leg) -> Headers:
    """The header list as (name, fields), outermost first; a field that is None is not set."""
    found: Headers = []
    for header in leg.frame.get("headers", []):
        ((name, fields),) = header.items()
        found.append((name, {key: value for key, value in (fields or {}).items() if value is not None}))
    return found


def bounds(value: Any) -> tuple[Any, Any, str]:
    """First, last and kind ("constant", "increment" or "random") of a field's value."""
    if isinstance(value, dict):
        ((kind, limits),) = value.items()
        first, last = limits
        return first, last, kind
    return value, value, "constant"


def unable(leg: Leg) -> str:
    """Why pktgen cannot send this leg; empty when it can. Looks at nothing but the leg."""
    if leg.kind != "stream":
        return "pktgen sends streams, not traces"
    headers = headers_of(leg)
    checks = (
        lambda: _wrong_stack([name for name, _ in headers]),
        lambda: _first(_wrong_header(name, fields) for name, fields in headers),
        lambda: _wrong_payload(leg),
        lambda: _wrong_options(leg.options),
        lambda: _wrong_size(leg, headers),
        lambda: _wrong_pace(leg),
        lambda: _wrong_clones(leg, headers),
    )
    return _first(check() for check in checks)


def _first(reasons: Any) -> str:
    return next((reason for reason in reasons if reason), "")


def _wrong_stack(names: list[str]) -> str:
    if "svlan" in names:
        return "pktgen tags every VLAN with 0x8100, not 802.1ad's 0x88a8 (two vlan headers give 0x8100 twice)"
    rest = list(names)
    inner = rest[1:-2] if len(rest) >= 3 else ["?"]
    ends = rest[:1] == ["ethernet"] and rest[-1:] == ["udp"] and rest[-2:-1] in (["ipv4"], ["ipv6"])
    tags = inner in ([], ["vlan"], ["vlan", "vlan"])
    labels = 0 < len(inner) <= MAX_LABELS and set(inner) == {"mpls"}
    if ends and (tags or labels):
        return ""
    return (
        f"pktgen cannot build {'/'.join(names) or 'a frame without headers'} "
        "(only ethernet, up to two vlan or 16 mpls headers, ipv4 or ipv6, udp)"
    )


def _wrong_header(name: str, fields: dict[str, Any]) -> str:
    for key, value in fields.items():
        if key not in FIELDS[name]:
            return f"pktgen cannot set {name}.{key}"
        kind = bounds(value)[2]
        if kind not in ("constant", "increment", "random"):
            return f"pktgen cannot vary {name}.{key} by {kind!r}"
        if kind != "constant" and (name, key) not in VARYING:
            return f"pktgen cannot vary {name}.{key}"
    if name in ("ethernet", "ipv4", "ipv6") and "dst" not in fields:
        return f"pktgen needs {name}.dst"
    hops = fields.get("hop_limit" if name == "ipv6" else "ttl", TTL)
    if name in ("ipv4", "ipv6") and hops != TTL:
        return f"pktgen sends a TTL (hop limit) of {TTL}, not {hops}"
    return _wrong_range(name, fields)


def _wrong_range(name: str, fields: dict[str, Any]) -> str:
    if name == "udp":
        varied = [bounds(value) for value in fields.values() if bounds(value)[2] != "constant"]
        if any(int(last) == 65535 for _, last, _ in varied):
            return "pktgen's port ranges end at 65534"
    if name == "ipv6":
        return _wrong_block(*bounds(fields["dst"]))
    if name == "ipv4":
        first, last, kind = bounds(fields["dst"])
        low, high = IPv4Address(first), IPv4Address(last)
        if kind == "random" and any(
            low <= net.broadcast_address and net.network_address <= high for net in UNREACHABLE
        ):
            return (
                f"pktgen never draws loopback, multicast, zero or broadcast addresses, and {first} to {last} has some"
            )
        if bounds(fields.get("src"))[2] == "random" and bounds(fields["src"])[1] == "255.255.255.255":
            return "pktgen's random ranges end at 255.255.255.254"
    if name == "ethernet":
        ranges = [bounds(value) for value in fields.values()]
        if any(_mac(last) - _mac(first) >= 2**32 for first, last, _ in ranges):
            return "pktgen's MAC ranges hold 4294967295 addresses at most"
    return ""


def _wrong_block(first: str, last: str, kind: str) -> str:
    """pktgen draws an IPv6 destination as (random OR first) AND last: right only for an aligned power of two."""
    low, high = int(IPv6Address(first)), int(IPv6Address(last))
    span = low ^ high
    aligned = span & (span + 1) == 0 and low & span == 0 and low != 0
    if kind == "constant" or (kind == "random" and aligned):
        return ""
    return f"pktgen varies ipv6.dst only at random over an aligned power of two, not by {kind} over {first} to {last}"


def _wrong_payload(leg: Leg) -> str:
    payload = leg.frame.get("payload")
    return f"pktgen writes a payload of its own, not {payload!r}" if payload else ""


def _wrong_options(options: dict[str, Any]) -> str:
    for key, value in options.items():
        if key not in OPTIONS:
            return f"pktgen has no option {key!r} (there are {', '.join(sorted(OPTIONS))})"
        if key == "flags":
            unknown = sorted(set(value) - FLAGS)
            if unknown:
                return f"pktgen has no flag {unknown[0]!r} (there are {', '.join(sorted(FLAGS))})"
        elif key != "imix_weights" and (not isinstance(value, int) or value < (key in ("threads", "burst"))):
            return f"pktgen's option {key} is a whole number, not {value!r}"
    if int(options.get("flows", 0)) > MAX_FLOWS:
        return f"pktgen has at most {MAX_FLOWS} flows"
    weights = options.get("imix_weights", [])
    if len(weights) > MAX_IMIX or any(len(pair) != 2 or min(pair) < 1 for pair in weights):
        return f"imix_weights is at most {MAX_IMIX} pairs of a size and a weight, each 1 or more"
    return ""


def _wrong_size(leg: Leg, headers: Headers) -> str:
    least = sum(HEADER_BYTES[name] for name, _ in headers) + PAYLOAD_HEADER_BYTES + FCS_BYTES
    sizes = [size for size, _ in leg.options.get("imix_weights", [])] or [leg.size_bytes]
    if min(sizes) < least:
        return f"pktgen's smallest frame with these headers has {least} bytes (with FCS), not {min(sizes)}"
    return ""


def _wrong_pace(leg: Leg) -> str:
    if leg.rate_pps is not None and "delay_ns" in leg.options:
        return "a rate and delay_ns exclude each other"
    count = count_of(leg)
    burst = int(leg.options.get("burst", 1))
    if count is not None and count % burst:
        return f"pktgen sends whole bursts: {count} packets are not a multiple of burst {burst}"
    if count is not None and count < burst * int(leg.options.get("threads", 1)):
        return f"{count} packets are too few for {leg.options.get('threads', 1)} threads"
    return ""


def _wrong_clones(leg: Leg, headers: Headers) -> str:
    copies = max(int(leg.options.get("clone_skb", 0)), int(leg.options.get("burst", 1)))
    if copies <= 1:
        return ""
    varied = [f"{name}.{key}" for name, fields in headers for key in fields if bounds(fields[key])[2] != "constant"]
    if varied:
        return f"with clone_skb or burst pktgen sends the same frame {copies} times: {varied[0]} would not vary"
    if "imix_weights" in leg.options:
        return "imix_weights does not go with clone_skb or burst"
    return ""


def count_of(leg: Leg) -> int | None:
    """Packets to send in all; None: until the duration is over."""
    if leg.count_packets is not None:
        return leg.count_packets
    if leg.rate_pps is not None and leg.duration_s is not None:
        return round(leg.rate_pps * leg.duration_s)
    return None


def shares(leg: Leg) -> list[int]:
    """The count of each thread, in whole bursts, adding up exactly; 0: until stopped."""
    threads, burst = int(leg.options.get("threads", 1)), int(leg.options.get("burst", 1))
    count = count_of(leg)
    if count is None:
        return [0] * threads
    bursts, extra = divmod(count // burst, threads)
    return [(bursts + (index < extra)) * burst for index in range(threads)]


def device_commands(leg: Leg, count: int) -> list[str]:
    """What is written to one pktgen device for its share `count` (0: no limit) of the leg."""
    options = leg.options
    commands = [f"count {count}", f"clone_skb {options.get('clone_skb', 0)}", f"burst {options.get('burst', 1)}"]
    commands += [_pace(leg), f"pkt_size {leg.size_bytes - FCS_BYTES}"]
    headers = headers_of(leg)
    for name, fields in headers:
        if name not in ("vlan", "mpls"):
            commands += _COMMANDS[name](fields)
    commands += _vlans([fields for name, fields in headers if name == "vlan"])
    commands += _mpls([fields for name, fields in headers if name == "mpls"])
    commands += [f"{key} {options[key]}" for key in ("flows", "flowlen") if key in options]
    commands += [f"flag {flag}" for flag in options.get("flags", [])]
    if "imix_weights" in options:
        pairs = (f"{size - FCS_BYTES},{weight}" for size, weight in options["imix_weights"])
        commands.append("imix_weights " + " ".join(pairs))
    return commands


def _pace(leg: Leg) -> str:
    """The gap is between the bursts of one thread, in whole nanoseconds."""
    if leg.rate_pps is None:
        return f"delay {leg.options.get('delay_ns', 0)}"
    together = int(leg.options.get("threads", 1)) * int(leg.options.get("burst", 1))
    rate_pps = leg.rate_pps / together
    return f"ratep {int(rate_pps)}" if rate_pps == int(rate_pps) else f"delay {round(1e9 / rate_pps)}"


def _ethernet(fields: dict[str, Any]) -> list[str]:
    commands = []
    for key in ("dst", "src"):
        if key in fields:
            first, last, kind = bounds(fields[key])
            commands.append(f"{key}_mac {first}")
            if kind != "constant":
                commands.append(f"{key}_mac_count {_mac(last) - _mac(first) + 1}")
            if kind == "random":
                commands.append(f"flag MAC{key.upper()}_RND")
    return commands


def _mac(text: Any) -> int:
    return int(str(text).replace(":", ""), 16)


def _ipv4(fields: dict[str, Any]) -> list[str]:
    commands = []
    for key in ("dst", "src"):
        if key in fields:
            first, last, kind = bounds(fields[key])
            # A random range ends before its maximum, an incremented one with it.
            commands += [f"{key}_min {first}", f"{key}_max {IPv4Address(last) + (kind == 'random')}"]
            if kind == "random":
                commands.append(f"flag IP{key.upper()}_RND")
    if "tos" in fields:
        commands.append(f"tos {int(fields['tos']):02x}")
    return commands


def _ipv6(fields: dict[str, Any]) -> list[str]:
    first, last, kind = bounds(fields["dst"])
    commands = [f"dst6 {first}"] if kind == "constant" else [f"dst6_min {first}", f"dst6_max {last}", "flag IPDST_RND"]
    if "src" in fields:
        commands.append(f"src6 {fields['src']}")
    if "traffic_class" in fields:
        commands.append(f"traffic_class {int(fields['traffic_class']):02x}")
    # UDP over IPv6 without a checksum is dropped by every receiver (RFC 8200, section 8.1).
    return [*commands, "flag UDPCSUM"]


def _udp(fields: dict[str, Any]) -> list[str]:
    commands = []
    for key in ("src", "dst"):
        if key in fields:
            first, last, kind = bounds(fields[key])
            # pktgen's maximum is the first port that is not sent any more.
            commands += [f"udp_{key}_min {first}", f"udp_{key}_max {int(last) + (kind != 'constant')}"]
            if kind == "random":
                commands.append(f"flag UDP{key.upper()}_RND")
    return commands


def _vlans(tags: list[dict[str, Any]]) -> list[str]:
    """Outermost first; pktgen calls the outer one of two SVLAN, and wants the inner one before it."""
    commands = []
    for prefix, tag in zip(("", "s"), reversed(tags), strict=False):
        commands += [f"{prefix}vlan_id {tag.get('id', 0)}", f"{prefix}vlan_p {tag.get('priority', 0)}"]
    return commands


def _mpls(labels: list[dict[str, Any]]) -> list[str]:
    """The bottom-of-stack bit is pktgen's to set: given, it would mean a random label."""
    words = [
        int(entry.get("label", 0)) << 12 | int(entry.get("tc", 0)) << 9 | int(entry.get("ttl", 64)) for entry in labels
    ]
    return ["mpls " + ",".join(f"{word:08x}" for word in words)] if words else []


_COMMANDS = {"ethernet": _ethernet, "ipv4": _ipv4, "ipv6": _ipv6, "udp": _udp}
