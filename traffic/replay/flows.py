"""The flows of a trace: intended and received packets of each 5-tuple."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

from pktswarm.traffic.frames.dissect import TCP, UDP, dissect
from pktswarm.traffic.frames.layout import GTPU_PORT, layout


class Flow(NamedTuple):
    """The 5-tuple of a frame's innermost packet; ports are -1 without ports. A frame without IP is OTHER."""

    protocol: int
    source: bytes
    source_port: int
    target: bytes
    target_port: int

    def values(self) -> dict[str, object]:
        """The columns of a table."""
        if self == OTHER:
            return {"protocol": "other"}
        ports = (None if port < 0 else port for port in (self.source_port, self.target_port))
        ends = (str(ip_address(address)) for address in (self.source, self.target))
        return dict(zip(COLUMNS, (self.protocol, *ends, *ports), strict=True))


COLUMNS = ["protocol", "source", "target", "source_port", "target_port"]
LEAST_PLAIN_BYTES = 54
"""Minimum for the fast path: a TCP header, or 12 bytes of UDP payload."""
GTPU = GTPU_PORT.to_bytes(2, "big")
OTHER = Flow(-1, b"", -1, b"", -1)


def is_plain(frame: bytes) -> bool:
    """Whether the fast path applies: TCP or UDP behind an IPv4 header of 20 bytes, neither tunnelled nor a fragment."""
    if frame[12:15] != b"\x08\x00\x45" or len(frame) < LEAST_PLAIN_BYTES or frame[20] & 0x3F or frame[21]:
        return False
    return frame[23] == TCP or (frame[23] == UDP and frame[36:38] != GTPU)


def flow_of(frame: bytes) -> Flow:
    """The flow of a frame; that of a fragment is made of its IP header, and of ports if it has them."""
    if is_plain(frame):
        ports = [int.from_bytes(frame[at : at + 2], "big") for at in (34, 36)]
        return Flow(frame[23], frame[26:30], ports[0], frame[30:34], ports[1])
    try:
        found = layout(frame)
    except (IndexError, ValueError):
        return _outer(frame)
    if "src_ip" not in found.spans:
        return OTHER

    def field(name: str) -> bytes:
        bit, bits = found.spans[name]
        return frame[bit // 8 : (bit + bits) // 8]

    ports = [int.from_bytes(field(name), "big") if name in found.spans else -1 for name in ("src_port", "dst_port")]
    return Flow(found.counted["protocol"], field("src_ip"), ports[0], field("dst_ip"), ports[1])


def _outer(frame: bytes) -> Flow:
    """The flow of a fragment."""
    found = dissect(frame)
    if not found.version:
        return OTHER
    source, target = (frame[part] for part in found.addresses)
    at = found.l4
    ports = [int.from_bytes(frame[at + step : at + step + 2], "big") if found.has_ports else -1 for step in (0, 2)]
    return Flow(found.protocol, source, ports[0], target, ports[1])


@dataclass(frozen=True)
class FlowCount:
    """The packets of one flow in one direction."""

    flow: Flow
    intended: int
    received: int


def count(intended: Iterable[Flow], received: Iterable[Flow]) -> list[FlowCount]:
    """The counts by flow, in the order of their first intended frame; then received flows that were not sent."""
    wanted, came = Counter(intended), Counter(received)
    return [FlowCount(flow, wanted[flow], came[flow]) for flow in dict.fromkeys([*wanted, *came])]
