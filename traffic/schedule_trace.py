"""A trace as records of (due time, frame), which the XDP sender plays: pass after pass, each frame when it is due."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.errors import BadInput
from traffic.replay import timing
from traffic.replay.build import Frames
from traffic.schedule_records import CHUNK_BYTES, LARGEST_BYTES, PLACE_BYTES, SLOT_BYTES, TraceRecord
from traffic.task import FCS_BYTES, Leg

Integers = NDArray[np.int64]
RECORD = np.dtype([("due_ns", "u8"), ("place", "u4"), ("stored_bytes", "u2"), ("frame_bytes", "u2")])
"""TraceRecord."""


@dataclass(frozen=True)
class Passes:
    records: list[TraceRecord]
    store: bytes
    """The frames' bytes; each record's `place` counts from its start."""
    period_ns: int
    lead_ns: int
    timed: bool
    stamps: list[int]
    """Where each record's stamp begins; 0: it has none."""


def arrange(leg: Leg, frames: Frames, order: Integers) -> Passes:
    """`order`: of one pass."""
    long = np.flatnonzero(frames.length > LARGEST_BYTES)
    if len(long):
        first = int(long[0])
        problem = f"packet {frames.number[first]} is too long for XDP live frames"
        allowed, value = f"up to {LARGEST_BYTES} bytes", f"{frames.length[first]} bytes"
        raise BadInput(leg.stream, problem, value=value, allowed=allowed)
    times, length = frames.time_ns[order], frames.length[order]
    due_ns, period_ns = due_times(times, length, leg)
    place, store = _store(frames)
    records = np.zeros(len(order), RECORD)
    records["due_ns"], records["place"] = due_ns, place[order] // PLACE_BYTES
    records["stored_bytes"], records["frame_bytes"] = frames.stored[order], length
    made = (TraceRecord * len(order)).from_buffer_copy(records.tobytes())
    timed = leg.timing.get("mode", "original") != "top"
    return Passes(
        list(made), store, period_ns, int(leg.timing.get("lead_ns", 0)), timed, frames.stamp_at[order].tolist()
    )


def due_times(times: Integers, length: Integers, leg: Leg) -> tuple[Integers, int]:
    """(ns from the start of a pass for each packet, ns from one pass to the next)."""
    value = float(leg.timing.get("value") or 1.0)
    match leg.timing.get("mode", "original"):
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
    period_ns = int(leg.timing.get("period_ns", 0)) or round(timing.period_ns(times) / speed)
    return np.rint((times - times[0]) / speed).astype(np.int64), period_ns


def _store(frames: Frames) -> tuple[Integers, bytes]:
    """The frames' bytes so that each begins in the first part of a chunk, and where each begins."""
    padded = -(-frames.stored // PLACE_BYTES) * PLACE_BYTES
    stop = np.cumsum(padded)
    start, place = stop - padded, np.empty(len(padded), np.int64)
    parts: list[bytes] = []
    row, base = 0, 0
    while row < len(padded):
        room = start[row] + CHUNK_BYTES - SLOT_BYTES
        last = int(np.searchsorted(start, room, side="right"))
        place[row:last] = start[row:last] - start[row] + base
        begin = int(frames.place[row])
        size = int(stop[last - 1] - start[row])
        parts.append(frames.store[begin : begin + size].tobytes())
        if last < len(padded):
            parts.append(bytes(-size % CHUNK_BYTES))
            size += -size % CHUNK_BYTES
        row, base = last, base + size
    return place, b"".join(parts)


def append(trace: list[TraceRecord], store: bytearray, more: list[TraceRecord], more_store: bytes) -> None:
    """One leg's records behind those before, its bytes from a new chunk on."""
    store += bytes(-len(store) % CHUNK_BYTES)
    for record in more:
        record.place += len(store) // PLACE_BYTES
    trace += more
    store += more_store
