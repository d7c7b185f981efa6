"""The counting program, fed frame by frame through the kernel's test run, with faults that the test itself made: every
figure is exact. test_xdp_wire.py does the same over a wire.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import shutil
import statistics
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import availability, libbpf
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.traffic.counting import sequence_bitmap, users
from pktswarm.traffic.counting.kernel_structs import (
    CAUSE_SLOTS,
    CAUSES,
    SHARED,
    UNMATCHED_KINDS,
    WINDOW_WORDS,
    RawTally,
    RawUserRule,
)
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.counting.tally import Tally, bucket, percentile
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.frames.template import put_bits
from pktswarm.traffic.leg import FlowUsers, Leg
from pktswarm.traffic.protocol.task import ReceiveTask
from pktswarm.traffic.schedule.leg_frames import templates_as_sent
from xdp_frames import (
    CHECKED,
    ETHERNET,
    IPV4,
    IPV6,
    ROOT,
    SHAPES,
    UDP,
    A,
    B,
    a_leg,
    armed,
    compile_program,
    inner,
    mended,
    stamped,
)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
    pytest.mark.skipif(not shutil.which("clang"), reason="clang is not installed"),
]
PASS, DROP = 2, 1


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("bpf") / "count.bpf.o")


class Bench:
    """The program loaded for some legs and attached nowhere."""

    def __init__(self, program: Path, legs: list[Leg], spool: Path, **task: Any) -> None:
        self.receiver = armed(program=program)(
            ReceiveTask("lo", B, legs, 60, **{"mode": "count", "offsets_ns": {"a": 0}, **task}), spool
        )
        self.receiver.prepare()
        self.fd = self.receiver.program.counter_fd

    def feed(self, frames: Iterable[bytes]) -> Counter[int]:
        """The verdicts. A frame that goes on is as it was."""
        verdicts: Counter[int] = Counter()
        for frame in frames:
            verdict, out = libbpf.run_once(self.fd, frame)
            assert out == frame
            verdicts[verdict] += 1
        return verdicts

    def tally(self, leg: int = 0) -> Tally:
        return self.receiver.figures.tallies()[leg]


@pytest.fixture
def bench(program: Path, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*legs: Leg, **task: Any) -> Bench:
        made.append(Bench(program, list(legs), tmp_path, **task))
        return made[-1]

    yield make
    for one in made:
        one.receiver.restore()


class Oracle:
    """What the figures have to be, by definition: nothing is forgotten."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.duplicated = self.reordered = self.next = 0

    def take(self, sequence: int) -> None:
        if sequence in self.seen:
            self.duplicated += 1
            return
        self.reordered += sequence < self.next
        self.next = max(self.next, sequence + 1)
        self.seen.add(sequence)


# --- frame in, verdict out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stamp_is_found_in_every_shape(bench: Callable[..., Bench], shape: str) -> None:
    leg = a_leg(shape, 300)
    one = bench(leg)
    assert one.feed(stamped(leg, n) for n in (0, 1, 3)) == {DROP: 3}
    found = one.tally(300)
    assert (found.packets, found.distinct, found.missing, found.altered) == (3, 3, 1, 0)
    assert found.bytes == 3 * (leg.size_bytes - 4)
    assert found.lost(10) == 7
    assert sum(one.receiver.figures.unmatched().values()) == 0


def test_the_shortest_frame(bench: Callable[..., Bench]) -> None:
    leg = a_leg(size_bytes=64)
    one = bench(leg)
    assert one.feed([stamped(leg, 0)]) == {DROP: 1}
    assert one.tally().distinct == 1


@pytest.mark.parametrize(("mode", "verdict"), [("count", DROP), ("capture", PASS)])
def test_where_a_capture_runs_too_counted_frames_go_on(bench: Callable[..., Bench], mode: str, verdict: int) -> None:
    leg = a_leg()
    assert bench(leg, mode=mode).feed([stamped(leg, 0)]) == {verdict: 1}


ARP = bytes.fromhex("ffffffffffff02000000000a0806") + bytes(46)


def unmatched() -> dict[str, list[bytes]]:
    whole, others = stamped(a_leg(), 0), stamped(a_leg("tcp4"), 0)
    fragment = whole[:20] + b"\x20\x00" + whole[22:]
    return {
        "other": [ARP, build_frame({"headers": SHAPES["udp4"]}, 164).data, whole[:60]],
        "unknown_stream": [stamped(a_leg(number=9), 0)],
        "fragment": [fragment],
        "malformed": [whole[:30], whole[:14] + b"\x44" + whole[15:], whole[:38] + b"\0\7" + whole[40:]],
        "damaged": [others[:62] + b"\x80" + others[63:]],
    }


@pytest.mark.parametrize("kind", UNMATCHED_KINDS)
def test_strangers_go_on_and_are_counted_apart(bench: Callable[..., Bench], kind: str) -> None:
    one, frames = bench(a_leg()), unmatched()[kind]
    if kind == "other":
        frames = frames[:2]  # the third is a stamp cut off: see below
    assert one.feed(frames) == {PASS: len(frames)}
    assert one.receiver.figures.unmatched() == {**dict.fromkeys(UNMATCHED_KINDS, 0), kind: len(frames)}
    assert one.tally().packets == 0


