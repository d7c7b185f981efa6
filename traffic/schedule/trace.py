"""A trace as records of due time and frame, which the XDP sender sends pass after pass.

Frames are stored once for all passes and instances. An instance is a leg with a rule of additions to each frame; one
with a random start also has its own records, because its packets are in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic import ragged
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg, Timing
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.replay import timing
from pktswarm.traffic.replay.files import in_order
from pktswarm.traffic.replay.frames import Frames
from pktswarm.traffic.schedule.records import CHUNK_BYTES, SLOT_BYTES, largest_bytes, slot_bytes

Integers = NDArray[np.int64]
RECORD = np.dtype([("due_ns", "u8"), ("place", "u4"), ("stored_bytes", "u2"), ("frame_bytes", "u2")])
"""TraceRecord."""
PLACES = np.dtype(
    [
        ("address", "u2", 2),
        ("header_sum", "u2"),
        ("port", "u2"),
        ("sum", "u2"),
        ("teid", "u2"),
        ("stamp", "u2"),
        ("ends", "u1"),
        ("zero_is_ones", "u1"),
    ]
)
"""PlacesRecord."""
UDP_SUM_AT = 6
MOST_BYTES = 1 << 32
"""Limit for the frames of all traces of an interface: a record's place has 32 bits."""
Read = Callable[[Leg], Frames]
"""Reads the frames of a trace's file, without the additions of an instance."""


class Store:
    """The frames of a file, laid out so that each begins in the first part of a chunk. They stay in the memory of the
    file until write() copies them in large pieces."""

    def __init__(self, frames: Frames, placed: bool, slot_bytes: int = SLOT_BYTES) -> None:
        """`placed`: the result of places() is stored before each frame; there is room for it in any case.
        `slot_bytes`: no frame begins so near the end of a chunk."""
        self._bytes = frames.store
        self._places = places(frames) if placed else None
        first, stop = frames.place - PLACES.itemsize, frames.place + frames.stored
        if len(first) and (first[0] < 0 or (first[1:] < stop[:-1]).any()):
            raise ValueError("no room between the frames, or not in their order")
        self.place = np.empty(len(first), np.int64)
        self._pieces: list[tuple[int, int, int]] = []
        row = self.size_bytes = 0
        while row < len(first):
            last = int(np.searchsorted(frames.place, first[row] + CHUNK_BYTES - slot_bytes, side="right"))
            self.place[row:last] = frames.place[row:last] - first[row] + self.size_bytes
            self._pieces.append((self.size_bytes, int(first[row]), int(stop[last - 1])))
            row, self.size_bytes = last, self.size_bytes + CHUNK_BYTES

    def write(self, target: memoryview) -> None:
        """`target` has room for size_bytes."""
        source = self._bytes.data.cast("B")
        for at, begin, stop in self._pieces:
            target[at : at + stop - begin] = source[begin:stop]
        if self._places is not None:
            heads, size = self._places.view(np.uint8), np.full(len(self.place), PLACES.itemsize)
            at = np.cumsum(size) - size
            ragged.copy(np.frombuffer(target, np.uint8), self.place - PLACES.itemsize, heads, at, size)


@dataclass(frozen=True)
class Passes:
    records: NDArray[np.void]
    """The RECORDs of one pass; `place` counts from the start of the store."""
    store: Store
    period_ns: int
    timed: bool


