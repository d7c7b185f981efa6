"""tcpreplay's closing words (captured from 4.4.3) and the command that a leg becomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes.senders import tcpreplay_gate
from pktswarm.nodes.senders.tcpreplay import (
    TcpreplaySender,
    check_closing,
    parse_closing,
    tcpreplay_command,
    tcpreplay_feed,
)
from pktswarm.nodes.senders.tcpreplay_gate import Feed, packets, schedule
from pktswarm.traffic.capture.trace import Packet, Trace, write_pcap
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg, Timing
from pktswarm.traffic.protocol.task import SendTask

SAMPLES = Path(__file__).parent / "samples"
TRACE = Trace(Path("share.pcap"), [Packet(n * 50_000_000, bytes(96)) for n in range(3)])
LEG = Leg(4, "web", "tx1", "rx1", "trace", trace_file="share.pcap", count_packets=3)


def sample(name: str) -> str:
    return (SAMPLES / f"tcpreplay-{name}.txt").read_text()


def test_normal_end() -> None:
    output = sample("normal")
    closing = parse_closing(output)
    assert (closing.packets, closing.bytes, closing.seconds) == (1334, 916134, 0.001777)
    assert closing.rate_pps == 750703.43
    assert (closing.successful, closing.failed, closing.truncated, closing.interrupted) == (1334, 0, 0, False)
    assert (closing.retried_enobufs, closing.retried_eagain, closing.first_failure) == (0, 0, "")
    check_closing(closing, 1334, output)


def test_an_end_before_the_intended_count_is_an_error() -> None:
    with pytest.raises(EngineError, match="ended after 1334 packets of 1335"):
        check_closing(parse_closing(sample("normal")), 1335, "")


def test_interrupted() -> None:
    closing = parse_closing(sample("interrupted"))
    assert (closing.packets, closing.successful, closing.interrupted) == (22, 21, True)
    check_closing(closing, 667, "")


def test_interrupted_again_while_it_wrote_its_figures() -> None:
    closing = parse_closing(sample("interrupted-twice"))
    assert (closing.packets, closing.successful, closing.interrupted) == (936_911, 936_910, True)
    check_closing(closing, None, "")


def test_one_off_is_forgiven_only_when_interrupted() -> None:
    closing = parse_closing(sample("interrupted"))
    with pytest.raises(EngineError, match="sent 22 packets and that 21 were successful"):
        check_closing(replace(closing, interrupted=False), None, "")
    with pytest.raises(EngineError, match="sent 22 packets and that 20 were successful"):
        check_closing(replace(closing, successful=20), None, "")
    with pytest.raises(EngineError, match="3 packets were truncated"):
        check_closing(replace(closing, truncated=3), None, "")


@pytest.mark.parametrize(
    ("name", "sent", "failed", "why"),
    [("mtu", 22, 8, "Message too long (errno = 90)"), ("going-down", 1, 5, "Network is down (errno = 100)")],
)
def test_packets_that_could_not_be_sent(name: str, sent: int, failed: int, why: str) -> None:
    """It ends with status 0 all the same."""
    closing = parse_closing(sample(name))
    assert (closing.packets, closing.failed, closing.first_failure) == (sent, failed, why)
    check_closing(closing, sent + failed, "")


@pytest.mark.parametrize("name", ["no-interface", "down", "sigterm"])
def test_without_closing_figures_it_says_so_with_the_engines_own_words(name: str) -> None:
    with pytest.raises(EngineError, match="ended without its closing figures") as caught:
        parse_closing(sample(name))
    assert sample(name).strip() in str(caught.value)


def command(**changes: Any) -> str:
    return " ".join(tcpreplay_command(replace(LEG, **changes), TRACE, "eth1"))


def test_the_recorded_pace_is_the_default_and_the_gates() -> None:
    expected = "tcpreplay --no-flow-stats --intf1=eth1 --topspeed /dev/stdin"
    assert command() == command(timing=Timing(mode="multiplier", value=2)) == expected


@pytest.mark.parametrize(
    ("timing", "option"),
    [
        (Timing("pps", 333.3), " --pps=333.3"),
        (Timing("pps", 1_234_567), " --pps=1234567"),
        # 100 bytes with FCS, 96 without: 1 Mbit/s of ours is 0.96 of tcpreplay's.
        (Timing("bps", 1e6), " --mbps=0.96"),
        (Timing("top"), " --topspeed"),
    ],
)
def test_pace(timing: Timing, option: str) -> None:
    assert f"--intf1=eth1{option} --preload-pcap --loop=1 /dev/stdin" in command(timing=timing)


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"count_packets": 9, "timing": Timing(mode="top")}, "--loop=3 /dev/stdin"),
        ({"count_packets": 7, "timing": Timing(mode="top")}, "--loop=3 --limit=7 /dev/stdin"),
        ({"count_packets": 2, "timing": Timing(mode="top")}, "--loop=1 --limit=2 /dev/stdin"),
        ({"count_packets": None, "duration_s": 1.0, "timing": Timing(mode="top")}, "--loop=0 /dev/stdin"),
    ],
)
def test_passes(changes: dict[str, Any], options: str) -> None:
    assert command(**changes).endswith(options)


def feed(**changes: Any) -> Feed:
    return tcpreplay_feed(replace(LEG, **changes), TRACE, "share.pcap", "gate", changes.get("duration_ns"))


def dues(**changes: Any) -> list[float]:
    """When each packet is due, in ms after the release."""
    file = write_pcap([Packet(packet.time_ns + 10**9, packet.data) for packet in TRACE.packets])
    return [due_ns / 1e6 for due_ns, _ in schedule(packets(file), feed(**changes))]


def test_each_packet_is_due_when_it_was_recorded() -> None:
    assert dues() == [0, 50, 100]
    assert dues(timing=Timing(mode="multiplier", value=2)) == [0, 25, 50]


def test_passes_start_at_the_period_of_the_whole_trace() -> None:
    timing = Timing(mode="original", period_ns=400_000_000)
    assert dues(timing=timing, count_packets=7) == [0, 50, 100, 400, 450, 500, 800]
    doubled = Timing("multiplier", 2, period_ns=200_000_000)
    assert dues(timing=doubled, count_packets=4) == [0, 25, 50, 200]


def test_passes_without_a_period_are_a_mean_gap_apart() -> None:
    assert dues(count_packets=4) == [0, 50, 100, 150]
    assert dues(count_packets=4, timing=Timing(mode="multiplier", value=2)) == [0, 25, 50, 75]


def test_a_duration_ends_it() -> None:
    endless = replace(LEG, count_packets=None)
    fed = tcpreplay_feed(endless, TRACE, "share.pcap", "gate", 160_000_000)
    file = write_pcap([Packet(packet.time_ns + 10**9, packet.data) for packet in TRACE.packets])
    assert [due_ns / 1e6 for due_ns, _ in schedule(packets(file), fed)] == [0, 50, 100, 150]


def test_what_is_fed_is_the_file() -> None:
    file = write_pcap(TRACE.packets)
    assert file[:24] + b"".join(record for _, record in packets(file)) == file


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_what_becomes_tcpreplay_keeps_to_a_processor_in_its_turn(tmp_path: Path, turn: int) -> None:
    (tmp_path / "share.pcap").write_bytes(write_pcap([Packet(10**9, bytes(96))]))
    (tmp_path / "gate").write_text("0\n")
    fed = Feed(str(tmp_path / "share.pcap"), str(tmp_path / "gate"), recorded_pace=False, turn=turn)
    reader = "import os, sys; sys.stdin.buffer.read(); print(os.sched_getaffinity(0))"
    command = [sys.executable, tcpreplay_gate.__file__, json.dumps(fed._asdict()), sys.executable, "-c", reader]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    allowed = sorted(os.sched_getaffinity(0), reverse=True)
    assert str({allowed[turn % len(allowed)]}) in done.stdout.splitlines()


def test_other_paces_are_tcpreplays() -> None:
    assert feed().recorded_pace
    assert not any(feed(timing=Timing(mode=mode, value=1)).recorded_pace for mode in ("pps", "bps", "top"))


@pytest.mark.parametrize(
    ("timing", "message"),
    [
        (
            Timing("fast"),  # type: ignore[arg-type] # no such mode
            r"web: timing.mode = 'fast': .*allowed: original, multiplier, pps, bps, top",
        ),
        (Timing("multiplier", 0), r"web: timing.value = 0: must be above 0"),
        (Timing("bps", -1), r"web: timing.value = -1: must be above 0"),
    ],
)
def test_timing_that_cannot_be(timing: Timing, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        command(timing=timing)


def sender(tmp_path: Path, **changes: Any) -> TcpreplaySender:
    (tmp_path / "share.pcap").write_bytes(write_pcap(TRACE.packets))
    return TcpreplaySender(SendTask("lo", [replace(LEG, **changes)], 5.0), tmp_path)


def test_a_leg_without_a_trace_and_an_unknown_interface(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="stream web is no trace"):
        sender(tmp_path, trace_file=None).prepare()
    nowhere = TcpreplaySender(SendTask("nosuch0", [LEG], 5.0), tmp_path)
    (tmp_path / "share.pcap").write_bytes(write_pcap(TRACE.packets))
    with pytest.raises(EngineError, match="interface nosuch0: No such device"):
        nowhere.prepare()


def test_stop_and_restore_before_anything_was_prepared(tmp_path: Path) -> None:
    engine = sender(tmp_path)
    engine.stop()
    engine.restore()
