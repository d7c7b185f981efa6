"""XDP as a sender: any field of any frame, paced and stamped in the kernel, on drivers with native XDP.

The guard loads the program (kernel/send.bpf.c), shares its maps as memory, and reads the counts there. A process of
its own (xdp_run) makes the long call in which the kernel sends; it is entered before the start, because entering takes
up to 50 ms, and waits inside for the start instant.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from nodes import libbpf, xdp_features
from nodes.engine import Sender
from nodes.interface import Interface
from nodes.process import EngineProcess
from nodes.senders import xdp_run
from traffic import schedule
from traffic.errors import BadInput, EngineError
from traffic.schedule import Schedule
from traffic.schedule_records import CHUNK_BYTES, MAX_LEGS, NEVER, LegRecord, SlotRecord, StateRecord, TraceRecord
from traffic.task import FCS_BYTES, Leg, SendCount, SendTask
from traffic.traces import Trace, check_mtu, read_trace

LEAST_KERNEL = (5, 18)
ARM_TIMEOUT_S = 15.0
ARMED_WAIT_S = 30.0
"""How much longer than its sending the process may live: it is started well before it is released."""
BATCHES = ((250_000, 1), (2_000_000, 16))
"""(packets/s up to, frames that the kernel makes before it hands them on). Fewer: each leaves nearer its due time."""
LARGEST_BATCH = 64
HEADER_BYTES = 14 + 4
"""What an interface takes beyond its MTU: Ethernet's header and one tag."""


class XdpSender(Sender):
    name: ClassVar[str] = "xdp"

    def __init__(self, task: SendTask, spool: Path, repeat: int = xdp_run.MOST_REPEATS) -> None:
        super().__init__(task, spool)
        self._repeat = repeat
        self._program: Program | None = None
        self._process: EngineProcess | None = None
        self._started_ns: int | None = None
        self._stopped = self._died = False

    @classmethod
    def missing(cls) -> str:
        release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
        if release < LEAST_KERNEL:
            return f"Linux {release[0]}.{release[1]} has no XDP live frames (5.18 has)"
        if not (libbpf.OBJECTS / "send.o").exists():
            return "nodes/bpf/send.o is not there (kernel/build.sh compiles it)"
        return libbpf.missing()

    def prepare(self) -> None:
        interface = Interface(self.task.interface)
        check_interface(interface, self.task.legs)
        compiled = schedule.compile_schedule(self.task.legs, self._trace)
        batch = batch_size(self.task.legs)
        self._program = Program(compiled, interface.index, batch)
        words = [self._program.number, compiled.largest_bytes, batch, self._repeat]
        command = [sys.executable, "-P", "-m", xdp_run.__name__, *(str(word) for word in words)]
        limit_s = self.task.limit_s + ARMED_WAIT_S
        self._process = EngineProcess(self.name, command, self.spool / "xdp.out", limit_s)
        self._process.start()
        self._wait_armed(self._process, self._program)

    def _trace(self, leg: Leg) -> Trace:
        trace = read_trace(self.spool / str(leg.trace_file))
        check_mtu(trace, Interface(self.task.interface).mtu, self.task.interface)
        return trace

    def _wait_armed(self, process: EngineProcess, program: Program) -> None:
        deadline = time.monotonic() + ARM_TIMEOUT_S
        while not program.state.runs:
            if not process.running():
                raise EngineError(self.name, "could not start", process.output())
            if time.monotonic() > deadline:
                raise EngineError(self.name, f"not ready after {ARM_TIMEOUT_S} s", process.output())
            time.sleep(0.002)

    def start(self, at_ns: int) -> None:
        if self._program is None:
            raise EngineError(self.name, "start before prepare")
        self._started_ns = at_ns
        self._program.start(at_ns)

    def done(self) -> bool:
        if self._program is None or self._process is None or self._started_ns is None:
            return False
        state = self._program.state
        return bool(state.finished or state.broken) or not self._process.running()

    def sample(self) -> dict[str, Any]:
        if self._program is None:
            return {}
        return {"sent_packets": {leg.id: record.sent for leg, record in self._records()}}

    def _records(self) -> list[tuple[Leg, LegRecord]]:
        program = self._loaded()
        return list(zip(self.task.legs, program.legs, strict=True))

    def _loaded(self) -> Program:
        if self._program is None:
            raise EngineError(self.name, "counts before prepare")
        return self._program

    def set_rate(self, leg_id: int, rate_pps: float) -> None:
        """Another rate from the next frame on, without a gap. Only for legs that have one."""
        for leg, record in self._records():
            if leg.id == leg_id:
                record.gap = schedule.gap(rate_pps, record.burst)

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
        return [self._count(leg, record) for leg, record in self._records()]

    def _output(self) -> str:
        return self._process.output() if self._process is not None else ""

    def _check(self) -> None:
        """Raises EngineError when the counts cannot be right."""
        program, state = self._loaded(), self._loaded().state
        output = self._output()
        if state.broken:
            raise EngineError(self.name, "a frame could not be written: the schedule does not hold together", output)
        if self._died and self._process is not None:
            raise EngineError(self.name, f"ended before it was stopped, exit {self._process.status}", output)
        sent = sum(record.sent for record in program.legs)
        if state.unexplained or state.pushed != state.popped or sent != state.device_sent:
            told = f"{sent} frames by leg, {state.device_sent} by the device, {state.unexplained} answers unexplained"
            raise EngineError(self.name, f"the counts disagree: {told}", output)

    def _count(self, leg: Leg, record: LegRecord) -> SendCount:
        return SendCount(
            leg=leg.id,
            engine=self.name,
            sent_packets=record.sent,
            sent_bytes=record.sent_bytes,
            failed_packets=record.refused + record.dropped,
            seconds=(record.last_ns - record.first_ns) / 1e9 if record.generated else None,
            started_ns=record.first_ns or self._started_ns,
            ended_ns=record.last_ns or None,
            note=self._note(leg, record),
            output=self._output(),
        )

    def _note(self, leg: Leg, record: LegRecord) -> str:
        parts = ["stamped" if record.stamp else "not stamped"]
        if record.timed:
            parts.append(f"{record.late} late, {record.skipped} skipped, at most {record.latest_ns / 1000:.1f} us late")
        calls = 1 + self._output().count(xdp_run.PAUSE)
        pause_ms = self._loaded().state.longest_pause_ns / 1e6
        parts.append(f"{calls} call{'s' * (calls > 1)} to the kernel, the sender's longest pause {pause_ms:.3f} ms")
        if record.dropped:
            parts.append(f"{record.dropped} that the interface's full ring did not take")
        if record.refused:
            parts.append(f"{record.refused} refused: {os.strerror(-self._loaded().state.error)}")
        return "; ".join(parts)


