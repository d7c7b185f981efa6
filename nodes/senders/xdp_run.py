"""The sending process of the engines xdp and tc: it runs the program in calls into the kernel, and sleeps between them.

A child of the guard (nodes/forked.py). Program, maps and counts belong to the guard. A signal ends a call and this
process; until then it runs, sending or waiting.

A call takes 15 us, but with live frames 24 ms when the kernel first adds the program to its XDP dispatcher, and removes
it afterwards. So that program stays in the dispatcher: it is attached to the loopback interface of a network namespace
of this process alone, where no frame passes (docs/decisions/0004).
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from pktswarm.nodes.libbpf import attach_program, program_by_id, run_clones, run_live, shared_memory
from pktswarm.traffic.schedule.records import NEVER, TURN_LONG, TURN_OF_ONE, TURN_OVER, StateRecord

FEW_REPEATS = 32
"""After a sleep. Of runs that find nothing due soon so many are over in 3 us; those that do wait 250 us in all."""
MOST_REPEATS = 1 << 20
"""A tenth of a second or more: then this process looks whether it may sleep."""
AWAKE_AHEAD_NS, MOST_AHEAD_NS = 100_000, 300_000
"""A timer wakes this process late, by 15 us as a rule and by hundreds where the machine is busy: it has to be awake
that much earlier. How much follows what was seen, so that some 0.4 % of its sleeps end too late."""
WORTH_SLEEPING_NS = 100_000
SHARED_AHEAD_NS, SHARED_WORTH_SLEEPING_NS = 30_000, 40_000
"""Where more threads want a processor than there are, as in a lab: a sender that polls makes the others late, and a
device on the same machine; being late, all of them would wake earlier and poll more. So it wakes only as early as its
timer and the way into the kernel take, and sleeps for shorter waits."""
FIRST_AHEAD_NS = 20_000_000
"""The first frame is waited for awake so long: what slept for longer comes back with cold caches, 100 us from its timer
to the kernel. And of more senders than processors, as in a lab, all have had their turn by then: the one that is not
on a processor at the instant is in the midst of its call, and sends as soon as it is back."""
CALL_NS, SPIN_NS = 12_000, 7_000
"""A call takes so long to its first run; one run waits at least so long for a frame that is due."""
COUNT_AHEAD_NS = 5_000_000
"""By then all that wait for the same instant are awake."""
GIVE_WAY_S, NO_YIELD_NS = 0.00006, 40_000
"""Another sender's first frame takes longer than that, with cold caches; a thread of the kernel's does not."""
LATER_NS, SOONER_NS = 200, 50_000
ALWAYS_NS = 1 << 62
IDLE_S = 0.001
ARMED_S = 0.01
"""Interval of checks for the start time, which is set 30 ms ahead or more: in a lab, armed senders share the processors
with nodes that still prepare and read clocks."""
_NEW_NETWORK = 0x40000000
_SET_TIMER_SLACK = 29
_LOOPBACK_INDEX = 1


def run(
    program_id: int, state_id: int, frame_bytes: int, batch: int, most_repeats: int, awake: bool, live: bool
) -> NoReturn:
    """`frame_bytes`: of the frame that a call begins with. `awake`: from the first frame to the last it does not
    sleep. `live`: live frames, in batches of `batch`; else clones of an skb."""
    program = program_by_id(program_id)
    state = StateRecord.from_buffer(shared_memory(state_id, ctypes.sizeof(StateRecord)))
    ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)  # timers become exact
    if live:
        _hold(program)
        send = partial(run_live, program, bytes(frame_bytes), batch=batch)
    else:
        send = partial(run_clones, program, bytes(frame_bytes))
    _serve(send, state, batch, most_repeats, awake)


def _hold(program: int) -> None:
    """Keeps the program in the dispatcher as long as this process lives."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "no network namespace of its own")
    attach_program(program, _LOOPBACK_INDEX, "generic")


def _serve(send: Callable[..., int], state: StateRecord, batch: int, most: int, awake: bool) -> NoReturn:
    """`send`: a call with `repeat` runs."""
    repeats = few = min(max(FEW_REPEATS, batch), most)
    ahead_ns = AWAKE_AHEAD_NS
    shared: bool | None = None
    while True:
        if state.start_ns == NEVER and state.calls:
            time.sleep(ARMED_S)
            continue
        first = not state.pushed and not state.held
        due_ns = next_due_ns(state)
        wait_ns = due_ns - time.monotonic_ns()
        state.soon_ns = ALWAYS_NS if awake and due_ns > state.start_ns else longest_poll_ns(ahead_ns, bool(shared))
        if due_ns == NEVER:  # not started, or all is sent: the program then says so
            time.sleep(IDLE_S)
            repeats = few
        elif first and wait_ns <= FIRST_AHEAD_NS:
            state.surely_ns = due_ns
            state.soon_ns = 0  # the next one not: another sender may be waiting for this processor
            repeats = last_repeats(wait_ns, few)
            if shared is None and wait_ns < COUNT_AHEAD_NS:  # once: it costs as much as a call
                shared = is_crowded()
                state.turn = TURN_OF_ONE if shared else TURN_LONG
                ahead_ns = next_ahead_ns(ahead_ns, False, shared)
                continue
        elif wait_ns > state.soon_ns:
            time.sleep((wait_ns - (FIRST_AHEAD_NS if first else ahead_ns)) / 1e9)
            repeats = few
            ahead_ns = next_ahead_ns(ahead_ns, time.monotonic_ns() > due_ns, bool(shared))
        state.runs = 0
        send(repeat=repeats)
        if state.turn == TURN_OVER:
            give_way()
            state.turn = TURN_LONG
        state.calls += 1
        repeats = min(repeats * 4, most)


def last_repeats(wait_ns: int, most: int) -> int:
    """So many that the call ends soon behind the first frame."""
    return min(most, max(1, 1 + (wait_ns - CALL_NS) // SPIN_NS))


def is_crowded() -> bool:
    """Whether more threads want a processor than there are: the senders of several nodes, in a lab."""
    running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
    return int(running) > len(os.sched_getaffinity(0))


def give_way() -> None:
    """Yields to a sender that lost its processor during its call.

    sched_yield() is faster than a sleep, but often has no effect: the scheduler finds that the others had more time.
    """
    before_ns = time.monotonic_ns()
    os.sched_yield()
    if time.monotonic_ns() - before_ns < NO_YIELD_NS:
        time.sleep(GIVE_WAY_S)


def longest_poll_ns(ahead_ns: int, shared: bool) -> int:
    """A frame that is due sooner is waited for awake."""
    return ahead_ns + (SHARED_WORTH_SLEEPING_NS if shared else WORTH_SLEEPING_NS)


def next_ahead_ns(ahead_ns: int, too_late: bool, shared: bool = False) -> int:
    """How long before the next due time to wake."""
    if shared:
        return SHARED_AHEAD_NS
    if too_late:
        return min(MOST_AHEAD_NS, ahead_ns + SOONER_NS)
    return max(AWAKE_AHEAD_NS, ahead_ns - LATER_NS)


def next_due_ns(state: StateRecord) -> int:
    """When the leg that is due first is due (CLOCK_MONOTONIC); NEVER if none is."""
    return NEVER if state.start_ns == NEVER else int(state.due_ns[state.winner[1]])
