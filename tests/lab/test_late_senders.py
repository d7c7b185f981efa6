"""What a sender does about the time for which it was held up: stretch its schedule, catch up, or leave frames out."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fragmented
from pktswarm.nodes import availability
from pktswarm.nodes.libbpf import run_once
from pktswarm.nodes.senders.xdp_program import Program
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import fragments
from pktswarm.traffic.schedule.assemble import assemble
from pktswarm.traffic.schedule.compile import STRETCH_GAPS, STRETCH_NS, STRETCHED_SHARE, compile_leg
from pktswarm.traffic.schedule.pace import seed_of
from pktswarm.traffic.schedule.records import NEVER
from wire import Wire
from xdp_ends import XDP_REDIRECT, loaded, start
from xdp_sender_ends import a_leg

pytestmark = [
    pytest.mark.usefixtures("live_frames"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender()),
]

HELD_UP_NS = 2_000_000_000
GAP_NS = 100_000_000
"""No test takes half as long between two frames that must leave together."""
STEADY: dict[str, Any] = {"rate_pps": 1e9 / GAP_NS, "count_packets": 100_000}
SHORT: dict[str, Any] = {**STEADY, "count_packets": 100}
"""It lasts for 10 s: 2 s are too much of that to be added to it unless the user asks for it."""
STRETCHED: dict[str, dict[str, Any]] = {
    "by default": STEADY,
    "asked for": {**SHORT, "options": {"late": "stretch"}},
    "a changing rate": {"rates": [[0, 0.0], [10**6, 1e9 / GAP_NS]], "duration_s": 5.0, "options": {"late": "stretch"}},
}


@contextmanager
def held_up(leg: Leg, by_ns: int = HELD_UP_NS) -> Iterator[Program]:
    """Its program, which begins to look so long after the start."""
    with loaded(assemble([compile_leg(leg, seed_of(leg))]), start_ns=time.monotonic_ns()) as program:
        program.start(time.monotonic_ns() - by_ns)  # loading takes some time
        yield program


def sent_together(program: Program) -> int:
    """The frames that leave until none is due."""
    sent, tries = program.legs[0].generated, 0
    while tries < 3:  # the end of a step takes a call without a frame
        tries = 0 if run_once(program.fd, bytes(3500))[0] == XDP_REDIRECT else tries + 1
    return int(program.legs[0].generated - sent)


@pytest.mark.parametrize("name", STRETCHED)
def test_one_frame_leaves_after_a_delay_and_the_next_a_gap_later(name: str) -> None:
    with held_up(a_leg(**STRETCHED[name])) as program:
        leg, state = program.legs[0], program.state
        assert sent_together(program) == 1 and leg.late == 1
        assert leg.last_ns + GAP_NS - 1 <= state.due_ns[0] <= leg.last_ns + GAP_NS
        assert HELD_UP_NS - 2 * GAP_NS < leg.stretched_ns <= leg.latest_ns


@pytest.mark.parametrize("by_ns", [STRETCH_GAPS * GAP_NS - GAP_NS // 2, 3 * GAP_NS // 2])
def test_a_delay_of_few_gaps_is_caught_up(by_ns: int) -> None:
    with held_up(a_leg(**STEADY), by_ns) as program:
        assert sent_together(program) == by_ns // GAP_NS + 1
        assert program.legs[0].stretched_ns == 0


def test_two_milliseconds_are_caught_up_at_any_rate() -> None:
    compiled = compile_leg(a_leg(rate_pps=1e6, count_packets=10), 1)
    assert compiled.record.stretch_ns == STRETCH_NS == 2_000_000


def test_the_mean_rate_is_kept_within_a_share_of_the_duration() -> None:
    with held_up(a_leg(**SHORT)) as program:
        assert sent_together(program) == HELD_UP_NS // GAP_NS + 1
        assert program.legs[0].stretched_ns == 0
    ten_seconds = compile_leg(a_leg(rate_pps=1000.0, duration_s=10.0), 1).record
    assert ten_seconds.most_stretched_ns == STRETCHED_SHARE * 10**10 == 20_000_000
    assert compile_leg(a_leg(rate_pps=1000.0), 1).record.stretch_ns == NEVER, "without an end it has no share"


def test_catching_up_is_what_was_asked_for() -> None:
    with held_up(a_leg(**STEADY, options={"late": "catch_up"})) as program:
        assert sent_together(program) == HELD_UP_NS // GAP_NS + 1
        assert program.legs[0].stretched_ns == 0


@pytest.mark.parametrize(
    "more", [{"rates": [[0, 1e9 / GAP_NS]]}, {"rate_pps": 1e9 / GAP_NS, "gap_table": [1 << 24] * 4}]
)
def test_a_schedule_of_its_own_times_catches_up_by_default(more: dict[str, Any]) -> None:
    assert compile_leg(a_leg(duration_s=5.0, **more), 1).record.stretch_ns == NEVER


def test_a_burst_stays_whole() -> None:
    with held_up(a_leg(**STEADY, options={"burst": 4})) as program:
        assert sent_together(program) == 4
        leg = program.legs[0]
        assert leg.last_ns + 3 * GAP_NS < program.state.due_ns[0] <= leg.last_ns + 4 * GAP_NS


def test_a_packet_in_fragments_moves_the_schedule_once() -> None:
    leg = replace(fragmented.a_leg(count_packets=100_000), rate_pps=1e9 / GAP_NS)
    with held_up(leg) as program:
        assert sent_together(program) == fragments.most_frames(leg)
        record = program.legs[0]
        assert record.packets == record.late == 1
        assert HELD_UP_NS <= record.stretched_ns <= record.latest_ns


def test_the_end_moves_with_the_schedule() -> None:
    """Its rate was changed, so that only its end ends it: all that was due within the duration is still sent."""
    gap_ns, duration_ns = 1_000_000, 30_000_000
    leg = a_leg(rate_pps=1e9 / gap_ns, duration_s=duration_ns / 1e9, options={"late": "stretch"})
    with held_up(leg, duration_ns // 2) as program:
        program.set_rate(0, 1e9 / gap_ns)
        begun_ns = time.monotonic_ns()
        while program.state.due_ns[0] != NEVER:
            run_once(program.fd, bytes(3500))
        record = program.legs[0]
        assert record.generated == duration_ns // gap_ns
        assert record.last_ns >= begun_ns + duration_ns - 2 * gap_ns


def sending_process(process: subprocess.Popen[str]) -> int:
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def test_a_sender_that_was_stopped_sends_all_of_it_later(wire: Wire, tmp_path: Path, engine: str) -> None:
    stopped_s, rate_pps, packets = 0.3, 1000.0, 1000
    leg = a_leg(rate_pps=rate_pps, count_packets=packets, options={"late": "stretch"})
    process = start(wire, tmp_path, [leg], engine=engine)
    deadline = time.monotonic() + 60
    while wire.counter("rx") < 100:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.001)
    sender = sending_process(process)
    os.kill(sender, signal.SIGSTOP)
    time.sleep(stopped_s)  # this is what is tried
    os.kill(sender, signal.SIGCONT)
    text, _ = process.communicate(timeout=60)
    (count,) = json.loads(text)["counts"]
    stretched_s = float(re.findall(r"its schedule was stretched by ([\d.]+) us", count["note"])[0]) / 1e6
    assert count["sent_packets"] == packets and wire.settled(packets)
    assert stretched_s >= stopped_s - STRETCH_GAPS / rate_pps
    end_s = count["delay_ns"] / 1e9 + count["seconds"]
    # Only the last frame's own delay is neither in the schedule nor in the stretch.
    assert -1e-6 <= end_s - (packets - 1) / rate_pps - stretched_s <= STRETCH_GAPS / rate_pps
