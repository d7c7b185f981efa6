"""Every bit of a frame, from the destination MAC to the last byte, damaged one at a time on the way to the counting
program: each is one altered or one lost packet, and no other figure changes.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.counting import users
from pktswarm.traffic.counting.tally import not_received
from pktswarm.traffic.frames.description import FrameDescription, Headers
from pktswarm.traffic.leg import Arrival, Leg
from pktswarm.traffic.schedule.leg_frames import templates_as_sent
from xdp_counter import Counter, flip_each, flipped
from xdp_frames import CHECKED, ETHERNET, PLAIN, ROOT, SHAPES, UDP, a_leg, stamped

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]
BELIEVED_AHEAD = int(re.findall(r"define BELIEVED_AHEAD (\d+)", (ROOT / "kernel/count_numbers.h").read_text())[0])
DELAY_NS = 5_000_000
"""How long each frame was on its way, by its stamp."""
TUNNEL: Headers = [
    ETHERNET,
    {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}},
    {"udp": {"src": 2152, "dst": 2152, "checksum": 0}},
]
USER: Headers = [{"ipv4": {"src": "10.45.0.2", "dst": "10.60.0.1"}}, {"udp": {"src": 7, "dst": 8}}]
FLIPPED: dict[str, Headers] = {
    "udp4": SHAPES["udp4"],
    "tcp4": SHAPES["tcp4"],
    "icmp": SHAPES["icmp"],
    "udp6": SHAPES["udp6"],
    "tcp6": SHAPES["tcp6"],
    "vlan": SHAPES["vlan"],
    "qinq": SHAPES["qinq"],
    "ip in ip": SHAPES["ip in ip"],
    "gtpu": [*TUNNEL, {"gtpu": {"teid": 0x1234}}, *USER],
    "gtpu session": [*TUNNEL, {"gtpu": {"teid": 0x1234}}, {"gtpu_options": {}}, {"pdu_session": {"qfi": 9}}, *USER],
}
UNSEEN: dict[str, list[tuple[str, int, int]]] = {
    "udp6": [("ECN and flow label", 15 * 8 + 2, 22)],
    "tcp6": [("ECN and flow label", 15 * 8 + 2, 22)],
    "qinq": [("ECN and flow label", 23 * 8 + 2, 22)],
    "ip in ip": [("ECN and flow label", 35 * 8 + 2, 22)],
    "gtpu": [
        ("the outer UDP source port", 34 * 8, 16),
        ("its length, and the checksum that it does not have", 38 * 8, 32),
        ("GTP-U: a spare bit", 42 * 8 + 4, 1),
        ("its length", 44 * 8, 16),
    ],
    "gtpu session": [
        ("the outer UDP source port", 34 * 8, 16),
        ("its length, and the checksum that it does not have", 38 * 8, 32),
        ("GTP-U: a spare bit", 42 * 8 + 4, 1),
        ("flags of what is there already", 42 * 8 + 6, 2),
        ("its length", 44 * 8, 16),
        ("sequence and N-PDU number, which no flag claims", 50 * 8, 24),
        ("the type of the extension header", 53 * 8, 8),
        ("PDU type and QFI", 55 * 8, 16),
    ],
}
"""What nobody checks: (what, first bit, bits). Of IPv6 no checksum covers it; outer headers are passed over."""


def a_flipped_leg(shape: str, size_bytes: int, **more: Any) -> Leg:
    return replace(a_leg("udp4", 300, size_bytes), frame={"headers": FLIPPED[shape], "payload": {"fill": 0xA5}}, **more)


@pytest.mark.parametrize("magic", [PLAIN, CHECKED])
@pytest.mark.parametrize("shape", FLIPPED)
def test_any_damaged_bit_is_one_altered_or_lost_packet(program: Path, tmp_path: Path, shape: str, magic: int) -> None:
    leg = a_flipped_leg(shape, 164)
    counter = Counter(program, tmp_path, leg)
    began_ns = time.monotonic_ns()
    unseen = flip_each(counter, lambda n: stamped(leg, n, time.monotonic_ns() - DELAY_NS, magic))
    found, within_ns = counter.figures().tally.latency, time.monotonic_ns() - began_ns + DELAY_NS
    counter.receiver.restore()
    assert found is not None and DELAY_NS <= found.min_ns <= found.max_ns <= within_ns
    assert unseen == {bit for _, first, size in UNSEEN.get(shape, []) for bit in range(first, first + size)}


def test_a_payload_that_is_no_more_than_its_stamp_is_whole(program: Path, tmp_path: Path) -> None:
    leg = a_flipped_leg("udp4", 14 + 20 + 8 + 22 + 4)
    counter = Counter(program, tmp_path, leg)
    counter.take(stamped(leg, 0, magic=CHECKED))
    found = counter.figures().tally
    counter.receiver.restore()
    assert (found.distinct, found.altered) == (1, 0)


@pytest.mark.parametrize("size_bytes", [161, 162, 163, 164])
def test_what_stands_behind_the_payload_is_none_of_it(program: Path, tmp_path: Path, size_bytes: int) -> None:
    """Padding, or a trailer that a device has put there."""
    leg = a_flipped_leg("udp4", size_bytes)
    counter = Counter(program, tmp_path, leg)
    counter.take(stamped(leg, 0, magic=CHECKED) + b"\xff" * 5)
    found = counter.figures().tally
    counter.receiver.restore()
    assert (found.distinct, found.altered) == (1, 0)


TUNNEL_BYTES = 20 + 8 + 8
THROUGH_A_UPF = {"up": ("gtpu", "alone", -TUNNEL_BYTES), "down": ("alone", "gtpu", TUNNEL_BYTES)}


@pytest.mark.parametrize("way", THROUGH_A_UPF)
def test_the_same_behind_a_upf(program: Path, tmp_path: Path, way: str) -> None:
    """Sent in a tunnel and received without it, and the other way about."""
    left, arrived, added = THROUGH_A_UPF[way]
    headers: dict[str, Headers] = {"gtpu": FLIPPED["gtpu"], "alone": [ETHERNET, *USER]}
    leg = replace(a_leg("udp4", 300, 164), frame={"headers": headers[left], "payload": {"fill": 0xA5}})
    leg = replace(leg, arrives=Arrival(headers[arrived], added))
    there = replace(leg, frame={**leg.frame, "headers": headers[arrived]}, size_bytes=164 + added)
    counter = Counter(program, tmp_path, leg)
    unseen = flip_each(counter, lambda n: stamped(there, n, time.monotonic_ns() - DELAY_NS, CHECKED))
    counter.receiver.restore()
    assert unseen == {bit for _, first, size in UNSEEN.get(arrived, []) for bit in range(first, first + size)}


@pytest.mark.parametrize("magic", [PLAIN, CHECKED])
def test_a_checksum_that_is_left_out_is_altered(program: Path, tmp_path: Path, magic: int) -> None:
    leg = a_flipped_leg("udp4", 164)
    counter = Counter(program, tmp_path, leg)
    frame = stamped(leg, 0, magic=magic)
    counter.take(frame[:40] + bytes(2) + frame[42:])
    found = counter.figures().tally
    counter.receiver.restore()
    assert (found.altered, found.altered_by, found.lost(1)) == (1, {"checksum": 1}, 0)


# --- users ------------------------------------------------------------------------------------------------------------

OF_USERS: dict[str, Headers] = {
    "ipv4.src": [ETHERNET, {"ipv4": {"src": {"increment": ["10.1.0.0", "10.1.0.7"]}, "dst": "10.0.0.2"}}, UDP],
    "ipv6.dst": [ETHERNET, {"ipv6": {"src": "fd00::1", "dst": {"increment": ["fd00::100", "fd00::107"]}}}, UDP],
    "udp.src": [*SHAPES["udp4"][:2], {"udp": {"src": {"increment": [5000, 5007]}, "dst": 7}}],
}


def a_leg_of_users(name: str) -> Leg:
    frame: FrameDescription = {"headers": OF_USERS[name], "payload": {"fill": 0xA5}}
    leg = replace(a_leg("udp4", 300, 120), frame=frame)
    (template,) = templates_as_sent(leg).values()
    return replace(leg, users=users.of_template("test", "users", template, name))


@pytest.mark.parametrize("name", OF_USERS)
def test_a_damaged_bit_gives_no_user_a_packet_of_anothers(program: Path, tmp_path: Path, name: str) -> None:
    """All frames are of the first user: it lacks one at the most, and the others have none."""
    leg = a_leg_of_users(name)
    counter = Counter(program, tmp_path, leg)
    flip_each(counter, lambda n: stamped(leg, n, time.monotonic_ns(), CHECKED))
    figures, columns = counter.figures(), counter.receiver.figures.users(300)
    counter.receiver.restore()
    assert columns is not None
    assert columns["packets"][1:-1] == columns["distinct"][1:-1] == [0] * 7
    lost = not_received(counter.sent, columns["distinct"][0], columns["damaged"][0])
    assert sum(columns["packets"]) == figures.tally.packets
    assert lost == figures.moved["lost"] + columns["packets"][-1]


def test_a_damaged_checksum_over_the_payload_leaves_the_user(program: Path, tmp_path: Path) -> None:
    """It is tried with the headers too, which are whole."""
    leg = a_leg_of_users("ipv4.src")
    counter = Counter(program, tmp_path, leg)
    counter.take(flipped(stamped(leg, 0, magic=CHECKED), (42 + 18) * 8))
    columns, found = counter.receiver.figures.users(300), counter.figures().tally
    counter.receiver.restore()
    assert columns is not None and columns["packets"] == [1] + [0] * 8
    assert found.altered_by == {"payload": 1}


def test_a_damaged_address_is_no_users_where_the_payload_is_damaged_too(program: Path, tmp_path: Path) -> None:
    leg = a_leg_of_users("ipv4.src")
    counter = Counter(program, tmp_path, leg)
    frame = stamped(leg, 0, magic=CHECKED)
    counter.take(flipped(flipped(frame, 29 * 8 + 7), 8 * len(frame) - 1))
    columns = counter.receiver.figures.users(300)
    counter.receiver.restore()
    assert columns is not None and columns["packets"] == [0] * 8 + [1]


# --- jumps and times --------------------------------------------------------------------------------------------------


def test_a_jump_is_believed_when_a_second_frame_confirms_it(program: Path, tmp_path: Path) -> None:
    """Of both frames the users have theirs then."""
    leg = a_leg_of_users("udp.src")
    counter = Counter(program, tmp_path, leg)
    for number in (0, 1, 2 + BELIEVED_AHEAD, 2, 7 + BELIEVED_AHEAD, 8 + BELIEVED_AHEAD):
        counter.take(stamped(leg, number, magic=CHECKED))
    found, columns = counter.figures().tally, counter.receiver.figures.users(300)
    counter.receiver.restore()
    assert (found.distinct, found.invalid_sequence, found.reordered, found.missing) == (5, 1, 0, 4 + BELIEVED_AHEAD)
    assert columns is not None and (columns["packets"][0], columns["distinct"][0]) == (6, 5)


def test_a_number_within_the_believed_distance_needs_no_second_frame(program: Path, tmp_path: Path) -> None:
    leg = a_flipped_leg("udp4", 164)
    counter = Counter(program, tmp_path, leg)
    for number in (0, BELIEVED_AHEAD):
        counter.take(stamped(leg, number))
    found = counter.figures().tally
    counter.receiver.restore()
    assert (found.distinct, found.invalid_sequence, found.highest) == (2, 0, BELIEVED_AHEAD)


@pytest.mark.parametrize("sent_s", [-4000, -0.1, 0.5, 200_000])
def test_a_time_that_cannot_be_makes_no_latency(program: Path, tmp_path: Path, sent_s: float) -> None:
    """Before the receiver was armed, or in its future by more than the clocks' bound: `sent_s` from now."""
    leg, before = a_flipped_leg("udp4", 164), time.monotonic_ns()
    counter = Counter(program, tmp_path, leg, bounds_ns={"a": 1_000_000}, armed_ns=before)
    counter.take(stamped(leg, 0, before))
    # A future is one of the moment of arrival: making the counter may have taken longer.
    now = time.monotonic_ns() if sent_s > 0 else before
    counter.take(stamped(leg, 1, now + round(sent_s * 1e9)))
    counter.take(stamped(leg, 2, before))
    found, within_ns = counter.figures().tally, time.monotonic_ns() - before
    counter.receiver.restore()
    assert (found.packets, found.distinct, found.altered, found.impossible) == (3, 3, 0, 1)
    assert found.latency is not None and found.jitter is not None
    assert (found.latency.frames, found.jitter.pairs) == (2, 1) and 0 < found.latency.max_ns < within_ns
    assert found.jitter.sd_ns < within_ns


def test_a_latency_below_zero_within_the_bound_is_one(program: Path, tmp_path: Path) -> None:
    leg, now = a_flipped_leg("udp4", 164), time.monotonic_ns()
    counter = Counter(program, tmp_path, leg, bounds_ns={"a": 10**10}, armed_ns=now)
    counter.take(stamped(leg, 0, now + 9 * 10**9))
    found = counter.figures().tally
    counter.receiver.restore()
    assert found.latency is not None and -9 * 10**9 < found.latency.min_ns < -8 * 10**9 and found.impossible == 0


def test_a_time_comes_round_after_48_bits(program: Path, tmp_path: Path) -> None:
    """The sender's clock is a host's that was booted long before: the offset between the two is more than 2^48 ns."""
    leg, ahead_ns = a_flipped_leg("udp4", 164), 5 * 2**48 + 12345
    counter = Counter(program, tmp_path, leg, offsets_ns={"a": ahead_ns})
    for number in range(3):
        counter.take(stamped(leg, number, time.monotonic_ns() + ahead_ns - DELAY_NS))
    found = counter.figures().tally.latency
    counter.receiver.restore()
    assert found is not None and found.frames == 3 and DELAY_NS <= found.min_ns <= found.max_ns < 2 * 10**9
