"""A leg as commands for pktgen's devices.

pktgen (net/core/pktgen.c, Documentation/networking/pktgen.rst) sends Ethernet, at most two 802.1Q tags or a stack of
MPLS labels, IPv4 or IPv6, UDP, and its own payload. traffic.schedule.pktgen_limits refuses everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from pktswarm.traffic.frames.description import FrameDescription
from pktswarm.traffic.frames.headers import HEADERS
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES

TTL = 32
"""Written by pktgen into every IPv4 TTL and IPv6 hop limit."""


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


def headers_of(leg: Leg) -> list[tuple[str, Mapping[str, object]]]:
    """(name, fields as written) of the leg's headers, outermost first."""
    return [(name, fields or {}) for header in leg.frame.get("headers", []) for name, fields in header.items()]


def header_values(leg: Leg) -> Headers:
    return [
        (name, {key: _value(name, key, value) for key, value in fields.items()}) for name, fields in headers_of(leg)
    ]


def _value(name: str, key: str, value: object) -> Value:
    parse = HEADERS[name].fields[key].parse
    if isinstance(value, dict):
        kind = "random" if "random" in value else "increment"
        first, last = value[kind]
        return Value(parse(first), parse(last), kind)
    return Value(parse(value), parse(value))


def as_sent(leg: Leg) -> FrameDescription:
    """The description of the frames that pktgen sends for the leg, with its own TTL, IPv4 id and payload."""
    headers = []
    for name, fields in headers_of(leg):
        own: dict[str, object] = {}
        if name == "ipv4":
            own = {"ttl": TTL, "id": {"random": [0, 0xFFFF]}}
        elif name == "ipv6":
            own = {"hop_limit": TTL}
        elif name == "udp" and "UDPCSUM" not in leg.options.get("flags", []) and "ipv4" in dict(headers_of(leg)):
            own = {"checksum": 0}
        headers.append({name: {**fields, **own}})
    return {"headers": headers, "payload": {"random": True}}


def numbers(leg: Leg) -> bool:
    """Whether pktgen's sequence numbers are 1, 2, 3 …: each thread counts by itself, and copies share a number."""
    return threads(leg) == 1 and max(int(leg.options.get("clone_skb", 0)), burst(leg)) <= 1


def times(leg: Leg) -> bool:
    """Whether the time in a frame is its time of departure: pktgen writes it before it waits for the due time."""
    return numbers(leg) and not gap_ns(leg) and "NO_TIMESTAMP" not in leg.options.get("flags", [])


def sizes_bytes(leg: Leg) -> list[int]:
    """Every size of the leg's frames, with FCS."""
    return sorted({size for size, _ in size_weights(leg)}) or [leg.size_bytes]


def size_weights(leg: Leg) -> list[list[int]]:
    """[size, weight] of a leg with several sizes: the leg's, or those of option imix_weights."""
    mix: list[list[int]] = leg.sizes or leg.options.get("imix_weights", [])
    return mix


# --- how much, how fast ----------------------------------------------------------------------------------------------


def threads(leg: Leg) -> int:
    return int(leg.options.get("threads", 1))


def burst(leg: Leg) -> int:
    return int(leg.options.get("burst", 1))


def count_of(leg: Leg) -> int | None:
    """The total of packets to send; None: until the end of the duration."""
    if leg.count_packets is not None:
        return leg.count_packets
    if leg.rate_pps is not None and leg.duration_s is not None:
        return round(leg.rate_pps * leg.duration_s)
    return None


def shares(leg: Leg) -> list[int]:
    """The count of each thread in whole bursts, which add up to the total; 0: until stopped."""
    count, in_threads, in_burst = count_of(leg), threads(leg), burst(leg)
    if count is None:
        return [0] * in_threads
    bursts, extra = divmod(count // in_burst, in_threads)
    return [(bursts + (index < extra)) * in_burst for index in range(in_threads)]


def gap_ns(leg: Leg) -> int:
    """The gap between bursts of one thread."""
    if leg.rate_pps is None:
        return int(leg.options.get("delay_ns", 0))
    return round(1e9 * threads(leg) * burst(leg) / leg.rate_pps)


def _pace(leg: Leg) -> str:
    rate_pps = (leg.rate_pps or 0.0) / (threads(leg) * burst(leg))
    return f"ratep {int(rate_pps)}" if rate_pps >= 1 and rate_pps == int(rate_pps) else f"delay {gap_ns(leg)}"


# --- commands --------------------------------------------------------------------------------------------------------


def device_commands(leg: Leg, count: int) -> list[str]:
    """The commands of one pktgen device for its share `count` (0: no limit) of the leg."""
    options, headers = leg.options, header_values(leg)
    commands = [f"count {count}", f"clone_skb {options.get('clone_skb', 0)}", f"burst {burst(leg)}"]
    commands += [_pace(leg), f"pkt_size {leg.size_bytes - FCS_BYTES}"]
    commands += _vlans([fields for name, fields in headers if name == "vlan"])
    commands += _mpls([fields for name, fields in headers if name == "mpls"])
    for name, fields in headers:
        if name in _COMMANDS:
            commands += _COMMANDS[name](fields)
    commands += [f"{key} {options[key]}" for key in ("flows", "flowlen") if key in options]
    commands += [f"flag {flag}" for flag in options.get("flags", [])]
    if size_weights(leg):
        pairs = (f"{size - FCS_BYTES},{weight}" for size, weight in size_weights(leg))
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
        # pktgen's maximum is exclusive.
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
    """`tags`: outermost first. pktgen names the outer one of two SVLAN, and expects the inner one first."""
    commands = []
    for prefix, tag in zip(("", "s"), reversed(tags), strict=False):
        for key, field in (("id", "id"), ("p", "priority"), ("cfi", "dei")):
            commands.append(f"{prefix}vlan_{key} {_number(tag, field)}")
    return commands


def _mpls(labels: list[Fields]) -> list[str]:
    """Labels without the bottom-of-stack bit, which pktgen sets itself; in a command it would mean a random label."""
    words = [_number(one, "label") << 12 | _number(one, "tc") << 9 | _number(one, "ttl", 64) for one in labels]
    return ["mpls " + ",".join(f"{word:08x}" for word in words)] if words else []