def test_every_cut_is_survived(bench: Callable[..., Bench]) -> None:
    """Each shape cut at each byte: a whole stamp counts, with its wrong length told; anything less goes on."""
    for number, shape in enumerate(SHAPES):
        leg = a_leg(shape, number)
        one, frame = bench(leg), stamped(leg, 5)
        end = layout(frame).payload + 18
        verdicts = one.feed(frame[:size] for size in range(14, len(frame)))
        found = one.tally(number)
        assert found.packets == verdicts[DROP] == len(frame) - end, shape
        assert found.altered_by == {"length": found.packets}, shape
        assert sum(one.receiver.figures.unmatched().values()) == verdicts[PASS] == end - 14, shape


def test_malformed_frames_never_stop_the_count(bench: Callable[..., Bench]) -> None:
    """Random damage to headers and stamps: each frame is counted once, somewhere, and the program goes on."""
    draw = random.Random(1)
    legs = [a_leg(shape, number) for number, shape in enumerate(SHAPES)]
    one = bench(*legs)
    for number in range(6000):
        frame = bytearray(stamped(draw.choice(legs), number))
        for _ in range(draw.randint(1, 6)):
            frame[draw.randrange(min(len(frame), 130))] = draw.choice([0, 0xFF, draw.randrange(256)])
        verdicts = one.feed([bytes(frame[: draw.choice([len(frame), draw.randrange(14, len(frame))])])])
        assert set(verdicts) <= {PASS, DROP}
    tallies = one.receiver.figures.tallies().values()
    assert sum(found.packets for found in tallies) + sum(one.receiver.figures.unmatched().values()) == 6000
    assert sum(found.packets for found in tallies) > 500


def test_noise_never_stops_the_count(bench: Callable[..., Bench]) -> None:
    draw, one = random.Random(2), bench(a_leg())
    assert one.feed(draw.randbytes(draw.randrange(14, 1500)) for _ in range(3000)) == {PASS: 3000}
    assert sum(one.receiver.figures.unmatched().values()) == 3000


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"interface": "nope0"}, "nope0: there is no such interface"),
        ({"filter": "udp"}, "the filter 'udp' came without its program"),
    ],
)
def test_bad_input_is_named_before_the_start(program: Path, tmp_path: Path, task: dict[str, Any], words: str) -> None:
    compiled: type[XdpReceiver] = type("Compiled", (XdpReceiver,), {"object_file": program})
    with pytest.raises((BadInput, EngineError), match=words):
        compiled(replace(ReceiveTask("lo", B, [a_leg()], 60, mode="count"), **task), tmp_path).prepare()


def test_a_program_that_is_not_built_is_missing(tmp_path: Path) -> None:
    missing: type[XdpReceiver] = type("Missing", (XdpReceiver,), {"object_file": tmp_path / "count.o"})
    assert availability.xdp_receiver(missing.object_file) == "count.o is not there (kernel/build.sh compiles it)"
    with pytest.raises(EngineError, match="is not there"):
        missing(ReceiveTask("lo", B, [], 60), tmp_path).prepare()


def ipv6_options(sizes: list[int], broken: bool = False) -> bytes:
    """A stamped frame with hop-by-hop, routing and destination options of so many 8 octets before its UDP header."""
    plain = stamped(a_leg("udp6"), 0)
    kinds = [0, 43, 60][: len(sizes)]
    following = [*kinds[1:], 17]
    parts = [bytes([then, size - 1]) + bytes(8 * size - 2) for then, size in zip(following, sizes, strict=True)]
    options = b"".join(parts)
    length = len(plain) - 54 + len(options) if not broken else 12
    return plain[:18] + struct.pack(">HB", length, kinds[0]) + plain[21:54] + options + plain[54:]


def test_ipv6_options_are_passed_over(bench: Callable[..., Bench]) -> None:
    one = bench(a_leg("udp6"))
    assert one.feed([ipv6_options([1]), ipv6_options([2, 3]), ipv6_options([1, 1, 20])]) == {DROP: 3}
    found = one.tally()
    assert (found.packets, found.duplicated, found.altered) == (3, 2, 0)
    assert one.feed([ipv6_options([2], broken=True)]) == {PASS: 1}
    assert one.receiver.figures.unmatched()["malformed"] == 1


def test_ip_and_tcp_options_are_passed_over(bench: Callable[..., Bench]) -> None:
    plain = stamped(a_leg("tcp4"), 0)
    options = bytes([1] * 8)
    ip = b"\x47" + plain[15:16] + struct.pack(">H", len(plain) - 14 + 16) + plain[18:34] + options
    tcp = plain[34:46] + bytes([plain[46] + 0x20]) + plain[47:54] + options
    one = bench(a_leg("tcp4"))
    assert one.feed([mended(plain[:14] + ip + tcp + plain[54:])]) == {DROP: 1}
    assert (one.tally().distinct, one.tally().altered) == (1, 0)