class Program:
    """The loaded program with its maps as memory. `number`: by which another process runs it."""

    def __init__(self, compiled: Schedule, interface_index: int, batch: int) -> None:
        self._compiled = compiled
        self._object = libbpf.BpfObject(libbpf.OBJECTS / "send.o")
        self._memory: list[mmap.mmap] = []
        try:
            self._load(interface_index, batch)
            self._fill()
            self._attach()
        except BaseException:
            self._object.close()
            raise

    def _load(self, interface_index: int, batch: int) -> None:
        compiled = self._compiled
        entries = {
            "legs": len(compiled.legs),
            "slots": len(compiled.slots),
            "table": len(compiled.table),
            "records": len(compiled.trace),
            "store": -(-len(compiled.store) // CHUNK_BYTES),
        }
        for name, number in entries.items():
            self._object.set_entries(name, max(1, number))
        self._object.set_constants(".rodata.settings", (batch == 1).to_bytes(4, sys.byteorder))
        self._object.load()
        self._object.map("egress").update(bytes(4), interface_index.to_bytes(4, sys.byteorder))

    def _share(self, name: str, record: type[ctypes.Structure] | type[ctypes.c_uint64]) -> mmap.mmap:
        shared = self._object.map(name)
        if shared.value_bytes != ctypes.sizeof(record):
            problem = f"nodes/bpf/send.o is of another version in {name} (kernel/build.sh compiles it)"
            raise EngineError(XdpSender.name, problem)
        self._memory.append(shared.memory())
        return self._memory[-1]

    def _fill(self) -> None:
        compiled = self._compiled
        legs = self._share("legs", LegRecord)
        self._share("slots", SlotRecord)[: _size(compiled.slots)] = _bytes(compiled.slots)
        self._share("records", TraceRecord)[: _size(compiled.trace)] = _bytes(compiled.trace)
        table = [ctypes.c_uint64(value) for value in compiled.table]
        self._share("table", ctypes.c_uint64)[: _size(table)] = _bytes(table)
        self._memory.append(self._object.map("store").memory())
        self._memory[-1][: len(compiled.store)] = bytes(compiled.store)
        legs[: _size([leg.record for leg in compiled.legs])] = _bytes([leg.record for leg in compiled.legs])
        size = ctypes.sizeof(LegRecord)
        self.legs = [LegRecord.from_buffer(legs, index * size) for index in range(len(compiled.legs))]
        self.state = StateRecord.from_buffer(self._share(".bss", StateRecord))
        self.state.start_ns = NEVER
        self.state.due_ns[:] = [NEVER] * MAX_LEGS

    def _attach(self) -> None:
        for program, event in (("told_sent", "xdp_devmap_xmit"), ("told_refused", "xdp_redirect_err")):
            self._object.attach_raw_tracepoint(program, event)
        self.fd, self.number = self._object.program_fd("send"), self._object.program_id("send")

    def start(self, at_ns: int) -> None:
        """While the program runs: it looks at the first leg alone until that is due, so that one is set last."""
        for leg, record in zip(self._compiled.legs, self.legs, strict=True):
            record.stop_ns, record.give_up_ns = leg.stop_ns(at_ns), leg.give_up_ns(at_ns)
            record.pass_ns = leg.first_due_ns(at_ns)
        due_ns = [leg.first_due_ns(at_ns) for leg in self._compiled.legs]
        self.state.tree_leaves, winner = schedule.tournament(due_ns)
        self.state.winner[: len(winner)] = winner
        for index in sorted(range(len(due_ns)), key=lambda index: index == winner[1]):
            self.state.due_ns[index] = due_ns[index]
        self.state.start_ns = at_ns

    def close(self) -> None:
        del self.legs, self.state
        for memory in self._memory:
            # An error's traceback may still refer to a record; the memory goes when that does.
            with contextlib.suppress(BufferError):
                memory.close()
        self._object.close()


def _size(records: Sequence[ctypes._CDataType]) -> int:
    return sum(ctypes.sizeof(record) for record in records)


def _bytes(records: Sequence[ctypes._CDataType]) -> bytes:
    return b"".join(bytes(record) for record in records)


def batch_size(legs: list[Leg]) -> int:
    """As few at a time as the legs' rates together allow."""
    rate_pps = sum(map(_rate_pps, legs))
    return next((batch for most_pps, batch in BATCHES if rate_pps <= most_pps), LARGEST_BATCH)


def _rate_pps(leg: Leg) -> float:
    """What a leg needs on average; infinite where nothing limits it."""
    if leg.kind == "stream":
        return math.inf if leg.rate_pps is None else leg.rate_pps
    if leg.intended_packets and leg.duration_s and leg.timing.get("mode") != "top":
        return leg.intended_packets / leg.duration_s
    return math.inf if leg.timing.get("mode") == "top" else 0.0


def takes_no_frames(interface: Interface) -> str:
    """Why live frames cannot leave this interface; empty when they can, or the kernel (before 6.3) does not tell."""
    bits = xdp_features.features(interface.index)
    if bits is None or bits & xdp_features.TAKES_FRAMES:
        return ""
    if interface.driver == "veth":
        return f"{interface.name}: its other end takes no live frames (ethtool -K … gro on, or an XDP program there)"
    return f"{interface.name}: its driver {interface.driver} takes no live frames (no native XDP_REDIRECT)"


def check_interface(interface: Interface, legs: list[Leg]) -> None:
    """The kernel checks length and link only as frames leave, one by one."""
    if not interface.exists():
        raise BadInput(interface.name, "there is no such interface")
    if not interface.carrier:
        raise EngineError(XdpSender.name, f"{interface.name} is down or has no carrier")
    if trouble := takes_no_frames(interface):
        raise EngineError(XdpSender.name, trouble)
    largest = interface.mtu + HEADER_BYTES + FCS_BYTES
    for leg in legs:
        size_bytes = max((size for size, _ in schedule.sizes_bytes(leg)), default=0) if leg.kind == "stream" else 0
        if size_bytes > largest:
            problem, allowed = "longer than the interface takes", f"up to {largest}: its MTU is {interface.mtu}"
            key = f"{leg.stream}.size_bytes"
            raise BadInput(interface.name, problem, key=key, value=size_bytes, allowed=allowed)
