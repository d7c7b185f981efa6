"""A leg as pktgen's device commands, and why pktgen could not send it. Pure: nothing here touches the kernel.

pktgen (net/core/pktgen.c, Documentation/networking/pktgen.rst) builds Ethernet, at most two 802.1Q tags or a stack of
MPLS labels, IPv4 or IPv6, UDP, and a payload of its own. What it cannot vary or set is refused by `unable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Any

from pktswarm.traffic.frames.headers import HEADERS
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES

PAYLOAD_HEADER_BYTES = 16
"""Magic, sequence number, seconds, microseconds: pktgen silently enlarges a frame that has no room for them."""
TTL = 32
"""Written by pktgen into every IPv4 TTL and IPv6 hop limit."""
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


@dataclass(frozen=True)
class Value:
    """A field's value as numbers; `kind` is "constant", "increment" or "random" (first and last are included)."""

    first: int
    last: int
    kind: str = "constant"

    @property
    def varies(self) -> bool:
        return self.kind != "constant"


Fields = dict[str, Value]
Headers = list[tuple[str, Fields]]


def _given(leg: Leg) -> list[tuple[str, dict[str, Any]]]:
    """The headers as the leg has them, outermost first."""
    return [(name, fields or {}) for header in leg.frame.get("headers", []) for name, fields in header.items()]


def _headers(leg: Leg) -> Headers:
    return [(name, {key: _value(name, key, value) for key, value in fields.items()}) for name, fields in _given(leg)]


def _value(name: str, key: str, value: Any) -> Value:
    parse = HEADERS[name].fields[key].parse
    if isinstance(value, dict):
        kind = "random" if "random" in value else "increment"
        first, last = value[kind]
        return Value(parse(first), parse(last), kind)
    return Value(parse(value), parse(value))


# --- what pktgen cannot do -------------------------------------------------------------------------------------------


def unable(leg: Leg) -> str:
    """Why pktgen cannot send this leg, whose frame traffic.frames.build has checked; empty when it can."""
    if leg.kind != "stream":
        return "pktgen sends streams, not traces"
    given = _given(leg)
    checks: list[Callable[[], str]] = [
        lambda: _wrong_stack([name for name, _ in given]),
        lambda: _first(_wrong_field(name, key, value) for name, fields in given for key, value in fields.items()),
        lambda: _first(_wrong_header(name, fields) for name, fields in _headers(leg)),
        lambda: _wrong_payload(leg),
        lambda: _wrong_options(leg.options),
        lambda: _wrong_mix(leg),
        lambda: _wrong_size(leg),
        lambda: _wrong_pace(leg),
        lambda: _wrong_copies(leg),
    ]
    return _first(check() for check in checks)


def as_sent(leg: Leg) -> dict[str, Any]:
    """The frame description of what pktgen makes of the leg: its own TTL, a counting IPv4 id, a payload of its own."""
    headers = []
    for name, fields in _given(leg):
        own: dict[str, Any] = {}
        if name == "ipv4":
            own = {"ttl": TTL, "id": {"random": [0, 0xFFFF]}}
        elif name == "ipv6":
            own = {"hop_limit": TTL}
        elif name == "udp" and "UDPCSUM" not in leg.options.get("flags", []) and "ipv4" in dict(_given(leg)):
            own = {"checksum": 0}
        headers.append({name: {**fields, **own}})
    return {"headers": headers, "payload": {"random": True}}


def numbers(leg: Leg) -> bool:
    """Whether its frames' own sequence numbers (net/core/pktgen.c) are 1, 2, 3 …: each thread has its own, copies share
    one."""
    return _threads(leg) == 1 and max(int(leg.options.get("clone_skb", 0)), _burst(leg)) <= 1


def times(leg: Leg) -> bool:
    """Whether the time in a frame is when it left: pktgen writes it before it waits for the frame's turn."""
    return numbers(leg) and not _gap_ns(leg) and "NO_TIMESTAMP" not in leg.options.get("flags", [])