@pytest.mark.parametrize("options", ["00000085" + "00000000", "00000085" + "01000985" * 40, "000000ff" + "ff"])
def test_gtpu_extensions_without_an_end_are_malformed(bench: Callable[..., Bench], options: str) -> None:
    user = inner(124)
    shape = [ETHERNET, IPV4, {"udp": {"src": 2152, "dst": 2152}}, {"raw": {"hex": "34ff000000001234" + options}}]
    frame = build_frame({"headers": shape, "payload": {"hex": user.hex()}}, 400).data
    one = bench(a_leg())
    assert one.feed([frame]) == {PASS: 1}
    assert one.receiver.figures.unmatched()["malformed"] == 1


# --- numbers ---------------------------------------------------------------------------------------------------------


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
    shape = {"count_packets": 1_000_000, "intended_packets": 1_000_000, "rate_pps": 1000.0}
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


# --- alteration ------------------------------------------------------------------------------------------------------


@pytest.mark.kernel
def test_damaged_payloads_are_exact(bench: Callable[..., Bench]) -> None:
    """Every size modulo 4, and every bit of some frames: 41 altered means 41."""
    for size_bytes in (164, 165, 166, 167, 1518, 3000):
        leg, draw = a_leg(size_bytes=size_bytes), random.Random(size_bytes)
        frames = [bytearray(stamped(leg, n, magic=CHECKED)) for n in range(300)]
        for n in draw.sample(range(300), 41):
            frames[n][draw.randrange(42 + 22, size_bytes - 4)] ^= 1 << draw.randrange(8)
        one = bench(leg)
        one.feed(bytes(frame) for frame in frames)
        found = one.tally()
        assert (found.altered, found.altered_by) == (41, {"payload": 41}), size_bytes
        assert (found.distinct, found.latency and found.latency.frames) == (300, 259)


def at(frame: bytearray, offset: int, data: bytes) -> None:
    frame[offset : offset + len(data)] = data


CHANGES: dict[str, tuple[str, Callable[[bytearray], None]]] = {
    "dst_mac": ("udp4", lambda f: at(f, 5, b"\x0c")),
    "src_mac": ("udp4", lambda f: at(f, 11, b"\x0c")),
    "vlan": ("vlan", lambda f: at(f, 15, b"\x0b")),
    "dscp": ("udp4", lambda f: at(f, 15, b"\x00")),
    "ttl": ("udp4", lambda f: at(f, 22, b"\x01")),
    "src_ip": ("udp4", lambda f: at(f, 29, b"\x09")),
    "dst_ip": ("udp6", lambda f: at(f, 53, b"\x09")),
    "src_port": ("udp4", lambda f: at(f, 34, b"\x00\x01")),
    "dst_port": ("tcp6", lambda f: at(f, 56, b"\x00\x01")),
    "teid": ("gtpu session", lambda f: at(f, 46, b"\x00\x00\x43\x21")),
    "mpls": ("mpls", lambda f: f.__delitem__(slice(14, 18))),
    "length": ("udp4", lambda f: at(f, 38, struct.pack(">H", 100))),
}


@pytest.mark.parametrize("cause", CHANGES)
def test_changed_headers_are_told_by_what_changed(bench: Callable[..., Bench], cause: str) -> None:
    shape, change = CHANGES[cause]
    leg = a_leg(shape)
    one = bench(leg, a_leg("udp4", 1))
    frames = [bytearray(stamped(leg, n)) for n in range(500)]
    for n in random.Random(4).sample(range(500), 17):
        change(frames[n])
    one.feed([*(bytes(frame) for frame in frames), *(stamped(a_leg("udp4", 1), n) for n in range(9))])
    found = one.tally()
    assert (found.packets, found.distinct) == (500, 500)
    assert (found.altered, found.altered_by) == (17, {cause: 17})
    assert one.tally(1).altered == 0


def test_congestion_marks_are_no_alteration_and_a_removed_tag_is(bench: Callable[..., Bench]) -> None:
    leg = a_leg("vlan")
    marked = bytearray(stamped(leg, 0))
    marked[19] |= 3
    untagged = stamped(leg, 1)
    one = bench(leg)
    one.feed([mended(bytes(marked)), untagged[:12] + untagged[16:]])
    assert (one.tally().altered, one.tally().altered_by) == (1, {"vlan": 1})


def test_what_the_device_is_to_change_is_expected(bench: Callable[..., Bench]) -> None:
    """A router: its own MAC, a TTL one less. Here the frames that it did *not* change are the altered ones."""
    leg = a_leg(expect={"ttl": 63, "src_mac": None, "dscp": 0, "dst_ip": "10.9.9.9"})
    routed = bytearray(stamped(leg, 0))
    for offset, data in ((6, b"\2\2\2\2\2\2"), (15, b"\0"), (22, b"\x3f"), (30, b"\x0a\x09\x09\x09")):
        at(routed, offset, data)
    one = bench(leg)
    one.feed([mended(bytes(routed)), stamped(leg, 1)])
    assert (one.tally().altered, one.tally().altered_by) == (1, {"dscp": 1, "ttl": 1, "dst_ip": 1})


