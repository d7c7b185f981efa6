"""XDP as a sender: any field of any frame, paced and stamped in the kernel, on drivers with native XDP.

The guard loads the program (kernel/send.bpf.c), shares its maps as memory, and reads the counts there. A process of
its own (xdp_run) makes the calls in which the kernel sends, and sleeps while nothing is due.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from pktswarm.nodes import availability, libbpf, live_frames
from pktswarm.nodes.engine import Sender
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.process import EngineProcess
from pktswarm.nodes.senders import xdp_run
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES, Clock, SendCount, SendTask
from pktswarm.traffic.replay.build import Frames
from pktswarm.traffic.replay.files import check_mtu, mapped_frames, trace_path
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import leg_frames, pace
from pktswarm.traffic.schedule.compile import Schedule
from pktswarm.traffic.schedule.fragments import longest_frame_bytes, most_frames
from pktswarm.traffic.schedule.records import (
    CHUNK_BYTES,
    MAX_LEGS,
    NEVER,
    LegRecord,
    PartRecord,
    SlotRecord,
    StateRecord,
    StepRecord,
    TraceRecord,
)
from pktswarm.traffic.schedule.sequence import Records, read_sequence
from pktswarm.traffic.schedule.trace import RECORD

TAI_KERNEL = (6, 1)
ARM_TIMEOUT_S = 15.0
ARMED_WAIT_S = 30.0
"""How much longer than its sending the process may live: it is started well before it is released."""
BATCHES = ((250_000, 1), (2_000_000, 16))
"""(packets/s up to, frames that the kernel makes before it hands them on). Fewer: each leaves nearer its due time."""
LARGEST_BATCH = 128
HEADER_BYTES = 14 + 4
"""What an interface takes beyond its MTU: Ethernet's header and one tag."""


