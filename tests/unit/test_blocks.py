"""Blocks: when they are due, how they are told on a stream or in datagrams, what is made of their times."""

import itertools
import random
import statistics
import struct

import pytest

from pktswarm.traffic.connections.blocks import (
    MOST_AHEAD,
    REMEMBERED_BLOCKS,
    TCP_HEADER,
    UDP_HEADER,
    UDP_MAGIC,
    Blocks,
    DatagramReader,
    Moments,
    StreamReader,
    merge_moments,
    part_sizes,
    spread,
    tcp_head,
)
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.leg import ConnectionShape

MS = 1_000_000


def test_a_period_gives_every_block_its_instant() -> None:
    blocks = Blocks(9140, 14 * MS, duration_ns=70 * MS)
    assert blocks.count == 5 and blocks.total_bytes == 45_700
    assert [blocks.due_ns(n) for n in range(5)] == [0, 14 * MS, 28 * MS, 42 * MS, 56 * MS]
    assert not blocks.over(4, 69 * MS)
    assert blocks.over(5, 69 * MS) and not blocks.over(4, 169 * MS) and blocks.over(4, 170 * MS)


def test_a_duration_that_is_no_multiple_has_the_block_that_begins_within_it() -> None:
    assert Blocks(100, 14 * MS, duration_ns=71 * MS).count == 6


def test_without_a_period_only_the_duration_ends_it() -> None:
    blocks = Blocks(65536, None, duration_ns=10 * MS)
    assert blocks.count is None and blocks.total_bytes is None and not blocks.paced_by_time
    assert blocks.due_ns(1000) == 0
    assert not blocks.over(10**6, 10 * MS - 1) and blocks.over(0, 10 * MS)


def test_a_block_that_was_due_in_time_may_begin_a_little_later() -> None:
    items, steady = Blocks(items=[(0, 10), (5 * MS, 9)], duration_ns=6 * MS), Blocks(9, 5 * MS, duration_ns=6 * MS)
    assert (items.over(1, 7 * MS), items.over(1, 107 * MS), items.over(2, 1)) == (False, True, True)
    assert (steady.over(0, 106 * MS - 1), steady.over(0, 106 * MS)) == (False, True)


def test_items_of_a_source_have_their_own_times_and_sizes() -> None:
    blocks = Blocks(items=[(0, 10), (5 * MS, 70_000), (9 * MS, 1)], duration_ns=9 * MS)
    assert blocks.count == 2 and blocks.total_bytes == 70_010
    assert (blocks.due_ns(1), blocks.size(1)) == (5 * MS, 70_000)


def test_an_item_too_short_for_a_datagram_is_made_longer_and_counted_so() -> None:
    items = [[(0, 1), (1, 0), (2, 100)]]
    udp = Blocks.of(ConnectionShape(protocol="udp", items=items), 0)
    assert [udp.size(n) for n in range(3)] == [32, 32, 100] and udp.total_bytes == 164
    tcp = Blocks.of(ConnectionShape(protocol="tcp", items=items), 0)
    assert [tcp.size(n) for n in range(3)] == [1, 1, 100] and tcp.total_bytes == 102


def stream(sizes: list[int], gap_ns: int = 0) -> bytes:
    data = b""
    for number, size in enumerate(sizes):
        head = tcp_head(size, number, number * gap_ns)
        data += head + bytes(size - len(head))
    return data


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_is_read_right_wherever_it_is_cut(seed: int) -> None:
    random.seed(seed)
    sizes = [random.choice((1, 2, TCP_HEADER.size - 1, TCP_HEADER.size, 25, 1000, 9140)) for _ in range(50)]
    data = stream(sizes)
    reader, at = StreamReader(), 0
    while at < len(data):
        step = random.randint(1, random.choice((3, 40, 5000)))
        reader.feed(memoryview(data)[at : at + step], at)
        at += step
    assert reader.arrivals.blocks == len(sizes) and reader.arrivals.bytes == sum(sizes)
    assert reader.arrivals.block_bytes == sum(sizes) and not reader.inside_a_block


def test_a_stream_that_ends_inside_a_block_is_known() -> None:
    reader = StreamReader()
    reader.feed(memoryview(stream([100, 100])[:-1]), 0)
    assert reader.inside_a_block and (reader.arrivals.blocks, reader.arrivals.bytes) == (1, 199)
    reader = StreamReader()
    reader.feed(memoryview(stream([100])[:10]), 0)
    assert reader.inside_a_block


@pytest.mark.parametrize(
    "data",
    [
        bytes(24),
        TCP_HEADER.pack(0x5342, 100, 1, 0),  # not the first
        TCP_HEADER.pack(0x5342, 23, 0, 0),  # shorter than its header
        bytes([0x80]),
        bytes([0x80 | 24]),
    ],
)
def test_bytes_of_somebody_else_are_refused(data: bytes) -> None:
    with pytest.raises(EngineError, match="no block 0"):
        StreamReader().feed(memoryview(data), 0)


def test_goodput_is_between_the_first_and_the_last_blocks_ends() -> None:
    reader = StreamReader()
    data = stream([1000, 1000, 1000])
    for number in range(3):
        reader.feed(memoryview(data)[number * 1000 : number * 1000 + 1000], number * 14 * MS)
    assert reader.arrivals.goodput_bps == pytest.approx(8 * 2000 / 0.028)


