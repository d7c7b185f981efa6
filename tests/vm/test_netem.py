"""The xdp engine against the kernel's netem, behind a bridge: our figures, those of tc and those of a capture.

netem has no seed before Linux 6.7: how many frames it takes is its own affair, and its counters tell.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from wire import Line, ip, shown
from xdp_ends import Node, finish, send, send_raw
from xdp_frames import CHECKED, a_leg, reordered, stamped

COUNT, RATE_PPS = 8000, 3000.0
UDP4 = 42
DELAY_NS = 20_000_000
EAR = """
import json, signal, socket, sys
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
ear.setsockopt(socket.SOL_SOCKET, 33, 128 << 20)  # SO_RCVBUFFORCE
ear.bind(("rx0", 3))
ear.settimeout(0.5)
heard, over = [], []
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
print("ready", flush=True)
while True:
    try:
        heard.append(ear.recv(2048).hex())
    except TimeoutError:
        if over:
            break
print(json.dumps(heard))
"""


@pytest.fixture(scope="module", autouse=True)
def netem_module() -> Iterator[None]:
    loaded = Path("/sys/module/sch_netem").exists()
    subprocess.run(["modprobe", "sch_netem"], check=True, timeout=60)
    yield
    if not loaded:
        subprocess.run(["modprobe", "--remove", "sch_netem"], check=False, timeout=60)


@pytest.fixture
def line() -> Iterator[Line]:
    """The device is a bridge: live frames come in as the kernel's own packets, and leave through out0's qdisc."""
    one = Line()
    try:
        one.up()
        ip("-n", one.device, "link", "add", "br0", "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
        for port in ("in0", "out0"):
            ip("-n", one.device, "link", "set", port, "master", "br0")
        ip("-n", one.device, "link", "set", "br0", "up")
        yield one
    finally:
        one.down()


@dataclass
class Outcome:
    sent: list[int]
    """By the sender, which knows what its ring did not take: an emulated machine does not always keep up."""
    tallies: dict[str, Any]
    unmatched: dict[str, int]
    netem: dict[str, int]
    """What tc says: packets that left, drops, requeues (those that netem let jump the queue)."""
    full: int
    """Frames that left netem and found the receiver's ring full, as the interface counts them: 0 on a quiet machine."""
    heard: list[bytes]
    """By a packet socket behind the receiver's program."""


def set_netem(line: Line, *words: str) -> None:
    tc = ["tc", "-n", line.device, "qdisc", "replace", "dev", "out0", "root", "netem", "limit", "1000000", *words]
    subprocess.run(tc, check=True)


def netem(line: Line) -> dict[str, int]:
    tc = ["tc", "-n", line.device, "-s", "-j", "qdisc", "show", "dev", "out0"]
    found = json.loads(subprocess.run(tc, check=True, capture_output=True, text=True).stdout)[0]
    assert found["kind"] == "netem"
    return {name: int(found[name]) for name in ("packets", "drops", "requeues", "qlen")}


def settle(line: Line, node: Node) -> None:
    """Until netem holds nothing and nothing has come for a while."""
    before, deadline = -1, time.monotonic() + 30
    while time.monotonic() < deadline:
        now = sum(leg["packets"] for leg in node.sample().values())
        if now == before and not netem(line)["qlen"]:
            return
        before = now
        time.sleep(0.4)
    raise TimeoutError("frames still come")


def cross(line: Line, spool: Path, legs: list[Any], frames: list[bytes] | None = None) -> Outcome:
    """The legs by the xdp sender, or these frames from Python; through the bridge to the receiver."""
    words = ["ip", "netns", "exec", line.receiver, sys.executable, "-c", EAR]
    ear = subprocess.Popen(words, stdout=PIPE, text=True)
    try:
        assert ear.stdout is not None and ear.stdout.readline() == "ready\n"
        with Node(line, None, legs, mode="capture") as node:
            assert node.attached == "native"
            if frames is None:
                sent = sent_of(line, spool, legs)
            else:
                finish(send_raw(line, frames))
                sent = [len(frames)]
            settle(line, node)
            tallies, unmatched, _ = node.stop()
        told = netem(line)
        ear.terminate()
        heard = [bytes.fromhex(one) for one in json.loads(ear.communicate(timeout=60)[0])]
    finally:
        ear.kill()
        ear.wait()
    full = line.lost_on_the_way()["out0"]
    check_counters(line, tallies, unmatched, told["packets"] - full, heard)
    return Outcome(sent, tallies, unmatched, told, full, heard)


def sent_of(line: Line, spool: Path, legs: list[Any]) -> list[int]:
    counts = send(line, spool, legs, limit_s=40)
    assert all(COUNT / 2 < one["sent_packets"] <= COUNT for one in counts), counts
    return [one["sent_packets"] for one in counts]


def lost(outcome: Outcome) -> list[int]:
    return [sent - one["distinct"] for sent, one in zip(outcome.sent, outcome.tallies.values(), strict=True)]