class Traces:
    """The traces of an interface: frames are shared by file, records by file and times."""

    def __init__(self, read: Read, placed: Set[str | None]) -> None:
        """`placed`: the files whose frames are changed by instances or stamps."""
        self._read, self._placed = read, placed
        self._stored: dict[str | None, tuple[Frames, Store]] = {}
        self._passes: dict[tuple[str | None, Timing], Passes] = {}

    def of(self, leg: Leg) -> Passes:
        # Instances that start together, or evenly spread, have the same times from their own start.
        key = (leg.trace_file, replace(leg.timing, lead_ns=0))
        if key not in self._passes:
            if leg.trace_file not in self._stored:
                self._stored[leg.trace_file] = self._store(leg)
            frames, store = self._stored[leg.trace_file]
            self._passes[key] = arrange(leg, *in_order(frames, leg), store)
        return self._passes[key]

    def _store(self, leg: Leg) -> tuple[Frames, Store]:
        frames = self._read(leg)
        check_lengths(leg, frames)
        store = Store(frames, leg.trace_file in self._placed, slot_bytes(leg.engine))
        total = store.size_bytes + sum(one.size_bytes for _, one in self._stored.values())
        if total > MOST_BYTES:
            problem, allowed = "the traces of one interface are too large for the kernel program", f"up to {MOST_BYTES}"
            raise BadInput(leg.stream, problem, key="bytes", value=total, allowed=allowed)
        return frames, store


def check_lengths(leg: Leg, frames: Frames) -> None:
    """BadInput for a frame longer than the engine can send."""
    most = largest_bytes(leg.engine)
    long = np.flatnonzero(frames.length > most)
    if len(long):
        first = int(long[0])
        of = "clones of an skb" if leg.engine == "tc" else "XDP live frames"
        problem = f"packet {frames.number[first]} is too long for {of}"
        allowed, value = f"up to {most} bytes", f"{frames.length[first]} bytes"
        raise BadInput(leg.stream, problem, value=value, allowed=allowed)


def arrange(leg: Leg, frames: Frames, order: Integers, store: Store) -> Passes:
    """`order`: the order of one pass; `store`: the store of these frames."""
    times, length = frames.time_ns[order], frames.length[order]
    due_ns, period_ns = due_times(times, length, leg)
    records = np.zeros(len(order), RECORD)
    records["due_ns"], records["place"] = due_ns, store.place[order]
    records["stored_bytes"], records["frame_bytes"] = frames.stored[order], length
    return Passes(records, store, period_ns, leg.timing.mode != "top")


def places(frames: Frames) -> NDArray[np.void]:
    """The PLACES of each frame: the fields that instances and stamps change."""
    made = np.zeros(len(frames), PLACES)
    six = frames.store[frames.place + frames.ip_at] >> 4 == 6
    # The last four bytes of each address.
    made["address"] = frames.ip_at[:, None] + np.where(six[:, None], (20, 36), (12, 16))
    made["header_sum"] = np.where(six, 0, frames.ip_at + 10)
    made["port"] = np.where(frames.l4_at > 0, frames.l4_at + 2 * frames.down, 0)
    made["sum"], made["teid"], made["ends"] = frames.sum_at, frames.teid_at, frames.ends
    made["stamp"] = frames.stamp_at
    made["zero_is_ones"] = frames.sum_at - frames.l4_at == UDP_SUM_AT
    return made


def due_times(times: Integers, length: Integers, leg: Leg) -> tuple[Integers, int]:
    """(ns from the start of a pass for each packet, ns from one pass to the next)."""
    value = leg.timing.value
    match leg.timing.mode:
        case "original":
            return _recorded(times, leg, 1.0)
        case "multiplier":
            return _recorded(times, leg, value)
        case "pps":
            return np.rint(np.arange(len(times)) * 1e9 / value).astype(np.int64), round(len(times) * 1e9 / value)
        case "bps":
            bits = 8 * (length + FCS_BYTES)
            before = np.cumsum(bits) - bits
            return np.rint(before * 1e9 / value).astype(np.int64), round(int(bits.sum()) * 1e9 / value)
        case "top":
            return np.zeros(len(times), np.int64), 0
        case other:
            raise ValueError(f"no such pace: {other!r}")


def _recorded(times: Integers, leg: Leg, speed: float) -> tuple[Integers, int]:
    # Every share of a trace repeats at the period of the whole trace, or the shares would drift apart.
    period_ns = leg.timing.period_ns or round(timing.period_ns(times) / speed)
    return np.rint((times - times[0]) / speed).astype(np.int64), period_ns