def test_varying_fields_may_take_their_values_only(bench: Callable[..., Bench]) -> None:
    shape = [ETHERNET, IPV4, {"udp": {"src": {"increment": [1024, 1031]}, "dst": 2000}}]
    leg = replace(a_leg(), frame={"headers": shape})
    frames = [bytearray(stamped(leg, n)) for n in range(9)]
    for n, frame in enumerate(frames):
        at(frame, 34, struct.pack(">H", 1024 + n))
    one = bench(leg)
    one.feed(mended(bytes(frame)) for frame in frames)
    assert one.tally().altered_by == {"src_port": 1}


# --- unstamped legs --------------------------------------------------------------------------------------------------


@pytest.mark.kernel
def test_unstamped_legs_are_known_by_their_bytes(bench: Callable[..., Bench]) -> None:
    shapes = {
        "plain": [ETHERNET, IPV4, UDP],
        "ports": [ETHERNET, IPV4, {"udp": {"src": {"random": [3000, 3099]}, "dst": 53}}],
        "arp": [ETHERNET, {"arp": {"sender_mac": A, "sender_ip": "10.0.0.1", "target_ip": "10.0.0.2"}}],
        "long": [ETHERNET, IPV6, UDP],
    }
    templates = {name: build_frame({"headers": shape}, 128) for name, shape in shapes.items()}
    matches = {name: Match.from_template(template) for name, template in templates.items()}
    matches["trace"] = Match.rest(A, B, matches.values())
    legs = [
        Leg(number, name, "a", "b", "stream", match=match.to_data())
        for number, (name, match) in enumerate(matches.items())
    ]
    draw, one = random.Random(5), bench(*legs)
    frames = [templates[name].frame(n, draw) for n in range(200) for name in templates]
    ports = bytearray(templates["ports"].data)
    frames += [bytes(ports[:34] + struct.pack(">H", port) + ports[36:]) for port in (2999, 3000, 3099, 3100)]
    frames += [templates["plain"].data[:-1], templates["plain"].data + b"\0", ARP]
    verdicts = one.feed(frames)
    expected = Counter(next((n for n, m in matches.items() if m.matches(frame)), "none") for frame in frames)
    assert expected == {"plain": 200, "ports": 202, "arp": 200, "long": 200, "trace": 4, "none": 1}
    assert {name: one.tally(number).packets for number, name in enumerate(matches)} == {
        name: expected[name] for name in matches
    }
    assert verdicts == {DROP: 806, PASS: 1}
    assert one.tally(0).distinct is None and one.tally(0).lost(300) is None


def test_a_leg_whose_stamps_cannot_be_found_is_counted_by_its_bytes(bench: Callable[..., Bench]) -> None:
    shape = [ETHERNET, IPV4, UDP, {"raw": {"hex": "0011223344556677"}}]
    template = build_frame({"headers": shape}, 128)
    leg = replace(a_leg(size_bytes=128), frame={"headers": shape}, match=Match.from_template(template).to_data())
    one = bench(leg)
    assert one.feed([template.data] * 3) == {DROP: 3}
    assert (one.tally().packets, one.tally().distinct) == (3, None)
    (count,) = one.receiver.counts()
    assert "counted by its bytes" in count.note and count.received_packets == 3


# --- time ------------------------------------------------------------------------------------------------------------


def fed(one: Bench, delays_ns: list[int], make: Callable[[int, int], bytes]) -> list[int]:
    """A frame for each delay, made by number and time, whose time is so long ago; how late each may be at most, for the
    machine may pause between the stamp and the program."""
    most_ns = []
    for number, delay_ns in enumerate(delays_ns):
        now_ns = time.monotonic_ns()
        one.feed([make(number, now_ns - delay_ns)])
        most_ns.append(time.monotonic_ns() - now_ns + delay_ns)
    return most_ns


def noise_ns(least: list[int], most: list[int]) -> list[int]:
    """By how much each J(n) may differ from that of the delays."""
    return [max(pair) for pair in pairwise(b - a for a, b in zip(least, most, strict=True))]


def test_latency_and_jitter_follow_the_stamps(bench: Callable[..., Bench]) -> None:
    leg, one = a_leg(), bench(a_leg())
    least = [1_000_000 * (n % 100) for n in range(1000)]
    most = fed(one, least, lambda n, time_ns: stamped(leg, n, time_ns))
    found = one.tally()
    assert found.latency is not None and found.jitter is not None
    assert found.latency.frames == 1000
    assert 0 < found.latency.min_ns <= min(most)
    assert max(least) <= found.latency.max_ns <= max(most)
    # A percentile is the middle of a bucket, at most 0.8 % off.
    for ours, place in ((found.latency.p50_ns, 499), (found.latency.p90_ns, 899)):
        assert 0.992 * sorted(least)[place] <= ours <= 1.008 * sorted(most)[place]
    steps, noise = [b - a for a, b in pairwise(least)], noise_ns(least, most)
    assert found.jitter.pairs == 999
    assert abs(found.jitter.sd_ns - statistics.pstdev(steps)) <= statistics.fmean(e * e for e in noise) ** 0.5
    estimate = bound = 0.0
    for step, error in zip(steps, noise, strict=True):
        estimate += (abs(step) - estimate) / 16
        bound += (error - bound) / 16
    assert abs(found.jitter.rfc3550_ns - estimate) <= bound


