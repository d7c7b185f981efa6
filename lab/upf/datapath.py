"""The control plane's interface to the data path, kernel/upf.bpf.c: tables, counters, policers, faults, events."""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pktswarm.nodes import libbpf
from pktswarm.traffic.errors import EngineError

OBJECT = libbpf.OBJECTS / "upf.o"
TABLES = ("uplink", "downlink4", "downlink6")
REASONS = ("gate", "rate", "rule", "too_big", "no_neighbour", "fault", "buffered", "no_room")
"""Reasons for not sending a packet on: enum reason of kernel/upf.h."""
TOTALS = (
    *("forwarded_uplink", "forwarded_downlink", "unknown_teid", "unknown_ue", "no_rule", "malformed", "fragment"),
    *("echo_request", "echo_response", "error_indication_sent", "error_indication_seen", "end_marker_seen"),
    "other_gtpu",
)
"""enum total of kernel/upf.h."""
MOST_COUNTS, OWN_COUNTS = 262_144, 15
"""Defined in kernel/upf.h too."""
EVENT_BUFFERED, EVENT_DELAYED, EVENT_HELD, EVENT_RELEASE, EVENT_NO_NEIGHBOUR = range(5)
BURST_NS = 5_000_000
"""Burst of a policer: 5 ms of its rate, and one packet."""
_SETTINGS = struct.Struct("=II4s4s16sI6s6s")
_DROPPED, _SENT = struct.Struct(f"={len(REASONS)}Q"), struct.Struct("=QQ")
_TOTALS = struct.Struct(f"={len(TOTALS)}Q24x")
_POLICER = struct.Struct("=QQQ")
_EVENT = struct.Struct("=IIIIQQQ")
_FAULT_KEY, _FAULT = struct.Struct("=QII"), struct.Struct("=IIQ")
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(frozen=True)
class Settings:
    """struct settings of kernel/upf.h. Addresses are in network byte order, empty where there is none; `mtu`: of N3 and
    N6, in bytes."""

    n3_index: int
    n6_index: int
    n3_ipv4: bytes
    n6_ipv4: bytes
    mtu: int
    n3_mac: bytes
    n6_mac: bytes
    n3_ipv6: bytes = b""

    def pack(self) -> bytes:
        addresses = self.n3_ipv4, self.n6_ipv4, self.n3_ipv6
        return _SETTINGS.pack(self.n3_index, self.n6_index, *addresses, self.mtu, self.n3_mac, self.n6_mac)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the data path, with the fields of struct event_head. `frame`: content by `kind`."""

    kind: int
    port: int
    counts: int
    number: int
    value: int
    time_ns: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one PDR. Bytes of the users' IP packets, without GTP-U."""

    packets: int
    bytes: int
    dropped: dict[str, int]


