"""How many frames a second the data network's echo sends back from one core, each counted, numbered and stamped anew.

The sender, on one core, offers somewhat more than the echo takes: far more would have both fight for the lock of the
pool that the pages come from, which the echo of a real card has to itself. The other core takes frames from rx0
(threaded NAPI): it counts each by stream and user, turns it round, numbers it and hands it to tx0, and does tx0's
work of dropping it too.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.engines.ours import LIMIT_S, sending, stream
from bench.engines.wire import (
    FAR,
    FAR_MAC,
    NEAR,
    NEAR_MAC,
    OBJECT,
    BenchError,
    Channel,
    Wire,
    Worker,
    queue_threads,
)
from pktswarm.nodes import libbpf
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.traffic.counting import echo, users
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask
from pktswarm.traffic.schedule.leg_frames import templates_as_sent

SENDER_CORE, ECHO_CORE = 0, 1
USERS = 1000
OFFERED_PPS = 3_600_000.0
WARM_S, WINDOW_S, SETTLE_S = 0.5, 1.5, 0.2
USER = {"increment": ["10.45.0.1", "10.45.3.232"]}
SERVER = "10.60.0.1"
PORTS = {"udp": {"src": 5001, "dst": 5001}}


def legs(percent: int) -> tuple[Leg, Leg]:
    """What comes, 64 bytes with FCS of 1,000 users, and what goes back."""
    up = replace(_leg(NEAR_MAC, FAR_MAC, {"src": USER, "dst": SERVER}, "ipv4.src"), rate_pps=OFFERED_PPS)
    back = _leg(FAR_MAC, NEAR_MAC, {"src": SERVER, "dst": USER}, "ipv4.dst")
    return up, replace(back, id=1, stream="back", source="far", target="near", echo_of=up.id, echo_percent=percent)


def _leg(source_mac: str, target_mac: str, addresses: dict[str, Any], field: str) -> Leg:
    made = stream({"headers": [{"ethernet": {"src": source_mac, "dst": target_mac}}, {"ipv4": addresses}, PORTS]})
    return replace(made, users=users.of_template("bench", "users", templates_as_sent(made)[made.size_bytes], field))


def sink(channel: Channel) -> None:
    """At the near end: counts what comes back, and drops it."""
    with libbpf.BpfObject(OBJECT) as program:
        program.load()
        program.attach_xdp("count", socket.if_nametoindex(NEAR), "native")
        channel.tell("ready")
        channel.hear(LIMIT_S)


def echoing(up: Leg, back: Leg, spool: Path) -> Callable[[Channel], None]:
    """A worker's body, at the far end: counts and sends back until told to stop, then tells both counts."""

    def body(channel: Channel) -> None:
        receiver = XdpReceiver(ReceiveTask(FAR, FAR_MAC, [up], LIMIT_S, mode="count", echoes=[back]), spool)
        try:
            receiver.prepare()
            receiver.start(time.monotonic_ns())
            channel.tell("ready")
            channel.hear(LIMIT_S)
            receiver.stop()
            channel.tell([asdict(count) for count in (*receiver.counts(), *receiver.other_way())])
            channel.hear()
        finally:
            receiver.stop()
            receiver.restore()

    return body


def measure(percent: int = 100, window_s: float = WINDOW_S) -> dict[str, float]:
    """Frames a second that went back, the processor time of each, and what part of those due the near end's ring did
    not take. BenchError where the counts differ."""
    up, back = legs(percent)
    with tempfile.TemporaryDirectory() as folder, Wire() as wire, Worker("the sink", wire.near, sink) as near:
        near.hear()
        before = wire.came_back()
        with Worker("the echo", wire.far, echoing(up, back, Path(folder))) as core:
            core.hear()
            wire.receive_on(ECHO_CORE)
            with Worker("the sender", wire.near, sending(up, Path(folder), SENDER_CORE)) as sender:
                sender.hear()
                sender.tell("go")
                figures = _window(wire, window_s)
                sender.tell("stop")
                sent = sender.hear()[0]["sent_packets"]
                time.sleep(SETTLE_S)
                core.tell("stop")
                came, returned = core.hear()
        due = returned["sent_packets"] + returned["failed_packets"]
        if sent != came["received_packets"] or due != echo.due(sent, percent):
            raise BenchError(f"{sent} sent, {came['received_packets']} counted, {returned['note']}")
        if (here := wire.came_back() - before) < returned["sent_packets"]:
            raise BenchError(f"{returned['sent_packets']} sent back, {here} came")
        return {**figures, "failed": returned["failed_packets"] / due}


def _window(wire: Wire, seconds: float) -> dict[str, float]:
    time.sleep(WARM_S)
    begun, first, busy_ns = time.monotonic(), wire.came_back(), _busy_ns()
    time.sleep(seconds)
    ended, last = time.monotonic(), wire.came_back()
    if last == first:
        raise BenchError(f"nothing came back for {seconds} s")
    return {"rate_pps": (last - first) / (ended - begun), "each_ns": (_busy_ns() - busy_ns) / (last - first)}


def _busy_ns() -> int:
    """Processor time of the echo's core for this, so far."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in queue_threads())
