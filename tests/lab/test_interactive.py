"""Interactive replay for real: two nodes in namespaces, a device between them that is slow and loses frames.

What each node acknowledged is read from a capture at its end, by code that knows nothing of pktswarm.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dpkt
import pytest

from acknowledged import Seen, acknowledged_too_early
from pktswarm.nodes.interactive.receiver import InteractiveReceiver
from pktswarm.nodes.interactive.sender import InteractiveSender
from pktswarm.traffic.capture.trace import write_pcap
from pktswarm.traffic.interactive.prepare import Endpoint, Prepared, load, prepare
from pktswarm.traffic.leg import Leg, Timing
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount, SendTask
from wire import PACKET_OUTGOING, SO_RCVBUFFORCE, A, B, Line, ethtool, inside

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
RECORDED = ROOT / "configs" / "traces" / "lab.pcapng"
GIT = ROOT.parent / "shared" / "traces" / "git.pcap"
ETH_P_ALL = 3
DELAY_NS = 50_000_000
SEED = 32
"""With 1 % the device loses three of the first forty frames, of both directions."""
BEGINNER, ANSWERER = Endpoint(A, "10.77.0.1"), Endpoint(B, "10.77.0.2")

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make namespaces"),
]


class Ear:
    """All frames of one end, in and out, in their order."""

    def __init__(self, namespace: str, interface: str) -> None:
        with inside(namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self._socket.bind((interface, ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
        self._socket.setblocking(False)
        self._frames: list[Seen] = []

    def seen(self) -> list[Seen]:
        """So far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                frame, address = self._socket.recvfrom(65536)
                self._frames.append(("out" if address[2] == PACKET_OUTGOING else "in", frame))
        return list(self._frames)

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def device(line: Line, delay_ns: int, loss: float, seed: int) -> Iterator[subprocess.Popen[str]]:
    for interface in ("in0", "out0"):
        ethtool(line.device, "-K", interface, "gro", "off", "tso", "off", "gso", "off")
    words = [sys.executable, str(HERE / "two_way_device.py"), str(delay_ns), str(loss), str(seed)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(["ip", "netns", "exec", line.device, *words], stdin=pipe, stdout=pipe, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass
class Replayed:
    sent: SendCount
    answers_received: ReceiveCount
    received: ReceiveCount
    answers_sent: SendCount
    before: dict[str, list[Seen]]
    """What each end saw before it was stopped; then in all."""
    seen: dict[str, list[Seen]]
    captured: dict[str, list[Seen]]
    """The engine's own captures."""
    device: dict[str, list[int]]


def replay(line: Line, ready: Prepared, folder: Path, loss: float, seed: int, delay_ns: int = DELAY_NS) -> Replayed:
    spools = {name: folder / name for name in ("a", "b")}
    for spool in spools.values():
        spool.mkdir()
        (spool / "leg-0.pcap").write_bytes(write_pcap(ready.packets))
    timing = Timing(beginner_mac=A, answerer_mac=B)
    there = Leg(0, "t", "a", "b", "trace", "interactive", trace_file="leg-0.pcap", timing=timing)
    there = replace(there, options={"capture_ring_mib": 16})
    legs = [there, replace(there, id=1, source="b", target="a", answers=0)]
    sender = InteractiveSender(SendTask("tx0", legs, 60.0), spools["a"])
    receiver = InteractiveReceiver(ReceiveTask("rx0", B, legs, 60.0), spools["b"])
    ears = {"a": Ear(line.sender, "tx0"), "b": Ear(line.receiver, "rx0")}
    with device(line, delay_ns, loss, seed) as between:
        try:
            with inside(line.receiver):
                receiver.prepare()
                receiver.start(time.monotonic_ns())
                until(receiver.ready, 20.0)
            with inside(line.sender):
                sender.prepare()
                sender.start(time.monotonic_ns() + 5_000_000)
            until(sender.done, 60.0)
            time.sleep(0.3)
            before = {name: ear.seen() for name, ear in ears.items()}
        finally:
            for namespace, engine in ((line.sender, sender), (line.receiver, receiver)):
                with inside(namespace):
                    engine.stop()
                    engine.restore()
        told = json.loads(between.communicate("", timeout=10)[0])
    (sent,), (received,) = sender.counts(), receiver.counts()
    (answers_received,), (answers_sent,) = sender.other_way(), receiver.other_way()
    assert isinstance(answers_received, ReceiveCount) and isinstance(answers_sent, SendCount)
    seen = {name: ear.seen() for name, ear in ears.items()}
    for ear in ears.values():
        ear.close()
    captured = {"a": captured_by(sender, A), "b": captured_by(receiver, B)}
    return Replayed(sent, answers_received, received, answers_sent, before, seen, captured, told)


def captured_by(engine: InteractiveSender | InteractiveReceiver, own: str) -> list[Seen]:
    (file,) = engine.captures()
    with file.open("rb") as opened:
        frames = [frame for _, frame in dpkt.pcap.Reader(opened)]
    return [("out" if frame[6:12].hex(":") == own else "in", frame) for frame in frames]


def until(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come to its end"
        time.sleep(0.01)


def prepared(path: Path) -> Prepared:
    if not path.exists():
        pytest.skip(f"{path} is not here")
    trace = load([path], 1500)
    return prepare(trace, trace.flow, BEGINNER, ANSWERER)


@pytest.mark.alone
@pytest.mark.parametrize(("path", "loss"), [(GIT, 0.1), (RECORDED, 0.01)], ids=["git-10", "lab"])
def test_through_50_ms_and_loss_nothing_is_acknowledged_before_it_came(
    line: Line, tmp_path: Path, path: Path, loss: float
) -> None:
    ready = prepared(path)
    done = replay(line, ready, tmp_path, loss, SEED)
    for end in ("a", "b"):
        for seen in (done.seen[end], done.captured[end]):
            wrong, checked = acknowledged_too_early(seen, [packet.data for packet in ready.packets])
            assert wrong == []
            assert checked >= 30
        # What is sent again may still come while the ends are stopped, one after the other.
        assert Counter(done.before[end]) <= Counter(done.captured[end]) <= Counter(done.seen[end])
    assert min(done.device["lost"]) >= 1
    ends = [done.sent.flows or [], done.answers_sent.flows or []]
    assert {flow.state for end in ends for flow in end if flow.label.startswith("tcp")} == {"complete"}
    assert (done.sent.sent_packets, done.answers_sent.sent_packets) == (
        ready.forward,
        len(ready.packets) - ready.forward,
    )
    assert (done.sent.resent_packets or 0) + (done.answers_sent.resent_packets or 0) >= 1
    for count, end in ((done.sent, "a"), (done.answers_sent, "b")):
        left = sum(1 for direction, _ in done.seen[end] if direction == "out")
        assert count.sent_packets + (count.resent_packets or 0) == left
    for received, end in ((done.received, "b"), (done.answers_received, "a")):
        came = {frame for direction, frame in done.seen[end] if direction == "in"}
        assert received.received_packets == len(came)


@pytest.mark.alone
def test_a_flow_is_stretched_by_each_turn_of_a_slow_device(line: Line, tmp_path: Path) -> None:
    ready = prepared(RECORDED)
    done = replay(line, ready, tmp_path, 0.0, seed=1)
    # Nothing is lost, so nothing is sent again, unless the machine holds an answer back for longer than a sender waits
    # (tests/unit has that by a clock of its own).
    for sent, other in ((done.sent, done.answers_sent), (done.answers_sent, done.sent)):
        assert sum(flow.duplicates for flow in other.flows or []) <= (sent.resent_packets or 0)
    assert done.received.received_packets == ready.forward
    downloads = [flow for flow in done.sent.flows or [] if flow.label.endswith("→ 443")]
    assert len(downloads) == 4
    for flow in downloads:
        # SYN, client hello, request, FIN: each waits for what comes back, twice through the device.
        assert flow.replayed_ns is not None and flow.replayed_ns - flow.recorded_ns > 3 * 2 * DELAY_NS
    call = next(flow for flow in done.sent.flows or [] if "16384" in flow.label)
    assert call.replayed_ns is not None and 0 <= call.replayed_ns - call.recorded_ns < 10 * DELAY_NS


@pytest.mark.waits
def test_a_device_that_passes_nothing_is_told(line: Line, tmp_path: Path) -> None:
    ready = prepared(RECORDED)
    done = replay(line, ready, tmp_path, 1.0, seed=1)
    states = {flow.label.split()[0]: flow.state for flow in done.sent.flows or []}
    assert states["tcp"] == "given up"
    assert done.received.received_packets == done.answers_sent.sent_packets == 0
    assert {flow.state for flow in done.answers_sent.flows or []} == {"unfinished"}
