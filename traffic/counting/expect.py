"""The expected frames of a leg for the counting program: header fields of stamped frames, bytes of unstamped ones.

By default a field keeps the bits that are equal in all frames of the leg. A scenario overrides it with "expect"
({"ttl": 63, "src_mac": null}): the value that the device under test sets, or null for a field that it can change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address

from pktswarm.traffic.counting.kernel_structs import (
    HEAD_BYTES,
    MOST_ROWS,
    NO_LEG,
    NUMBERED_BY_PKTGEN,
    NUMBERED_BY_US,
    NUMBERED_NOT,
    ROW_RANGES,
    SUMS_IP,
    SUMS_TRANSPORT,
    Expectation,
    Fields,
    RawRange,
    RawRow,
)
from pktswarm.traffic.counting.match import Match, Range
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.layout import Layout, layout
from pktswarm.traffic.frames.template import Template, get_bits, put_bits
from pktswarm.traffic.leg import MADE_IN_KERNEL, Leg
from pktswarm.traffic.schedule import leg_frames, pktgen

ALLOWED = {
    "dst_mac": "a MAC address",
    "src_mac": "a MAC address",
    "vlan": "a tag's 16 bits (priority, DEI, id), 0 for none",
    "vlan_inner": "a tag's 16 bits (priority, DEI, id), 0 for none",
    "tags": "how many VLAN tags",
    "protocol": "a protocol number",
    "dscp": "0 to 63",
    "ecn": "0 to 3",
    "ttl": "0 to 255",
    "labels": "how many MPLS labels",
    "src_port": "0 to 65535",
    "dst_port": "0 to 65535",
    "teid": "0 to 4294967295, 0 for no tunnel",
    "src_ip": "an IP address",
    "dst_ip": "an IP address",
    "length": "bytes of payload",
    "checksums": "null: the device may leave the Internet checksums of the headers wrong",
}
"""Keys of "expect" and their values; each can be null."""
FIELD_PLACES = {name: (getattr(Fields, name).offset, getattr(Fields, name).size) for name, *_ in Fields._fields_}
FIELD_PLACES["vlan"] = FIELD_PLACES["vlan_outer"]
"""Name in struct fields → its offset and size there."""


def sender_stamps(leg: Leg) -> bool:
    """Whether the sender stamps the frames: only the field engines do, with room for a stamp."""
    return leg.engine in MADE_IN_KERNEL and leg_frames.stamped(leg)


def numbered(leg: Leg) -> int:
    """The kind of sequence numbers that a leg is counted by; NUMBERED_NOT (0): its frames are matched by bytes
    alone."""
    if sender_stamps(leg):
        if leg.kind == "trace":
            return NUMBERED_BY_US
        smallest = min(size for size, _ in leg_frames.sizes_bytes(leg)) + (
            leg.arrives.added_bytes if leg.arrives else 0
        )
        headers = leg.arrives.headers if leg.arrives else leg.frame["headers"]
        found = leg_frames.stamp_is_found(build_frame({**leg.frame, "headers": headers}, smallest), headers)
        return NUMBERED_BY_US if found else NUMBERED_NOT
    return NUMBERED_BY_PKTGEN if leg.engine == "pktgen" and pktgen.numbers(leg) else NUMBERED_NOT


def fields(found: Layout, data: bytes) -> Fields:
    """The fields of `data` at the places of `found`, without the counters."""
    taken = Fields()
    for name, (bit, bits) in found.spans.items():
        offset, _ = FIELD_PLACES[name]
        part = get_bits(data, bit, bits).to_bytes(bits // 8, "big")
        ctypes.memmove(ctypes.addressof(taken) + offset, part, len(part))
    return taken


def expectation(where: str, template: Template, expect: Mapping[str, object]) -> Expectation:
    """The expectation of a stamped leg without offset, limit and timed. BadInput for a wrong `expect`."""
    found = layout(template.data)
    value = fields(found, template.data)
    for name, count in found.counted.items():
        setattr(value, name, count)
    mask = bytearray(255 - byte for byte in bytes(fields(found, _varying(template))))
    wanted = bytearray(bytes(value))
    mask[FIELD_PLACES["tos"][0]] &= 0xFC  # a router can mark congestion
    payload_bytes, sums = found.payload_bytes, _sums(found, template)
    for name, given in expect.items():
        if name == "checksums":
            sums = 0
        elif name == "length":
            payload_bytes = _number(where, "expect", name, given, 0xFFFF) if given is not None else 0
        else:
            _override(where, "expect", name, given, mask, wanted)
    made = Expectation(payload_bytes=payload_bytes, sums=sums, by_headers=1)
    _put(made, Expectation.mask.offset, bytes(mask))
    _put(made, Expectation.value.offset, bytes(m & w for m, w in zip(mask, wanted, strict=True)))
    return made


def check(where: object, key: str, expect: Mapping[str, object]) -> None:
    """BadInput for an unknown field or an invalid value."""
    size = ctypes.sizeof(Fields)
    for name, given in expect.items():
        if name == "checksums":
            _null(where, key, name, given)
        elif name == "length":
            _number(where, key, name, given if given is not None else 0, 0xFFFF)
        else:
            _override(where, key, name, given, bytearray(size), bytearray(size))


def _null(where: object, key: str, name: str, given: object) -> None:
    if given is not None:
        raise BadInput(where, "invalid value", key=f"{key}.{name}", value=given, allowed=ALLOWED[name])


def _sums(found: Layout, template: Template) -> int:
    """The Internet checksums that are right in every frame of the sender, without those that the scenario gives."""
    right = {one.offset_bytes for one in template.checksums if not one.off_by}
    of_ip = SUMS_IP if right.issuperset(found.ipv4_sums) else 0
    return of_ip | (SUMS_TRANSPORT if found.transport_sum in right else 0)


def _varying(template: Template) -> bytes:
    """The bits that differ between frames; of a varying field only those below the common ones."""
    mask = bytearray(template.varying_mask)
    for one in template.fields:
        put_bits(mask, one.bit, one.width_bits, (1 << (one.first ^ one.last).bit_length()) - 1)
    return bytes(mask)


def _put(target: ctypes.Structure, offset: int, data: bytes) -> None:
    ctypes.memmove(ctypes.addressof(target) + offset, data, len(data))


def _override(where: object, key: str, name: str, given: object, mask: bytearray, wanted: bytearray) -> None:
    if name not in ALLOWED:
        raise BadInput(where, "unknown field", key=f"{key}.{name}", allowed=", ".join(ALLOWED))
    offset, size = FIELD_PLACES["tos" if name in ("dscp", "ecn") else name]
    bits = {"dscp": 0xFC, "ecn": 0x03}.get(name)
    if bits is not None:
        mask[offset] = mask[offset] & ~bits if given is None else mask[offset] | bits
        if given is not None:
            value = _number(where, key, name, given, 63 if name == "dscp" else 3) << (2 if name == "dscp" else 0)
            wanted[offset] = wanted[offset] & ~bits | value
        return
    mask[offset : offset + size] = (b"\0" if given is None else b"\xff") * size
    if given is not None:
        wanted[offset : offset + size] = _bytes(where, key, name, given, size)


def _bytes(where: object, key: str, name: str, given: object, size: int) -> bytes:
    """The value as in struct fields."""
    try:
        if name.endswith("_ip"):
            return ip_address(given if isinstance(given, int) else str(given)).packed.ljust(size, b"\0")
        if name.endswith("_mac"):
            part = bytes.fromhex(str(given).replace(":", ""))
            if len(part) == size:
                return part
            raise ValueError
    except ValueError:
        raise BadInput(where, "invalid value", key=f"{key}.{name}", value=given, allowed=ALLOWED[name]) from None
    return _number(where, key, name, given, (1 << 8 * size) - 1).to_bytes(size, "big")


def _number(where: object, key: str, name: str, given: object, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= most:
        raise BadInput(where, "out of range", key=f"{key}.{name}", value=given, allowed=ALLOWED[name])
    return given


def expected_match(match: Match, template: Template, expect: Mapping[str, object]) -> Match:
    """The match of a leg's frames behind a device that changes them according to `expect`."""
    if not expect:
        return match
    mask, value = bytearray(match.mask.ljust(len(template.data), b"\0")), bytearray(len(template.data))
    value[: len(match.value)] = match.value
    ranges = list(match.ranges)
    for name, given in expect.items():
        span = layout(template.data).spans.get("vlan_outer" if name == "vlan" else name)
        if span is None:  # a length, a count, the checksums
            continue
        bit, bits = span
        varying = [one for one in ranges if one.bit < bit + bits and bit < one.bit + one.width]
        if not varying and not get_bits(mask, bit, bits):
            continue
        offset, size = FIELD_PLACES[name]
        part = b"" if given is None else _bytes("match", "expect", name, given, size)[: bits // 8]
        put_bits(mask, bit, bits, 0 if given is None else (1 << bits) - 1)
        put_bits(value, bit, bits, int.from_bytes(part, "big"))
        ranges = [one for one in ranges if one not in varying]
    short = bytes(mask).rstrip(b"\0")
    return replace(match, mask=short, value=bytes(value[: len(short)]), ranges=tuple(ranges))


def behind_device(template: Template, expect: Mapping[str, object]) -> tuple[bytes, bytes]:
    """(frame, varying bits) of a stream behind a device that changes it according to `expect`."""
    data, varying = bytearray(template.data), bytearray(template.varying_mask)
    spans = layout(template.data).spans if expect else {}
    for name, given in expect.items():
        place = {"vlan": "vlan_outer", "dscp": "tos", "ecn": "tos"}.get(name, name)
        if place not in spans:
            continue
        if given is None or place == "tos":
            put_bits(varying, *spans[place], (1 << spans[place][1]) - 1)
        else:
            bit, bits = spans[place]
            part = _bytes("recount", "expect", name, given, FIELD_PLACES[place][1])[: bits // 8]
            put_bits(data, bit, bits, int.from_bytes(part, "big"))
            put_bits(varying, bit, bits, 0)
    for checksum in template.checksums if expect else ():
        put_bits(varying, checksum.offset_bytes * 8, 16, 0xFFFF)
    return bytes(data), bytes(varying)


def matched_by_bytes(legs: Sequence[Leg]) -> list[tuple[int, Match]]:
    """(slot, match) of the legs that are not matched by the stream number in their stamps."""
    apart = slots_of_unstamped(legs)
    known = [slot for slot, leg in enumerate(legs) if slot in apart or numbered(leg) != NUMBERED_BY_US]
    return [(apart.get(slot, slot), Match.from_data(legs[slot].match)) for slot in known]


def slots_of_unstamped(legs: Sequence[Leg]) -> dict[int, int]:
    """Slot of a stamped trace → a further slot for its frames without room for a stamp."""
    traces = [slot for slot, leg in enumerate(legs) if leg.kind == "trace" and sender_stamps(leg)]
    return {slot: len(legs) + number for number, slot in enumerate(traces)}


def expectation_of_trace(leg: Leg) -> Expectation:
    """The expectation of a stamped trace: the MACs as far as they are known, and a constant VLAN tag."""
    match = Match.from_data(leg.match)
    mask, value = bytearray(ctypes.sizeof(Fields)), bytearray(ctypes.sizeof(Fields))
    tag = {"vlan_outer": 14} if match.outer_tag else {}
    for name, at in ({"dst_mac": 0, "src_mac": 6} | tag).items():
        offset, size = FIELD_PLACES[name]
        mask[offset : offset + size] = match.mask[at : at + size]
        value[offset : offset + size] = match.value[at : at + size]
    made = Expectation()
    _put(made, Expectation.mask.offset, bytes(mask))
    _put(made, Expectation.value.offset, bytes(value))
    return made


def rows(where: str, matches: Iterable[tuple[int, Match]], apart: dict[int, int] | None = None) -> list[RawRow]:
    """The rows of matched_by_bytes(), of which the first matching one counts: streams, frames of others, traces.
    `apart`: slots_of_unstamped()."""
    stamped_slots = {place: slot for slot, place in (apart or {}).items()}
    given = list(matches)
    streams = [(slot, match) for slot, match in given if match.kind == "stream"]
    rests = [(slot, match) for slot, match in given if match.kind == "rest"]
    known = {match for _, match in streams}
    others = dict.fromkeys(other for _, rest in rests for other in rest.others if other not in known)
    made = [_row(where, slot, match) for slot, match in streams]
    made += [_row(where, NO_LEG, other) for other in others]
    made += [_row(where, slot, rest, stamped_slots.get(slot, NO_LEG)) for slot, rest in rests]
    if len(made) > MOST_ROWS:
        raise BadInput(where, f"{len(made)} unstamped streams", allowed=f"up to {MOST_ROWS}; any number with stamps")
    return made


def _row(where: str, slot: int, match: Match, stamped_slot: int = NO_LEG) -> RawRow:
    ends = [len(match.mask), *((one.bit + one.width + 7) // 8 for one in match.ranges)]
    if max(ends) > HEAD_BYTES or len(match.ranges) > ROW_RANGES:
        allowed = f"{HEAD_BYTES} bytes of headers and {ROW_RANGES} varying fields"
        raise BadInput(where, "an unstamped stream has too long a match for XDP", allowed=allowed)
    row = RawRow(
        head_bytes=max(ends),
        length=match.length or 0,
        slot=slot,
        stamped_slot=stamped_slot,
        ranges=len(match.ranges),
    )
    _put(row, RawRow.mask.offset, match.mask)
    _put(row, RawRow.value.offset, match.value)
    for index, one in enumerate(match.ranges):
        row.range[index] = _range(one)
    return row


def _range(one: Range) -> RawRange:
    stop = max(4, (one.bit + one.width + 7) // 8)
    shift = stop * 8 - one.bit - one.width
    return RawRange(stop - 4, ((1 << one.width) - 1) << shift, one.low << shift, one.high << shift)
