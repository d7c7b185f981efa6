"""The users of a stream, counted one by one: the field that identifies them, and the encoding of their figures.

A user is one value of a counter in the stream's headers: a TEID, an inner address, a port. User n of Leg.users has the
value first + n * step.
"""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

from pktswarm.traffic.counting.expect import FIELD_PLACES
from pktswarm.traffic.counting.kernel_structs import RawUserRule
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.headers import HEADERS
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.frames.template import Template, VaryingField
from pktswarm.traffic.leg import FlowUsers

MOST_USERS = 1 << 20
"""Maximum number of users of a stream, and of a receiver, where a user takes 64 bytes of memory."""
WORD_BITS = 64
COLUMNS = ("packets", "bytes", "distinct", "latencies", "latency_sum_ns", "latency_min_ns", "latency_max_ns", "damaged")
"""Columns of ReceiveCount.users: a value for each user, and one for all frames of the leg without a user."""


def of_template(where: object, key: str, template: Template, name: str) -> FlowUsers:
    """Leg.users by the stream's counter `name` ("ipv4.src"). BadInput for a field that a receiver cannot use."""
    usable = {one.name: by for one in template.fields for by in [_seen_as(template, one)] if by and _countable(one)}
    if name not in usable:
        problem = "users cannot be counted by this field"
        allowed = ", ".join(usable) or "a field with {increment: [first, last]}"
        raise BadInput(where, problem, key=key, value=name, allowed=allowed)
    field = _field(template, FlowUsers(name, usable[name]))
    if field.values > MOST_USERS:
        raise BadInput(where, "too many users", key=key, value=field.values, allowed=f"up to {MOST_USERS}")
    low = field.below if field.below_bits else 0
    return FlowUsers(name, usable[name], field.first, field.step, field.values, field.below_bits, low)


def _countable(one: VaryingField) -> bool:
    return one.mode == "increment" and one.values > 0


def _seen_as(template: Template, one: VaryingField) -> str:
    """The name of the field in struct fields; empty for one that the receiver does not read (outer tunnel headers)."""
    try:
        spans = layout(template.data).spans
    except (IndexError, ValueError):
        return ""
    for name, (bit, bits) in spans.items():
        if bit <= one.bit and one.bit + one.width_bits <= bit + bits and _in_one_word(name, one, bit):
            return name
    return ""


def _end(name: str, one: VaryingField, bit: int) -> int:
    """The end of the field in struct fields, in bits."""
    offset: int = FIELD_PLACES[name][0]
    return offset * 8 + one.bit - bit + one.width_bits


def _in_one_word(name: str, one: VaryingField, bit: int) -> bool:
    """Whether its changing bits are in one word: the receiver reads only the field's part in its last word."""
    part = _part_bits(_end(name, one, bit), one.width_bits)
    return one.first >> part == one.last >> part


def _part_bits(end: int, width_bits: int) -> int:
    return min(width_bits, end - (end - 1) // WORD_BITS * WORD_BITS)


def _field(template: Template, users: FlowUsers) -> VaryingField:
    return next(one for one in template.fields if one.name == users.field and _seen_as(template, one) == users.by)


def rule(template: Template, users: FlowUsers, base: int) -> RawUserRule:
    """The rule for the counting program. `base`: the first user's place among those of all legs; `template`: that of
    the received frames."""
    users = users.as_received
    one = _field(template, users)
    end = _end(users.by, one, layout(template.data).spans[users.by][0])
    mask = (1 << _part_bits(end, one.width_bits)) - 1
    word = (end - 1) // WORD_BITS
    shift = (word + 1) * WORD_BITS - end
    return RawUserRule(users.first & mask, users.step, mask, users.count, base, word, shift)


def of_addresses(by: str, first: int, count: int) -> FlowUsers:
    """Leg.users of a trace whose users have the IPv4 addresses from `first` on; `by` is "src_ip" or "dst_ip"."""
    return FlowUsers(f"ipv4.{by.removesuffix('_ip')}", by, first, 1, count)


def address_rule(users: FlowUsers, base: int) -> RawUserRule:
    """As rule(), for users of of_addresses(). An IPv4 address is in the first four bytes of its field."""
    end = FIELD_PLACES[users.by][0] * 8 + 32
    word = (end - 1) // WORD_BITS
    return RawUserRule(users.first, 1, (1 << 32) - 1, users.count, base, word, (word + 1) * WORD_BITS - end)


def notation(field: str, value: int) -> str:
    """A user's value in the notation of a scenario: 10.60.0.7, or 4096."""
    header, name = field.split(".")[-2:]  # preceded by the header's number if it occurs twice
    kind = HEADERS[header].fields[name].kind
    if kind == "ipv4":
        return str(IPv4Address(value))
    if kind == "ipv6":
        return str(IPv6Address(value))
    return value.to_bytes(6, "big").hex(":") if kind == "mac" else str(value)


def named(users: FlowUsers, n: int) -> str:
    """The value of user n as the whole field, of which only the upper bits can identify users (FlowUsers.shift)."""
    number = users.first + n * users.step
    return notation(users.field, number << users.shift | users.low)


def values(users: FlowUsers) -> list[str]:
    """The value of each user, in order."""
    return [named(users, n) for n in range(users.count)]


def pack(numbers: Sequence[int]) -> str:
    """Encodes a column of 64-bit numbers as text, a tenth of its size in JSON."""
    column = array("q", numbers)
    if sys.byteorder == "big":
        column.byteswap()
    return base64.b64encode(zlib.compress(column.tobytes(), 1)).decode()


def unpack(text: str | Sequence[int]) -> list[int]:
    """Decodes a packed column; a plain one is returned as it is."""
    if not isinstance(text, str):
        return list(text)
    column = array("q", zlib.decompress(base64.b64decode(text)))
    if sys.byteorder == "big":
        column.byteswap()
    return column.tolist()
