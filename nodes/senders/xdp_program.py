"""The loaded sending program (kernel/send.bpf.c), its maps shared with it as memory."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from collections.abc import Sequence

from pktswarm.nodes import libbpf
from pktswarm.nodes.senders.ways_out import LIVE_FRAMES, WayOut
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.protocol.task import Clock
from pktswarm.traffic.schedule import assemble
from pktswarm.traffic.schedule.assemble import Schedule
from pktswarm.traffic.schedule.pace import gap
from pktswarm.traffic.schedule.records import (
    CHUNK_BYTES,
    HELD_NS,
    MAX_LEGS,
    NEVER,
    LegRecord,
    PartRecord,
    StateRecord,
    StepRecord,
    TraceRecord,
    slot_record,
)

FRAMES_A_READING = 16
"""Frames of a batch that share a reading of the clock, a power of two: so many leave the kernel together
(DEV_MAP_BULK_SIZE)."""


class Program:
    """Loads the program with a schedule. `number`, `state_number`: the ids for another process that runs it."""

    def __init__(
        self,
        compiled: Schedule,
        interface_index: int,
        batch: int,
        clock: Clock = "monotonic",
        way: WayOut = LIVE_FRAMES,
        queue: int = 0,
    ) -> None:
        """`queue`: of the interface, if it has several and the way out does not choose it by processor."""
        self._compiled, self._clock, self._way, self._queue = compiled, clock, way, queue
        self._object = libbpf.BpfObject(way.program_for(libbpf.kernel(), compiled.is_noisy))
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
        settings = compiled.settings()
        settings.reading_mask, settings.stamp_tai = min(batch, FRAMES_A_READING) - 1, self._clock == "ptp"
        settings.egress_index, settings.egress_queue = interface_index, self._queue + 1
        self._object.set_constants(".rodata.settings", bytes(settings))
        self._object.load()
        if self._way.live:
            self._object.map("egress").update(bytes(4), interface_index.to_bytes(4, sys.byteorder))

    def _share(self, name: str, record: type[ctypes.Structure] | type[ctypes.c_uint64]) -> mmap.mmap:
        shared = self._object.map(name)
        if shared.value_bytes != ctypes.sizeof(record):
            problem = f"the layout of map {name} differs from this version (run kernel/build.sh)"
            problem = f"nodes/bpf/{self._object.path.name}: {problem}"
            raise EngineError(self._way.name, problem)
        self._memory.append(shared.memory())
        return self._memory[-1]

    def _fill(self) -> None:
        compiled = self._compiled
        legs = self._share("legs", LegRecord)
        self._share("slots", slot_record(self._way.name))[: _size(compiled.slots)] = _bytes(compiled.slots)
        self._share("parts", PartRecord)[: _size(compiled.parts)] = _bytes(compiled.parts)
        records = self._share("records", TraceRecord)
        place = 0
        for part in compiled.records:
            data = part.astype(part.dtype.newbyteorder("="), copy=False).view("u1").data
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
        for program, event in self._way.answers:
            self._object.attach_raw_tracepoint(program, event)
        self.fd, self.number = self._object.program_fd("send"), self._object.program_id("send")
        self.state_number = self._object.map_id(".bss")

    def start(self, at_ns: int) -> None:
        """Sets the times. The program may run already: it reads only the winner's due time, which is set last."""
        for leg, record in zip(self._compiled.legs, self.legs, strict=True):
            record.stop_ns = leg.stop_ns(at_ns)
            record.give_up_ns = HELD_NS if leg.held else leg.give_up_ns(at_ns)
            record.pass_ns, record.step_end_ns = leg.pass_ns(at_ns), leg.step_end_ns(at_ns)
        due_ns = [leg.first_due_ns(at_ns) for leg in self._compiled.legs]
        self.state.tree_leaves, winner = assemble.tournament(due_ns)
        self.state.winner[: len(winner)] = winner
        for index in sorted(range(len(due_ns)), key=lambda index: index == winner[1]):
            self.state.due_ns[index] = due_ns[index]
        self.state.start_ns = at_ns

    def set_rate(self, number: int, rate_pps: float | None) -> None:
        """Sender.set_rate() for a leg. The program reads both fields with each frame."""
        leg, record = self._compiled.legs[number], self.legs[number]
        if rate_pps == 0:
            record.give_up_ns = HELD_NS
            return
        if rate_pps is not None:
            record.by_time = leg.duration_ns is not None
            record.gap = gap(rate_pps, record.burst)
        record.give_up_ns = leg.give_up_ns(self.state.start_ns)

    def users(self, number: int) -> list[int] | None:
        """Returns the frames sent per user of a leg; None where they are not counted."""
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
            # The traceback of an error can still refer to a record; the memory is released with it.
            with contextlib.suppress(BufferError):
                memory.close()
        self._object.close()


def _size(records: Sequence[ctypes._CDataType]) -> int:
    return sum(ctypes.sizeof(record) for record in records)


def _bytes(records: Sequence[ctypes._CDataType]) -> bytes:
    return b"".join(bytes(record) for record in records)