class XdpCore:
    """The legs of one processor: a program, and the process that runs it. `cpu`: that it is bound to; None: any."""

    name: ClassVar[str] = "xdp"

    def __init__(self, task: SendTask, spool: Path, most_repeats: int, number: int = 0, cpu: int | None = None) -> None:
        self.task, self.spool = task, spool
        self._most_repeats, self._number, self._cpu = most_repeats, number, cpu
        self._program: Program | None = None
        self._process: EngineProcess | None = None
        self._started_ns: int | None = None
        self._stopped = self._died = False

    def prepare(self) -> None:
        interface = Interface(self.task.interface)
        compiled = schedule.compile_schedule(self.task.legs, self._trace, self._sequence)
        batch = batch_size(self.task.legs)
        self._program = Program(compiled, interface.index, batch, self.task.clock)
        words = [self._program.number, self._program.state_number, compiled.largest_bytes, batch, self._most_repeats]
        words.append(any(leg.options.get("wait") == "awake" for leg in self.task.legs))
        command = [sys.executable, "-P", "-m", xdp_run.__name__, *(str(int(word)) for word in words)]
        if self._cpu is not None:
            command = ["taskset", "--cpu-list", str(self._cpu), *command]
        limit_s = self.task.limit_s + ARMED_WAIT_S
        output = self.spool / (f"xdp-{self._number}.out" if self._number else "xdp.out")
        self._process = EngineProcess(self.name, command, output, limit_s)
        self._process.start()
        self._wait_armed(self._process, self._program)

    def _trace(self, leg: Leg) -> Frames:
        path = trace_path(leg, self.spool)
        frames = mapped_frames(path)
        interface = Interface(self.task.interface)
        check_mtu(frames, interface.mtu, interface.name, path)
        return frames

    def _sequence(self, leg: Leg) -> Records:
        return read_sequence(self.spool / str(leg.sequence_file))

    def _wait_armed(self, process: EngineProcess, program: Program) -> None:
        deadline = time.monotonic() + ARM_TIMEOUT_S
        while not program.state.calls:
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
            raise EngineError(self.name, "counts before prepare")
        return self._program

    def set_rate(self, leg_id: int, rate_pps: float) -> None:
        for leg, record in self._records():
            if leg.id == leg_id and leg.rates:
                raise EngineError(self.name, f"{leg.stream} has a list of rates")
            if leg.id == leg_id:
                record.gap = pace.gap(rate_pps, record.burst)

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
            told = f"{sum(users)} packets by user, {record.sent_packets} by leg"
            raise EngineError(self.name, f"the counts of {leg.stream} disagree: {told}", self._output())
        return users + [0] * (leg.users.get("count", 0) - len(users))

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

    def _count(self, leg: Leg, record: LegRecord, number: int) -> SendCount:
        users = self._users(leg, record, number)
        in_parts = bool(record.in_parts)
        # Those of a trace are its frames without a stamp, and those with one.
        trace = leg.kind == "trace"
        return SendCount(
            leg=leg.id,
            engine=self.name,
            sent_packets=record.sent_packets,
            sent_bytes=_packet_bytes(record),
            sent_frames=record.sent if in_parts else None,
            failed_packets=record.sequence - record.packets if in_parts else record.refused + record.dropped,
            late_packets=record.late if record.timed else None,
            skipped_packets=record.skipped if record.timed else None,
            stamped_packets=users[1] if trace and users else None,
            # In a batch a frame waits for those behind it, and nobody measures how long.
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
        state = self._loaded().state
        absence_us = state.longest_absence_ns / 1000
        parts.append(f"{state.calls} calls to the kernel, away at most {absence_us:.1f} us with a frame due")
        if record.dropped:
            parts.append(f"{record.dropped} that the interface's full ring did not take")
        if record.refused:
            parts.append(f"{record.refused} refused: {os.strerror(-self._loaded().state.error)}")
        return "; ".join(parts)


def _packet_bytes(record: LegRecord) -> int:
    """Without FCS; of packets that go out in fragments as in one frame each."""
    return int(record.packet_bytes if record.in_parts else record.sent_bytes)


class XdpSender(Sender):
    """All legs of an interface, on one processor or (option `cores`) on several, whole legs on each."""

    name: ClassVar[str] = XdpCore.name

    def __init__(self, task: SendTask, spool: Path, most_repeats: int = xdp_run.MOST_REPEATS) -> None:
        super().__init__(task, spool)
        self._most_repeats = most_repeats
        self._cores: list[XdpCore] = []

    def prepare(self) -> None:
        check_interface(Interface(self.task.interface), self.task.legs)
        if trouble := without_clock(self.task.clock, libbpf.kernel()):
            raise EngineError(self.name, trouble)
        shares = share(self.task.legs, cores(self.task.legs))
        # The last processors: the first one has a board's interrupts.
        cpus = sorted(os.sched_getaffinity(0))[-len(shares) :] if len(shares) > 1 else [None]
        if len(cpus) < len(shares):
            problem, allowed = "more processors than this node has", f"up to {len(cpus)}"
            raise BadInput(self.task.interface, problem, key="cores", value=len(shares), allowed=allowed)
        for number, (legs, cpu) in enumerate(zip(shares, cpus, strict=True)):
            self._cores.append(XdpCore(replace(self.task, legs=legs), self.spool, self._most_repeats, number, cpu))
            self._cores[-1].prepare()

    def start(self, at_ns: int) -> None:
        if not self._cores:
            raise EngineError(self.name, "start before prepare")
        for core in self._cores:
            core.start(at_ns)

    def done(self) -> bool:
        return bool(self._cores) and all(core.done() for core in self._cores)

    def sample(self) -> dict[int, dict[str, int | None]]:
        return {leg: told for core in self._cores for leg, told in core.sample().items()}

    def set_rate(self, leg_id: int, rate_pps: float) -> None:
        """Another rate from the next frame on, without a gap. Only for legs that have one, not a list of them."""
        for core in self._cores:
            core.set_rate(leg_id, rate_pps)

    def stop(self) -> None:
        for core in self._cores:
            core.stop()

    def restore(self) -> None:
        for core in self._cores:
            core.restore()

    def counts(self) -> list[SendCount]:
        if not self._cores:
            raise EngineError(self.name, "counts before prepare")
        places = {leg.id: place for place, leg in enumerate(self.task.legs)}
        counts = [count for core in self._cores for count in core.counts()]
        return sorted(counts, key=lambda count: places[count.leg])


class Program:
    """The loaded program with its maps as memory. `number`, `state_number`: by which another process runs it."""

    def __init__(self, compiled: Schedule, interface_index: int, batch: int, clock: Clock = "monotonic") -> None:
        self._compiled, self._clock = compiled, clock
        self._object = libbpf.BpfObject(availability.SENDER)
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
            "parts": len(compiled.parts),
            "table": len(compiled.table),
            "records": sum(map(len, compiled.records)),
            "store": compiled.store_bytes // CHUNK_BYTES,
            "users": compiled.users,
            "steps": len(compiled.steps),
            "gaps": len(compiled.gaps),
        }
        for name, number in entries.items():
            self._object.set_entries(name, max(1, number))
        settings = struct.pack("=II", batch == 1, self._clock == "ptp")
        self._object.set_constants(".rodata.settings", settings)
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
        self._share("parts", PartRecord)[: _size(compiled.parts)] = _bytes(compiled.parts)
        records = self._share("records", TraceRecord)
        place = 0
        for one in compiled.records:
            data = one.astype(RECORD.newbyteorder("="), copy=False).view(np.uint8).data
            records[place : place + len(data)] = data
            place += len(data)
        self._share("steps", StepRecord)[: _size(compiled.steps)] = _bytes(compiled.steps)
        for name, numbers in (("table", compiled.table), ("gaps", compiled.gaps)):
            words = (ctypes.c_uint64 * len(numbers))(*numbers)
            self._share(name, ctypes.c_uint64)[: ctypes.sizeof(words)] = bytes(words)
        self._memory.append(self._object.map("store").memory())
        with memoryview(self._memory[-1]) as memory:
            for at, store in compiled.stores:
                store.write(memory[at : at + store.size_bytes])
        users = self._share("users", ctypes.c_uint64)
        self._users = (ctypes.c_uint64 * max(1, compiled.users)).from_buffer(users)
        legs[: _size([leg.record for leg in compiled.legs])] = _bytes([leg.record for leg in compiled.legs])
        size = ctypes.sizeof(LegRecord)
        self.legs = [LegRecord.from_buffer(legs, index * size) for index in range(len(compiled.legs))]
        self.state = StateRecord.from_buffer(self._share(".bss", StateRecord))
        self.state.start_ns = NEVER
        self.state.due_ns[:] = [NEVER] * MAX_LEGS

    def _attach(self) -> None:
        for program, event in (("sum_sent", "xdp_devmap_xmit"), ("sum_refused", "xdp_redirect_err")):
            self._object.attach_raw_tracepoint(program, event)
        self.fd, self.number = self._object.program_fd("send"), self._object.program_id("send")
        self.state_number = self._object.map_id(".bss")

    def start(self, at_ns: int) -> None:
        """While the program may run: it looks at the first leg alone until that is due, so that one is set last."""
        for leg, record in zip(self._compiled.legs, self.legs, strict=True):
            record.stop_ns, record.give_up_ns = leg.stop_ns(at_ns), leg.give_up_ns(at_ns)
            record.pass_ns, record.step_end_ns = leg.pass_ns(at_ns), leg.step_end_ns(at_ns)
        due_ns = [leg.first_due_ns(at_ns) for leg in self._compiled.legs]
        self.state.tree_leaves, winner = schedule.tournament(due_ns)
        self.state.winner[: len(winner)] = winner
        for index in sorted(range(len(due_ns)), key=lambda index: index == winner[1]):
            self.state.due_ns[index] = due_ns[index]
        self.state.start_ns = at_ns

    def users(self, number: int) -> list[int] | None:
        """Frames sent of each user of a leg, None where they are not counted."""
        leg, first = self._compiled.legs[number], self.legs[number].users
        if not leg.users:
            return None
        counts = [0] * (max(leg.users) + 1)
        for user, sent in zip(leg.users, self._users[first : first + len(leg.users)], strict=True):
            counts[user] += sent
        return counts

    def close(self) -> None:
        del self.legs, self.state, self._users
        for memory in self._memory:
            # An error's traceback may still refer to a record; the memory goes when that does.
            with contextlib.suppress(BufferError):
                memory.close()
        self._object.close()