def test_goodput_of_datagrams_needs_no_whole_block() -> None:
    """Of each block of two one datagram is lost: half the bytes came through."""
    reader = DatagramReader()
    for block in range(5):
        reader.feed(datagram(block, 0, 2, 2 * block), block * 14 * MS)
    assert reader.arrivals.blocks == 0
    assert reader.arrivals.goodput_bps == pytest.approx(8 * 400 / 0.056)


def test_one_block_has_no_goodput() -> None:
    reader = StreamReader()
    reader.feed(memoryview(stream([1000])), 5)
    assert reader.arrivals.goodput_bps is None


def test_jitter_is_the_spread_of_differences_and_needs_no_common_clock() -> None:
    random.seed(1)
    delays = [random.randint(10, 5000) for _ in range(300)]
    differences = [b - a for a, b in itertools.pairwise(delays)]
    here, elsewhere = Moments(), Moments()
    before = None
    for delay in delays:
        here.add(delay, before)
        elsewhere.add(delay - 10**15, None if before is None else before - 10**15)
        before = delay
    assert here.jitter_sd_ns == pytest.approx(statistics.pstdev(differences))
    assert elsewhere.jitter_sd_ns == here.jitter_sd_ns
    assert (here.min_ns, here.max_ns, here.mean_ns) == (min(delays), max(delays), statistics.mean(delays))


def test_moments_of_connections_add_up_without_pairs_across_them() -> None:
    one, two = Moments(), Moments()
    one.add(10, None)
    one.add(14, 10)
    two.add(100, None)
    two.add(96, 100)
    both = merge_moments([one, two, Moments()])
    assert (both.count, both.min_ns, both.max_ns, both.pairs) == (4, 10, 100, 2)
    assert both.jitter_sd_ns == 4.0
    assert merge_moments([Moments()]).mean_ns is None


def datagram(block: int, part: int, parts: int, sequence: int, size: int = 100, sent_ns: int = 0) -> bytes:
    return UDP_HEADER.pack(UDP_MAGIC, parts, part, 0, block, sequence, sent_ns).ljust(size, b"\0")


def test_a_block_is_whole_when_all_its_parts_have_come_in_any_order() -> None:
    reader = DatagramReader()
    for sequence in (2, 0, 1):
        reader.feed(datagram(0, sequence, 3, sequence), 50 + sequence)
    assert (reader.distinct, reader.reordered, reader.duplicated) == (3, 2, 0)
    assert (reader.arrivals.blocks, reader.arrivals.block_bytes) == (1, 300)
    assert reader.arrivals.delay.min_ns == 51  # the last one to come


def test_twice_is_not_two_and_makes_no_block_whole() -> None:
    reader = DatagramReader()
    reader.feed(datagram(0, 0, 2, 0), 1)
    reader.feed(datagram(0, 0, 2, 0), 2)
    assert (reader.distinct, reader.duplicated, reader.arrivals.blocks, reader.arrivals.bytes) == (1, 1, 0, 100)


def test_a_lost_part_loses_its_block_only() -> None:
    reader = DatagramReader()
    for block in range(3):
        for part in range(2):
            if (block, part) != (1, 0):
                reader.feed(datagram(block, part, 2, 2 * block + part), block)
    assert (reader.distinct, reader.arrivals.blocks) == (5, 2)


def test_what_is_waited_for_is_bounded() -> None:
    reader = DatagramReader()
    for block in range(REMEMBERED_BLOCKS + 10):
        reader.feed(datagram(block, 0, 2, 2 * block), block)
    assert len(reader._waiting) == REMEMBERED_BLOCKS
    assert reader.distinct == REMEMBERED_BLOCKS + 10


@pytest.mark.parametrize("data", [b"", b"\x53\x44", bytes(32), struct.pack(">H30x", 0x5342)])
def test_a_datagram_of_somebody_else_is_not_counted(data: bytes) -> None:
    reader = DatagramReader()
    reader.feed(data, 0)
    assert (reader.foreign, reader.distinct, reader.arrivals.bytes) == (1, 0, 0)


def test_a_number_that_cannot_be_costs_no_memory() -> None:
    reader = DatagramReader()
    for sequence in (0, MOST_AHEAD + 2, 2**62):
        reader.feed(datagram(sequence, 0, 1, sequence), 0)
    assert (reader.foreign, reader.distinct, reader.arrivals.blocks) == (2, 1, 1)
    reader.feed(datagram(9, 0, 1, MOST_AHEAD + 1), 0)
    assert (reader.foreign, reader.distinct) == (2, 2)


@pytest.mark.parametrize("size", [32, 1472, 1473, 9140, 54840])
def test_a_block_is_cut_into_as_few_datagrams_as_will_do(size: int) -> None:
    sizes = part_sizes(size, 1472)
    assert sum(sizes) == size and max(sizes) <= 1472 and max(sizes) - min(sizes) <= 1
    assert len(sizes) == -(-size // 1472)


def test_spread_of_nothing_is_none() -> None:
    assert spread([]) is None
    assert spread([2, 4]) == (3.0, 1.0)
