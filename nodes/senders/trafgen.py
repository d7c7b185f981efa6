"""trafgen as a sender: any stream, frame by frame from a list that is written before the start.

The list holds the stream's frames with their checksums, round and round; so any field can vary in any way, and a
varying stream is as fast as a constant one. A random field therefore repeats itself after LIST_FRAMES frames.
"""

from __future__ import annotations

import ctypes
import random
import re
import time
from math import ceil
from pathlib import Path
from typing import ClassVar

from pktswarm.nodes.engine import Sender
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.process import EngineProcess
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.template import Template
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES, SendCount, SendTask
from pktswarm.traffic.schedule.capabilities import trafgen_list_frames, trafgen_list_length

JUMBO_BYTES = 1900
"""trafgen's ring has slots of 2048 bytes, the slot's header included."""
GAP_PPS = 5000
"""Up to here trafgen sleeps after each frame; above, sleeping costs more than the gap itself and it sends in bursts."""
ETHERNET_HEADER_BYTES = 14

_PACKETS = re.compile(r"^\s*(\d+) packets outgoing", re.MULTILINE)
_BYTES = re.compile(r"^\s*(\d+) bytes outgoing", re.MULTILINE)
_TIME = re.compile(r"^\s*(\d+) sec, (\d+) usec on CPU", re.MULTILINE)
_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30


class TrafgenSender(Sender):
    name: ClassVar[str] = "trafgen"

    def __init__(self, task: SendTask, spool: Path) -> None:
        super().__init__(task, spool)
        self._runs: list[_Run] = []

    def prepare(self) -> None:
        interface = Interface(self.task.interface)
        check_interface(interface, self.task.legs)
        self._runs = [_Run(leg, self.task, self.spool) for leg in self.task.legs]

    def start(self, at_ns: int) -> None:
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        slack = _timer_slack(1)
        try:
            for run in self._runs:
                run.start()
        finally:
            _timer_slack(slack)

    def done(self) -> bool:
        # Every run is checked: the check stops one whose duration is over.
        unfinished = [run for run in self._runs if not run.done()]
        return not unfinished

    def stop(self) -> None:
        for run in self._runs:
            run.stop()

    def counts(self) -> list[SendCount]:
        return [run.count() for run in self._runs]


class _Run:
    """One leg, one process."""

    def __init__(self, leg: Leg, task: SendTask, spool: Path) -> None:
        self.leg = leg
        self.count_packets = planned_count(leg)
        config = spool / f"trafgen-{leg.id}.cfg"
        config.write_text(frame_list(build_frame(leg.frame, leg.size_bytes), leg.id))
        self.process = EngineProcess(
            TrafgenSender.name,
            command(leg, task.interface, config, self.count_packets),
            spool / f"trafgen-{leg.id}.out",
            task.limit_s,
        )
        self.started_ns: int | None = None
        self.ended_ns: int | None = None

    def start(self) -> None:
        self.started_ns = time.monotonic_ns()
        self.process.start()

    def done(self) -> bool:
        if not self.process.started:
            return False
        timed = self.count_packets is None and self.leg.duration_s is not None
        if timed and time.monotonic_ns() >= (self.started_ns or 0) + (self.leg.duration_s or 0) * 1e9:
            self.stop()
        return self._ended()

    def _ended(self) -> bool:
        if self.process.running():
            return False
        self.ended_ns = self.ended_ns or time.monotonic_ns()
        return True

    def stop(self) -> None:
        self.process.stop()
        if self.process.started:
            self._ended()

    def count(self) -> SendCount:
        if not self.process.started:
            return SendCount(self.leg.id, TrafgenSender.name, 0, 0, note="stopped before its start")
        packets, size_bytes, seconds = parse(self.process.check())
        return SendCount(
            leg=self.leg.id,
            engine=TrafgenSender.name,
            sent_packets=packets,
            sent_bytes=size_bytes,
            seconds=seconds,
            started_ns=self.started_ns,
            ended_ns=self.ended_ns,
            note=pacing_note(self.leg.rate_pps),
            output=self.process.output(),
        )


