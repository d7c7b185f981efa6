"""The counting program on single frames: matched, unmatched, malformed, altered; its structs."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import availability, libbpf
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.traffic.counting.kernel_structs import (
    UNMATCHED_KINDS,
)
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.protocol.task import ReceiveTask
from xdp_bench import (
    DROP,
    PASS,
    Bench,
    ipv6_options,
    unmatched,
)
from xdp_frames import (
    ETHERNET,
    IPV4,
    SHAPES,
    B,
    a_leg,
    inner,
    mended,
    stamped,
)

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]


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
