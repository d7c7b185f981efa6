"""The senders xdp and tc on one processor: a program, and the process that runs it."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pktswarm.nodes.forked import ForkedProcess
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.senders import xdp_run
from pktswarm.nodes.senders.ways_out import MOST_FIRST_BYTES, WayOut
from pktswarm.nodes.senders.xdp_program import Program
from pktswarm.nodes.senders.xdp_shares import batch_size
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import SendCount, SendTask
from pktswarm.traffic.schedule import assemble
from pktswarm.traffic.schedule.records import LegRecord

if TYPE_CHECKING:
    from pktswarm.traffic.replay.frames import Frames
    from pktswarm.traffic.schedule.sequence import Records

ARM_TIMEOUT_S = 15.0
ARMED_WAIT_S = 30.0
"""How much longer than its sending the process may live: it is started well before it is released."""


class XdpCore:
    """Sends the legs of one processor. `cpu`: the processor that the process is bound to; None: any."""

    def __init__(
        self, way: WayOut, task: SendTask, spool: Path, most_repeats: int, number: int = 0, cpu: int | None = None
    ) -> None:
        self._way = way
        self.task, self.spool = task, spool
        self._most_repeats, self._number, self._cpu = most_repeats, number, cpu
        self._program: Program | None = None
        self._process: ForkedProcess | None = None
        self._started_ns: int | None = None
        self._stopped = self._died = False

    def prepare(self) -> None:
        interface = Interface(self.task.interface)
        compiled = assemble.compile_schedule(self.task.legs, self._trace, self._sequence)
        batch = batch_size(self.task.legs)
        self._program = Program(compiled, interface.index, batch, self.task.clock, self._way, self._number)
        awake = any(leg.options.get("wait") == "awake" for leg in self.task.legs)
        program = self._program
        live = self._way.live
        first_bytes = compiled.largest_bytes if live else min(compiled.largest_bytes, MOST_FIRST_BYTES)
        send = partial(xdp_run.run, program.number, program.state_number, first_bytes, batch, self._most_repeats)
        limit_s = self.task.limit_s + ARMED_WAIT_S
        name = self._way.name
        output = self.spool / (f"{name}-{self._number}.out" if self._number else f"{name}.out")
        self._process = ForkedProcess(name, partial(send, awake=awake, live=live), output, limit_s, self._cpu)
        self._process.start()
        self._wait_armed(self._process, self._program)

    def _trace(self, leg: Leg) -> Frames:
        from pktswarm.traffic.replay.files import check_mtu, mapped_frames, trace_path  # with NumPy

        path = trace_path(leg, self.spool)
        frames = mapped_frames(path)
        interface = Interface(self.task.interface)
        check_mtu(frames, interface.mtu, interface.name, path)
        return frames

    def _sequence(self, leg: Leg) -> Records:
        from pktswarm.traffic.schedule.sequence import read_sequence  # with NumPy

        return read_sequence(self.spool / str(leg.sequence_file))

    def _wait_armed(self, process: ForkedProcess, program: Program) -> None:
        deadline = time.monotonic() + ARM_TIMEOUT_S
        while not program.state.calls:
            if not process.running():
                raise EngineError(self._way.name, "did not start", process.output())
            if time.monotonic() > deadline:
                raise EngineError(self._way.name, f"not ready after {ARM_TIMEOUT_S} s", process.output())
            time.sleep(0.002)

    def start(self, at_ns: int) -> None:
        if self._program is None:
            raise EngineError(self._way.name, "start before prepare")
        self._started_ns = at_ns
        self._program.start(at_ns)

    def set_rate(self, leg: int, rate_pps: float | None) -> None:
        for number, own in enumerate(self.task.legs):
            if own.id == leg:
                self._loaded().set_rate(number, rate_pps)

    def done(self) -> bool:
        if self._program is None or self._process is None or self._started_ns is None:
            return False
        state = self._program.state
        return bool(state.finished or state.broken) or not self._process.running()

    def sample(self) -> dict[int, dict[str, int | None]]:
        if self._program is None:
            return {}
        return {
            leg.id: {"sent_packets": record.sent_packets, "sent_bytes": _packet_bytes(record)}
            for leg, record in self._records()
        }

    def _records(self) -> list[tuple[Leg, LegRecord]]:
        program = self._loaded()
        return list(zip(self.task.legs, program.legs, strict=True))

    def _loaded(self) -> Program:
        if self._program is None:
            raise EngineError(self._way.name, "counts before prepare")
        return self._program

    def stop(self) -> None:
        if self._process is not None and self._process.started:
            if not self._stopped:
                self._stopped, self._died = True, not self._process.running()
            self._process.stop()

    def restore(self) -> None:
        if self._program is not None:
            self._program.close()
            self._program = None

    def counts(self) -> list[SendCount]:
        self._check()
        return [self._count(leg, record, number) for number, (leg, record) in enumerate(self._records())]

    def _users(self, leg: Leg, record: LegRecord, number: int) -> list[int] | None:
        users = self._loaded().users(number)
        if users is None:
            return None
        if sum(users) != record.sent_packets:
            sums = f"{sum(users)} packets by user, {record.sent_packets} by leg"
            raise EngineError(self._way.name, f"the counts of {leg.stream} disagree: {sums}", self._output())
        return users + [0] * ((leg.users.count if leg.users else 0) - len(users))

    def _output(self) -> str:
        return self._process.output() if self._process is not None else ""

    def _check(self) -> None:
        """Raises EngineError when the counts cannot be right."""
        program, state = self._loaded(), self._loaded().state
        output = self._output()
        if state.broken:
            raise EngineError(self._way.name, "a frame was not built: the compiled schedule is inconsistent", output)
        if self._died and self._process is not None:
            raise EngineError(self._way.name, f"ended before it was stopped: {self._process.end}", output)
        sent = sum(record.sent for record in program.legs)
        if state.unexplained or state.pushed != state.popped or sent != state.device_sent:
            sums = f"{sent} frames by leg, {state.device_sent} by the device, {state.unexplained} answers unexplained"
            raise EngineError(self._way.name, f"the counts disagree: {sums}", output)

    def _count(self, leg: Leg, record: LegRecord, number: int) -> SendCount:
        users = self._users(leg, record, number)
        in_parts = bool(record.in_parts)
        # For a trace: [frames without a stamp, frames with one].
        trace = leg.kind == "trace"
        return SendCount(
            leg=leg.id,
            engine=self._way.name,
            sent_packets=record.sent_packets,
            sent_bytes=_packet_bytes(record),
            sent_frames=record.sent if in_parts else None,
            failed_packets=record.sequence - record.packets if in_parts else record.refused + record.dropped,
            late_packets=record.late if record.timed else None,
            skipped_packets=record.skipped if record.timed else None,
            stamped_packets=users[1] if trace and users else None,
            # In a batch a frame waits for those behind it, for a time that is not measured.
            latest_ns=record.latest_ns if record.timed and batch_size(self.task.legs) == 1 else None,
            users=None if trace else users,
            seconds=(record.last_ns - record.first_ns) / 1e9 if record.generated else None,
            started_ns=record.first_ns or self._started_ns,
            ended_ns=record.last_ns or None,
            first_ns=record.first_ns or None,
            note=self._note(leg, record),
            output=self._output(),
        )

    def _note(self, leg: Leg, record: LegRecord) -> str:
        parts = ["stamped" if record.stamp else "not stamped"]
        if record.in_parts:
            parts.append(f"{record.packets} packets in {record.sent} frames")
        if self._cpu is not None:
            parts.append(f"on processor {self._loaded().state.cpu}")
        if record.timed:
            parts.append(f"{record.late} late, {record.skipped} skipped, at most {record.latest_ns / 1000:.1f} us late")
        if record.stretched_ns:
            parts.append(f"its schedule was stretched by {record.stretched_ns / 1000:.1f} us")
        state = self._loaded().state
        absence_us = state.longest_absence_ns / 1000
        parts.append(f"{state.calls} calls to the kernel, away at most {absence_us:.1f} us with a frame due")
        if record.dropped:
            ring = "full ring" if self._way.live else "ring or qdisc"
            parts.append(f"{record.dropped} that the interface's {ring} did not take")
        if record.refused:
            parts.append(f"{record.refused} refused: {os.strerror(-self._loaded().state.error)}")
        return "; ".join(parts)


def _packet_bytes(record: LegRecord) -> int:
    """Returns the bytes without FCS; a packet sent in fragments counts as one frame."""
    return int(record.packet_bytes if record.in_parts else record.sent_bytes)
