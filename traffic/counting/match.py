"""The match of a leg's frames, which distinguishes them from all others at a receiver.

A stream is matched by the bits that no device on the path is expected to change: addresses, VLAN tags, labels, types,
protocols and ports, not lengths, checksums, ids, TTL or TOS. A trace is matched by its pair of MAC addresses, without
the frames of streams between the same two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal

from pktswarm.traffic.capture import cbpf
from pktswarm.traffic.frames.address_set import AddressSet
from pktswarm.traffic.frames.layout import TAG_TYPES, layout
from pktswarm.traffic.frames.stamp import read_stamp
from pktswarm.traffic.frames.template import Template, VaryingField, get_bits, put_bits
from pktswarm.traffic.leg import MatchData

MACS = b"\xff" * 12
Tag = tuple[int, int]
"""TPID and TCI."""
MOST_RANGE_BITS = 24
"""Widest range that a filter can compare."""


@dataclass(frozen=True)
class Range:
    """A field of up to 32 bits with values from low to high."""

    bit: int
    width: int
    low: int
    high: int

    def holds(self, frame: bytes) -> bool:
        """Whether the field is in range; False for a frame that ends before it."""
        whole = self.bit + self.width <= 8 * len(frame)
        return whole and self.low <= get_bits(frame, self.bit, self.width) <= self.high


@dataclass(frozen=True)
class Match:
    """`value` under `mask`, from the frame's first byte; `length` without FCS, None: any."""

    mask: bytes
    value: bytes
    length: int | None = None
    ranges: tuple[Range, ...] = ()
    kind: Literal["stream", "rest"] = "stream"
    others: tuple[Match, ...] = ()
    """For kind rest: the matches whose frames are excluded."""
    tags: tuple[Tag | None, ...] = ()
    """For kind rest: the outermost VLAN tags of its frames, None for those without; empty: that of `value`."""
    stream: int | None = None
    """The stream number in the stamps, if a capture is matched by it alone: behind a device that adds or removes
    headers, the bytes before the stamp are unknown."""
    _bits: tuple[int, int] = field(init=False, repr=False, compare=False, default=(0, 0))

    def __post_init__(self) -> None:
        bits = int.from_bytes(self.mask, "big"), int.from_bytes(self.value, "big")
        object.__setattr__(self, "_bits", bits)

    @classmethod
    def from_template(cls, template: Template) -> Match:
        """The match of a stream whose frames keep their length."""
        identity = bytearray(template.identity_mask)
        for varying in template.fields:
            if varying.identity:
                _mask_common_bits(identity, varying)
        mask = bytes(identity).rstrip(b"\0")
        value = bytes(m & d for m, d in zip(mask, template.data, strict=False))
        ranges = tuple(_range(one) for one in template.fields if one.identity)
        return cls(mask, value, len(template.data), tuple(one for one in ranges if one.width))

    @classmethod
    def rest(cls, source_mac: str, target_mac: str, others: Iterable[Match] = ()) -> Match:
        """The match of a trace: all frames from one MAC address to the other that `others` do not match."""
        value = bytes.fromhex((target_mac + source_mac).replace(":", ""))
        return cls(MACS, value, kind="rest", others=tuple(others))

    @classmethod
    def of_ends(cls, target_mac: str, sources: AddressSet, targets: AddressSet) -> Match:
        """The match of a trace behind a router: untagged IP packets to a MAC address, with the bits that all source
        addresses, and all target addresses, have in common."""
        mask, value = bytearray(MACS[:6] + bytes(6)), bytearray(bytes.fromhex(target_mac.replace(":", "")) + bytes(6))
        versions = {version for version, _, _ in [*sources.ranges, *targets.ranges]}
        if versions not in ({4}, {6}):
            return cls(bytes(mask[:6]), bytes(value[:6]), kind="rest")
        four = versions == {4}
        ends = (_common(one, 32 if four else 128) for one in (sources, targets))
        filling = bytes(12 if four else 8)
        for part in ((b"\xff\xff", b"\x08\x00" if four else b"\x86\xdd"), (filling, filling), *ends):
            mask += part[0]
            value += part[1]
        short = bytes(mask).rstrip(b"\0")
        return cls(short, bytes(value[: len(short)]), kind="rest")

    @classmethod
    def of_addresses(cls, source_mac: str, target_mac: str, source_ipv4: str, target_ipv4: str) -> Match:
        """Every IPv4 packet from one host's address to the other's."""
        head = bytes.fromhex((target_mac + source_mac).replace(":", "")) + b"\x08\x00" + bytes(12)
        mask = MACS + b"\xff\xff" + bytes(12) + b"\xff" * 8
        return cls(mask, head + ip_address(source_ipv4).packed + ip_address(target_ipv4).packed)

    @classmethod
    def of_arp(cls, source_mac: str, target_mac: str, source_ipv4: str) -> Match:
        """ARP requests and replies from the host with this address."""
        head = bytes.fromhex((target_mac + source_mac).replace(":", "")) + b"\x08\x06" + bytes(14)
        mask = MACS + b"\xff\xff" + bytes(14) + b"\xff" * 4
        return cls(mask, head + ip_address(source_ipv4).packed)

    @classmethod
    def of_numbers(
        cls, source_mac: str, target_mac: str, fixed: dict[int, bytes], at: int, first: int, last: int
    ) -> Match:
        """Frames between two MACs with fixed bytes at given places, and a 32-bit number from first to last at byte
        `at`."""
        mask, value = bytearray(MACS.ljust(at + 4, b"\0")), bytearray(at + 4)
        parts = {0: bytes.fromhex((target_mac + source_mac).replace(":", "")), **fixed}
        for place, part in parts.items():
            mask[place : place + len(part)] = b"\xff" * len(part)
            value[place : place + len(part)] = part
        # A constant number of bits, so that overlaps() can compare two ranges.
        upper = 32 - MOST_RANGE_BITS
        small = (1 << MOST_RANGE_BITS) - 1
        ranges: tuple[Range, ...] = ()
        if first >> MOST_RANGE_BITS == last >> MOST_RANGE_BITS:  # else more than a filter can compare
            put_bits(mask, 8 * at, upper, (1 << upper) - 1)
            put_bits(value, 8 * at, upper, first >> MOST_RANGE_BITS)
            ranges = (Range(8 * at + upper, MOST_RANGE_BITS, first & small, last & small),)
        short = bytes(mask).rstrip(b"\0")
        return cls(short, bytes(value[: len(short)]), ranges=ranges)

    def matches(self, frame: bytes) -> bool:
        if self.stream is not None:
            return stream_of(frame) == self.stream
        mask, value = self._bits
        if self.length is not None and len(frame) != self.length:
            return False
        if int.from_bytes(frame[: len(self.mask)], "big") & mask != value or len(frame) < len(self.mask):
            return False
        if any(not one.holds(frame) for one in self.ranges):
            return False
        return not any(other.matches(frame) for other in self.others)

    def overlaps(self, other: Match) -> bool:
        """Whether a frame can match both. A rest never overlaps the matches that it excludes."""
        if other in self.others or self in other.others:
            return False
        if None not in (self.length, other.length) and self.length != other.length:
            return False
        if any(one.length is not None and one.length < len(two.mask) for one, two in ((self, other), (other, self))):
            return False
        if any(a & b & (x ^ y) for a, b, x, y in zip(self.mask, other.mask, self.value, other.value, strict=False)):
            return False
        return not any(_apart(one, two) for one in self._spans(other) for two in other._spans(self) if _same(one, two))

    def _spans(self, other: Match) -> list[Range]:
        """Its ranges, and its constants where the other match has a range."""
        constants = (one for one in other.ranges if _known(self.mask, one))
        fixed = [Range(o.bit, o.width, v, v) for o in constants for v in [get_bits(self.value, o.bit, o.width)]]
        return [*self.ranges, *fixed]

    @property
    def outer_tag(self) -> tuple[int, int | None] | None:
        """(TPID, TCI) of the outermost tag, None for an untagged frame. The TCI is None when part of it varies."""
        if self.mask[12:14] != b"\xff\xff" or get_bits(self.value, 96, 16) not in TAG_TYPES:
            return None
        known = get_bits(self.mask, 112, 16) == 0xFFFF
        return get_bits(self.value, 96, 16), get_bits(self.value, 112, 16) if known else None

    @property
    def captured_tags(self) -> tuple[tuple[int, int | None] | None, ...]:
        """The outermost tags that its frames can have."""
        return self.tags or (self.outer_tag,)

    @property
    def target_mac(self) -> bytes | None:
        """The destination MAC; None if it varies."""
        return self.value[:6] if self.mask[:6] == MACS[:6] else None

    def program(self) -> cbpf.Program:
        """A filter for a packet socket, which gets frames without their outermost VLAN tag."""
        removed = 4 if self.outer_tag else 0
        tests = [
            *_tag_tests(self),
            *_pattern_tests(_without_tag(self.mask, removed), _without_tag(self.value, removed)),
        ]
        if self.length is not None:
            tests.append(cbpf.test(cbpf.LOAD_LENGTH, 0, cbpf.JUMP_EQUAL, self.length - removed))
        tests += [_range_test(one, removed) for one in self.ranges]
        return cbpf.all_of(*tests, *(cbpf.negate(other.program()) for other in self.others))

    def pcap_filter(self) -> str:
        """The match as an expression for tools that read capture files, which contain all VLAN tags."""
        parts = [f"len = {self.length}"] if self.length is not None else []
        for at, size, mask, value in _words(self.mask, self.value):
            parts.append(f"ether[{at}:{size}] & {mask:#x} = {value:#x}")
        for one in self.ranges:
            at, size, shift = _window(one)
            taken = f"((ether[{at}:{size}] >> {shift}) & {(1 << one.width) - 1:#x})"
            parts.append(f"{taken} >= {one.low} and {taken} <= {one.high}")
        parts += [f"not ({other.pcap_filter()})" for other in self.others]
        return " and ".join(parts)

    def to_data(self) -> MatchData:
        return MatchData(
            kind=self.kind,
            mask=self.mask.hex(),
            value=self.value.hex(),
            length=self.length,
            ranges=tuple((one.bit, one.width, one.low, one.high) for one in self.ranges),
            others=tuple(other.to_data() for other in self.others),
            tags=self.tags,
            stream=self.stream,
        )

    @classmethod
    def from_data(cls, data: MatchData | None) -> Match:
        if data is None:
            raise ValueError("the flow has no match yet")
        return cls(
            bytes.fromhex(data.mask),
            bytes.fromhex(data.value),
            data.length,
            tuple(Range(*one) for one in data.ranges),
            data.kind,
            tuple(cls.from_data(one) for one in data.others),
            tuple(None if tag is None else (tag[0], tag[1]) for tag in data.tags),
            data.stream,
        )


