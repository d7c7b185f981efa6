"""When the sending process sleeps, and how it calls its program."""

from __future__ import annotations

import pytest

from pktswarm.nodes.senders.xdp_run import (
    AWAKE_AHEAD_NS,
    CALL_NS,
    MOST_AHEAD_NS,
    SPIN_NS,
    _serve,
    last_repeats,
    longest_poll_ns,
    next_ahead_ns,
)
from pktswarm.traffic.schedule.records import StateRecord


def test_it_wakes_earlier_where_it_was_late_and_slowly_later_again() -> None:
    ahead_ns = AWAKE_AHEAD_NS
    for _ in range(20):
        ahead_ns = next_ahead_ns(ahead_ns, too_late=True)
    assert ahead_ns == MOST_AHEAD_NS
    one_later_ns = next_ahead_ns(ahead_ns, too_late=False)
    assert AWAKE_AHEAD_NS < one_later_ns < ahead_ns
    for _ in range(2000):
        ahead_ns = next_ahead_ns(ahead_ns, too_late=False)
    assert ahead_ns == AWAKE_AHEAD_NS


def test_where_processors_are_shared_it_sleeps_between_frames_however_late_it_was() -> None:
    """3,333 frames a second: by itself a sender that was late polls all the time between two of them."""
    gap_ns, ahead_ns, shared_ahead_ns = 300_000, AWAKE_AHEAD_NS, AWAKE_AHEAD_NS
    for _ in range(20):
        ahead_ns = next_ahead_ns(ahead_ns, too_late=True)
        shared_ahead_ns = next_ahead_ns(shared_ahead_ns, too_late=True, shared=True)
    assert longest_poll_ns(ahead_ns, shared=False) > gap_ns
    assert longest_poll_ns(shared_ahead_ns, shared=True) < gap_ns / 4
    assert shared_ahead_ns > CALL_NS


def test_the_last_call_ends_soon_after_the_instant() -> None:
    """It lasts as long as the wait, and a run or two more."""
    for wait_ns in (-5, 0, CALL_NS, 50_000, 150_000):
        runs = last_repeats(wait_ns, 32)
        assert runs >= 1 and (runs - 1) * SPIN_NS <= max(0, wait_ns - CALL_NS) < runs * SPIN_NS
    assert last_repeats(10**9, 32) == 32


class Ended(Exception):
    """In place of the process's end."""


def test_each_call_counts_its_frames_from_the_first() -> None:
    """A reading of the clock serves 16 frames of one call: one from before the call would be too old."""
    state, seen = StateRecord(start_ns=1), list[int]()

    def send(repeat: int) -> int:
        seen.append(int(state.runs))
        state.runs += repeat
        if len(seen) == 3:
            raise Ended
        return 0

    with pytest.raises(Ended):
        _serve(send, state, batch=16, most=1000, awake=False)
    assert seen == [0, 0, 0]
