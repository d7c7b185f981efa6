"""A trace as records of (due time, frame), which the XDP sender plays: pass after pass, each frame when it is due."""

from __future__ import annotations

from dataclasses import dataclass

from traffic.errors import BadInput
from traffic.schedule_records import CHUNK_BYTES, LARGEST_BYTES, PLACE_BYTES, SLOT_BYTES, TraceRecord
from traffic.task import FCS_BYTES, Leg
from traffic.traces import Packet, Trace


@dataclass(frozen=True)
class Passes:
    records: list[TraceRecord]
    store: bytes
    """The frames' bytes; each record's `place` counts from its start."""
    period_ns: int
    lead_ns: int
    timed: bool


def unable(leg: Leg) -> str:
    """Why a trace leg cannot be sent, as far as that shows without the trace."""
    keep = leg.options.get("keep_bytes", 14)
    if not isinstance(keep, int) or keep < 14:
        return f"keep_bytes is a whole number from 14, not {keep!r}"
    return ""


def arrange(leg: Leg, trace: Trace) -> Passes:
    """`keep_bytes` of each frame are kept, zeros stand for the rest: a long trace on a small board."""
    packets = sorted(trace.packets, key=lambda packet: packet.time_ns)
    for number, packet in enumerate(trace.packets, 1):
        if len(packet.data) > LARGEST_BYTES:
            problem, allowed = f"packet {number} is too long for XDP live frames", f"up to {LARGEST_BYTES} bytes"
            raise BadInput(trace.path, problem, value=f"{len(packet.data)} bytes", allowed=allowed)
    due_ns, period_ns = due_times(packets, leg, trace)
    keep = leg.options.get("keep_bytes", LARGEST_BYTES)
    records, store = _store(packets, due_ns, keep)
    timed = leg.timing.get("mode", "original") != "top"
    return Passes(records, bytes(store), period_ns, int(leg.timing.get("lead_ns", 0)), timed)


def due_times(packets: list[Packet], leg: Leg, trace: Trace) -> tuple[list[int], int]:
    """(ns from the start of a pass for each packet, ns from one pass to the next)."""
    value = float(leg.timing.get("value") or 1.0)
    match leg.timing.get("mode", "original"):
        case "original":
            return _recorded(packets, leg, trace, 1.0)
        case "multiplier":
            return _recorded(packets, leg, trace, value)
        case "pps":
            return [round(n * 1e9 / value) for n in range(len(packets))], round(len(packets) * 1e9 / value)
        case "bps":
            return _by_bits(packets, value)
        case "top":
            return [0] * len(packets), 0
        case other:
            raise ValueError(f"no such pace: {other!r}")


def _recorded(packets: list[Packet], leg: Leg, trace: Trace, speed: float) -> tuple[list[int], int]:
    start_ns = packets[0].time_ns
    # Every share of a trace repeats at the period of the whole trace, or the shares would drift apart.
    period_ns = int(leg.timing.get("period_ns", 0)) or round(trace.period_ns / speed)
    return [round((packet.time_ns - start_ns) / speed) for packet in packets], period_ns


def _by_bits(packets: list[Packet], rate_bps: float) -> tuple[list[int], int]:
    """Bits of frames with their FCS."""
    due_ns, bits = [], 0
    for packet in packets:
        due_ns.append(round(bits * 1e9 / rate_bps))
        bits += 8 * (len(packet.data) + FCS_BYTES)
    return due_ns, round(bits * 1e9 / rate_bps)


def _store(packets: list[Packet], due_ns: list[int], keep: int) -> tuple[list[TraceRecord], bytearray]:
    records, store = [], bytearray()
    for packet, due in zip(packets, due_ns, strict=True):
        if len(store) % CHUNK_BYTES > CHUNK_BYTES - SLOT_BYTES:
            _fill_chunk(store)
        kept = packet.data[:keep]
        records.append(TraceRecord(due, len(store) // PLACE_BYTES, len(kept), len(packet.data)))
        store += kept + bytes(-len(kept) % PLACE_BYTES)
    return records, store


def _fill_chunk(store: bytearray) -> None:
    store += bytes(-len(store) % CHUNK_BYTES)


def append(trace: list[TraceRecord], store: bytearray, more: list[TraceRecord], more_store: bytes) -> None:
    """One leg's records behind those before, its bytes from a new chunk on."""
    _fill_chunk(store)
    for record in more:
        record.place += len(store) // PLACE_BYTES
    trace += more
    store += more_store