def test_a_duplicate_has_no_latency(bench: Callable[..., Bench]) -> None:
    leg, one = a_leg(), bench(a_leg())
    one.feed([stamped(leg, 0, 1), stamped(leg, 0, 1)])
    found = one.tally()
    assert found.latency and found.latency.frames == 1 and found.jitter is None


def test_without_a_clock_offset_no_latency_is_invented(bench: Callable[..., Bench]) -> None:
    leg = a_leg()
    one = bench(leg, offsets_ns={})
    one.feed(stamped(leg, n, time.monotonic_ns()) for n in range(3))
    assert one.tally().distinct == 3 and one.tally().latency is None


# --- the shared structs ----------------------------------------------------------------------------------------------


def test_both_sides_have_the_same_structs(program: Path) -> None:
    found = structs(program)
    for name, ours in SHARED.items():
        size, members = found[name]
        assert size == ctypes.sizeof(ours), name
        assert members == {field[0]: getattr(ours, field[0]).offset for field in ours._fields_}, name
    header = (ROOT / "kernel/count.h").read_text()
    assert re.findall(r"^\tCAUSE_(\w+),", header, re.M) == [name.upper() for name in CAUSES]
    assert f"CAUSES = {CAUSE_SLOTS}," in header
    assert len(re.findall(r"^\tUNMATCHED_(\w+),", header, re.M)) == len(UNMATCHED_KINDS)


def structs(object_file: Path) -> dict[str, tuple[int, dict[str, int]]]:
    """Of the object's BTF: each struct's size and the byte offsets of its members."""
    data = section(object_file.read_bytes(), b".BTF")
    header_bytes, type_at, type_bytes, text_at = struct.unpack_from("<4xIIII", data)
    text, at_, end = header_bytes + text_at, header_bytes + type_at, header_bytes + type_at + type_bytes

    def word(offset: int) -> str:
        return data[text + offset : data.index(b"\0", text + offset)].decode()

    found: dict[str, tuple[int, dict[str, int]]] = {}
    each, more = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}, {1: 4, 3: 12, 14: 4, 17: 4}
    while at_ < end:
        name, info, size = struct.unpack_from("<III", data, at_)
        kind, count = info >> 24 & 31, info & 0xFFFF
        at_ += 12
        if kind in (4, 5):
            members = [struct.unpack_from("<III", data, at_ + 12 * n) for n in range(count)]
            found[word(name)] = (size, {word(one): (bits & 0xFFFFFF) // 8 for one, _, bits in members})
        at_ += each.get(kind, 0) * count + more.get(kind, 0)
    return found


def section(elf: bytes, name: bytes) -> bytes:
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_bytes, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + n * entry_bytes) for n in range(count)]
    text = headers[names][4]
    for title, _, _, _, offset, size in headers:
        if elf[text + title :].startswith(name + b"\0"):
            return elf[offset : offset + size]
    raise AssertionError(name)


def test_python_counts_a_latency_where_the_program_does(bench: Callable[..., Bench]) -> None:
    leg, one = a_leg(), bench(a_leg())
    # So long ago that the program's own time makes no difference to the bucket.
    one.feed(stamped(leg, n, time.monotonic_ns() - 10_000_000_000) for n in range(50))
    buckets = one.receiver.figures.buckets(0)
    found = one.tally().latency
    assert found is not None and sum(buckets) == 50
    assert buckets[bucket(found.min_ns)] > 0 and buckets[bucket(found.max_ns)] > 0
    assert abs(percentile(buckets, 0.5) - found.mean_ns) <= 0.01 * found.mean_ns


# --- users -----------------------------------------------------------------------------------------------------------

USERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "ipv4.src": (
        {"ipv4": {"src": {"increment": ["10.1.0.0", "10.1.2.0"], "step": 2}, "dst": "10.0.0.2"}},
        UDP,
        "src_ip",
    ),
    "ipv6.dst": ({"ipv6": {"src": "fd00::1", "dst": {"increment": ["fd00::100", "fd00::300"]}}}, UDP, "dst_ip"),
    "udp.src": (IPV4, {"udp": {"src": {"increment": [5000, 5999]}, "dst": 7}}, "src_port"),
    "udp.dst": (IPV4, {"udp": {"src": 9, "dst": {"increment": [0, 65530], "step": 10}}}, "dst_port"),
}


