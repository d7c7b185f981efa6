"""Counts in the kernel, before the host's stack: kernel/count.bpf.c on the interface, its maps read from here.

The program is attached through a link that dies with this process: native where the driver can, generic elsewhere.
What belongs to no leg goes on to the host; counted frames end here, or go on as well where a capture takes them.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nodes import libbpf
from nodes.engine import Receiver
from nodes.interface import SYS_NET, Interface
from traffic import expect, tally
from traffic.counters import (
    HISTOGRAM_BUCKETS,
    STRANGERS,
    Expectation,
    RawHistogram,
    RawRow,
    RawStrangers,
    RawTally,
    Settings,
)
from traffic.errors import BadInput, EngineError
from traffic.frames import build_frame
from traffic.match import Match
from traffic.schedule import stamped
from traffic.task import Leg, ReceiveCount, ReceiveTask

MERGING_OFFLOADS = ("gro", "lro")
"""They make one large frame of several. GRO does so before generic XDP, and after native XDP."""
LEAST_KERNEL = (5, 18)
"""bpf_xdp_load_bytes."""
READ_ATTEMPTS = 1000
# linux/ethtool.h: ETHTOOL_GFLAGS, ETHTOOL_SFLAGS, ETH_FLAG_RXVLAN
_GET_FLAGS, _SET_FLAGS, _RX_VLAN = 0x25, 0x26, 1 << 8
_LOCKED = 4
"""BPF_F_LOCK: the value is copied under its own lock, so its figures belong together."""
_Struct = TypeVar("_Struct", bound=ctypes.Structure)


class XdpReceiver(Receiver):
    """Legs whose frames carry stamps are counted by these, the others by their bytes."""

    name: ClassVar[str] = "xdp"
    object_file: ClassVar[Path] = libbpf.OBJECTS / "count.o"

    def __init__(self, task: ReceiveTask, spool: Path) -> None:
        super().__init__(task, spool)
        self._interface = Interface(task.interface)
        self._object: libbpf.BpfObject | None = None
        self._link: libbpf.BpfLink | None = None
        self._offloads_before: dict[str, bool] = {}
        self._tags_hidden_before = False
        self._expectations: dict[int, Expectation] = {}
        """Of the stamped legs, by slot: a leg's place in the task and in the maps."""
        self._rows: list[RawRow] = []
        """Of the others."""
        self.attached = ""
        """"native", or "generic" with the reason."""

    @classmethod
    def missing(cls) -> str:
        if why := libbpf.missing():
            return why
        if not cls.object_file.exists():
            return f"{cls.object_file.name} is not there (kernel/build.sh compiles it)"
        release = os.uname().release
        version = tuple(int(part) for part in release.split("-")[0].split(".")[:2])
        return "" if version >= LEAST_KERNEL else f"it needs kernel 5.18, this is {release}"

    def prepare(self) -> None:
        if why := self.missing():
            raise EngineError(self.name, why)
        self._check()
        stamped = [slot for slot, leg in enumerate(self.task.legs) if is_stamped(leg)]
        self._expectations = {slot: self._expectation(self.task.legs[slot]) for slot in stamped}
        self._rows = expect.rows(
            self.task.interface,
            [(slot, Match.from_json(leg.match)) for slot, leg in enumerate(self.task.legs) if slot not in stamped],
        )
        self._load(alone=_receive_queues(self.task.interface) == 1)
        self._see_tags()

    def _check(self) -> None:
        if not self._interface.exists():
            raise BadInput(self.task.interface, "there is no such interface")
        if self.task.filter:
            raise BadInput(
                self.task.interface,
                "the xdp receiver has no filters yet",
                key="filter",
                value=self.task.filter,
                allowed="the receiver netsniff-ng",
            )

    def _expectation(self, leg: Leg) -> Expectation:
        template = build_frame(leg.frame, leg.size_bytes)
        made = expect.expectation(leg.stream, template, leg.expect)
        made.limit = leg.count_packets or 0
        offset_ns = self.task.offsets_ns.get(leg.source)
        made.timed = offset_ns is not None
        made.offset_ns = offset_ns or 0
        return made

    def _load(self, alone: bool) -> None:
        """`alone`: frames come one after another, because there is one queue and XDP is native."""
        if self._object:
            self._object.close()
        self._object = libbpf.BpfObject(self.object_file)
        for name in ("expectations", "tallies", "windows", "histograms"):
            self._object.set_entries(name, max(1, len(self.task.legs)))
        self._object.set_entries("rows", max(1, len(self._rows)))
        settings = Settings(rows=len(self._rows), pass_on=self.task.mode == "capture", alone=alone, tai=0)
        self._object.set_constants(".rodata.settings", bytes(settings))
        self._object.load()
        for slot, expectation in self._expectations.items():
            self._map("slots").update(_key(self.task.legs[slot].id), _key(slot + 1))
            self._map("expectations").update(_key(slot), bytes(expectation))
        for index, row in enumerate(self._rows):
            self._map("rows").update(_key(index), bytes(row))

    def _map(self, name: str) -> libbpf.BpfMap:
        assert self._object is not None
        return self._object.map(name)

    def start(self, at_ns: int) -> None:
        try:
            self._attach("native")
            self.attached = "native"
        except EngineError as error:
            self._load(alone=False)
            self._attach("generic")
            self.attached = f"generic: {self._interface.driver or 'the driver'} has no native XDP ({error})"
            self._stop_merging()

    def _attach(self, mode: libbpf.XdpMode) -> None:
        assert self._object is not None
        self._link = self._object.attach_xdp("count", self._interface.index, mode)

    def _see_tags(self) -> None:
        """A card that takes the VLAN tag out of a frame would hide it from the program."""
        flags = self._interface._ethtool(_GET_FLAGS)
        if flags & _RX_VLAN:
            self._interface._ethtool(_SET_FLAGS, flags & ~_RX_VLAN)
            self._tags_hidden_before = True
        if self._interface._ethtool(_GET_FLAGS) & _RX_VLAN:
            raise EngineError("ethtool", f"{self.task.interface}: rxvlan stays on")

    def _hide_tags(self) -> None:
        if self._tags_hidden_before:
            self._tags_hidden_before = False
            self._interface._ethtool(_SET_FLAGS, self._interface._ethtool(_GET_FLAGS) | _RX_VLAN)

    def _stop_merging(self) -> None:
        for name, on in self._interface.offloads().items():
            if name in MERGING_OFFLOADS and on:
                self._offloads_before[name] = on
                self._interface.set_offload(name, False)

    def ready(self) -> bool:
        return self._link is not None

    def done(self) -> bool:
        return False

    def set_clock_offset(self, leg_id: int, offset_ns: int) -> None:
        """What is added to this node's clock to make it the sender's, from now on; latencies count from here."""
        slot = next(slot for slot in self._expectations if self.task.legs[slot].id == leg_id)
        self._expectations[slot].offset_ns, self._expectations[slot].timed = offset_ns, 1
        self._map("expectations").update(_key(slot), bytes(self._expectations[slot]))

    def sample(self) -> dict[str, Any]:
        """Packets and bytes in all, and of each leg its figures without latencies; takes no notice of the traffic."""
        if self._object is None:
            return {}
        legs = [self._tally(slot, latencies=False) for slot in range(len(self.task.legs))]
        return {
            "rx_packets": sum(one.packets for one in legs),
            "rx_bytes": sum(one.bytes for one in legs),
            "legs": {leg.id: _brief(one) for leg, one in zip(self.task.legs, legs, strict=True)},
            "strangers": self.strangers(),
        }

    def stop(self) -> None:
        if self._link:
            self._link.close()
            self._link = None

    def restore(self) -> None:
        self.stop()
        if self._object:
            self._object.close()
            self._object = None
        while self._offloads_before:
            name, on = self._offloads_before.popitem()
            self._interface.set_offload(name, on)
        self._hide_tags()

    def tallies(self) -> dict[int, tally.Tally]:
        """By leg id; may be asked for at any time until restore()."""
        return {leg.id: self._tally(slot) for slot, leg in enumerate(self.task.legs)}

    def _tally(self, slot: int, latencies: bool = True) -> tally.Tally:
        raw = self._raw(slot)
        if slot not in self._expectations:
            return tally.unstamped(raw)
        timed = latencies and self._expectations[slot].timed
        return tally.stamped(raw, self._buckets(slot) if timed else None)

    def _raw(self, slot: int) -> RawTally:
        """Figures that belong together. Where nothing is locked a frame may come in between: then once more."""
        for _ in range(READ_ATTEMPTS):
            raw = RawTally.from_buffer_copy(_lookup_locked(self._map("tallies"), _key(slot)))
            if not tally.torn(raw):
                return raw
        raise EngineError(self.name, "its counts cannot be read in one piece")

    def _buckets(self, slot: int) -> Sequence[int]:
        found = self._read(RawHistogram, "histograms", slot)
        return struct.unpack(f"{HISTOGRAM_BUCKETS}Q", bytes(found))

    def _read(self, kind: type[_Struct], name: str, slot: int) -> _Struct:
        value = self._map(name).lookup(_key(slot))
        if value is None:
            raise EngineError(self.name, f"map {name} has no entry {slot}")
        return kind.from_buffer_copy(value)

    def strangers(self) -> dict[str, int]:
        """Frames that no leg has, by kind; they went on to the host."""
        size, cpus = ctypes.sizeof(RawStrangers), libbpf.possible_cpus()
        value = self._map("strangers").lookup(_key(0), size * cpus)
        if value is None:
            raise EngineError(self.name, "map strangers has no entry")
        each = [RawStrangers.from_buffer_copy(value, cpu * size) for cpu in range(cpus)]
        return {name: sum(one.packets[index] for one in each) for index, name in enumerate(STRANGERS)}

    def counts(self) -> list[ReceiveCount]:
        to_utc_ns = time.time_ns() - time.monotonic_ns()
        strangers = self.strangers()
        return [
            ReceiveCount(
                leg.id,
                self.name,
                one.packets,
                one.bytes,
                None if one.first_ns is None else one.first_ns + to_utc_ns,
                None if one.last_ns is None else one.last_ns + to_utc_ns,
                note=self._note(leg, one),
                output=json.dumps({"strangers": strangers}),
                tally=one.to_json(),
            )
            for leg, one in zip(self.task.legs, self.tallies().values(), strict=True)
        ]

    def _note(self, leg: Leg, one: tally.Tally) -> str:
        notes = [self.attached]
        if one.distinct is None and _sender_stamps(leg):
            notes.append("counted by its bytes, because its stamps are not where they are looked for")
        if one.too_late:
            notes.append(f"{one.too_late} frames came over {tally.REMEMBERED} behind and count as lost")
        if one.astray:
            notes.append(f"{one.astray} frames have a sequence number that cannot be")
        return "; ".join(notes)