def stream_of(frame: bytes) -> int | None:
    """The stream number in a frame's stamp; None without a stamp."""
    try:
        found = read_stamp(frame[layout(frame).payload :])
    except (IndexError, ValueError):
        return None
    return None if found is None else found.stream


def uncountable(match: Match, mode: str) -> str:
    """Why a netsniff-ng receiver cannot count these frames; empty when it can."""
    if match.target_mac is None:
        return "the destination MAC varies; a receiver takes only frames to its own"
    if mode == "capture" and match.outer_tag is not None and match.outer_tag[1] is None:
        return "the outermost VLAN tag varies, which a capture does not contain: use mode count"
    return ""


def _varying_bits(varying: VaryingField) -> int:
    """Number of low bits that differ between the field's first and last value."""
    return (varying.first ^ varying.last).bit_length()


def _common(addresses: AddressSet, bits: int) -> tuple[bytes, bytes]:
    """(mask, value) of the bits that all addresses have in common."""
    ranges = addresses.ranges
    start = ranges[0][1] if ranges else 0
    differing = 0
    for _, first, last in ranges:
        differing |= first ^ start | last ^ start
    mask = (1 << bits) - (1 << differing.bit_length()) if ranges else 0
    return mask.to_bytes(bits // 8, "big"), (start & mask).to_bytes(bits // 8, "big")


def _mask_common_bits(mask: bytearray, varying: VaryingField) -> None:
    low = _varying_bits(varying)
    put_bits(mask, varying.bit, varying.width_bits, (1 << varying.width_bits) - (1 << low))


def _range(varying: VaryingField) -> Range:
    """The range of the bits that differ; width 0 for none, and for more than a filter can compare."""
    width = _varying_bits(varying)
    if width > MOST_RANGE_BITS:
        return Range(0, 0, 0, 0)
    low, high = sorted((varying.first, varying.last))
    small = (1 << width) - 1
    return Range(varying.bit + varying.width_bits - width, width, low & small, high & small)


def _known(mask: bytes, one: Range) -> bool:
    return get_bits(mask, one.bit, one.width) == (1 << one.width) - 1  # what is beyond the mask is 0


def _same(one: Range, two: Range) -> bool:
    return (one.bit, one.width) == (two.bit, two.width)


def _apart(one: Range, two: Range) -> bool:
    return one.high < two.low or two.high < one.low


def _without_tag(data: bytes, removed: int) -> bytes:
    return data[:12] + data[12 + removed :]


def _tag_tests(match: Match) -> list[cbpf.Program]:
    """Tests of the outermost tag, which the kernel keeps beside the frame."""
    if match.kind == "rest":
        return []
    if match.outer_tag is None:
        return [cbpf.test(cbpf.LOAD_BYTE, cbpf.VLAN_PRESENT, cbpf.JUMP_EQUAL, 0)]
    mask, value = get_bits(match.mask, 112, 16), get_bits(match.value, 112, 16)
    return [tagged(match.outer_tag[0], value, mask)]


def tagged(tpid: int, tci: int, mask: int = 0xFFFF) -> cbpf.Program:
    return cbpf.all_of(
        cbpf.test(cbpf.LOAD_BYTE, cbpf.VLAN_PRESENT, cbpf.JUMP_EQUAL, 1),
        cbpf.test(cbpf.LOAD_HALF, cbpf.VLAN_TPID, cbpf.JUMP_EQUAL, tpid),
        cbpf.test(cbpf.LOAD_HALF, cbpf.VLAN_TCI, cbpf.JUMP_EQUAL, tci, mask),
    )


def _words(mask: bytes, value: bytes) -> Iterable[tuple[int, int, int, int]]:
    """(offset, size, mask, value) of 4, 2 or 1 bytes each, without those whose mask is 0."""
    at = 0
    while at < len(mask):
        size = next(size for size in (4, 2, 1) if at + size <= len(mask))
        if any(mask[at : at + size]):
            yield at, size, int.from_bytes(mask[at : at + size], "big"), int.from_bytes(value[at : at + size], "big")
        at += size


def _pattern_tests(mask: bytes, value: bytes) -> list[cbpf.Program]:
    loads = {4: cbpf.LOAD_WORD, 2: cbpf.LOAD_HALF, 1: cbpf.LOAD_BYTE}
    return [cbpf.test(loads[size], at, cbpf.JUMP_EQUAL, v, m) for at, size, m, v in _words(mask, value)]


def _window(one: Range) -> tuple[int, int, int]:
    """(offset, size, shift): the 1, 2 or 4 bytes that end with the range's last byte and hold it."""
    stop = (one.bit + one.width + 7) // 8
    size = next(size for size in (1, 2, 4) if (stop - size) * 8 <= one.bit)
    return stop - size, size, stop * 8 - one.bit - one.width


def _range_test(one: Range, removed: int) -> cbpf.Program:
    at, size, shift = _window(one)
    load = {4: cbpf.LOAD_WORD, 2: cbpf.LOAD_HALF, 1: cbpf.LOAD_BYTE}[size]
    if removed and 14 <= at < 16:  # all of the tag's two bytes are loaded
        shift += 8 * (16 - at - size)
        load, at, removed = cbpf.LOAD_HALF, cbpf.VLAN_TCI, 0
    elif at < 14:
        removed = 0
    mask = ((1 << one.width) - 1) << shift
    low = cbpf.test(load, at - removed, cbpf.JUMP_NOT_LESS, one.low << shift, mask)
    return cbpf.all_of(low, cbpf.negate(cbpf.test(load, at - removed, cbpf.JUMP_GREATER, one.high << shift, mask)))
