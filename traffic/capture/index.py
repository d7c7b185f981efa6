"""The index of a capture file as NumPy arrays: pcap and pcapng, any byte order and time resolution.

Unlike dpkt's readers it has the length of a frame before the snap length cut it, the place where a file is truncated,
and (pcapng) the clock of each interface. Python follows the chain of lengths only; times and sizes are read at once.
Format: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.capture import compressed
from pktswarm.traffic.capture import constants as form
from pktswarm.traffic.capture.constants import (
    LONGEST_WIRE_BYTES,
    NS_PER_S,
    PCAP_HEADER_BYTES,
    PCAP_NS_PER_TICK,
    SNAPLEN_BYTES,
)
from pktswarm.traffic.capture.walk import walk
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.ragged import anywhere

ENDS_WITHIN_PACKET = "is truncated: it ends inside packet {}"
CAPTURE_FORMATS = "pcap or pcapng"
LATEST_NS = NS_PER_S * 2**32 - 1
"""The times of pcap, from 1970 to 2106. Their sums and differences fit in 64 bits."""
TIME_PROBLEM = "its time is before 1970 or after 2106"
PACKET_BLOCKS = (form.ENHANCED_PACKET, form.OBSOLETE_PACKET, form.SIMPLE_PACKET)

Integers = NDArray[np.int64]
Data = bytes | mmap.mmap


@dataclass(frozen=True)
class CaptureIndex:
    """A row for each packet, in the file's order. `wire_bytes` exceeds `captured_bytes` if the snap length cut it."""

    data: Data
    time_ns: Integers
    """Nanoseconds since 1970."""
    start: Integers
    """The offset of the frame in `data`."""
    captured_bytes: Integers
    wire_bytes: Integers
    link_type: Integers
    cut: bool = False
    """Whether the file ends inside a packet, which is left out."""


@dataclass
class Interface:
    """A pcapng interface: its link type and its clock."""

    link_type: int
    snaplen_bytes: int
    ticks_per_s: int = 1_000_000
    offset_s: int = 0


@dataclass
class _Walk:
    """A pcapng file in progress: packet blocks wait until all interfaces that they refer to are read."""

    path: Path
    data: Data
    order: str = "<"
    interfaces: list[Interface] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    parts: list[CaptureIndex] = field(default_factory=list)
    before: int = 0
    """Number of packets in `parts`."""

    @property
    def packets(self) -> int:
        return self.before + len(self.waiting)


def index_capture(path: Path, whole: bool = True) -> CaptureIndex:
    """Reads an index, also of a compressed file. BadInput for a file that is not a capture, is damaged, or truncated (a
    pcap only if it must be `whole`). The index of a file without packets is empty."""
    data = _read(path)
    inside = compressed.content(path, data[: compressed.MAGIC_BYTES])
    index = _index(path, data if inside is None else inside, whole)
    too_long = index.wire_bytes > LONGEST_WIRE_BYTES
    if too_long.any():
        row = int(too_long.argmax())
        problem = f"packet {row + 1} has a length of {index.wire_bytes[row]} bytes on the wire: the file is damaged"
        raise BadInput(path, problem, allowed=f"up to {LONGEST_WIRE_BYTES}")
    return index


def joined(indexes: Sequence[CaptureIndex]) -> CaptureIndex:
    """The packets of several files, one file after another."""
    before = np.cumsum([0, *(len(index.data) for index in indexes[:-1])]).tolist()
    moved = [replace(index, start=index.start + at) for index, at in zip(indexes, before, strict=True)]
    return _together(b"".join(index.data[:] for index in indexes), moved)


def _together(data: Data, parts: Sequence[CaptureIndex]) -> CaptureIndex:
    """The rows of all parts, whose frames are in `data`."""

    def whole(name: str) -> Integers:
        return np.concatenate([getattr(part, name) for part in parts])

    lengths = whole("captured_bytes"), whole("wire_bytes")
    return CaptureIndex(data, whole("time_ns"), whole("start"), *lengths, whole("link_type"))


def _index(path: Path, data: Data, whole: bool) -> CaptureIndex:
    magic = data[:4]
    if int.from_bytes(magic, "big") == form.SECTION_HEADER:
        return _index_pcapng(path, data)
    for order in "<>":
        ns_per_tick = PCAP_NS_PER_TICK.get(struct.unpack(f"{order}I", magic)[0]) if len(magic) == 4 else None
        if ns_per_tick:
            return _index_pcap(path, data, order, ns_per_tick, whole)
    raise BadInput(path, "is not a capture file", value=magic.hex(), allowed=CAPTURE_FORMATS)


