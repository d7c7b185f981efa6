"""A frame shape that an engine executes: bytes, the fields that change from frame to frame, the checksums they touch.

Nothing here is one engine's: trafgen is given the frames, an XDP program the same rules.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal

Mode = Literal["increment", "decrement", "random"]


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
    """A field that takes first, first ± step, … last and then first again, or a random value from first to last.

    It lies in the `width_bytes` bytes from `offset_bytes` on, `shift_bits` above their last bit, `width_bits` wide.
    `identity`: a receiver may know the frame by it.
    """

    name: str
    offset_bytes: int
    width_bytes: int
    mode: Mode
    first: int
    last: int
    step: int = 1
    shift_bits: int = 0
    width_bits: int = 0
    identity: bool = False

    @property
    def bit(self) -> int:
        return (self.offset_bytes + self.width_bytes) * 8 - self.shift_bits - self.width_bits

    @property
    def values(self) -> int:
        """How many different values a counter takes before it starts again; of a random field: how many there are."""
        return abs(self.last - self.first) // self.step + 1

    def value(self, index: int, draw: random.Random) -> int:
        if self.mode == "random":
            return draw.randint(self.first, self.last)
        offset = index % self.values * self.step
        return self.first + offset if self.mode == "increment" else self.first - offset


@dataclass(frozen=True)
class Checksum:
    """An Internet checksum (RFC 1071) at `offset_bytes` over byte ranges and a constant (the pseudo header's rest)."""

    offset_bytes: int
    ranges: tuple[tuple[int, int], ...]
    constant: int = 0
    zero_is_ones: bool = False
    """UDP writes 0xffff for 0, which would mean "none" (RFC 768)."""

    def mend(self, data: bytearray) -> None:
        put_bits(data, self.offset_bytes * 8, 16, 0)
        total = self.constant
        for start, stop in self.ranges:
            part = bytes(data[start:stop])
            # 2**16 is 1 modulo 0xffff, so the number modulo 0xffff is the sum of its 16-bit words, carries added.
            total += int.from_bytes(part + bytes(len(part) % 2), "big")
        folded = total % 0xFFFF or (0xFFFF if total else 0)
        value = 0xFFFF - folded
        put_bits(data, self.offset_bytes * 8, 16, 0xFFFF if self.zero_is_ones and value == 0 else value)

    def covers(self, start: int, stop: int) -> bool:
        return any(low < stop and start < high for low, high in self.ranges)


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
        return self.random_payload != (0, 0) or any(f.mode == "random" for f in self.fields)

    @property
    def period(self) -> int:
        """Frames after which every counter is at its first value again (random parts left aside)."""
        return math.lcm(*(field.values for field in self.fields if field.mode != "random"))

    def frame(self, index: int, draw: random.Random) -> bytes:
        """The frame number `index` (from 0), with checksums mended; random parts are drawn from `draw`."""
        if self.constant:
            return self.data
        data = bytearray(self.data)
        for field in self.fields:
            put_bits(data, field.bit, field.width_bits, field.value(index, draw))
        start, stop = self.random_payload
        data[start:stop] = draw.randbytes(stop - start)
        for checksum in self.checksums:
            checksum.mend(data)
        return bytes(data)