def sizes_bytes(leg: Leg) -> list[int]:
    """Every size of the leg's frames, with FCS."""
    return sorted({size for size, _ in _mix(leg)}) or [leg.size_bytes]


def _mix(leg: Leg) -> list[list[int]]:
    """[size, weight] of a leg with several sizes: its own, or by pktgen's option."""
    mix: list[list[int]] = leg.sizes or leg.options.get("imix_weights", [])
    return mix


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


def _wrong_options(options: dict[str, Any]) -> str:
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
    least = sum(HEADERS[name].size_bytes for name, _ in _given(leg)) + PAYLOAD_HEADER_BYTES + FCS_BYTES
    smallest = min(sizes_bytes(leg))
    if smallest < least:
        return f"pktgen's smallest frame with these headers has {least} bytes (FCS included), not {smallest}"
    return ""


def _wrong_pace(leg: Leg) -> str:
    if leg.rate_pps is not None and "delay_ns" in leg.options:
        return "a rate and pktgen's option delay_ns exclude each other"
    count, burst, threads = count_of(leg), _burst(leg), _threads(leg)
    if count is not None and count % burst:
        return f"pktgen sends whole bursts: {count} packets are not a multiple of burst {burst}"
    if count is not None and count < burst * threads:
        return f"{count} packets are too few for {threads} threads" + (f" with burst {burst}" if burst > 1 else "")
    if _gap_ns(leg) > MAX_GAP_NS:
        return f"pktgen's gaps are {MAX_GAP_NS} ns at most, not {_gap_ns(leg)} (of one thread, between its bursts)"
    return ""


def _wrong_copies(leg: Leg) -> str:
    copies = max(int(leg.options.get("clone_skb", 0)), _burst(leg))
    if copies <= 1:
        return ""
    varied = [f"{name}.{key}" for name, fields in _headers(leg) for key in fields if fields[key].varies]
    if varied:
        return f"with clone_skb or burst pktgen sends each frame {copies} times over: {varied[0]} would not vary"
    if _mix(leg):
        return "pktgen's imix_weights do not go with clone_skb or burst"
    return ""


# --- how much, how fast ----------------------------------------------------------------------------------------------


def _threads(leg: Leg) -> int:
    return int(leg.options.get("threads", 1))


def _burst(leg: Leg) -> int:
    return int(leg.options.get("burst", 1))


def count_of(leg: Leg) -> int | None:
    """Packets to send in all; None: until the duration is over."""
    if leg.count_packets is not None:
        return leg.count_packets
    if leg.rate_pps is not None and leg.duration_s is not None:
        return round(leg.rate_pps * leg.duration_s)
    return None


