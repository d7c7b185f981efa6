"""Every bit of frames that are not simply a stream's: of a stamped trace, of an echo there and back. As in
test_bit_flips.py each damaged bit is one altered or one lost packet, and no other figure changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from echo_ends import BACK, UP, End, near_end
from pktswarm.nodes import availability, libbpf
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription, Headers
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.frames.stamp import read_stamp
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.replay.prepare import Settings
from recordings import tcp, udp
from stamped_traces import legs_of, macs, made_by_the_program
from wire import Wire
from xdp_counter import Counter, flip_each, flipped
from xdp_frames import CHECKED, A, B, a_leg, stamped

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender() or "-"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]
REDIRECT = 4


# --- a stamped trace --------------------------------------------------------------------------------------------------

RECORDED: dict[str, Callable[[], bytes]] = {
    "udp": lambda: udp("1.1.1.1", 5000, "2.2.2.2", 53, bytes(range(60))),
    "tcp": lambda: tcp("1.1.1.1", 5000, "2.2.2.2", 80, bytes(range(60))),
}


@pytest.mark.parametrize("what", RECORDED)
def test_a_damaged_bit_of_a_stamped_trace_is_one_altered_or_lost_packet(
    program: Path, tmp_path: Path, what: str
) -> None:
    """Without its stamp it counts as a frame of the trace that never had one, and lacks among those that have."""
    frames = 2 * 8 * len(RECORDED[what]()) + 2
    match = Match.rest(*macs()).to_data()
    legs = legs_of(tmp_path, [RECORDED[what]()] * frames, Settings(stamped=True), match=match)
    by_number = {number_of(frame): frame for frame in made_by_the_program(legs, tmp_path, frames)}
    counter = Counter(program, tmp_path, legs[0])
    unseen = flip_each(counter, by_number.__getitem__)
    tally, (count,) = counter.figures().tally, counter.receiver.counts()
    counter.receiver.restore()
    assert unseen == set()
    assert count.unstamped_packets == tally.lost(counter.sent), "all of them came"
    assert count.received_packets == counter.sent


def number_of(frame: bytes) -> int:
    found = read_stamp(frame[layout(frame).payload :])
    assert found is not None
    return found.sequence


# --- an echo ----------------------------------------------------------------------------------------------------------

SIZE_BYTES = 100


def leg_back() -> Leg:
    """What comes back of xdp_frames' udp4."""
    headers: Headers = [
        {"ethernet": {"src": B, "dst": A}},
        {"ipv4": {"src": "10.0.0.2", "dst": "10.0.0.1", "dscp": 46}},
        {"udp": {"src": 2000, "dst": 1000}},
    ]
    frame: FrameDescription = {"headers": headers, "payload": {"fill": 0xA5}}
    match = Match.from_template(build_frame(frame, SIZE_BYTES)).to_data()
    leg = replace(a_leg("udp4", BACK, SIZE_BYTES), source="b", target="a", frame=frame, match=match)
    return replace(leg, echo_of=UP, echo_percent=100)


def sent_back(wire: Wire, frames: list[bytes]) -> list[bytes]:
    """What the echo makes of each; empty of those that it does not turn round. Nothing stands in front of it."""
    with near_end(wire), End(wire, 100) as end:
        return [frame if verdict == REDIRECT else b"" for verdict, frame in end.run(*frames)]


def test_a_bit_damaged_on_the_way_up_is_one_altered_packet_of_the_echo_or_none(
    program: Path, tmp_path: Path, wire: Wire
) -> None:
    """What the echo turns round gets a number of its own, so nothing but the damage shows in what comes back."""
    up, bits = a_leg("udp4", UP, SIZE_BYTES), 8 * (SIZE_BYTES - 4)
    frames = [stamped(up, number, time.monotonic_ns(), CHECKED) for number in range(2 * bits)]
    frames[::2] = [flipped(frame, bit) for bit, frame in enumerate(frames[::2])]
    back = sent_back(wire, frames)
    counter = Counter(program, tmp_path, leg_back())
    for frame in filter(None, back):
        counter.take(frame)
    figures = counter.figures()
    counter.receiver.restore()
    turned = sum(map(bool, back[::2]))
    assert all(back[1::2]) and 0 < turned < bits
    assert figures.moved == {**dict.fromkeys(figures.moved, 0), "altered": turned}
    assert figures.tally.distinct == bits + turned


def test_a_bit_damaged_on_the_way_back_is_one_altered_or_lost_packet(program: Path, tmp_path: Path, wire: Wire) -> None:
    up = a_leg("udp4", UP, SIZE_BYTES)
    frames = [stamped(up, number, time.monotonic_ns(), CHECKED) for number in range(2 * 8 * (SIZE_BYTES - 4) + 1)]
    counter = Counter(program, tmp_path, leg_back())
    unseen = flip_each(counter, sent_back(wire, frames).__getitem__)
    counter.receiver.restore()
    assert unseen == set()