def check_interface(interface: Interface, legs: list[Leg]) -> None:
    """trafgen checks none of this: it counts frames that are too long, or that a dead link never took, as sent."""
    if not interface.exists():
        raise BadInput(interface.name, "there is no such interface")
    if not interface.carrier:
        raise EngineError(TrafgenSender.name, f"{interface.name} is down or has no carrier")
    largest = interface.mtu + ETHERNET_HEADER_BYTES + FCS_BYTES
    for leg in legs:
        tags = sum(4 for header in leg.frame["headers"][:2] if header.keys() & {"vlan", "svlan"})
        if leg.size_bytes > largest + min(tags, 4):
            allowed = f"up to {largest}: its MTU is {interface.mtu}"
            key = f"{leg.stream}.size_bytes"
            raise BadInput(
                interface.name, "longer than the interface takes", key=key, value=leg.size_bytes, allowed=allowed
            )


def frame_list(template: Template, seed: int) -> str:
    """trafgen's configuration: one `{ … }` a frame, every counter's round complete."""
    period = template.period
    longest = trafgen_list_frames(len(template.data))
    if period > longest:
        raise EngineError(TrafgenSender.name, f"the list of {period} frames is too long (at most {longest})")
    draw = random.Random(seed)  # noqa: S311 - traffic, not secrets; a seed makes it repeatable
    return "".join(
        f"{{ {_as_bytes(template.frame(index, draw))} }}\n" for index in range(trafgen_list_length(template))
    )


def _as_bytes(frame: bytes) -> str:
    """The frame as trafgen reads it, a long run of one byte at the end as fill()."""
    tail = len(frame) - len(frame.rstrip(frame[-1:]))
    parts = [str(byte) for byte in frame[: len(frame) - tail]]
    return ",".join([*parts, f"fill({frame[-1]},{tail})"])


def planned_count(leg: Leg) -> int | None:
    """A rate and a duration make a count, so that it is exact. None: until stopped."""
    if leg.count_packets is not None:
        return leg.count_packets
    if leg.rate_pps is not None and leg.duration_s is not None:
        return round(leg.rate_pps * leg.duration_s)
    return None


def command(leg: Leg, interface: str, config: Path, count: int | None) -> list[str]:
    # Without the first two it changes net.core.*mem* and interrupt affinity of the whole machine.
    # (--no-sock-mem has no short form: 0.6.8's help names -A, and refuses it.)
    command = ["trafgen", "--no-sock-mem", "--notouch-irq", "--cpus", "1", "--in", str(config), "--out", interface]
    if count is not None:
        command += ["--num", str(count)]
    if leg.size_bytes > JUMBO_BYTES:
        command += ["--jumbo-support"]
    return command + pacing(leg.rate_pps)


def pacing(rate_pps: float | None) -> list[str]:
    """--gap sleeps after each frame; --rate sends a whole second's frames at once and sleeps for the rest of it."""
    if rate_pps is None:
        return []
    if rate_pps <= GAP_PPS:
        return ["--gap", f"{max(1, round(1e9 / rate_pps) - sleep_overhead_ns())}ns"]
    return ["--rate", f"{ceil(rate_pps)}pps"]


def pacing_note(rate_pps: float | None) -> str:
    if rate_pps is None:
        return ""
    if rate_pps <= GAP_PPS:
        return "paced by sleeping after each frame: evenly, and below the rate by what waking up costs"
    return "paced by the second: each second's frames leave in one burst at top speed"


def sleep_overhead_ns(rounds: int = 15, sleep_ns: int = 200_000) -> int:
    """Returns the excess of a sleep over the requested time on this node: the median of several."""
    slack = _timer_slack(1)
    try:
        over = []
        for _ in range(rounds):
            before = time.monotonic_ns()
            time.sleep(sleep_ns / 1e9)
            over.append(time.monotonic_ns() - before - sleep_ns)
    finally:
        _timer_slack(slack)
    return sorted(over)[rounds // 2]


def _timer_slack(slack_ns: int) -> int:
    """Sets the timer slack, which children inherit; returns the previous one."""
    libc = ctypes.CDLL(None)
    before = int(libc.prctl(_PR_GET_TIMERSLACK))
    libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(slack_ns))
    return before


def parse(text: str) -> tuple[int, int, float]:
    """Returns (packets, bytes, seconds) of trafgen's closing output. Raises EngineError when it is missing."""
    packets, size_bytes, seconds = (pattern.search(text.replace("\r", "\n")) for pattern in (_PACKETS, _BYTES, _TIME))
    if not (packets and size_bytes and seconds):
        raise EngineError(TrafgenSender.name, "trafgen ended without its closing figures", text)
    return int(packets[1]), int(size_bytes[1]), int(seconds[1]) + int(seconds[2]) / 1e6
