"""The engine interactive on one node: a process for each leg that plays its side of the leg's flows.

Sender and receiver differ in which begins: both send, both receive. The process (nodes.interactive.process) prints its
counts on its last line.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pktswarm.nodes.interface import Interface
from pktswarm.nodes.offloads import OffloadsOff
from pktswarm.nodes.process import EngineProcess
from pktswarm.nodes.receivers.netsniff import BothWays
from pktswarm.nodes.start_fifo import Gate
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.flow_report import FlowReport
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount

NAME = "interactive"
ARMED, RESULT = "pktswarm: armed", "pktswarm: result "
"""Lines that the process prints; RESULT is followed by a PlayResult as JSON."""
ARM_TIMEOUT_S = 15.0
AHEAD_OF_LIMIT_S = 3.0
"""Time before the guard's limit at which the process ends by itself and prints its counts."""


@dataclass
class Orders:
    """The only argument of the process, as JSON."""

    interface: str
    trace: str
    beginner_mac: str
    peer_mac: str
    """Only frames from this address are processed."""
    gate: str
    """The FIFO for the start time; empty: this side answers, and starts with the first frame received."""
    limit_s: float


@dataclass
class PlayResult:
    """The counts of one process. Times `…_utc_ns` are UTC, the others CLOCK_MONOTONIC; None: no such packet."""

    flows: list[FlowReport]
    unmatched: int
    dropped: int
    started_ns: int | None
    first_sent_ns: int | None
    seconds: float | None
    first_received_utc_ns: int | None
    last_received_utc_ns: int | None
    note: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PlayResult:
        fields = json.loads(text)
        return cls(**{**fields, "flows": [FlowReport(**flow) for flow in fields["flows"]]})


class Ends:
    """Plays all legs of one node; `begins`: it is their transmitter. `legs`: these, and the legs that answer them.

    With the option `capture_ring_mib`, this node captures the frames between the two nodes.
    """

    def __init__(self, legs: list[Leg], interface: str, spool: Path, limit_s: float, begins: bool) -> None:
        self._interface = Interface(interface)
        self._offloads = OffloadsOff(self._interface, spool)
        back = {leg.answers: leg for leg in legs if leg.answers is not None}
        self.ends = [End(leg, back[leg.id], interface, spool, limit_s, begins) for leg in legs if leg.answers is None]
        self._capture: BothWays | None = None
        self._capturing = False
        ring_mib = max((int(leg.options.get("capture_ring_mib", 0)) for leg in legs), default=0)
        if ring_mib:
            label = f"interactive-{interface}-{'begins' if begins else 'answers'}"
            task = ReceiveTask(interface, "", [], limit_s, ring_mib=ring_mib)
            self._capture = BothWays(task, spool, label, list(dict.fromkeys(end.peer_mac for end in self.ends)))

    def prepare(self) -> None:
        self._offloads.switch_merging_off()
        if self._capture:
            self._capture.prepare()

    def ready(self) -> bool:
        """Returns whether all processes receive, and the capture runs. The capture starts last: the kernel delivers a
        frame to the youngest packet socket first, so a frame is captured before its answer."""
        armed = all(end.armed for end in self.ends)
        if not armed or self._capture is None:
            return armed
        if not self._capturing:
            self._capturing = True
            self._capture.start(0)
        return self._capture.ready()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + ARM_TIMEOUT_S
        while not self.ready():
            if not all(end.process.running() for end in self.ends) or time.monotonic() > deadline:
                raise EngineError(NAME, "did not start", "".join(end.process.output()[-4000:] for end in self.ends))
            time.sleep(0.005)

    def stop(self) -> None:
        for end in self.ends:
            end.process.stop()
        if self._capture and self._capturing:
            self._capture.stop()

    def captures(self) -> list[Path]:
        return self._capture.captures() if self._capture else []

    def received(self) -> list[ReceiveCount]:
        """Returns the counts; the frames that the capture missed are in the first."""
        counts = [end.received() for end in self.ends]
        if self._capture and self._capturing:
            counts[0].dropped_packets = (counts[0].dropped_packets or 0) + self._capture.missed()
        return counts

    def restore(self) -> None:
        self._offloads.restore()
        if self._capture:
            self._capture.restore()
        for end in self.ends:
            end.clean_up()


class End:
    """One leg and the leg that answers it, as this node plays them."""

    def __init__(self, there: Leg, back: Leg, interface: str, spool: Path, limit_s: float, begins: bool) -> None:
        if there.trace_file is None:
            raise EngineError(NAME, f"stream {there.stream} has no trace file")
        self.out, self.coming = (there, back) if begins else (back, there)
        self._gate = Gate(NAME, spool / f"interactive-{there.id}.gate")
        self.peer_mac = there.timing.answerer_mac if begins else there.timing.beginner_mac
        orders = Orders(
            interface=interface,
            trace=str(spool / there.trace_file),
            beginner_mac=there.timing.beginner_mac,
            peer_mac=self.peer_mac,
            gate=str(self._gate.file) if begins else "",
            limit_s=max(1.0, limit_s - AHEAD_OF_LIMIT_S),
        )
        command = [sys.executable, "-P", "-m", "pktswarm.nodes.interactive.process", json.dumps(asdict(orders))]
        self.process = EngineProcess(NAME, command, spool / f"interactive-{there.id}.txt", limit_s + ARM_TIMEOUT_S)
        self._result: PlayResult | None = None

    def arm(self) -> None:
        if self.out.answers is None:
            self._gate.open()
        self.process.start()

    @property
    def armed(self) -> bool:
        return ARMED in self.process.output()

    def release(self, at_ns: int) -> None:
        self._gate.release(at_ns)

    def clean_up(self) -> None:
        self._gate.remove()

    def result(self) -> PlayResult:
        """Returns the counts of the process. Raises EngineError when it printed none."""
        if self._result is None:
            output = self.process.check()
            lines = [line for line in output.splitlines() if line.startswith(RESULT)]
            if not lines:
                raise EngineError(NAME, "the process ended without printing its counts", output[-4000:])
            self._result = PlayResult.from_json(lines[-1].removeprefix(RESULT))
        return self._result

    def sent(self) -> SendCount:
        result = self.result()
        flows = result.flows
        return SendCount(
            leg=self.out.id,
            engine=NAME,
            sent_packets=sum(flow.sent for flow in flows),
            sent_bytes=sum(flow.sent_bytes for flow in flows),
            resent_packets=sum(flow.resent for flow in flows),
            seconds=result.seconds,
            started_ns=result.started_ns,
            first_ns=result.first_sent_ns,
            flows=flows,
            note=result.note,
        )

    def received(self) -> ReceiveCount:
        result = self.result()
        return ReceiveCount(
            leg=self.coming.id,
            engine=NAME,
            received_packets=sum(flow.received for flow in result.flows),
            received_bytes=sum(flow.received_bytes for flow in result.flows),
            first_ns=result.first_received_utc_ns,
            last_ns=result.last_received_utc_ns,
            dropped_packets=result.dropped,
        )
