"""The counting program's sequence numbers: loss, duplication, reordering, gaps."""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.counting import sequence_bitmap
from pktswarm.traffic.counting.kernel_structs import (
    WINDOW_WORDS,
)
from xdp_bench import (
    Bench,
    Oracle,
)
from xdp_frames import (
    a_leg,
    stamped,
)

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]


def test_loss_duplication_and_swaps_are_exact(bench: Callable[..., Bench]) -> None:
    leg, draw = a_leg(), random.Random(3)
    numbers = list(range(5000))
    lost = set(draw.sample(numbers[:-1], 137))
    numbers = [n for n in numbers if n not in lost]
    for at in draw.sample(range(0, 4000, 4), 41):
        numbers[at], numbers[at + 1] = numbers[at + 1], numbers[at]
    doubled = set(draw.sample(range(4863), 29))
    one = bench(leg)
    one.feed(stamped(leg, n) for at, n in enumerate(numbers) for _ in range(1 + (at in doubled)))
    found = one.tally()
    assert found.packets == 5000 - 137 + 29
    assert (found.lost(5000), found.missing, found.duplicated, found.reordered) == (137, 137, 29, 41)
    assert (found.too_late, found.invalid_sequence, found.altered) == (0, 0, 0)


def test_samples_leave_no_garbage(bench: Callable[..., Bench]) -> None:
    """A buffer of 17 kB that lasts until the collector comes would be hundreds of megabytes of a board's memory."""
    one = bench(a_leg())
    one.feed(stamped(a_leg(), n) for n in range(10))
    one.tally()  # makes the types of the buffers, which have cycles of their own
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            one.tally()
        found = gc.collect()
    finally:
        gc.enable()
    assert found < 50


@pytest.mark.parametrize("seed", range(3))
def test_any_order_is_counted_as_by_definition(bench: Callable[..., Bench], seed: int) -> None:
    """Frames that each arrive 0 to 3 times, up to 60,000 numbers late."""
    draw, leg = random.Random(seed), a_leg()
    sent = [n * 37 for n in range(3000)]
    arrivals = sorted(
        (n + draw.choice([0, 0, 0, draw.randrange(60_000)]), n) for n in sent for _ in range(draw.randrange(4))
    )
    oracle, one = Oracle(), bench(leg)
    for _, n in arrivals:
        oracle.take(n)
    one.feed(stamped(leg, n) for _, n in arrivals)
    found = one.tally()
    assert (found.packets, found.distinct) == (len(arrivals), len(oracle.seen))
    assert (found.duplicated, found.reordered) == (oracle.duplicated, oracle.reordered)
    assert found.highest == oracle.next - 1


def test_what_falls_out_of_the_window_is_told(bench: Callable[..., Bench]) -> None:
    leg, window = a_leg(), 64 * WINDOW_WORDS
    one = bench(leg)
    one.feed(stamped(leg, n) for n in (0, window - 1, window, 1))
    found = one.tally()
    assert (found.packets, found.distinct, found.too_late) == (4, 3, 1)
    one.feed(stamped(leg, n) for n in (64, window + 64))
    assert (one.tally().distinct, one.tally().reordered, one.tally().too_late) == (5, 1, 1)


def test_a_real_gap_is_believed_and_a_damaged_number_is_not(bench: Callable[..., Bench]) -> None:
    leg, far = a_leg(), 1 << 40
    one = bench(leg)
    one.feed(stamped(leg, n) for n in (0, 1, far, 2, far + 9, 3))
    found = one.tally()
    assert (found.distinct, found.invalid_sequence, found.missing, found.reordered) == (4, 2, 0, 0)
    one.feed(stamped(leg, n) for n in (1_000_001, 1_000_000, 1_000_002, 1_000_002))
    found = one.tally()
    assert (found.distinct, found.invalid_sequence, found.duplicated, found.reordered) == (7, 2, 1, 1)
    assert found.highest == 1_000_002


@pytest.mark.kernel
def test_a_number_that_was_never_sent_is_astray(bench: Callable[..., Bench]) -> None:
    leg = a_leg(count_packets=10, rate_pps=1000.0)
    one = bench(leg)
    one.feed(stamped(leg, n) for n in (0, 9, 10, 11))
    assert (one.tally().distinct, one.tally().invalid_sequence) == (2, 2)


def test_without_a_rate_higher_numbers_stand_for_frames_that_a_full_ring_dropped(bench: Callable[..., Bench]) -> None:
    leg = a_leg(count_packets=10)
    one = bench(leg)
    one.feed(stamped(leg, n) for n in (0, 9, 10, 11))
    assert (one.tally().distinct, one.tally().invalid_sequence) == (4, 0)


def test_two_nodes_together_know_which_numbers_came(bench: Callable[..., Bench]) -> None:
    """Of two legs whose users move: however far numbers jump and however late they are, here or there or at both."""
    draw = random.Random(1)
    shape: dict[str, Any] = {"count_packets": 1_000_000, "intended_packets": 1_000_000, "rate_pps": 1000.0}
    there = [[a_leg(number=number, **shape, handover_targets=[other]) for number in (3, 4)] for other in "cd"]
    union: dict[int, int] = {3: 0, 4: 0}
    came: dict[int, Counter[int]] = {3: Counter(), 4: Counter()}
    for legs in there:
        one = bench(*legs)
        for leg in legs:
            arrivals = [draw.randrange(1_000_000) // 1000 * 1000 for _ in range(1500)]
            oracle = Oracle()
            for n in arrivals:
                oracle.take(n)
            one.feed(stamped(leg, n) for n in arrivals)
            found = one.tally(leg.id)
            assert (found.packets, found.distinct, found.too_late, found.invalid_sequence) == (
                1500,
                len(oracle.seen),
                0,
                0,
            )
            assert (found.duplicated, found.reordered) == (oracle.duplicated, oracle.reordered)
            came[leg.id].update(oracle.seen)
        for count in one.receiver.counts():
            assert count.marks is not None
            union[count.leg] |= sequence_bitmap.unpack(count.marks)
    assert union == {number: sum(1 << n for n in seen) for number, seen in came.items()}
    assert any(times == 2 for times in came[3].values())


def test_a_number_beyond_the_marks_is_astray(bench: Callable[..., Bench]) -> None:
    leg = a_leg(rates=[[0, 10.0]], intended_packets=100, duration_s=10.0, handover_targets=["c"])
    one = bench(leg)
    one.feed(stamped(leg, n) for n in (0, 99, 191, 192, 2**40))
    assert (one.tally().distinct, one.tally().invalid_sequence) == (3, 2)
    (count,) = one.receiver.counts()
    assert count.marks is not None and sequence_bitmap.unpack(count.marks) == 1 | 1 << 99 | 1 << 191