def _size(records: Sequence[ctypes._CDataType]) -> int:
    return sum(ctypes.sizeof(record) for record in records)


def _bytes(records: Sequence[ctypes._CDataType]) -> bytes:
    return b"".join(bytes(record) for record in records)


def without_clock(clock: Clock, release: tuple[int, int]) -> str:
    """Why stamps cannot tell this clock; empty when they can."""
    if clock == "monotonic" or release >= TAI_KERNEL:
        return ""
    return f"clock: ptp needs Linux 6.1, where XDP programs read TAI; this is {release[0]}.{release[1]}"


def cores(legs: list[Leg]) -> int:
    """The most that one of an interface's legs asks for."""
    return max(int(leg.options.get("cores", 1)) for leg in legs)


def share(legs: list[Leg], number: int) -> list[list[Leg]]:
    """The legs for each of so many processors, none for nothing: the fastest first, each to whom has least to do."""
    # Legs whose stamps have one sequence stay together: their program counts it.
    groups: dict[int, list[Leg]] = {}
    for leg in legs:
        groups.setdefault(schedule.first_of(leg), []).append(leg)
    shares: list[list[Leg]] = [[] for _ in range(min(number, len(groups)))]
    for group in sorted(groups.values(), key=_rates_pps, reverse=True):
        min(shares, key=lambda one: (_rates_pps(one), len(one))).extend(group)
    return shares


