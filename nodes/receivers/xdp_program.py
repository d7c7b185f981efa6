"""The loaded counting program (kernel/count.bpf.c) and its maps, with the filter in front of it and the echo behind."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from pathlib import Path
from typing import TypeVar

from pktswarm.nodes import availability, libbpf
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.receivers.echo import Echo
from pktswarm.nodes.receivers.xdp_matching import Matching
from pktswarm.traffic.capture import ebpf
from pktswarm.traffic.counting.kernel_structs import NUMBERED_BY_PKTGEN, NUMBERED_BY_US, RawTally, Settings
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.protocol.task import ReceiveTask
from pktswarm.traffic.schedule import fragments

NAME = "xdp"
_Struct = TypeVar("_Struct", bound=ctypes.Structure)


class CounterProgram:
    """Loads the program for one task; close() unloads it.

    `armed_ns`: counting begins at this time of the receiver's clock, before which no sender starts. `alone`: frames
    come one after another, because there is one queue and XDP is native, and the processor's stores stay in order.
    """

    def __init__(
        self, task: ReceiveTask, matching: Matching, interface: Interface, path: Path, armed_ns: int, alone: bool
    ) -> None:
        self._task, self._matching, self._interface = task, matching, interface
        self._object = libbpf.BpfObject(path)
        self._alone = alone
        self.timed_every = task.timed_every if alone and not task.echoes else 1
        """Two of so many frames in a row are timed. An echo needs the time of each, and other processors the lock."""
        self._maps: dict[str, libbpf.BpfMap] = {}
        """The maps used so far, by name: a sample reads one for each leg."""
        self._filter_fd: int | None = None
        self.echo: Echo | None = None
        try:
            self._load(armed_ns, alone)
            self._fill()
            self._load_filter()
            if task.echoes:
                self.echo = Echo(interface, task.echoes, alone)
                self.map("echo").update(_key(0), _key(self.echo.program_fd))
        except BaseException:
            self.close()
            raise

    def _load(self, armed_ns: int, alone: bool) -> None:
        together_ms = together_ms_of(self._task)
        for name, entries in self._entries(together_ms).items():
            self._object.set_entries(name, entries)
        settings = Settings(
            armed_ns=armed_ns,
            legs=len(self._task.legs),
            rows=len(self._matching.rows),
            pass_on=self._task.capture_every if self._task.mode == "capture" else 0,
            alone=alone,
            tai=self._task.tai,
            pktgen=any(made.numbered == NUMBERED_BY_PKTGEN for made in self._matching.expectations.values()),
            users=bool(self._matching.user_rules),
            echo=bool(self._task.echoes),
            together_ms=together_ms,
            timed_every=self.timed_every,
        )
        self._object.set_constants(".rodata.settings", bytes(settings))
        if not together_ms:
            self._object.leave_out("count_fragment")
        self._object.load()
        if together_ms:
            self.map("fragmented").update(_key(0), _key(self._object.program_fd("count_fragment")))

    def _entries(self, together_ms: int) -> dict[str, int]:
        """Returns the size of each map; a map cannot be empty."""
        legs = max(1, self._matching.legs)
        return {
            "expectations": legs,
            "windows": legs,
            "histograms": legs,
            "put_together": legs,
            "tallies": self._matching.slots,
            "user_rules": self._matching.slots,
            "rows": max(1, len(self._matching.rows)),
            "users": self._matching.user_entries,
            "marks": self._matching.bitmap_words,
            "misdelivered": max(1, self._task.streams),
            "assemblies": fragments.MOST_UNFINISHED if together_ms else 1,
        }

    def _fill(self) -> None:
        for slot, expectation in self._matching.expectations.items():
            if expectation.numbered == NUMBERED_BY_US:
                self.map("slots").update(_key(self._task.legs[slot].id), _key(slot + 1))
            self.map("expectations").update(_key(slot), bytes(expectation))
        for index, row in enumerate(self._matching.rows):
            self.map("rows").update(_key(index), bytes(row))
        for slot, rule in self._matching.user_rules.items():
            self.map("user_rules").update(_key(slot), bytes(rule))

    def _load_filter(self) -> None:
        """Loads the filter that the master translated; it calls the counting program for the frames that pass."""
        if self._task.filter_program:
            maps = {ebpf.COUNTING: self.map("counting").fd, ebpf.FILTERED: self.map("filtered").fd}
            self._filter_fd = libbpf.load_program("filter", ebpf.native(self._task.filter_program, maps))
            self.map("counting").update(_key(0), _key(self.counter_fd))

    @property
    def counter_fd(self) -> int:
        return self._object.program_fd("count")

    @property
    def entry_fd(self) -> int:
        """The program that sees a frame first: the filter, or the counter where there is none."""
        return self.counter_fd if self._filter_fd is None else self._filter_fd

    def attach(self, mode: libbpf.XdpMode) -> libbpf.BpfLink:
        return self._object.attach_xdp("count", self._interface.index, mode, self._filter_fd)

    def map(self, name: str) -> libbpf.BpfMap:
        if name not in self._maps:
            self._maps[name] = self._object.map(name)
        return self._maps[name]

    def memory(self, name: str) -> mmap.mmap:
        return self.map(name).memory()

    def read(self, kind: type[_Struct], name: str, slot: int) -> _Struct:
        """Returns the map's entry for a slot."""
        return self._entry(kind, name, slot, self.map(name).lookup(_key(slot)))

    def tally(self, slot: int) -> RawTally:
        """Returns a tally, copied under its lock. If `alone` there is no lock: tally.torn() detects a torn reading."""
        if not self._alone:
            return self._entry(RawTally, "tallies", slot, self.map("tallies").lookup(_key(slot), locked=True))
        frame = _key(slot).ljust(ctypes.sizeof(RawTally), b"\0")
        verdict, copy = libbpf.run_once(self._object.program_fd("copy_tally"), frame)
        return self._entry(RawTally, "tallies", slot, copy if verdict == libbpf.XDP_PASS else None)

    def _entry(self, kind: type[_Struct], name: str, slot: int, value: bytes | None) -> _Struct:
        if value is None:
            raise EngineError(NAME, f"map {name} has no entry {slot}")
        return kind.from_buffer_copy(value)

    def read_per_cpu(self, kind: type[_Struct], name: str) -> list[_Struct]:
        """Returns the value of a per-CPU map with one entry, for each processor."""
        size, cpus = ctypes.sizeof(kind), libbpf.possible_cpus()
        value = self.map(name).lookup(_key(0), size * cpus)
        if value is None:
            raise EngineError(NAME, f"map {name} has no entry 0")
        return [kind.from_buffer_copy(value, cpu * size) for cpu in range(cpus)]

    def close(self) -> None:
        if self._filter_fd is not None:
            os.close(self._filter_fd)
            self._filter_fd = None
        if self.echo is not None:
            self.echo.close()
            self.echo = None
        self._object.close()


def together_ms_of(task: ReceiveTask) -> int:
    """The timeout of reassembly, which is another program behind the counter; 0: fragments are not put together."""
    return 0 if availability.tail_calls() else fragments.together_ms(task)


def _key(number: int) -> bytes:
    return struct.pack("=I", number)
