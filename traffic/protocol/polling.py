"""Waits of microseconds and single milliseconds: awake, without keeping a processor from others.

The processes of a lab share few processors, and the kernel often puts two that talk to each other on the same one,
while another one is idle.
"""

from __future__ import annotations

import os
import time

ANSWER_NS = 60_000
"""Longer than an answer takes between two processors of one machine."""
YIELD_NS = 5_000_000
WAKE_AHEAD_NS = 300_000
"""A timer wakes a process late, by 50 us as a rule: an instant is waited for awake."""
GIVE_WAY_S = 0.0001
LONGEST_WAIT_NS = 50_000_000
"""For an instant: no clock is trusted further than this."""


def yield_behind(since_ns: int) -> None:
    """Between two polls for what was asked for at `since_ns`: yields the processor once the answer is late."""
    if time.monotonic_ns() - since_ns > ANSWER_NS:
        os.sched_yield()


def pause(since_ns: int) -> None:
    """Between two polls of a wait since `since_ns`: yields the processor at first, for a close release; then sleeps, so
    that a long wait does not spin."""
    if time.monotonic_ns() - since_ns < YIELD_NS:
        os.sched_yield()
    else:
        time.sleep(0.00002)


def awaited_ns(at_ns: int) -> int:
    """Returns CLOCK_MONOTONIC at `at_ns`, or now if that is over.

    Where there are more processes than processors, each looks at the clock in turn, every few microseconds. What
    follows would keep the processor for longer, so it waits until the others have looked.
    """
    now_ns = time.monotonic_ns()
    if at_ns <= now_ns:
        return now_ns
    at_ns = min(at_ns, now_ns + LONGEST_WAIT_NS)
    time.sleep(max(0, at_ns - WAKE_AHEAD_NS - now_ns) / 1e9)
    while (now_ns := time.monotonic_ns()) < at_ns:
        os.sched_yield()
    time.sleep(GIVE_WAY_S)
    return now_ns