def _read(path: Path) -> Data:
    """Maps the file into memory: a trace can be large compared with the memory."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size:
                return mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
    except FileNotFoundError:
        raise BadInput(path, "there is no such file") from None
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None
    raise BadInput(path, "is empty", allowed=CAPTURE_FORMATS)


# --- pcap ------------------------------------------------------------------------------------------------------------


def _index_pcap(path: Path, data: Data, order: str, ns_per_tick: int, whole: bool) -> CaptureIndex:
    if len(data) < PCAP_HEADER_BYTES:
        raise BadInput(path, "is truncated: it ends inside the file header")
    # The upper bits of the link type are the length of a captured frame check sequence.
    link_field = struct.unpack_from(f"{order}I", data, 20)[0]
    fcs_bytes = 2 * (link_field >> 28) if link_field & 0x0400_0000 else 0
    chain = walk(data, order, PCAP_HEADER_BYTES)
    seconds, ticks, captured, wire = chain.header.T.astype(np.int64)
    _check_lengths(path, captured, wire)
    packets = len(chain.at) - (chain.end > len(data))
    cut = chain.end != len(data)
    if cut and whole:
        raise BadInput(path, ENDS_WITHIN_PACKET.format(packets + 1))
    at, seconds, ticks, captured, wire = (one[:packets] for one in (chain.at, seconds, ticks, captured, wire))
    if fcs_bytes:
        wire = wire - fcs_bytes
        captured = np.minimum(captured, np.maximum(wire, 0))
    kind = np.full(len(at), link_field & 0xFFFF, np.int64)
    times = seconds * NS_PER_S + ticks * ns_per_tick
    if len(times) and times.max() > LATEST_NS:
        raise BadInput(path, f"packet {times.argmax() + 1} cannot be read: {TIME_PROBLEM}")
    return CaptureIndex(data, times, at + 16, captured, wire, kind, cut)


def _check_lengths(path: Path, captured: Integers, wire: Integers) -> None:
    damaged = (captured > SNAPLEN_BYTES) & (captured > wire)
    if damaged.any():
        row = int(damaged.argmax())
        raise BadInput(path, f"packet {row + 1} has a length of {captured[row]} bytes: the file is damaged")


def _words(data: Data, at: Integers, order: str, places: tuple[int, ...]) -> list[Integers]:
    """The 32-bit words at `places` behind each of `at`."""
    words = anywhere(data, f"{order}u4")
    return [words[at + place].astype(np.int64) for place in places]


# --- pcapng ----------------------------------------------------------------------------------------------------------


def _index_pcapng(path: Path, data: Data) -> CaptureIndex:
    walk, at = _Walk(path, data), 0
    while at < len(data):
        if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            _flush(walk)
            walk.order, walk.interfaces = _section_order(path, data, at), []
        kind, size = _block(walk, at)
        if kind in PACKET_BLOCKS:
            if kind != form.ENHANCED_PACKET or size < 32:
                _flush(walk)
                _check_packet_block(walk, kind, size)
            walk.waiting.append(at)
        elif kind == form.INTERFACE_DESCRIPTION:
            _flush(walk)
            walk.interfaces.append(_interface(walk, data[at + 8 : at + size - 4]))
        at += size
    _flush(walk)
    return _joined(walk)


def _section_order(path: Path, data: Data, at: int) -> str:
    for order in "<>":
        if len(data) >= at + 12 and struct.unpack_from(f"{order}I", data, at + 8)[0] == form.BYTE_ORDER_MAGIC:
            return order
    raise BadInput(path, "is not a capture file: its section header has no byte order", allowed=CAPTURE_FORMATS)


def _block(walk: _Walk, at: int) -> tuple[int, int]:
    """The type and the length of the block at `at`; a block is type, length, body, length."""
    end = len(walk.data)
    if at + 12 > end:
        raise BadInput(walk.path, ENDS_WITHIN_PACKET.format(walk.packets + 1))
    kind, size = struct.unpack_from(f"{walk.order}II", walk.data, at)
    if size < 12 or size % 4:
        problem = f"a block after packet {walk.packets} has a length of {size} bytes: the file is damaged"
        raise BadInput(walk.path, problem)
    if at + size > end:
        raise BadInput(walk.path, ENDS_WITHIN_PACKET.format(walk.packets + 1))
    return kind, size


def _check_packet_block(walk: _Walk, kind: int, size: int) -> None:
    if kind == form.SIMPLE_PACKET:
        raise _unreadable(walk, walk.packets + 1, "it has no time (a simple packet block)")
    if size < 32:
        raise _unreadable(walk, walk.packets + 1, f"its block has {size} bytes, a packet's needs 32")


def _unreadable(walk: _Walk, number: int, problem: str) -> BadInput:
    return BadInput(walk.path, f"packet {number} cannot be read: {problem}")


def _interface(walk: _Walk, body: bytes) -> Interface:
    described = f"interface {len(walk.interfaces)} after packet {walk.packets} is not described right"
    if len(body) < 8:
        raise BadInput(walk.path, f"{described}: its block has {len(body)} bytes (allowed: 8 or more)")
    link_type, _, snaplen = struct.unpack_from(f"{walk.order}HHI", body)
    interface = Interface(link_type, snaplen)
    for code, value in _options(body[8:], walk.order):
        if code == form.OPTION_IF_TSRESOL:
            if len(value) != 1:
                raise BadInput(walk.path, f"{described}: its time resolution has {len(value)} bytes (allowed: 1)")
            # The top bit chooses between a power of ten and a power of two.
            interface.ticks_per_s = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        elif code == form.OPTION_IF_TSOFFSET:
            if len(value) != 8:
                raise BadInput(walk.path, f"{described}: its time offset has {len(value)} bytes (allowed: 8)")
            interface.offset_s = struct.unpack(f"{walk.order}q", value)[0]
    return interface


def _options(data: Data, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from(f"{order}HH", data, at)
        if code == form.OPTION_END:
            return
        yield code, data[at + 4 : at + 4 + size]
        at += 4 + (size + 3) // 4 * 4


def _flush(walk: _Walk) -> None:
    """Reads the waiting blocks, with the interfaces known so far."""
    if not walk.waiting:
        return
    at = np.array(walk.waiting, np.int64)
    kind, size, number, high, low, captured, wire = _words(walk.data, at, walk.order, (0, 4, 8, 12, 16, 20, 24))
    # The obsolete packet block has a 16-bit interface, and a count of drops in the rest of the word.
    old = number & 0xFFFF if walk.order == "<" else number >> 16
    number = np.where(kind == form.OBSOLETE_PACKET, old, number)
    _check_all(walk, captured > size - 32, lambda row: f"it says it has {captured[row]} bytes, its block has fewer")
    unknown = number >= len(walk.interfaces)
    _check_all(walk, unknown, lambda row: f"its interface {number[row]} is not described")
    times = np.zeros(len(at), np.int64)
    for index in np.unique(number):
        rows = np.flatnonzero(number == index)
        times[rows] = _times_ns(walk, rows, high[rows], low[rows], walk.interfaces[index])
    kinds = np.array([interface.link_type for interface in walk.interfaces], np.int64)[number]
    walk.parts.append(CaptureIndex(walk.data, times, at + 28, captured, wire, kinds))
    walk.before += len(at)
    walk.waiting = []


def _check_all(walk: _Walk, wrong: NDArray[np.bool_], problem: Callable[[int], str]) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise _unreadable(walk, walk.before + row + 1, problem(row))


def _times_ns(walk: _Walk, rows: Integers, high: Integers, low: Integers, interface: Interface) -> Integers:
    """The times of these rows, all of one interface."""
    ticks_per_s, offset_ns = interface.ticks_per_s, interface.offset_s * NS_PER_S
    latest_tick = (int(high.max()) + 1) << 32
    if NS_PER_S % ticks_per_s == 0 and 0 <= offset_ns <= LATEST_NS - latest_tick * (NS_PER_S // ticks_per_s):
        return np.asarray((high << 32 | low) * (NS_PER_S // ticks_per_s) + offset_ns)
    # Any other clock in Python's integers, which do not overflow.
    pairs = zip(high.tolist(), low.tolist(), strict=True)
    times = [offset_ns + (up << 32 | down) * NS_PER_S // ticks_per_s for up, down in pairs]
    far = np.array([not 0 <= time <= LATEST_NS for time in times])
    _check_all(walk, _spread(far, rows, len(walk.waiting)), lambda _: TIME_PROBLEM)
    return np.array(times, np.int64)


def _spread(flags: NDArray[np.bool_], rows: Integers, length: int) -> NDArray[np.bool_]:
    whole = np.zeros(length, np.bool_)
    whole[rows] = flags
    return whole


def _joined(walk: _Walk) -> CaptureIndex:
    none = np.zeros(0, np.int64)
    return _together(walk.data, walk.parts or [CaptureIndex(walk.data, none, none, none, none, none)])
