"""Frames behind a router, which sets both MAC addresses and takes one from the TTL or hop limit (RFC 1812, 5.3.1).

The source MAC address is that of a port of the router that nothing is known of: it is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping

from pktswarm.traffic.counting.expect import behind_device
from pktswarm.traffic.frames.checksum import checksum
from pktswarm.traffic.frames.template import Template, get_bits, put_bits
from pktswarm.traffic.leg import Gateway

IP_AT = 14
"""Offset of the outermost IP header: frames for a gateway have no VLAN tag."""
TTL_AT = {4: IP_AT + 8, 6: IP_AT + 7}
"""IP version → offset of the TTL or hop limit."""
SUM_AT = IP_AT + 10
NO_MAC = bytes(6)


def ttl_of(template: Template) -> int | None:
    """The TTL or hop limit of the outermost IP header; None: it varies."""
    bit = TTL_AT[template.data[IP_AT] >> 4] * 8
    varies = any(one.bit < bit + 8 and bit < one.bit + one.width_bits for one in template.fields)
    return None if varies or get_bits(template.varying_mask, bit, 8) else get_bits(template.data, bit, 8)


def as_received(gateway: Gateway | None, frame: bytes) -> bytes:
    """A sent frame as it arrives, with an empty source MAC address."""
    if gateway is None:
        return frame
    changed = bytearray(bytes.fromhex(gateway.receiver_mac.replace(":", "")) + NO_MAC + frame[12:])
    version = frame[IP_AT] >> 4
    at = TTL_AT[version]
    changed[at] = max(0, changed[at] - 1)
    if version == 4:
        end = IP_AT + (frame[IP_AT] & 15) * 4
        changed[SUM_AT : SUM_AT + 2] = bytes(2)
        changed[SUM_AT : SUM_AT + 2] = checksum(bytes(changed[IP_AT:end])).to_bytes(2, "big")
    return bytes(changed)


def as_captured(gateway: Gateway | None, frame: bytes) -> bytes:
    """A captured frame as as_received() has it."""
    return frame if gateway is None else frame[:6] + NO_MAC + frame[12:]


def shape(template: Template, expect: Mapping[str, object]) -> tuple[bytes, bytes]:
    """(frame, varying bits) of a stream behind a router. `expect` has the router's changes, but for the TTL in front of
    another IP header: its `ttl` is that of the innermost one."""
    data, varying = (bytearray(part) for part in behind_device(template, expect))
    sent = ttl_of(template)
    if "ttl" not in expect and sent is not None:
        put_bits(data, TTL_AT[template.data[IP_AT] >> 4] * 8, 8, sent - 1)
    return bytes(data), bytes(varying)