def check_counters(
    line: Line, tallies: dict[str, Any], unmatched: dict[str, int], crossed: int, heard: list[bytes]
) -> None:
    """Everything that left netem was seen: by the interfaces, by the receiver, by the capture."""
    packets = sum(one["packets"] for one in tallies.values()) + sum(unmatched.values())
    assert packets == crossed == len(heard) == line.counter("rx")
    assert packets == int(shown(line.device, "out0")["stats64"]["tx"]["packets"])
    assert line.lost_on_the_way()["tx0"] == 0


def two_legs() -> list[Any]:
    return [replace(a_leg(number=n), count_packets=COUNT, rate_pps=RATE_PPS / 2) for n in (0, 1)]


def numbers(heard: list[bytes], stream: int) -> list[int]:
    own = [one for one in heard if int.from_bytes(one[UDP4 + 2 : UDP4 + 4], "big") == stream]
    return [int.from_bytes(one[UDP4 + 4 : UDP4 + 10], "big") for one in own]


def likely(count: int, of: int, part: float, slack: int = 0) -> bool:
    """Within six standard deviations: not by accident, nor for a wrong reason."""
    return abs(count - of * part) <= 6 * math.sqrt(of * part * (1 - part)) + slack


def check_numbers(outcome: Outcome) -> None:
    """Each stream's figures against the numbers in the capture."""
    for key, one in outcome.tallies.items():
        order = numbers(outcome.heard, int(key))
        each = Counter(order)
        assert (one["packets"], one["distinct"]) == (len(order), len(each))
        assert (one["duplicated"], one["reordered"]) == (len(order) - len(each), reordered(order))
        assert (one["altered"], one["invalid_sequence"], one["too_late"]) == (0, 0, 0)
    assert not any(outcome.unmatched.values())


def test_loss_is_what_netem_dropped(line: Line, tmp_path: Path) -> None:
    set_netem(line, "loss", "5%")
    outcome = cross(line, tmp_path, two_legs())
    check_numbers(outcome)
    assert sum(lost(outcome)) == outcome.netem["drops"] + outcome.full
    assert all(likely(one, sent, 0.05, outcome.full) for one, sent in zip(lost(outcome), outcome.sent, strict=True))
    assert all(one["duplicated"] == one["reordered"] == 0 for one in outcome.tallies.values())


def test_duplicates_are_what_netem_sent_too_many(line: Line, tmp_path: Path) -> None:
    set_netem(line, "duplicate", "3%")
    outcome = cross(line, tmp_path, two_legs())
    check_numbers(outcome)
    twice = [one["duplicated"] for one in outcome.tallies.values()]
    extra = outcome.netem["packets"] - sum(outcome.sent)
    assert extra - outcome.full <= sum(twice) <= extra and outcome.netem["drops"] == 0
    assert all(likely(one, sent, 0.03, outcome.full) for one, sent in zip(twice, outcome.sent, strict=True))
    assert sum(lost(outcome)) <= outcome.full


def test_loss_and_duplicates_together(line: Line, tmp_path: Path) -> None:
    """A frame that is to be lost and doubled goes once; a copy may be lost as well, and counts as dropped at tc."""
    set_netem(line, "loss", "10%", "duplicate", "10%")
    outcome = cross(line, tmp_path, two_legs())
    check_numbers(outcome)
    sent, gone = sum(outcome.sent), sum(lost(outcome))
    assert likely(gone, sent, 0.1 * 0.9, outcome.full)
    twice = sum(one["duplicated"] for one in outcome.tallies.values())
    assert likely(twice, sent, 0.1 * 0.9 * 0.9, outcome.full)
    assert likely(outcome.netem["drops"] - gone, sent, 0.1 * 0.9 * 0.1, outcome.full)


def test_a_delay_is_in_every_latency(line: Line, tmp_path: Path) -> None:
    """netem and the stamps use one clock: no frame is faster than the delay. Without netem they are."""
    set_netem(line)
    bare, _ = received(line, tmp_path)
    set_netem(line, "delay", "20ms")
    outcome, sent = received(line, tmp_path)
    full = line.lost_on_the_way()["out0"]
    for (key, one), amount in zip(outcome.items(), sent, strict=True):
        ours, without = one["latency"], bare[key]["latency"]
        assert amount - full <= one["distinct"] == ours["frames"] <= amount and one["reordered"] == 0
        assert without["p50_ns"] < DELAY_NS <= ours["min_ns"]
        # Half of the frames come as late as netem's timer lets them, which in an emulated machine takes its time.
        assert ours["p50_ns"] < DELAY_NS + without["p50_ns"] + 30_000_000


def received(line: Line, tmp_path: Path) -> tuple[dict[str, Any], list[int]]:
    """Tallies, and what was sent."""
    legs = two_legs()
    with Node(line, None, legs) as node:
        sent = sent_of(line, tmp_path, legs)
        settle(line, node)
        return node.stop()[0], sent


