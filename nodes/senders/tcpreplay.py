"""tcpreplay: a trace on any driver, from user space.

Measured with 4.4.3: it reads nanosecond pcap. 50 ms pass from its start to its first packet. At the recorded pace its
default timer (gtod, which spins a core) adds some 10 µs with every packet to all that follow, the sleeping ones (nano,
select) 60 to 90 µs, and every moment without the processor stays in the delay. So a gate starts it and paces
recordings: see tcpreplay_gate. Its fixed rates hold by themselves.
"""

from __future__ import annotations

import fcntl
import json
import re
import socket
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pktswarm.nodes.engine import Sender
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.process import EngineProcess
from pktswarm.nodes.senders import tcpreplay_gate
from pktswarm.nodes.start_fifo import Gate
from pktswarm.traffic.capture.constants import NS_PER_S
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.capture.trace import Trace
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES, SendCount, SendTask
from pktswarm.traffic.replay.files import check_mtu, frames_to_send, packets

ARM_TIMEOUT_S = 1.5
ARMED_WAIT_S = 30.0
"""Time that an engine may live beyond its sending: it is started well before its release."""
MODES = ("original", "multiplier", "pps", "bps", "top")
RECORDED_PACE = ("original", "multiplier")
NOTED_DELAY_NS = 10_000_000
SIOCGIFMTU = 0x8921


@dataclass(frozen=True)
class Closing:
    """tcpreplay's closing figures."""

    packets: int
    bytes: int
    """Without FCS."""
    seconds: float
    rate_pps: float
    successful: int
    failed: int
    truncated: int
    retried_enobufs: int
    retried_eagain: int
    interrupted: bool
    first_failure: str = ""


class TcpreplaySender(Sender):
    name = "tcpreplay"

    def __init__(self, task: SendTask, spool: Path) -> None:
        super().__init__(task, spool)
        self._replays: list[Replay] = []

    def prepare(self) -> None:
        queues = Interface(self.task.interface).transmit_queues
        for place, leg in enumerate(self.task.legs):
            # Leg ids are unique in the run: hosts on one machine, as in a lab, start at different processors.
            turn = self.task.legs[0].id + place % queues
            self._replays.append(Replay(leg, self.task.interface, self.spool, self.task.limit_s, turn))
        for replay in self._replays:
            replay.arm()
        deadline = time.monotonic() + ARM_TIMEOUT_S
        for replay in self._replays:
            replay.wait_armed(deadline)

    def start(self, at_ns: int) -> None:
        for replay in self._replays:
            replay.release(at_ns)

    def done(self) -> bool:
        return not any(replay.process.running() for replay in self._replays)

    def stop(self) -> None:
        for replay in self._replays:
            replay.process.stop()

    def restore(self) -> None:
        for replay in self._replays:
            replay.clean_up()

    def counts(self) -> list[SendCount]:
        return [replay.count() for replay in self._replays]


