"""Blocks of application bytes (NetSpec): their due times, their headers, and their counts at the receiver.

A connection carries blocks of a given size, one every period. The header of a block contains its number, its size and
the time at which its sender began to write it, for the counts of both ends and the delay jitter.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.leg import ConnectionShape

TCP_HEADER = struct.Struct(">HIQQ2x")
"""Magic, bytes of the block with this header, its number, begin of its writing (the sender's CLOCK_MONOTONIC)."""
TCP_MAGIC = 0x5342
SHORT_FLAG = 0x80
"""A block too short for a header consists of its size with this flag, and filler; its delay is not measured."""
UDP_HEADER = struct.Struct(">HHHHQQQ")
"""Magic, parts of the block, number of this part, unused, the block's number, the datagram's number on its connection,
begin of the block's writing."""
UDP_MAGIC = 0x5344
MOST_PARTS = 0xFFFF
MOST_BLOCK_BYTES = 0xFFFFFFFF
"""Limit of the headers."""
IP_UDP_BYTES = 28
LATE_NS = 1_000_000
"""A block that begins this long after its due time counts as late; a process's timer is no better."""
GRACE_NS = 100_000_000
"""Time after the duration in which a block that was due within it can still begin."""
REMEMBERED_BLOCKS = 4096
"""Incomplete blocks of datagrams that are kept while later ones arrive."""
MOST_AHEAD = 1 << 24
"""A datagram whose number is further ahead than this is foreign; a bit is kept for each number."""


class Blocks:
    """The blocks that one end sends on one connection: block n has `size(n)` bytes and is due `due_ns(n)` after the
    start.

    `items`, a list of (time_ns, bytes), replaces `block_bytes` and `period_ns`. Without a period blocks follow each
    other as fast as the connection takes them. No block is due or begins after `duration_ns` (or GRACE_NS later, if
    blocks have due times). `least_bytes`: shorter items of a source are padded to it, and counted so.
    """

    def __init__(
        self,
        block_bytes: int = 0,
        period_ns: int | None = None,
        blocks: int | None = None,
        duration_ns: int | None = None,
        items: Sequence[Sequence[int]] | None = None,
        least_bytes: int = 1,
    ) -> None:
        self.block_bytes, self.period_ns, self.items = block_bytes, period_ns, items
        self.least_bytes = least_bytes
        self.duration_ns = duration_ns
        self.count = self._count(blocks)
        """Number of blocks; None: as many as fit into the duration."""

    def _count(self, blocks: int | None) -> int | None:
        if self.items is not None:
            within = (due for due, _ in self.items if self.duration_ns is None or due < self.duration_ns)
            return sum(1 for _ in within)
        if blocks is None and self.period_ns and self.duration_ns is not None:
            return math.ceil(self.duration_ns / self.period_ns)
        return blocks

    @property
    def paced_by_time(self) -> bool:
        return self.items is not None or bool(self.period_ns)

    def due_ns(self, number: int) -> int:
        if self.items is not None:
            return int(self.items[number][0])
        return number * (self.period_ns or 0)

    def size(self, number: int) -> int:
        return self.block_bytes if self.items is None else max(self.least_bytes, int(self.items[number][1]))

    @property
    def total_bytes(self) -> int | None:
        if self.count is None:
            return None
        if self.items is not None:
            return sum(self.size(number) for number in range(self.count))
        return self.count * self.block_bytes

    def over(self, number: int, elapsed_ns: int) -> bool:
        """Whether block `number` is beyond the end."""
        if self.count is not None and number >= self.count:
            return True
        grace_ns = GRACE_NS if self.paced_by_time else 0
        return self.duration_ns is not None and elapsed_ns >= self.duration_ns + grace_ns

    @classmethod
    def of(cls, connection: ConnectionShape, number: int) -> Blocks:
        """The blocks of connection `number` of a leg (traffic.leg.ConnectionShape)."""
        items = connection.items
        return cls(
            connection.block_bytes or 0,
            connection.period_ns,
            connection.blocks,
            connection.duration_ns,
            None if items is None else items[number],
            UDP_HEADER.size if connection.protocol == "udp" else 1,
        )


def tcp_head(size: int, number: int, now_ns: int) -> bytes:
    """The header of a block on a TCP connection."""
    if size < TCP_HEADER.size:
        return bytes([SHORT_FLAG | size])
    return TCP_HEADER.pack(TCP_MAGIC, size, number, now_ns)


def part_sizes(size: int, most_bytes: int) -> list[int]:
    """The sizes of a block's datagrams of at most `most_bytes`: the smallest number, with sizes that differ by up to
    1."""
    parts = max(1, math.ceil(size / most_bytes))
    return [size // parts + (1 if index < size % parts else 0) for index in range(parts)]


@dataclass
class Moments:
    """Statistics of block delays: minimum, mean, maximum, and the standard deviation of their differences.

    A delay is the receiver's clock minus the sender's and has a constant error; jitter does not.
    """

    count: int = 0
    min_ns: int = 0
    max_ns: int = 0
    sum_ns: int = 0
    pairs: int = 0
    jitter_sum_ns: int = 0
    jitter_squares: int = 0

    def add(self, delay_ns: int, before_ns: int | None) -> None:
        """Adds a delay. `before_ns`: the delay of the block before it on its connection."""
        self.min_ns = delay_ns if not self.count else min(self.min_ns, delay_ns)
        self.max_ns = delay_ns if not self.count else max(self.max_ns, delay_ns)
        self.sum_ns += delay_ns
        self.count += 1
        if before_ns is not None:
            difference = delay_ns - before_ns
            self.pairs += 1
            self.jitter_sum_ns += difference
            self.jitter_squares += difference * difference

    @property
    def mean_ns(self) -> float | None:
        return self.sum_ns / self.count if self.count else None

    @property
    def jitter_sd_ns(self) -> float | None:
        """The population's standard deviation of J(n) = [R(n) − R(n−1)] − [T(n) − T(n−1)] (NetSpec, equation 1)."""
        if not self.pairs:
            return None
        return math.sqrt(self.pairs * self.jitter_squares - self.jitter_sum_ns**2) / self.pairs


@dataclass
class Arrivals:
    """The counts of one end that receives on one connection. Times are its CLOCK_MONOTONIC, None before the first
    byte."""

    bytes: int = 0
    blocks: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    since_ns: int | None = None
    since_bytes: int = 0
    """End of the first block, and the bytes received by then."""
    block_bytes: int = 0
    """Delays of whole blocks."""
    delay: Moments = field(default_factory=Moments)
    _before_ns: int | None = None

    def take(self, size: int, now_ns: int) -> None:
        self.bytes += size
        self.first_ns = now_ns if self.first_ns is None else self.first_ns
        self.last_ns = now_ns

    def take_block(self, size: int, now_ns: int, sent_ns: int | None) -> None:
        self.blocks += 1
        self.block_bytes += size
        if self.since_ns is None:
            self.begin_here(now_ns)
        if sent_ns is not None:
            self.delay.add(now_ns - sent_ns, self._before_ns)
            self._before_ns = now_ns - sent_ns

    @property
    def goodput_bps(self) -> float | None:
        """From the end of the first block to the last byte, without the bytes of the first block; None without further
        bytes. From the begin of the first block, the rate would be one block too high."""
        if self.since_ns is None or self.last_ns is None or self.last_ns <= self.since_ns:
            return None
        return 8e9 * (self.bytes - self.since_bytes) / (self.last_ns - self.since_ns)

    def begin_here(self, now_ns: int) -> None:
        self.since_ns, self.since_bytes = now_ns, self.bytes


class StreamReader:
    """Finds the blocks in the bytes of a TCP connection, read in pieces of any size."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self.expected = 0
        """The number of the next block: TCP neither loses nor duplicates."""
        self._head = b""
        self._left = 0
        self._size = 0
        self._sent_ns: int | None = None

    @property
    def inside_a_block(self) -> bool:
        return bool(self._head or self._left)

    def feed(self, data: memoryview, now_ns: int) -> None:
        """Counts bytes. EngineError for bytes that a sender cannot have sent."""
        self.arrivals.take(len(data), now_ns)
        at = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
            else:
                at = self._begin(data, at)
            if self._size and not self._left:
                self.arrivals.take_block(self._size, now_ns, self._sent_ns)
                self._size = 0
                self.expected += 1

    def _begin(self, data: memoryview, at: int) -> int:
        """Reads the available part of a block's header."""
        if not self._head and data[at] & SHORT_FLAG:
            self._size, self._sent_ns = data[at] & ~SHORT_FLAG, None
            self._left = self._size - 1
            self._check(0 < self._size < TCP_HEADER.size)
            return at + 1
        taken = min(TCP_HEADER.size - len(self._head), len(data) - at)
        self._head += bytes(data[at : at + taken])
        if len(self._head) == TCP_HEADER.size:
            magic, self._size, number, self._sent_ns = TCP_HEADER.unpack(self._head)
            self._check(magic == TCP_MAGIC and self._size >= TCP_HEADER.size and number == self.expected)
            self._left = self._size - TCP_HEADER.size
            self._head = b""
        return at + taken

    def _check(self, holds: bool) -> None:
        if not holds:
            raise EngineError("socket", f"no block {self.expected} at its place in the stream")


class DatagramReader:
    """Counts datagrams by their numbers, and whole blocks."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self.distinct = self.duplicated = self.reordered = self.foreign = 0
        self._next = 0
        self._seen = bytearray()
        self._first_block: int | None = None
        self._waiting: dict[int, tuple[int, int]] = {}
        """Block → (missing parts, received bytes)."""

    def feed(self, data: bytes | memoryview, now_ns: int) -> None:
        if len(data) < UDP_HEADER.size:
            self.foreign += 1
            return
        magic, parts, _, _, block, sequence, sent_ns = UDP_HEADER.unpack_from(data)
        if magic != UDP_MAGIC or sequence > self._next + MOST_AHEAD:
            self.foreign += 1
            return
        if self._twice(sequence):
            self.duplicated += 1
            return
        self.distinct += 1
        # RFC 4737: a datagram is reordered if it arrives after a higher number.
        self.reordered += sequence < self._next
        self._next = max(self._next, sequence + 1)
        self.arrivals.take(len(data), now_ns)
        self._first_block = block if self._first_block is None else self._first_block
        if block == self._first_block:
            self.arrivals.begin_here(now_ns)
        left, size = self._waiting.pop(block, (parts, 0))
        if left == 1:
            self.arrivals.take_block(size + len(data), now_ns, sent_ns)
        else:
            self._waiting[block] = (left - 1, size + len(data))
            if len(self._waiting) > REMEMBERED_BLOCKS:
                del self._waiting[next(iter(self._waiting))]

    def _twice(self, sequence: int) -> bool:
        place, bit = sequence >> 3, 1 << (sequence & 7)
        if place >= len(self._seen):
            self._seen.extend(bytes(max(1024, place + 1 - len(self._seen))))
        if self._seen[place] & bit:
            return True
        self._seen[place] |= bit
        return False


def merge_moments(parts: Sequence[Moments]) -> Moments:
    """The sum of the statistics of a leg's connections."""
    filled = [one for one in parts if one.count]
    if not filled:
        return Moments()
    return Moments(
        sum(one.count for one in filled),
        min(one.min_ns for one in filled),
        max(one.max_ns for one in filled),
        sum(one.sum_ns for one in filled),
        sum(one.pairs for one in filled),
        sum(one.jitter_sum_ns for one in filled),
        sum(one.jitter_squares for one in filled),
    )


def spread(values: Sequence[int]) -> tuple[float, float] | None:
    """Mean and standard deviation (the population's); None without values."""
    if not values:
        return None
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