def a_leg_of_users(name: str, number: int = 0, **more: Any) -> Leg:
    network, transport, by = USERS[name]
    frame = {"headers": [ETHERNET, network, transport], "payload": {"fill": 0xA5}}
    template = build_frame(frame, 164)
    found = users.of_template("test", "users", template, name)
    assert found.by == by
    match = Match.from_template(template).to_data()
    leg = Leg(number, name, "a", "b", "stream", "xdp", frame=frame, size_bytes=164, match=match, users=found)
    return replace(leg, **more)


def of_user(leg: Leg, user: int, sequence: int, time_ns: int = 0) -> bytes:
    """A stamped frame of the leg's user; user -1 is nobody's value."""
    (one,) = build_frame(leg.frame, leg.size_bytes).fields
    value = leg.users.first + user * leg.users.step + (leg.users.step > 1) * (user < 0)
    data = bytearray(stamped(leg, sequence, time_ns))
    put_bits(data, one.bit, one.width_bits, value % (1 << one.width_bits))
    return mended(bytes(data))


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize("engine", ["xdp", "trafgen"])
def test_each_user_is_counted_by_itself(bench: Callable[..., Bench], name: str, engine: str) -> None:
    """Two legs with the same users' values: each has its own. What is no user's value is counted beside."""
    legs = [a_leg_of_users(name), a_leg_of_users("ipv6.dst", 1)]
    by_number = engine == "xdp"
    one = bench(replace(legs[0], engine=engine), legs[1])
    draw, count = random.Random(7), legs[0].users.count
    drawn = [draw.choice([0, count - 1, draw.randrange(count)]) for _ in range(700)]
    one.feed(of_user(legs[0], user, n) for n, user in enumerate(drawn))
    one.feed(of_user(legs[1], 3, n) for n in range(5))
    found = one.receiver.figures.users(0)
    assert found is not None
    expected = Counter(drawn)
    assert found["packets"] == [expected[user] for user in range(count)] + [0]
    assert found["bytes"] == [160 * packets for packets in found["packets"]]
    assert found["distinct"] == (found["packets"] if by_number else [0] * (count + 1))
    assert sum(found["packets"]) == one.tally(0).packets == 700
    theirs = one.receiver.figures.users(1)
    assert theirs is not None and (theirs["packets"][3], sum(theirs["packets"])) == (5, 5)


def test_what_is_no_users_value_is_counted_beside(bench: Callable[..., Bench]) -> None:
    """One below the first, one between two, one beyond the last: an altered address."""
    leg = a_leg_of_users("ipv4.src")
    one, count = bench(leg), leg.users.count
    frames = [of_user(leg, -1, 0), of_user(leg, count, 1), of_user(leg, 0, 2), of_user(leg, 0, 2)]
    assert one.feed(frames) == {DROP: 4}
    found = one.receiver.figures.users(0)
    assert found is not None
    assert (found["packets"][count], found["packets"][0], found["distinct"][0]) == (2, 2, 1)
    assert sum(found["packets"]) == one.tally().packets == 4


def test_frames_of_several_sizes_are_of_their_users_too(bench: Callable[..., Bench]) -> None:
    """None of them is altered in length."""
    leg = a_leg_of_users("udp.src", size_bytes=256, sizes=[[128, 3], [256, 1]])
    one = bench(leg)
    one.feed(of_user(replace(leg, size_bytes=size), size % 7, n) for n, size in enumerate((128, 256, 128)))
    found = one.receiver.figures.users(0)
    assert found is not None and (found["packets"][128 % 7], found["packets"][256 % 7]) == (2, 1)
    assert found["bytes"][128 % 7] == 2 * 124 and one.tally().altered == 0


def test_a_users_latency_is_of_its_own_frames(bench: Callable[..., Bench]) -> None:
    leg = a_leg_of_users("udp.src")
    one, now = bench(leg), time.monotonic_ns()
    frames = [of_user(leg, 5, 0, now - 4_000_000_000), of_user(leg, 9, 1, now - 9_000_000_000)]
    one.feed([*frames, of_user(leg, 9, 2, now - 1_000_000_000), frames[1]])
    found = one.receiver.figures.users(0)
    assert found is not None
    assert (found["latencies"][5], found["latencies"][9], found["packets"][9]) == (1, 2, 3)
    assert 4_000_000_000 < found["latency_min_ns"][5] == found["latency_max_ns"][5] < 5_000_000_000
    assert 1_000_000_000 < found["latency_min_ns"][9] < 2_000_000_000 < 9_000_000_000 < found["latency_max_ns"][9]
    assert found["latency_sum_ns"][9] == found["latency_min_ns"][9] + found["latency_max_ns"][9]