class Replay:
    """Sends one leg by one tcpreplay. `turn`: index of its processor."""

    def __init__(self, leg: Leg, interface: str, spool: Path, limit_s: float, turn: int = 0) -> None:
        if leg.trace_file is None:
            raise EngineError("tcpreplay", f"stream {leg.stream} is no trace")
        self.leg = leg
        path = spool / leg.trace_file
        frames, order = frames_to_send(leg, spool)
        check_mtu(frames, interface_mtu(interface), interface, path)
        trace = Trace(path, packets(frames, order))
        self.lead_ns = leg.timing.lead_ns
        self._duration_ns = None if leg.duration_s is None else round(leg.duration_s * 1e9) - self.lead_ns
        self._gate = Gate("tcpreplay", spool / f"tcpreplay-{leg.id}.gate")
        self._feed_file = spool / f"tcpreplay-{leg.id}.pcap"
        self._feed_file.write_bytes(write_pcap(_from_time_one(trace)))
        feed = tcpreplay_feed(leg, trace, str(self._feed_file), str(self._gate.file), self._duration_ns)
        feed = feed._replace(turn=turn)
        # -I -S: nothing but the standard library is needed, and the start is twice as fast.
        gate = [sys.executable, "-I", "-S", tcpreplay_gate.__file__, json.dumps(feed._asdict())]
        command = [*gate, *tcpreplay_command(leg, trace, interface)]
        output_file = spool / f"tcpreplay-{leg.id}.txt"
        self.process = EngineProcess("tcpreplay", command, output_file, limit_s + ARMED_WAIT_S)

    def arm(self) -> None:
        self._gate.open()
        self.process.start()

    def wait_armed(self, deadline: float) -> None:
        while tcpreplay_gate.ARMED not in (output := self.process.output()):
            if not self.process.running():
                raise EngineError("tcpreplay", "could not start", output)
            if time.monotonic() > deadline:
                raise EngineError("tcpreplay", f"not ready after {ARM_TIMEOUT_S} s", output)
            time.sleep(0.002)

    def release(self, at_ns: int) -> None:
        if self._ends_before_its_first_packet:
            self.process.stop()
        else:
            self._gate.release(at_ns + self.lead_ns)

    @property
    def _ends_before_its_first_packet(self) -> bool:
        return self._duration_ns is not None and self._duration_ns <= 0

    def clean_up(self) -> None:
        self._gate.remove()
        self._feed_file.unlink(missing_ok=True)

    def count(self) -> SendCount:
        output = self.process.output()
        released = re.search(rf"^{tcpreplay_gate.RELEASED}(\d+)$", output, re.MULTILINE)
        if released is None and tcpreplay_gate.ARMED in output:
            return SendCount(self.leg.id, "tcpreplay", 0, 0, note="stopped before its first packet", output=output)
        if self.process.status not in (0, None):
            self.process.check()
        closing = parse_closing(output)
        check_closing(closing, self.leg.count_packets if self._duration_ns is None else None, output)
        return SendCount(
            leg=self.leg.id,
            engine="tcpreplay",
            sent_packets=closing.packets,
            sent_bytes=closing.bytes,
            failed_packets=closing.failed,
            seconds=closing.packets / closing.rate_pps if closing.rate_pps else closing.seconds,
            started_ns=int(released[1]) if released else None,
            note=closing.first_failure or _behind(output),
            output=output,
        )


def _behind(output: str) -> str:
    """Returns a note on the largest delay against the recorded times; empty if it is small."""
    found = re.search(rf"^{tcpreplay_gate.BEHIND}(\d+) ns$", output, re.MULTILINE)
    if found is None or int(found[1]) < NOTED_DELAY_NS:
        return ""
    return f"up to {int(found[1]) / 1e6:.0f} ms behind the recorded times"


def _from_time_one(trace: Trace) -> list[Packet]:
    """Returns the packets in order of time, from 1 s on: with a time 0 tcpreplay shortens later passes."""
    packets = sorted(trace.packets, key=lambda packet: packet.time_ns)
    return [Packet(packet.time_ns - packets[0].time_ns + NS_PER_S, packet.data) for packet in packets]


def _mode(leg: Leg) -> str:
    mode = leg.timing.mode
    if mode not in MODES:
        raise BadInput(leg.stream, "unknown timing", key="timing.mode", value=mode, allowed=", ".join(MODES))
    if mode in ("multiplier", "pps", "bps") and not leg.timing.value > 0:
        raise BadInput(leg.stream, "must be above 0", key="timing.value", value=leg.timing.value)
    return mode


def tcpreplay_feed(leg: Leg, trace: Trace, file: str, gate: str, duration_ns: int | None) -> tcpreplay_gate.Feed:
    """How the gate feeds `trace`, which stands in `file`."""
    mode = _mode(leg)
    speed = leg.timing.value if mode == "multiplier" else 1.0
    # Every share repeats at the period of the whole trace, or the shares would drift apart.
    period_ns = leg.timing.period_ns or round(trace.period_ns / speed)
    return tcpreplay_gate.Feed(file, gate, mode in RECORDED_PACE, speed, period_ns, leg.count_packets, duration_ns)


