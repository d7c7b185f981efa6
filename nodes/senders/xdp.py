"""XDP as a sender: any field of any frame, paced and stamped in the kernel, on drivers with native XDP.

The guard loads the program (kernel/send.bpf.c), shares its maps as memory, and reads the counts there. A process of
its own (xdp_run) makes the long call in which the kernel sends; it is entered before the start, because entering takes
up to 50 ms, and waits inside for the start instant.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
import time
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nodes import libbpf
from nodes.engine import Sender
from nodes.interface import Interface
from nodes.process import EngineProcess
from nodes.senders import xdp_run
from traffic import schedule
from traffic.errors import BadInput, EngineError
from traffic.schedule import NEVER, CompiledLeg, LegRecord, StateRecord
from traffic.task import FCS_BYTES, Leg, SendCount, SendTask

LEAST_KERNEL = (5, 18)
ARM_TIMEOUT_S = 5.0
ARMED_WAIT_S = 30.0
"""How much longer than its sending the process may live: it is started well before it is released."""
BATCHES = ((250_000, 1), (2_000_000, 16))
"""(packets/s up to, frames that the kernel makes before it hands them on). Fewer: each leaves nearer its due time."""
LARGEST_BATCH = 64
HEADER_BYTES = 14 + 4
"""What an interface takes beyond its MTU: Ethernet's header and one tag."""
Record = TypeVar("Record", bound=ctypes.Structure)


class XdpSender(Sender):
    name: ClassVar[str] = "xdp"

    def __init__(self, task: SendTask, spool: Path, repeat: int = xdp_run.MOST_REPEATS) -> None:
        super().__init__(task, spool)
        self._repeat = repeat
        self._program: Program | None = None
        self._process: EngineProcess | None = None
        self._started_ns: int | None = None

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
        compiled = [schedule.compile_leg(leg, seed=leg.id) for leg in self.task.legs]
        batch = batch_size(self.task.legs)
        self._program = Program(compiled, interface.index, batch)
        largest = max(leg.record.frame_bytes for leg in compiled)
        words = [self._program.number, largest, batch, self._repeat]
        command = [sys.executable, "-P", "-m", xdp_run.__name__, *(str(word) for word in words)]
        limit_s = self.task.limit_s + ARMED_WAIT_S
        self._process = EngineProcess(self.name, command, self.spool / "xdp.out", limit_s)
        self._process.start()
        self._wait_armed(self._process, self._program)

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
        return bool(self._program.state.finished) or not self._process.running()

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
        if self._process is not None:
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
        if not state.finished and self._process is not None and self._process.status in (1, 2):
            raise EngineError(self.name, "ended before its time", output)
        sent = sum(record.sent for record in program.legs)
        if state.unexplained or state.pushed != state.popped or sent != state.device_sent:
            told = f"{sent} frames by leg, {state.device_sent} by the device, {state.unexplained} answers unexplained"
            raise EngineError(self.name, f"the counts disagree: {told}", output)

    def _count(self, leg: Leg, record: LegRecord) -> SendCount:
        return SendCount(
            leg=leg.id,
            engine=self.name,
            sent_packets=record.sent,
            sent_bytes=record.sent * record.frame_bytes,
            failed_packets=record.refused + record.dropped,
            seconds=(record.last_ns - record.first_ns) / 1e9 if record.generated else None,
            started_ns=record.first_ns or self._started_ns,
            ended_ns=record.last_ns or None,
            note=self._note(leg, record),
            output=self._output(),
        )

    def _note(self, leg: Leg, record: LegRecord) -> str:
        parts = ["stamped" if record.stamp else "not stamped: no room in its payload"]
        if record.gap:
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

    def __init__(self, compiled: list[CompiledLeg], interface_index: int, batch: int) -> None:
        self._compiled = compiled
        self._object = libbpf.BpfObject(libbpf.OBJECTS / "send.o")
        self._object.set_entries("legs", len(compiled))
        self._object.set_entries("slots", len(compiled))
        self._object.set_constants(".rodata", (batch == 1).to_bytes(4, sys.byteorder))
        self._object.load()
        self._object.map("egress").update(bytes(4), interface_index.to_bytes(4, sys.byteorder))
        self._memory = [self._object.map(name).memory() for name in ("legs", "slots", ".bss")]
        leg_memory, slot_memory, state_memory = self._memory
        size = ctypes.sizeof(LegRecord)
        self.legs = [_view(LegRecord, leg_memory, index * size) for index in range(len(compiled))]
        self.state = _view(StateRecord, state_memory, 0)
        if self._object.map("legs").value_bytes != size:
            raise EngineError(XdpSender.name, "nodes/bpf/send.o is of another version (kernel/build.sh compiles it)")
        self._fill(slot_memory)
        for program, event in (("told_sent", "xdp_devmap_xmit"), ("told_refused", "xdp_redirect_err")):
            self._object.attach_raw_tracepoint(program, event)
        self.fd, self.number = self._object.program_fd("send"), self._object.program_id("send")

    def _fill(self, slot_memory: mmap.mmap) -> None:
        for index, leg in enumerate(self._compiled):
            ctypes.pointer(self.legs[index])[0] = leg.record
            start = index * schedule.SLOT_BYTES
            slot_memory[start : start + len(leg.slot)] = leg.slot
        self.state.start_ns = NEVER
        self.state.due_ns[:] = [NEVER] * schedule.MAX_LEGS
        self.state.tree_leaves, winners = schedule.tournament(len(self._compiled))
        self.state.winner[: len(winners)] = winners

    def start(self, at_ns: int) -> None:
        """While the program runs: it looks at the first leg alone until that is due, so that one is set last."""
        for leg, record in zip(self._compiled, self.legs, strict=True):
            record.stop_ns = schedule.stop_ns(leg, at_ns)
        for index in reversed(range(len(self.legs))):
            self.state.due_ns[index] = at_ns
        self.state.start_ns = at_ns

    def close(self) -> None:
        del self.legs, self.state
        for memory in self._memory:
            memory.close()
        self._object.close()


def _view(record: type[Record], memory: mmap.mmap, offset: int) -> Record:
    return record.from_buffer(memory, offset)


def batch_size(legs: list[Leg]) -> int:
    """As few at a time as the legs' rates together allow."""
    rate_pps = sum(math.inf if leg.rate_pps is None else leg.rate_pps for leg in legs)
    return next((batch for most_pps, batch in BATCHES if rate_pps <= most_pps), LARGEST_BATCH)


def check_interface(interface: Interface, legs: list[Leg]) -> None:
    """The kernel checks length and link only as frames leave, one by one."""
    if not interface.exists():
        raise BadInput(interface.name, "there is no such interface")
    if not interface.carrier:
        raise EngineError(XdpSender.name, f"{interface.name} is down or has no carrier")
    largest = interface.mtu + HEADER_BYTES + FCS_BYTES
    for leg in legs:
        if leg.size_bytes > largest:
            problem, allowed = "longer than the interface takes", f"up to {largest}: its MTU is {interface.mtu}"
            key = f"{leg.stream}.size_bytes"
            raise BadInput(interface.name, problem, key=key, value=leg.size_bytes, allowed=allowed)
