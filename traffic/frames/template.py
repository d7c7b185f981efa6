"""The template of a stream's frames: bytes, the fields that change from frame to frame, and their checksums.

It is independent of the engine: trafgen sends the frames, an XDP program executes the rules.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Mode = Literal["increment", "decrement", "random", "list", "pick"]


def put_bits(data: bytearray, bit: int, width: int, value: int) -> None:
    """Writes `value` into `width` bits from bit `bit` on (network order)."""
    start, stop = bit // 8, (bit + width + 7) // 8
    shift = stop * 8 - bit - width
    window = int.from_bytes(data[start:stop], "big")
    window = window & ~(((1 << width) - 1) << shift) | value << shift
    data[start:stop] = window.to_bytes(stop - start, "big")


def get_bits(data: bytes | bytearray, bit: int, width: int) -> int:
    start, stop = bit // 8, (bit + width + 7) // 8
    window = int.from_bytes(data[start:stop], "big")
    return window >> (stop * 8 - bit - width) & ((1 << width) - 1)


@dataclass(frozen=True)
class VaryingField:
    """A field with a position in each frame, and the value of that position.

    increment, decrement: first, first ± step, … last, then first again; random: any from first to last; list: those
    `listed`, in turn; pick: any of them. The field is in the `width_bytes` bytes from `offset_bytes` on, `shift_bits`
    above their last bit, `width_bits` wide. `identity`: a receiver can match frames by it.
    """

    name: str
    """header.field, preceded by the header's number (3.ipv4.src) if the frame has several such headers."""
    offset_bytes: int
    width_bytes: int
    mode: Mode
    first: int
    last: int
    """In a list `first` is the smallest and `last` the largest value."""
    step: int = 1
    shift_bits: int = 0
    width_bits: int = 0
    identity: bool = False
    listed: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    """With weights: the value's place for each position, each place as many times as its weight."""
    link: int | None = None
    """Number of an earlier field of the template, whose position this field takes modulo its own number of values."""
    every: int = 1
    """Frames for which a counter stays at a position."""
    below: int = 0
    below_bits: int = 0
    """For the upper part of a field (an IPv6 prefix): the lower part, equal in all frames."""

    @property
    def bit(self) -> int:
        return (self.offset_bytes + self.width_bytes) * 8 - self.shift_bits - self.width_bits

    @property
    def drawn(self) -> bool:
        return self.mode in ("random", "pick")

    @property
    def values(self) -> int:
        """The number of positions."""
        return len(self.places) or len(self.listed) or abs(self.last - self.first) // self.step + 1

    def position(self, index: int, draw: random.Random) -> int:
        """The position of an unlinked field in frame `index`."""
        return draw.randrange(self.values) if self.drawn else index // self.every % self.values

    def following(self, position: int) -> int:
        """The position of a linked field, from that of the other field."""
        return position % self.values

    def at(self, position: int) -> int:
        place = self.places[position] if self.places else position
        if self.listed:
            return self.listed[place]
        return self.first - place * self.step if self.mode == "decrement" else self.first + place * self.step

    def whole(self, position: int) -> int:
        """The value with its lower part, if any."""
        return self.at(position) << self.below_bits | self.below

    def value(self, index: int, draw: random.Random) -> int:
        return self.at(self.position(index, draw))


@dataclass(frozen=True)
class Checksum:
    """An Internet checksum (RFC 1071) at `offset_bytes` over byte ranges and a constant (the pseudo header's rest)."""

    offset_bytes: int
    ranges: tuple[tuple[int, int], ...]
    constant: int = 0
    zero_is_ones: bool = False
    """UDP writes 0xffff for 0, which would mean "none" (RFC 768)."""
    off_by: int = 0
    """Deliberate error, added to the right value modulo 0xffff."""

    def mend(self, data: bytearray) -> None:
        put_bits(data, self.offset_bytes * 8, 16, 0)
        total = self.constant
        for start, stop in self.ranges:
            part = bytes(data[start:stop])
            # 2**16 is 1 modulo 0xffff, so the number modulo 0xffff is the sum of its 16-bit words, carries added.
            total += int.from_bytes(part + bytes(len(part) % 2), "big")
        folded = total % 0xFFFF or (0xFFFF if total else 0)
        value = 0xFFFF - folded
        if self.off_by:
            value = (value + self.off_by) % 0xFFFF
        put_bits(data, self.offset_bytes * 8, 16, 0xFFFF if self.zero_is_ones and value == 0 else value)

    def covers(self, start: int, stop: int) -> bool:
        return any(low < stop and start < high for low, high in self.ranges)


def mending_order(checksums: tuple[Checksum, ...]) -> list[Checksum]:
    """The order of computation: a checksum comes before those that cover it."""
    left, ordered = list(checksums), list[Checksum]()
    while left:
        ready = [c for c in left if not any(c is not o and c.covers(o.offset_bytes, o.offset_bytes + 2) for o in left)]
        ordered += ready
        left = [c for c in left if c not in ready]
    return ordered


@dataclass(frozen=True)
class Template:
    """`data`: the first frame, without FCS. `identity_mask`: bits by which a receiver can match frames."""

    data: bytes
    fields: tuple[VaryingField, ...]
    checksums: tuple[Checksum, ...]
    random_payload: tuple[int, int]
    """Start and end of the bytes that are random in each frame; (0, 0): none."""
    varying_mask: bytes
    identity_mask: bytes

    @property
    def constant(self) -> bool:
        return not any(self.varying_mask)

    @property
    def is_random(self) -> bool:
        return self.random_payload != (0, 0) or any(f.drawn for f in self.fields)

    @property
    def period(self) -> int:
        """Frames until every counter has its first value again; random parts do not count."""
        return math.lcm(
            *(field.every * field.values for field in self.fields if not field.drawn and field.link is None)
        )

    @cached_property
    def _mending_order(self) -> list[Checksum]:
        return mending_order(self.checksums)

    def mend(self, data: bytearray) -> None:
        """Writes every checksum of a frame of this template, inner ones first."""
        for checksum in self._mending_order:
            checksum.mend(data)

    def values(self, index: int, draw: random.Random) -> list[int]:
        """The value of each field in frame `index`."""
        positions: list[int] = []
        for field in self.fields:
            own = field.position(index, draw) if field.link is None else field.following(positions[field.link])
            positions.append(own)
        return [field.at(position) for field, position in zip(self.fields, positions, strict=True)]

    def at(self, name: str, position: int) -> bytes:
        """The first frame with the field `name`, and those linked with it, at `position`."""
        data, positions = bytearray(self.data), list[int]()
        for field in self.fields:
            own = position if field.name == name else 0
            positions.append(own if field.link is None else field.following(positions[field.link]))
            put_bits(data, field.bit, field.width_bits, field.at(positions[-1]))
        self.mend(data)
        return bytes(data)

    def frame(self, index: int, draw: random.Random) -> bytes:
        """Frame `index` (from 0) with its checksums; `draw` makes the random parts."""
        if self.constant:
            return self.data
        data = bytearray(self.data)
        for field, value in zip(self.fields, self.values(index, draw), strict=True):
            put_bits(data, field.bit, field.width_bits, value)
        start, stop = self.random_payload
        data[start:stop] = draw.randbytes(stop - start)
        self.mend(data)
        return bytes(data)