def test_reordering_is_that_of_the_capture(line: Line, tmp_path: Path) -> None:
    """A quarter of the frames jumps a queue of 20 ms; netem counts these, and they are never the reordered ones."""
    set_netem(line, "delay", "20ms", "reorder", "25%")
    outcome = cross(line, tmp_path, two_legs())
    check_numbers(outcome)
    early, sent = outcome.netem["requeues"], sum(outcome.sent)
    late = sum(one["reordered"] for one in outcome.tallies.values())
    assert likely(early, sent, 0.25)
    # Where the queue stands still for a while, some of those that jumped it leave in another order too.
    assert 0.5 * (sent - early) < late and sum(lost(outcome)) == outcome.full
    for one in outcome.tallies.values():
        assert one["latency"]["min_ns"] < DELAY_NS
        assert one["latency"]["p90_ns"] > 0.992 * DELAY_NS


def test_a_delay_that_varies_reorders_too(line: Line, tmp_path: Path) -> None:
    """Evenly from 20 to 40 ms: so its mean, and so its least and most."""
    set_netem(line, "delay", "30ms", "10ms")
    outcome = cross(line, tmp_path, two_legs())
    check_numbers(outcome)
    assert sum(lost(outcome)) <= outcome.full
    for one in outcome.tallies.values():
        ours = one["latency"]
        assert one["reordered"] > COUNT // 4
        assert 20_000_000 <= ours["min_ns"] < 25_000_000 and ours["max_ns"] > 35_000_000
        # The standard error of the mean is 10 ms / sqrt(3 * 7,200), below 0.07 ms.
        assert ours["mean_ns"] > 29_700_000 and ours["p50_ns"] < 40_000_000


# Offsets in an untagged IPv4 UDP frame whose single changed bit has one cause.
ZONES = {
    "dst_mac": range(0, 6),
    "src_mac": range(6, 12),
    "dscp": range(15, 16),
    "ttl": range(22, 23),
    "src_ip": range(26, 30),
    "dst_ip": range(30, 34),
    "src_port": range(34, 36),
    "dst_port": range(36, 38),
    "payload": range(UDP4 + 18, 160),
}
LENGTHS = {16, 17, 38, 39}
"""A wrong length is one cause, and the payload's checksum another one."""
OVERTAKEN = 16
"""Frames that one can overtake."""


def in_the_order_of(received: list[bytes], sent: list[bytes]) -> Iterator[bytes]:
    """The frames as they were sent: on a busy machine some overtake each other. Two differ in two bits or more."""
    left = list(sent)
    for got in received:
        nearest = min(left[:OVERTAKEN], key=lambda was: (int.from_bytes(was) ^ int.from_bytes(got)).bit_count())
        left.remove(nearest)
        yield nearest


def flips(received: list[bytes], sent: list[bytes]) -> Counter[str]:
    """How many frames differ, by the zone of their bit."""
    assert len(received) == len(sent)
    found: Counter[str] = Counter()
    for got, was in zip(received, in_the_order_of(received, sent), strict=True):
        changed = [(at, a ^ b) for at, (a, b) in enumerate(zip(got, was, strict=True)) if a != b]
        assert len(changed) <= 1
        for at, bit in changed:
            name = next((cause for cause, zone in ZONES.items() if at in zone), "lengths" if at in LENGTHS else "else")
            found["ecn" if name == "dscp" and bit < 4 else name] += 1
    return found


def test_corruption_is_that_of_the_capture(line: Line, tmp_path: Path) -> None:
    """netem flips one bit in half of the frames and keeps no count: the capture tells which. The frames are made
    here, with a checksum of their payload in the stamp."""
    leg = a_leg()
    sent = [stamped(leg, n, magic=CHECKED) for n in range(COUNT)]
    set_netem(line, "corrupt", "50%")
    outcome = cross(line, tmp_path, [leg], sent)
    if outcome.full:
        pytest.skip(f"{outcome.full} frames found a ring full on this busy machine: which is which cannot be told")
    found, one = flips(outcome.heard, sent), outcome.tallies["0"]
    assert likely(found.total(), COUNT, 0.5) and all(found[cause] for cause in ZONES)
    ours = Counter(one["altered_by"])
    for cause in set(ZONES) - {"payload"}:
        # UDP whose protocol became ICMP is heard, and has no ports.
        portless = ours["protocol"] if cause in ("src_port", "dst_port") else 0
        assert ours[cause] == found[cause] + portless, (cause, ours, found)
    assert found["payload"] <= ours["payload"] <= found["payload"] + found["lengths"]
    assert set(ours) <= {*ZONES, "length", "protocol", "stamp", "checksum"} and ours["length"] <= found["lengths"]
    # A bit of the stamp, of a checksum or of a header field that no cause is named after.
    assert ours["protocol"] + ours["stamp"] + ours["checksum"] <= found["else"]
    assert ours["stamp"] and ours["checksum"]
    # Where the stamp's magic, stream or headers are hit the frame is a stranger; no frame is gone.
    assert one["packets"] + sum(outcome.unmatched.values()) == COUNT
    assert sum(outcome.unmatched.values()) <= found["else"] + found["lengths"]
    assert COUNT - one["packets"] == sum(outcome.unmatched.values())
