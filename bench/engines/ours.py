"""The product's own sender and receiver, driven as a node's guard drives them, each in a worker of its own."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.engines.wire import FAR, FAR_MAC, NEAR, BenchError, Channel, Wire, Worker
from pktswarm.master.plan.receivers import TIMED_EVERY
from pktswarm.nodes.engine import Sender
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.nodes.senders.xdp import XdpSender
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.leg import Leg, Timing
from pktswarm.traffic.protocol.task import ReceiveTask, SendTask

LIMIT_S = 120.0
LEAD_S = 0.05
SETTLE_S = 0.1
"""What is on its way when the sender has ended arrives within this."""
ETHERNET = {"ethernet": {"src": "02:00:00:00:00:0a", "dst": FAR_MAC}}
UDP_HEADERS = [ETHERNET, {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}, {"udp": {"src": 1000, "dst": 2000}}]
NUMBERS = Path(__file__).parents[2] / "kernel/count_numbers.h"
BELIEVED_AHEAD = int(re.findall(r"define BELIEVED_AHEAD (\d+)", NUMBERS.read_text())[0])
USERS = 1000
"""Of a tunnel: the address moves with the TEID, so that each user has his own of both."""
TUNNEL_HEADERS: list[dict[str, Any]] = [
    ETHERNET,
    {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}},
    {"udp": {"src": 2152, "dst": 2152, "checksum": 0}},
    {"gtpu": {"teid": {"increment": [1, USERS]}}},
    {"ipv4": {"src": {"with": "gtpu.teid", "increment": ["10.45.0.1", "10.45.3.232"]}, "dst": "10.60.0.1"}},
    {"udp": {"src": 5000, "dst": 6000}},
]


def stream(frame: dict[str, Any], size_bytes: int = 64, **more: Any) -> Leg:
    """A stamped leg; at top speed until it is stopped, where nothing else is said."""
    match = Match.from_template(build_frame(frame, size_bytes)).to_data()
    given: dict[str, Any] = {"duration_s": LIMIT_S, **more}
    return Leg(0, "bench", "near", "far", "stream", "xdp", frame=frame, size_bytes=size_bytes, match=match, **given)


def udp(**more: Any) -> Leg:
    """60 bytes, 64 with the FCS: the smallest frame, with a stamp as its whole payload."""
    return stream({"headers": UDP_HEADERS}, **more)


def tunnel() -> Leg:
    """GTP-U in the smallest frame that holds a stamp."""
    return stream({"headers": TUNNEL_HEADERS}, stamp.least_size_bytes(TUNNEL_HEADERS))


def trace(file: str, mode: str, packets: int) -> Leg:
    """Once at the recorded times, or over and over at top speed."""
    once = mode == "original"
    count, duration_s = (packets, None) if once else (None, LIMIT_S)
    timing = Timing(mode=mode)
    return Leg(
        0,
        "bench",
        "near",
        "far",
        "trace",
        "xdp",
        trace_file=file,
        timing=timing,
        count_packets=count,
        duration_s=duration_s,
        options={"wait": "awake"} if once else {},
    )


def sending(leg: Leg, spool: Path, core: int, engine: type[Sender] = XdpSender) -> Callable[[Channel], None]:
    """A worker's body: prepares, begins when told so, ends by itself or when told so, then tells its counts."""

    def body(channel: Channel) -> None:
        os.sched_setaffinity(0, {core})
        sender = engine(SendTask(NEAR, [leg], LIMIT_S), spool)
        try:
            sender.prepare()
            channel.tell("ready")
            channel.hear()
            sender.start(time.monotonic_ns() + int(LEAD_S * 1e9))
            while not sender.done() and channel.hear(0.02) is None:
                pass
            sender.stop()
            channel.tell([asdict(count) for count in sender.counts()])
            channel.hear()
        finally:
            sender.stop()
            sender.restore()

    return body


def receiving(leg: Leg, spool: Path) -> Callable[[Channel], None]:
    """A worker's body: counts until told to stop, then tells its counts."""

    def body(channel: Channel) -> None:
        more = {"offsets_ns": {leg.source: 0}, "timed_every": 1 if leg.users else TIMED_EVERY}
        task = ReceiveTask(FAR, FAR_MAC, [leg], LIMIT_S, mode="count", **more)
        receiver = XdpReceiver(task, spool)
        try:
            receiver.prepare()
            receiver.start(time.monotonic_ns())
            channel.tell(receiver.attached)
            channel.hear(LIMIT_S)
            receiver.stop()
            channel.tell([asdict(count) for count in receiver.counts()])
            channel.hear()
        finally:
            receiver.stop()
            receiver.restore()

    return body


@dataclass(frozen=True)
class Result:
    """What both ends counted of one leg."""

    sent: dict[str, Any]
    received: dict[str, Any]

    @property
    def lost(self) -> int:
        return int(self.sent["sent_packets"]) - int(self.received["tally"]["distinct"])

    @property
    def arrival_pps(self) -> float:
        """Between the first and the last arrival, by the receiver's own clock."""
        seconds = (self.received["last_ns"] - self.received["first_ns"]) / 1e9
        return float((self.received["received_packets"] - 1) / seconds)

    @property
    def unmeasured(self) -> int:
        """Missing latencies, beyond those of frames whose number is far ahead of the one before (`believed()` in
        kernel/count_numbers.h), because a full ring refused the numbers between."""
        tally = self.received["tally"]
        jumps = (tally["highest"] + 1 - tally["distinct"]) // BELIEVED_AHEAD
        every = self.received["timed_every"]
        timed = tally["distinct"] if every == 1 else tally["distinct"] // every * 2
        return max(0, int(timed - tally["latency"]["frames"] - jumps))

    def check(self) -> None:
        """A figure counts only if every frame that left was measured as it was sent."""
        tally = self.received["tally"]
        if self.lost or tally["duplicated"] or tally["altered"] or self.unmeasured:
            counted = {name: tally[name] for name in ("distinct", "duplicated", "altered", "altered_by", "highest")}
            raise BenchError(
                f"sent {self.sent['sent_packets']}, but received {counted}, and {self.unmeasured} latencies are missing"
            )


class Run:
    """A sender and a receiver on a wire, both ready; begin() lets the frames go, finish() gives the counts."""

    def __init__(self, sender: Worker, receiver: Worker) -> None:
        self.sender, self.receiver = sender, receiver

    def begin(self) -> None:
        self.sender.tell("go")

    def finish(self, stop: bool) -> Result:
        """`stop`: at once; else when the leg has come to its own end."""
        if stop:
            self.sender.tell("stop")
        sent = self.sender.hear()[0]
        time.sleep(SETTLE_S)
        self.receiver.tell("stop")
        return Result(sent, self.receiver.hear()[0])


@contextmanager
def run(wire: Wire, leg: Leg, spool: Path, core: int) -> Iterator[Run]:
    # One after the other: a veth end takes live frames only when its other end has its program.
    with Worker("the xdp receiver", wire.far, receiving(leg, spool)) as receiver:
        if (attached := receiver.hear()) != "native":
            raise BenchError(f"the receiver is {attached}")
        with Worker("the xdp sender", wire.near, sending(leg, spool, core)) as sender:
            sender.hear()
            yield Run(sender, receiver)