def tcpreplay_command(leg: Leg, trace: Trace, interface: str) -> list[str]:
    """The command that replays `trace`, read from its standard input."""
    mode = _mode(leg)
    command = ["tcpreplay", "--no-flow-stats", f"--intf1={interface}"]
    match mode:
        case "original" | "multiplier":
            # Each packet as soon as it can be read; the gate repeats and counts.
            return [*command, "--topspeed", "/dev/stdin"]
        case "pps":
            command.append(f"--pps={leg.timing.value:.9g}")
        case "bps":
            # Our rates count the FCS, tcpreplay's do not.
            share = trace.size_bytes / (trace.size_bytes + FCS_BYTES * len(trace.packets))
            command.append(f"--mbps={leg.timing.value * share / 1e6:.9g}")
        case "top":
            command.append("--topspeed")
    return [*command, "--preload-pcap", *_repeats(leg, len(trace.packets)), "/dev/stdin"]


def _repeats(leg: Leg, packets: int) -> list[str]:
    """--loop for the passes (0: until it is stopped), --limit where the last is cut short."""
    passes = 0 if leg.count_packets is None else -(-leg.count_packets // packets)
    options = [f"--loop={passes}"]
    if leg.count_packets is not None and leg.count_packets % packets:
        options.append(f"--limit={leg.count_packets}")
    return options


def interface_mtu(interface: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, SIOCGIFMTU, struct.pack("16si12x", interface.encode(), 0))
        except OSError as error:
            raise EngineError("tcpreplay", f"interface {interface}: {error.strerror}") from None
    return int(struct.unpack("16si12x", answer)[1])


def parse_closing(output: str) -> Closing:
    """Parses tcpreplay's closing output. Raises EngineError where a figure is missing."""
    # Written by 4.4.3 when a signal ends it, also into the middle of a line of figures.
    figures = output.replace("sendpacket_abort\n", "")

    def figure(pattern: str) -> str:
        found = re.search(pattern, figures, re.MULTILINE)
        if found is None:
            raise EngineError("tcpreplay", "ended without its closing figures", output[-4000:])
        return found[1]

    failure = re.search(r"^Unable to send packet: .*?\[\d+\]: (.*)$", output, re.MULTILINE)
    return Closing(
        packets=int(figure(r"^Actual: (\d+) packets")),
        bytes=int(figure(r"^Actual: \d+ packets \((\d+) bytes\)")),
        seconds=float(figure(r"^Actual: .* sent in ([\d.]+) seconds")),
        rate_pps=float(figure(r"^Rated: .* ([\d.]+) pps$")),
        successful=int(figure(r"^\s*Successful packets: +(\d+)$")),
        failed=int(figure(r"^\s*Failed packets: +(\d+)$")),
        truncated=int(figure(r"^\s*Truncated packets: +(\d+)$")),
        retried_enobufs=int(figure(r"^\s*Retried packets \(ENOBUFS\): +(\d+)$")),
        retried_eagain=int(figure(r"^\s*Retried packets \(EAGAIN\): +(\d+)$")),
        interrupted="User interrupt" in output,
        first_failure=failure[1] if failure else "",
    )


def check_closing(closing: Closing, intended_packets: int | None, output: str) -> None:
    """Raises EngineError where its figures contradict each other.

    When interrupted, 4.4.3 forgets the last packet in "Successful packets" (a capture has as many as "Actual").
    """
    allowed = (0, 1) if closing.interrupted else (0,)
    if closing.packets - closing.successful not in allowed:
        problem = f"says it sent {closing.packets} packets and that {closing.successful} were successful"
        raise EngineError("tcpreplay", problem, output[-4000:])
    if closing.truncated:
        raise EngineError("tcpreplay", f"{closing.truncated} packets were truncated", output[-4000:])
    tried = closing.packets + closing.failed
    if intended_packets is not None and not closing.interrupted and tried != intended_packets:
        problem = f"ended after {tried} packets of {intended_packets}"
        raise EngineError("tcpreplay", problem, output[-4000:])
