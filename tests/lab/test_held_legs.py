"""Legs that are held, stopped, started, and sent at another rate while their interface sends others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import availability
from pktswarm.nodes.libbpf import run_once
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import due_times
from pktswarm.traffic.schedule.assemble import assemble
from pktswarm.traffic.schedule.compile import compile_leg
from pktswarm.traffic.schedule.pace import seed_of
from pktswarm.traffic.schedule.records import HELD_NS, NEVER
from wire import Wire
from xdp_ends import XDP_REDIRECT, all_of_sending, loaded
from xdp_sender_ends import a_leg, done_and_frames, latest_s

pytestmark = [
    pytest.mark.usefixtures("live_frames"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender()),
]


def send_and_change(
    wire: Wire, spool: Path, legs: list[Leg], changes: list[tuple[float, int, float | None]], engine: str
) -> tuple[dict[int, list[int]], dict[int, dict[str, Any]], list[list[int]]]:
    """Returns leg → times in its stamps, leg → counts, and of each change the times before and after it."""
    done, frames = done_and_frames(wire, spool, legs, engine=engine, changes=changes)
    counts = {count["leg"]: count for count in done["counts"]}
    times: dict[int, list[int]] = {leg.id: [] for leg in legs}
    for frame in frames:
        if (found := stamp.read_stamp(frame[42:])) is not None:
            assert found.sequence == len(times[found.stream])
            times[found.stream].append(done["at_ns"] + (found.time_ns - done["at_ns"]) % (1 << stamp.NUMBER_BITS))
    assert {leg: len(stamped) for leg, stamped in times.items()} == {
        leg: count["sent_packets"] for leg, count in counts.items()
    }
    return times, counts, done["changed"]


def between(times: list[int], from_ns: int, to_ns: int) -> int:
    return sum(from_ns < at_ns < to_ns for at_ns in times)


@pytest.mark.kernel("xdp")
def test_a_leg_is_sent_from_its_start_to_its_stop_only(wire: Wire, tmp_path: Path, engine: str) -> None:
    """The clock is read for a frame before it is looked whether its leg is held: none has a time behind a stop."""
    legs = [a_leg(number=number, duration_s=1.5, rate_pps=2000.0, held=number == 0) for number in range(3)]
    changes = [(0.2, 0, None), (0.4, 1, 0.0), (0.6, 0, 0.0), (0.9, 0, None), (1.1, 0, 0.0)]
    times, counts, changed = send_and_change(wire, tmp_path, legs, changes, engine)
    begun, ended, stopped, again, at_last = changed
    assert between(times[0], 0, begun[0]) == between(times[0], stopped[1], again[0]) == 0
    assert between(times[0], at_last[1], NEVER) == between(times[1], ended[1], NEVER) == 0
    assert min(between(times[0], begun[0], stopped[1]), between(times[0], again[0], at_last[1]), len(times[1])) > 100
    assert counts[2]["sent_packets"] == 3000, "the third is not touched"


def test_a_leg_without_a_rate_is_stopped_and_started(wire: Wire, tmp_path: Path, engine: str) -> None:
    legs = [a_leg(number=number, duration_s=1.0) for number in range(2)]
    done = all_of_sending(wire, tmp_path, legs, engine=engine, changes=[(0.2, 0, 0.0), (0.4, 1, 0.0), (0.6, 0, None)])
    (_, _), (_, ended_ns), (again_ns, _) = done["changed"]
    first, second = done["counts"]
    assert second["ended_ns"] <= ended_ns < again_ns < first["ended_ns"]
    assert wire.settled(first["sent_packets"] + second["sent_packets"])


def test_a_leg_that_is_never_started_ends_with_its_duration(wire: Wire, tmp_path: Path, engine: str) -> None:
    leg = a_leg(duration_s=0.2, rate_pps=1000.0, held=True)
    times, counts, _ = send_and_change(wire, tmp_path, [leg], [], engine)
    assert times == {0: []} and (counts[0]["late_packets"], counts[0]["skipped_packets"]) == (0, 0)


def test_a_leg_of_a_duration_lasts_as_long_at_a_higher_rate(wire: Wire, tmp_path: Path, engine: str) -> None:
    """It was planned as 500 packets, and would have ended with them."""
    leg = a_leg(duration_s=1.0, rate_pps=500.0)
    times, counts, [(_, changed_ns)] = send_and_change(wire, tmp_path, [leg], [(0.3, 0, 4000.0)], engine)
    then = [at_ns for at_ns in times[0] if at_ns > changed_ns]
    off_s = 2 * latest_s(counts[0]) + 2 / 500
    assert abs((then[-1] - then[0]) / 1e9 - (len(then) - 1) / 4000) <= off_s and len(times[0]) > 1000


# --- what is due, in the program itself -------------------------------------------------------------------------------

PACES: dict[str, dict[str, Any]] = {
    "steady": {"rate_pps": 30_000.0},
    "bursts": {"rate_pps": 30_000.0, "options": {"burst": 4}},
    "poisson": {"rate_pps": 30_000.0, "gap_table": due_times.exponential_gaps()},
    "steps": {"rates": [[0, 50_000.0], [4 * 10**5, 0], [6 * 10**5, 20_000.0]], "rates_period_ns": 10**6},
}


def due(leg: Leg, held_at: int, number: int) -> Iterator[int]:
    """The due times of `number` frames from the start on, less the time that the leg was held behind frame `held_at`
    (-1: never)."""
    start_ns, held_ns, made = time.monotonic_ns() - 10**9, 0, 0
    with loaded(assemble([compile_leg(leg, seed_of(leg))]), start_ns=start_ns) as program:
        record, state = program.legs[0], program.state
        while made < number:
            due_ns = state.due_ns[0]
            if made == held_at and not held_ns:
                give_up_ns, record.give_up_ns = record.give_up_ns, HELD_NS
                assert run_once(program.fd, bytes(96))[0] != XDP_REDIRECT
                assert state.due_ns[0] > time.monotonic_ns() and state.held == 1
                held_ns, record.give_up_ns = state.due_ns[0] - due_ns, give_up_ns
            elif run_once(program.fd, bytes(96))[0] == XDP_REDIRECT:
                yield due_ns - start_ns - held_ns
                made += 1
            else:
                assert due_ns != NEVER


@pytest.mark.parametrize("name", PACES)
def test_what_was_held_goes_on_where_it_was(name: str) -> None:
    leg = a_leg(duration_s=5.0, **PACES[name])
    leg = replace(leg, options={**leg.options, "late": "catch_up"})
    assert [*due(leg, 17, 60)] == [*due(leg, -1, 60)]