def _sender_stamps(leg: Leg) -> bool:
    """Only the sender xdp does, where there is room."""
    return leg.kind == "stream" and leg.engine == "xdp" and stamped(leg)


def is_stamped(leg: Leg) -> bool:
    """Whether it is counted by its stamps: they have to be where the program looks for them."""
    if not _sender_stamps(leg):
        return False
    return expect.stamp_is_found(build_frame(leg.frame, leg.size_bytes), leg.frame["headers"])


def _receive_queues(interface: str) -> int:
    return len(list((SYS_NET / interface / "queues").glob("rx-*")))


def _key(number: int) -> bytes:
    return struct.pack("=I", number)


def _brief(one: tally.Tally) -> dict[str, int | None]:
    names = ("packets", "bytes", "distinct", "duplicated", "reordered", "altered", "missing")
    return {name: getattr(one, name) for name in names}


def _lookup_locked(one: libbpf.BpfMap, key: bytes) -> bytes:
    value = ctypes.create_string_buffer(one.value_bytes)
    calls = ctypes.CDLL(libbpf.LIBRARY, use_errno=True)
    if calls.bpf_map_lookup_elem_flags(one.fd, key, value, ctypes.c_uint64(_LOCKED)):
        raise EngineError(libbpf.NAME, f"reading map {one.name}: {os.strerror(ctypes.get_errno())}")
    return value.raw