def shares(leg: Leg) -> list[int]:
    """The count of each thread, in whole bursts, adding up exactly; 0: until stopped."""
    count, threads, burst = count_of(leg), _threads(leg), _burst(leg)
    if count is None:
        return [0] * threads
    bursts, extra = divmod(count // burst, threads)
    return [(bursts + (index < extra)) * burst for index in range(threads)]


def _gap_ns(leg: Leg) -> int:
    """Between the bursts of one thread."""
    if leg.rate_pps is None:
        return int(leg.options.get("delay_ns", 0))
    return round(1e9 * _threads(leg) * _burst(leg) / leg.rate_pps)


def _pace(leg: Leg) -> str:
    rate_pps = (leg.rate_pps or 0.0) / (_threads(leg) * _burst(leg))
    return f"ratep {int(rate_pps)}" if rate_pps >= 1 and rate_pps == int(rate_pps) else f"delay {_gap_ns(leg)}"


# --- commands --------------------------------------------------------------------------------------------------------


def device_commands(leg: Leg, count: int) -> list[str]:
    """What is written to one pktgen device for its share `count` (0: no limit) of the leg."""
    options, headers = leg.options, _headers(leg)
    commands = [f"count {count}", f"clone_skb {options.get('clone_skb', 0)}", f"burst {_burst(leg)}"]
    commands += [_pace(leg), f"pkt_size {leg.size_bytes - FCS_BYTES}"]
    commands += _vlans([fields for name, fields in headers if name == "vlan"])
    commands += _mpls([fields for name, fields in headers if name == "mpls"])
    for name, fields in headers:
        if name in _COMMANDS:
            commands += _COMMANDS[name](fields)
    commands += [f"{key} {options[key]}" for key in ("flows", "flowlen") if key in options]
    commands += [f"flag {flag}" for flag in options.get("flags", [])]
    if _mix(leg):
        pairs = (f"{size - FCS_BYTES},{weight}" for size, weight in _mix(leg))
        commands.append("imix_weights " + " ".join(pairs))
    return commands


def _ends(fields: Fields) -> list[tuple[str, Value]]:
    return [(key, fields[key]) for key in ("dst", "src") if key in fields]


def _ethernet(fields: Fields) -> list[str]:
    commands = []
    for key, value in _ends(fields):
        commands.append(f"{key}_mac {value.first.to_bytes(6, 'big').hex(':')}")
        if value.varies:
            commands.append(f"{key}_mac_count {value.last - value.first + 1}")
        if value.kind == "random":
            commands.append(f"flag MAC{key.upper()}_RND")
    return commands


def _ipv4(fields: Fields) -> list[str]:
    commands = []
    for key, value in _ends(fields):
        # A random range ends before its maximum, an incremented one with it.
        maximum = value.last + (value.kind == "random")
        commands += [f"{key}_min {IPv4Address(value.first)}", f"{key}_max {IPv4Address(maximum)}"]
        if value.kind == "random":
            commands.append(f"flag IP{key.upper()}_RND")
    tos = _number(fields, "tos") | _number(fields, "dscp") << 2 | _number(fields, "ecn")
    return [*commands, f"tos {tos:02x}"]


def _ipv6(fields: Fields) -> list[str]:
    target = fields["dst"]
    first, last = IPv6Address(target.first), IPv6Address(target.last)
    commands = [f"dst6_min {first}", f"dst6_max {last}", "flag IPDST_RND"] if target.varies else [f"dst6 {first}"]
    if "src" in fields:
        commands.append(f"src6 {IPv6Address(fields['src'].first)}")
    # UDP over IPv6 without a checksum is dropped by every receiver (RFC 8200, section 8.1).
    return [*commands, f"traffic_class {_number(fields, 'traffic_class'):02x}", "flag UDPCSUM"]


def _udp(fields: Fields) -> list[str]:
    commands = []
    for key, value in _ends(fields):
        # pktgen's maximum is the first port that is not sent any more.
        commands += [f"udp_{key}_min {value.first}", f"udp_{key}_max {value.last + value.varies}"]
        if value.kind == "random":
            commands.append(f"flag UDP{key.upper()}_RND")
    return commands


_COMMANDS: dict[str, Callable[[Fields], list[str]]] = {
    "ethernet": _ethernet,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "udp": _udp,
}


def _number(fields: Fields, key: str, default: int = 0) -> int:
    return fields[key].first if key in fields else default


def _vlans(tags: list[Fields]) -> list[str]:
    """Outermost first; pktgen calls the outer one of two SVLAN, and wants the inner one before it."""
    commands = []
    for prefix, tag in zip(("", "s"), reversed(tags), strict=False):
        for key, field in (("id", "id"), ("p", "priority"), ("cfi", "dei")):
            commands.append(f"{prefix}vlan_{key} {_number(tag, field)}")
    return commands


def _mpls(labels: list[Fields]) -> list[str]:
    """The bottom-of-stack bit is pktgen's to set: given, it would mean a random label."""
    words = [_number(one, "label") << 12 | _number(one, "tc") << 9 | _number(one, "ttl", 64) for one in labels]
    return ["mpls " + ",".join(f"{word:08x}" for word in words)] if words else []
