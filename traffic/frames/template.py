"""A frame shape that an engine executes: bytes, the fields that change from frame to frame, the checksums they touch.

Nothing here is one engine's: trafgen is given the frames, an XDP program the same rules.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Mode = Literal["increment", "decrement", "random", "list", "pick"]


def put_bits(data: bytearray, bit: int, width: int, value: int) -> None:
    """Write `value` into `width` bits from bit `bit` on (network order), leaving its neighbours alone."""
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
    """A field that stands at one of its positions in each frame, and has the value of that position.

    increment, decrement: first, first ± step, … last, then first again; random: any from first to last; list: those
    `listed`, in turn; pick: any of them. It lies in the `width_bytes` bytes from `offset_bytes` on, `shift_bits` above
    their last bit, `width_bits` wide. `identity`: a receiver may know the frame by it.
    """

    name: str
    """header.field, with the header's number before it (3.ipv4.src) where the frame has several such headers."""
    offset_bytes: int
    width_bytes: int
    mode: Mode
    first: int
    last: int
    """Of a list first is the smallest and last the largest value."""
    step: int = 1
    shift_bits: int = 0
    width_bits: int = 0
    identity: bool = False
    listed: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    """Where the values have weights: which of them each position means, each as often as its weight says."""
    link: int | None = None
    """The number of an earlier one of the template's fields whose position it takes, modulo its own number of values:
    the two move together."""
    every: int = 1
    """Of a counter: it stays at each position for so many frames."""
    below: int = 0
    below_bits: int = 0
    """Where it is the upper part of a field (an IPv6 address's prefix): the lower part, which all frames have."""

    @property
    def bit(self) -> int:
        return (self.offset_bytes + self.width_bytes) * 8 - self.shift_bits - self.width_bits

    @property
    def drawn(self) -> bool:
        return self.mode in ("random", "pick")

    @property
    def values(self) -> int:
        """How many positions it has."""
        return len(self.places) or len(self.listed) or abs(self.last - self.first) // self.step + 1

    def position(self, index: int, draw: random.Random) -> int:
        """Its position in the frame number `index`, if it is not linked."""
        return draw.randrange(self.values) if self.drawn else index // self.every % self.values

    def following(self, position: int) -> int:
        """Its position where the field that it is linked with stands at this one."""
        return position % self.values

    def at(self, position: int) -> int:
        place = self.places[position] if self.places else position
        if self.listed:
            return self.listed[place]
        return self.first - place * self.step if self.mode == "decrement" else self.first + place * self.step

    def whole(self, position: int) -> int:
        """With the lower part, where there is one."""
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
    """Wrong on purpose: so much more than right, modulo 0xffff."""

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
    """Those that another one covers come before it."""
    left, ordered = list(checksums), list[Checksum]()
    while left:
        ready = [c for c in left if not any(c is not o and c.covers(o.offset_bytes, o.offset_bytes + 2) for o in left)]
        ordered += ready
        left = [c for c in left if c not in ready]
    return ordered


@dataclass(frozen=True)
class Template:
    """`data`: the first frame, without FCS. `identity_mask`: bits by which a receiver may know the frame."""

    data: bytes
    fields: tuple[VaryingField, ...]
    checksums: tuple[Checksum, ...]
    random_payload: tuple[int, int]
    """Start and end of the bytes drawn afresh for each frame; (0, 0): none."""
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
        """Frames after which every counter is at its first value again (random parts left aside)."""
        return math.lcm(
            *(field.every * field.values for field in self.fields if not field.drawn and field.link is None)
        )

    @cached_property
    def _mending_order(self) -> list[Checksum]:
        return mending_order(self.checksums)

    def mend(self, data: bytearray) -> None:
        """Every checksum of a frame of this shape, inner ones before those that cover them."""
        for checksum in self._mending_order:
            checksum.mend(data)

    def values(self, index: int, draw: random.Random) -> list[int]:
        """Of each field in the frame number `index`."""
        positions: list[int] = []
        for field in self.fields:
            own = field.position(index, draw) if field.link is None else field.following(positions[field.link])
            positions.append(own)
        return [field.at(position) for field, position in zip(self.fields, positions, strict=True)]

    def at(self, name: str, position: int) -> bytes:
        """The first frame, but for the field `name` and those linked with it, which stand at `position`."""
        data, positions = bytearray(self.data), list[int]()
        for field in self.fields:
            own = position if field.name == name else 0
            positions.append(own if field.link is None else field.following(positions[field.link]))
            put_bits(data, field.bit, field.width_bits, field.at(positions[-1]))
        self.mend(data)
        return bytes(data)

    def frame(self, index: int, draw: random.Random) -> bytes:
        """The frame number `index` (from 0), with checksums mended; random parts are drawn from `draw`."""
        if self.constant:
            return self.data
        data = bytearray(self.data)
        for field, value in zip(self.fields, self.values(index, draw), strict=True):
            put_bits(data, field.bit, field.width_bits, value)
        start, stop = self.random_payload
        data[start:stop] = draw.randbytes(stop - start)
        self.mend(data)
        return bytes(data)