def test_the_users_of_a_tunnel_are_found_by_teid(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's part, whatever makes the frames: the rule says in which bits of which field a user's value is."""
    leg = a_leg("gtpu session")
    rule = RawUserRule(0x1200, 4, 0xFFFFFFFF, 100, 0, 3, 0)
    monkeypatch.setattr(users, "rule", lambda *_: rule)
    one = bench(replace(leg, users=FlowUsers(field="gtpu.teid", by="teid", first=0x1200, step=4, count=100)))
    frames = [bytearray(stamped(leg, n)) for n in range(3)]
    frames[1][46:50] = (0x1235).to_bytes(4, "big")
    one.feed(bytes(frame) for frame in frames)
    found = one.receiver.figures.users(0)
    assert found is not None and (found["packets"][13], found["packets"][100]) == (2, 1)


@pytest.mark.kernel
def test_65536_users_on_two_legs_each(bench: Callable[..., Bench]) -> None:
    wide = {"ipv4": {"src": {"increment": ["10.60.0.0", "10.60.255.255"]}, "dst": "10.0.0.2"}}
    legs = [a_leg_of_users("ipv4.src"), a_leg_of_users("udp.src", 1)]
    frame = {"headers": [ETHERNET, wide, UDP], "payload": {"fill": 0}}
    found = users.of_template("test", "users", build_frame(frame, 164), "ipv4.src")
    legs = [replace(leg, frame=frame, users=found) for leg in legs]
    one = bench(*legs)
    one.feed(of_user(leg, user, 0) for leg in legs for user in (0, 65_535))
    counts = one.receiver.counts()
    for count in counts:
        assert count.users is not None
        packets = users.unpack(count.users["packets"])
        assert len(packets) == 65_537 and sum(packets) == 2 and packets[65_535] == packets[0] == 1
    assert len(json.dumps(counts[0].users)) < 100_000


# --- pktgen's own header ---------------------------------------------------------------------------------------------


def a_pktgen_leg(number: int = 0, **more: Any) -> Leg:
    shape = [ETHERNET, {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}, UDP]
    leg = Leg(number, "pktgen", "a", "b", "stream", "pktgen", frame={"headers": shape}, size_bytes=128, **more)
    (template,) = templates_as_sent(leg).values()
    return replace(leg, match=Match.from_template(template).to_data())


def by_pktgen(leg: Leg, sequence: int, realtime_ns: int = 0) -> bytes:
    """As captured from it in the virtual machine: TTL 32, no UDP checksum, its header, then zeros."""
    (template,) = templates_as_sent(leg).values()
    seconds, rest = divmod(realtime_ns, 10**9)
    header = struct.pack(">IIII", 0xBE9BE955, sequence & 0xFFFFFFFF, seconds, rest // 1000)
    return template.data[:42] + header + bytes(len(template.data) - 58)


@pytest.mark.kernel
def test_pktgens_numbers_tell_loss_duplication_and_order(bench: Callable[..., Bench]) -> None:
    """They begin at 1. A stamped leg beside, and a frame of pktgen's that is nobody's leg."""
    leg, other = a_pktgen_leg(count_packets=300), a_leg(number=1)
    one = bench(leg, other)
    numbers = [n for n in range(1, 301) if n not in (7, 8, 200)]
    numbers[20:22] = numbers[21], numbers[20]
    assert one.feed(by_pktgen(leg, n) for n in [*numbers, 50, 51]) == {DROP: 299}
    one.feed([stamped(other, 0), by_pktgen(leg, 5)[:30] + bytes([10, 9, 9, 9]) + by_pktgen(leg, 5)[34:]])
    found = one.tally()
    assert (found.packets, found.lost(300), found.duplicated, found.reordered) == (299, 3, 2, 1)
    assert (found.invalid_sequence, found.altered) == (0, 0)
    assert one.tally(1).packets == 1 and one.receiver.figures.unmatched()["other"] == 1


def test_pktgens_32_bits_go_on_beyond_their_end(bench: Callable[..., Bench]) -> None:
    """Numbers grow through 2^32 without loss, and 0 is one like any other."""
    leg = a_pktgen_leg()
    one = bench(leg)
    one.feed(by_pktgen(leg, n) for n in (1, 2))
    raw = one.receiver.program.map("tallies").lookup(struct.pack("=I", 0))
    assert raw is not None
    moved = RawTally.from_buffer_copy(raw)
    moved.next = (1 << 32) - 3
    one.receiver.program.map("tallies").update(struct.pack("=I", 0), bytes(moved))
    one.feed(by_pktgen(leg, n) for n in ((1 << 32) - 2, (1 << 32) - 1, 0, 1, 3, 2, 1))
    found = one.tally()
    assert (found.distinct, found.duplicated, found.reordered, found.invalid_sequence) == (2 + 6, 1, 1, 0)
    assert found.highest == (1 << 32) + 2


def test_a_header_of_pktgens_without_its_magic_is_damaged(bench: Callable[..., Bench]) -> None:
    """A number far ahead is not believed, for nothing protects it."""
    leg = a_pktgen_leg()
    one, frame = bench(leg), by_pktgen(leg, 2)
    one.feed([by_pktgen(leg, 1), frame[:42] + b"\0" + frame[43:], frame[:46] + b"\x80" + frame[47:]])
    found = one.tally()
    assert (found.packets, found.distinct, found.damaged, found.invalid_sequence) == (3, 1, 1, 1)
    assert (found.altered, found.altered_by, found.lost(2)) == (1, {"stamp": 1}, 0)


def test_a_damaged_header_before_pktgens_leaves_its_number(bench: Callable[..., Bench]) -> None:
    leg = a_pktgen_leg()
    one, frame = bench(leg), by_pktgen(leg, 1)
    one.feed([frame[:18] + bytes([frame[18] ^ 1]) + frame[19:], by_pktgen(leg, 2)])  # the IPv4 id
    found = one.tally()
    assert (found.distinct, found.damaged, found.altered_by, found.lost(2)) == (2, 0, {"checksum": 1}, 0)


def test_pktgens_time_is_the_senders_realtime(bench: Callable[..., Bench]) -> None:
    leg = a_pktgen_leg()
    realtime_ns = time.time_ns() - time.monotonic_ns() + 7_000_000_000
    one = bench(leg, realtime_ns={"a": realtime_ns})
    least = [50_000_000 * n for n in range(1, 21)]
    most = fed(one, least, lambda n, time_ns: by_pktgen(leg, 1 + n, time_ns + realtime_ns))
    found, us = one.tally(), 1000  # its times are whole microseconds
    assert found.latency is not None and found.jitter is not None
    assert min(least) < found.latency.min_ns <= min(most) + us and max(least) < found.latency.max_ns <= max(most) + us
    assert found.jitter.sd_ns <= statistics.fmean(e * e for e in noise_ns(least, most)) ** 0.5 + us


@pytest.mark.parametrize(
    ("more", "numbered", "latency"),
    [
        ({"rate_pps": 1000.0}, True, False),
        ({"options": {"flags": ["NO_TIMESTAMP"]}}, True, False),
        ({"options": {"clone_skb": 4}}, False, False),
        ({}, True, True),
    ],
)
def test_what_pktgen_does_not_tell_is_not_counted(
    bench: Callable[..., Bench], more: dict[str, Any], numbered: bool, latency: bool
) -> None:
    leg = a_pktgen_leg(**more)
    one = bench(leg, realtime_ns={"a": time.time_ns() - time.monotonic_ns()})
    one.feed(by_pktgen(leg, n, time.time_ns()) for n in (1, 2, 2))
    found = one.tally()
    assert (found.packets, found.distinct) == (3, 2 if numbered else None)
    assert (found.latency is not None) == (found.jitter is not None) == latency
    (count,) = one.receiver.counts()
    assert ("pktgen writes a frame's time before" in count.note) == (numbered and not latency)


def test_without_the_senders_realtime_pktgens_latency_is_not_invented(bench: Callable[..., Bench]) -> None:
    leg = a_pktgen_leg()
    one = bench(leg)
    one.feed(by_pktgen(leg, n, time.time_ns()) for n in (1, 2))
    assert one.tally().latency is None and one.tally().jitter is not None


# --- what goes on to a capture, what the device is to change, the clock ----------------------------------------------


@pytest.mark.kernel("7")
@pytest.mark.parametrize("every", [1, 2, 7, 1000])
def test_the_first_of_each_so_many_frames_of_a_leg_goes_on(bench: Callable[..., Bench], every: int) -> None:
    legs = [a_leg(), a_pktgen_leg(1), replace(a_leg("vlan", 2), engine="trafgen")]
    one = bench(*legs, mode="capture", capture_every=every)
    for make, leg in ((stamped, legs[0]), (by_pktgen, legs[1]), (stamped, legs[2])):
        verdicts = one.feed(make(leg, n) for n in range(50))
        assert verdicts[PASS] == -(-50 // every) and one.tally(leg.id).packets == 50


def test_what_the_device_is_to_change_is_no_alteration(bench: Callable[..., Bench]) -> None:
    def routed(n: int, ttl: int) -> bytes:
        frame = bytearray(stamped(leg, n))
        frame[6:12], frame[22] = bytes([2, 0, 0, 0, 0, n]), ttl
        return mended(bytes(frame))

    leg = a_leg(expect={"ttl": 63, "src_mac": None})
    one = bench(leg)
    one.feed([routed(0, 63), routed(1, 63), routed(2, 64), routed(3, 62)])
    assert (one.tally().packets, one.tally().altered, one.tally().altered_by) == (4, 2, {"ttl": 2})


@pytest.mark.kernel
@pytest.mark.skipif(time.clock_gettime_ns(time.CLOCK_TAI) == 0, reason="no TAI clock")
def test_with_ptp_the_stamps_are_of_the_tai_clock(bench: Callable[..., Bench]) -> None:
    """On all nodes the same clock: no offset is needed, and a measured one is not added."""
    leg = a_leg()
    one = bench(leg, tai=True, offsets_ns={"a": 5_000_000_000})
    one.feed([stamped(leg, 0, time.clock_gettime_ns(time.CLOCK_TAI) - 3_000_000)])
    found = one.tally().latency
    assert found is not None and 3_000_000 < found.min_ns < 1_000_000_000
    (count,) = one.receiver.counts()
    assert count.first_ns is not None and abs(count.first_ns - time.time_ns()) < 60e9