def _rates_pps(legs: list[Leg]) -> float:
    return sum(map(_rate_pps, legs))


def batch_size(legs: list[Leg]) -> int:
    """As few at a time as the legs' rates together allow, or the least that one of them asks for."""
    if asked := [int(leg.options["batch"]) for leg in legs if "batch" in leg.options]:
        return min(asked)
    rate_pps = _rates_pps(legs)
    return next((batch for most_pps, batch in BATCHES if rate_pps <= most_pps), LARGEST_BATCH)


def _rate_pps(leg: Leg) -> float:
    """What a leg needs on average; infinite where nothing limits it."""
    if leg.rates:
        return max(rate for _, rate in leg.rates) * most_frames(leg)
    if leg.kind == "stream" and leg.sequence_file is None:
        return math.inf if leg.rate_pps is None else leg.rate_pps * most_frames(leg)
    if leg.intended_packets and leg.duration_s and leg.timing.get("mode") != "top":
        return leg.intended_packets / leg.duration_s
    return math.inf if leg.timing.get("mode") == "top" else 0.0


def check_interface(interface: Interface, legs: list[Leg]) -> None:
    """The kernel checks length and link only as frames leave, one by one."""
    if not interface.exists():
        raise BadInput(interface.name, "there is no such interface")
    if not interface.carrier:
        raise EngineError(XdpSender.name, f"{interface.name} is down or has no carrier")
    if trouble := live_frames.takes_none(interface):
        raise EngineError(XdpSender.name, trouble)
    largest = interface.mtu + HEADER_BYTES + FCS_BYTES
    for leg in legs:
        sizes = (
            [longest_frame_bytes(leg, size) for size, _ in leg_frames.sizes_bytes(leg)] if leg.kind == "stream" else []
        )
        size_bytes = max(sizes, default=0)
        if size_bytes > largest:
            problem, allowed = "longer than the interface takes", f"up to {largest}: its MTU is {interface.mtu}"
            key = f"{leg.stream}.size_bytes"
            raise BadInput(interface.name, problem, key=key, value=size_bytes, allowed=allowed)