class DataPath:
    """Loads the program; attach() attaches it. It ends with this process."""

    def __init__(self, settings: Settings, path: Path = OBJECT) -> None:
        self.settings = settings
        self.object = libbpf.BpfObject(path)
        self.object.set_constants(".rodata.settings", settings.pack())
        self._cpus = libbpf.possible_cpus()
        self._owners = min(self._cpus, OWN_COUNTS + 1)
        self.object.set_entries("sent", self._owners * MOST_COUNTS)
        self.object.set_entries("totals", self._cpus)
        self.object.load()
        self._tables = {name: self.object.map(name) for name in TABLES}
        self._dropped = self.object.map("dropped").memory()
        self._sent = self.object.map("sent").memory()
        self._policers = self.object.map("policers").memory()
        self._totals = self.object.map("totals").memory()
        self._numbers = self.object.map("fault_numbers").memory()
        self._faults = self.object.map("faults")
        # 0 means none. An index returned is reused as late as possible: a packet in flight may still count on it.
        self._free_counts = deque(range(1, MOST_COUNTS))
        self._free_policers = deque(range(1, MOST_COUNTS))
        self._events: deque[Event] = deque()
        self._ring = _Ring(self.object.map("events").fd, self._take_event)
        self.event_fd = self._ring.fd
        ports = self.object.map("ports")
        for number, index in enumerate((settings.n3_index, settings.n6_index)):
            ports.update(struct.pack("=I", number), struct.pack("=I", index))

    def attach(self) -> None:
        self.object.attach_xdp("upf_n3", self.settings.n3_index, "native")
        self.object.attach_xdp("upf_n6", self.settings.n6_index, "native")

    def close(self) -> None:
        self._ring.close()
        self.object.close()

    def install(self, table: str, key: bytes, packed: bytes) -> None:
        self._tables[table].update(key, packed)

    def remove(self, table: str, key: bytes) -> None:
        self._tables[table].delete(key)

    def room(self) -> int:
        """Returns the number of PDRs for which counters and policers are free; the tables have the same size."""
        return min(len(self._free_counts), len(self._free_policers))

    def run_uplink(self, frame: bytes) -> None:
        """Processes `frame` as received on N3: it leaves by its rules."""
        libbpf.run_live(self.object.program_fd("upf_n3"), frame, repeat=1, batch=1)

    def take_counts(self) -> int:
        """Returns the index of free counters, which are zero."""
        index = self._free_counts.popleft()
        _DROPPED.pack_into(self._dropped, index * _DROPPED.size, *[0] * len(REASONS))
        for place in self._places(index):
            _SENT.pack_into(self._sent, place, 0, 0)
        return index

    def give_counts(self, index: int) -> None:
        self._free_counts.append(index)

    def _places(self, index: int) -> list[int]:
        """Where each processor counts what is sent on."""
        return [(owner * MOST_COUNTS + index) * _SENT.size for owner in range(self._owners)]

    def read_counts(self, index: int) -> Counts:
        dropped = _DROPPED.unpack_from(self._dropped, index * _DROPPED.size)
        return Counts(*self.read_volume(index), dict(zip(REASONS, dropped, strict=True)))

    def read_volume(self, index: int) -> tuple[int, int]:
        """Returns packets and bytes sent on."""
        each = [_SENT.unpack_from(self._sent, place) for place in self._places(index)]
        return sum(packets for packets, _ in each), sum(size for _, size in each)

    def add_sent(self, index: int, packets: int, size: int) -> None:
        """Adds buffered packets that the control plane sent for this PDR. The data path does not count it meanwhile."""
        first, *_ = self._places(index)
        before = _SENT.unpack_from(self._sent, first)
        _SENT.pack_into(self._sent, first, before[0] + packets, before[1] + size)

    def take_policer(self, kbps: int) -> int:
        index = self._free_policers.popleft()
        self.set_policer(index, kbps)
        return index

    def set_policer(self, index: int, kbps: int) -> None:
        """Sets the rate: the time of a byte is in 2^-20 ns, other times in 1/256 ns."""
        byte_cost = round(8 * 1e6 / kbps * (1 << 20)) if kbps else 0
        struct.pack_into("=QQ", self._policers, index * _POLICER.size + 8, byte_cost, BURST_NS << 8)

    def give_policer(self, index: int) -> None:
        self._free_policers.append(index)

    def totals(self) -> dict[str, int]:
        each = _TOTALS.iter_unpack(self._totals[: self._cpus * _TOTALS.size])
        return dict(zip(TOTALS, map(sum, zip(*each, strict=True)), strict=True))

    def list_faults(self, faults: dict[tuple[int, int], tuple[int, int, int]]) -> None:
        """Sets (direction, number) → (action, release, value); the numbers of both directions restart at 0."""
        struct.pack_into("=3Q", self._numbers, 0, 0, 0, 0)
        for key in list(self._faults.keys()):
            self._faults.delete(key)
        for (direction, number), fault in faults.items():
            self._faults.update(_FAULT_KEY.pack(number, direction, 0), _FAULT.pack(*fault))
        struct.pack_into("=3Q", self._numbers, 0, 0, 0, int(bool(faults)))

    def fault_numbers(self) -> tuple[int, int]:
        """Returns the packets up and down since faults were set."""
        up, down, _ = struct.unpack_from("=3Q", self._numbers)
        return up, down

    def events(self) -> list[Event]:
        """Returns the events since the last call."""
        self._ring.consume()
        found = list(self._events)
        self._events.clear()
        return found

    def _take_event(self, data: bytes) -> None:
        kind, port, counts, size, number, value, time_ns = _EVENT.unpack_from(data)
        frame = data[_EVENT.size : _EVENT.size + size]
        self._events.append(Event(kind, port, counts, number, value, time_ns, frame))


class _Ring:
    """libbpf's reader of a ring buffer."""

    def __init__(self, map_fd: int, take: Callable[[bytes], None]) -> None:
        self._calls = ctypes.CDLL(libbpf.LIBRARY, use_errno=True)
        self._calls.ring_buffer__new.restype = ctypes.c_void_p
        self._take_event = take
        self._keep = _CALLBACK(self._called)  # ctypes does not keep it alive
        self._handle = self._calls.ring_buffer__new(map_fd, self._keep, None, None)
        if not self._handle:
            raise EngineError(libbpf.NAME, "no reader of the ring buffer")
        self.fd = int(self._calls.ring_buffer__epoll_fd(ctypes.c_void_p(self._handle)))

    def _called(self, _: int, data: int, size: int) -> int:
        self._take_event(ctypes.string_at(data, size))
        return 0

    def consume(self) -> None:
        self._calls.ring_buffer__consume(ctypes.c_void_p(self._handle))

    def close(self) -> None:
        if self._handle:
            self._calls.ring_buffer__free(ctypes.c_void_p(self._handle))
            self._handle = None
