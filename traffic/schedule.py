"""A schedule: what the XDP sender executes, compiled from legs and their frame templates.

The structures here are kernel/send.h's, field by field, in this machine's byte order: the sender shares them with the
kernel program as memory. What a rule, a weight and a window are is written there.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_uint8, c_uint16, c_uint32, c_uint64
from dataclasses import dataclass

from traffic import stamp
from traffic.frames import build_frame
from traffic.task import Leg
from traffic.template import Checksum, Template, VaryingField

MAX_LEGS, MAX_RULES, MAX_CHECKSUMS = 256, 16, 4
SLOT_BYTES, WINDOW_BYTES, PENDING = 4096, 8, 256
NEVER = 2**64 - 1
GAP_FRACTION_BITS = 24
COUNT, RANDOM, LINKED = range(3)
LATE_NS = 100_000
"""A frame that leaves so long after its due time counts as late."""
STOP_GRACE_NS = 10_000_000
"""How long after its duration a paced leg may catch up on what was due within it."""
LARGEST_BYTES = 3400
"""Without FCS: what every kernel's live frames have room for in a page of 4096 bytes."""
OPTIONS = ("burst", "late", "stamp")


class SumRecord(ctypes.Structure):
    _fields_ = (("offset", c_uint16), ("zero_is_ones", c_uint8), ("unused", c_uint8))


class NoiseRecord(ctypes.Structure):
    _fields_ = (
        ("start", c_uint16),
        ("stop", c_uint16),
        ("windows", c_uint16),
        ("unused", c_uint16),
        ("weight", c_uint16 * MAX_CHECKSUMS),
    )


class RuleRecord(ctypes.Structure):
    _fields_ = (
        ("first", c_uint64),
        ("step", c_uint64),
        ("count", c_uint64),
        ("position", c_uint64),
        ("mask", c_uint64),
        ("window", c_uint16),
        ("shift", c_uint8),
        ("mode", c_uint8),
        ("table", c_uint8),
        ("link", c_uint8),
        ("weight", c_uint16 * MAX_CHECKSUMS),
        ("unused", c_uint16),
    )


class LegRecord(ctypes.Structure):
    _fields_ = (
        ("gap", c_uint64),
        ("remaining", c_uint64),
        ("stop_ns", c_uint64),
        ("late_ns", c_uint64),
        ("sequence", c_uint64),
        ("random", c_uint64),
        ("fraction", c_uint32),
        ("burst", c_uint32),
        ("in_burst", c_uint32),
        ("frame_bytes", c_uint16),
        ("stamp", c_uint16),
        ("stamp_weight", c_uint16 * MAX_CHECKSUMS),
        ("skip", c_uint8),
        ("rules", c_uint8),
        ("sums", c_uint8),
        ("unused", c_uint8 * 5),
        ("sum", SumRecord * MAX_CHECKSUMS),
        ("noise", NoiseRecord),
        ("rule", RuleRecord * MAX_RULES),
        ("generated", c_uint64),
        ("refused", c_uint64),
        ("dropped", c_uint64),
        ("late", c_uint64),
        ("skipped", c_uint64),
        ("latest_ns", c_uint64),
        ("first_ns", c_uint64),
        ("last_ns", c_uint64),
    )

    @property
    def sent(self) -> int:
        return int(self.generated - self.refused - self.dropped)


class StateRecord(ctypes.Structure):
    _fields_ = (
        ("start_ns", c_uint64),
        ("thread", c_uint64),
        ("runs", c_uint64),
        ("last_ns", c_uint64),
        ("longest_pause_ns", c_uint64),
        ("device_sent", c_uint64),
        ("device_dropped", c_uint64),
        ("unexplained", c_uint64),
        ("error", c_int32),
        ("finished", c_uint32),
        ("pushed", c_uint32),
        ("popped", c_uint32),
        ("tree_leaves", c_uint32),
        ("unused", c_uint32),
        ("pending", c_uint32 * PENDING),
        ("due_ns", c_uint64 * MAX_LEGS),
        ("winner", c_uint16 * (2 * MAX_LEGS)),
    )


@dataclass(frozen=True)
class CompiledLeg:
    record: LegRecord
    slot: bytes
    """The first frame, stamped but for its time, its checksums right."""
    duration_ns: int | None


def unable(leg: Leg) -> str:
    """Why no schedule can be made of this leg; empty when one can."""
    if leg.kind != "stream":
        return "it sends no traces yet"
    odd = [name for name in leg.options if name not in OPTIONS]
    if odd:
        return f"it has no option {odd[0]!r}"
    if leg.size_bytes - 4 > LARGEST_BYTES:
        return f"its frames have at most {LARGEST_BYTES + 4} bytes"
    return _unable_options(leg) or _unable_frame(leg, build_frame(leg.frame, leg.size_bytes))


def _unable_options(leg: Leg) -> str:
    burst, late = leg.options.get("burst", 1), leg.options.get("late", "catch_up")
    if not isinstance(burst, int) or not 1 <= burst <= 65536:
        return f"burst is a whole number from 1 to 65536, not {burst!r}"
    if late not in ("catch_up", "skip"):
        return f"late is catch_up or skip, not {late!r}"
    least = stamp.least_size_bytes(leg.frame["headers"])
    if leg.options.get("stamp") and not _has_room(leg):
        return f"a stamp needs {stamp.PLAIN_BYTES} bytes of free payload: a frame of at least {least} bytes"
    return ""


def _unable_frame(leg: Leg, template: Template) -> str:
    if len(template.fields) > MAX_RULES:
        return f"it varies at most {MAX_RULES} fields of a frame, not {len(template.fields)}"
    if len(template.checksums) > MAX_CHECKSUMS:
        return f"it keeps at most {MAX_CHECKSUMS} checksums, not {len(template.checksums)}"
    for field in template.fields:
        if field.first >> 64 != field.last >> 64 or (field.shift_bits and field.width_bytes > WINDOW_BYTES):
            return f"{field.name} varies in more than its last 64 bits"
    return ""


def _has_room(leg: Leg) -> bool:
    """Free payload only: bytes that the scenario gives in hex are the user's."""
    start = stamp.payload_offset(leg.frame["headers"])
    taken = "hex" in leg.frame.get("payload", {}) or "arp" in leg.frame["headers"][-1]
    return not taken and leg.size_bytes - 4 - start >= stamp.PLAIN_BYTES and leg.id <= stamp.LARGEST_STREAM


def stamped(leg: Leg) -> bool:
    """Whether its frames carry a stamp: a stream's do where there is room, unless it says otherwise."""
    return bool(leg.options.get("stamp", True)) and _has_room(leg)


def compile_leg(leg: Leg, seed: int) -> CompiledLeg:
    """Of a leg that unable() has nothing against. The same seed draws the same random fields."""
    return compile_template(leg, build_frame(leg.frame, leg.size_bytes), seed)


def compile_template(leg: Leg, template: Template, seed: int) -> CompiledLeg:
    record = LegRecord(frame_bytes=len(template.data), random=_spread(seed), late_ns=LATE_NS)
    data = bytearray(template.data)
    for index, checksum in enumerate(template.checksums):
        record.sum[index] = SumRecord(checksum.offset_bytes, checksum.zero_is_ones)
    record.sums = len(template.checksums)
    if stamped(leg):
        _stamp(record, leg, template, data)
    for index, field in enumerate(template.fields):
        record.rule[index] = _rule(field, template.checksums)
    record.rules = len(template.fields)
    _noise(record, leg, template)
    _pace(record, leg)
    for checksum in mending_order(template.checksums):
        checksum.mend(data)
    duration_ns = None if leg.duration_s is None else round(leg.duration_s * 1e9)
    return CompiledLeg(record, bytes(data), duration_ns)


def _spread(seed: int) -> int:
    """A generator's first state from a small number: splitmix64's step. xorshift must not begin with 0."""
    mixed = (seed + 1) * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    return (mixed ^ mixed >> 27) or 1


def _stamp(record: LegRecord, leg: Leg, template: Template, data: bytearray) -> None:
    start = stamp.payload_offset(leg.frame["headers"])
    data[start : start + stamp.PLAIN_BYTES] = stamp.Stamp(leg.id, 0, 0).pack()
    record.stamp = start
    # The sequence number and the time end an even number of bytes apart: the same weights do for both.
    changes = (start + stamp.SEQUENCE_OFFSET, start + stamp.TIME_OFFSET)
    record.stamp_weight[:] = weights(template.checksums, *changes, changes[1])


def _rule(field: VaryingField, checksums: tuple[Checksum, ...]) -> RuleRecord:
    stop = field.offset_bytes + field.width_bytes
    window = max(0, stop - WINDOW_BYTES)
    shift = (window + WINDOW_BYTES - stop) * 8 + field.shift_bits
    width = min(field.width_bits, 64)
    step = -field.step if field.mode == "decrement" else field.step
    count = min(field.values, NEVER) if field.mode != "random" else field.values % 2**64
    return RuleRecord(
        first=field.first % 2**64,
        step=step % 2**64,
        count=count,
        # A counter goes one further before each frame.
        position=0 if field.mode == "random" else count - 1,
        mask=((1 << width) - 1) << shift,
        window=window,
        shift=shift,
        mode=RANDOM if field.mode == "random" else COUNT,
        weight=_words(weights(checksums, max(field.offset_bytes, window), stop, window + WINDOW_BYTES)),
    )


def _noise(record: LegRecord, leg: Leg, template: Template) -> None:
    start, stop = template.random_payload
    if record.stamp:
        start = max(start, record.stamp + stamp.PLAIN_BYTES)
    if start >= stop:
        return
    windows = -(-(stop - start) // WINDOW_BYTES)
    weight = _words(weights(template.checksums, start, stop, start + WINDOW_BYTES))
    record.noise = NoiseRecord(start, stop, windows, 0, weight)


def _words(values: list[int]) -> ctypes.Array[c_uint16]:
    return (c_uint16 * MAX_CHECKSUMS)(*values)


def _pace(record: LegRecord, leg: Leg) -> None:
    record.burst = leg.options.get("burst", 1)
    record.skip = leg.options.get("late") == "skip"
    record.gap = gap(leg.rate_pps, record.burst)
    record.stop_ns = NEVER
    count = leg.count_packets
    if count is None and leg.rate_pps is not None and leg.duration_s is not None:
        count = round(leg.rate_pps * leg.duration_s)  # a rate and a duration make a count, so that it is exact
    record.remaining = NEVER if count is None else count


def gap(rate_pps: float | None, burst: int = 1) -> int:
    """Between the due times of two bursts, in 2**-24 ns; 0: none, as fast as it goes. Up to 18 minutes."""
    return 0 if rate_pps is None else max(1, round(burst * 1e9 * 2**GAP_FRACTION_BITS / rate_pps))


def stop_ns(compiled: CompiledLeg, start_ns: int) -> int:
    """From when on a leg sends nothing."""
    if compiled.duration_ns is None:
        return NEVER
    return start_ns + compiled.duration_ns + (STOP_GRACE_NS if compiled.record.gap else 0)


def tournament(legs: int) -> tuple[int, list[int]]:
    """(leaves, winner of each node) where every leg is due at the same time: the first one wins.

    Leaves that have no leg stand for the numbers after the last leg, which are never due.
    """
    leaves = 1 << (legs - 1).bit_length()
    winner = [0] * leaves + list(range(leaves))
    for node in reversed(range(1, leaves)):
        winner[node] = winner[2 * node]
    return leaves, winner


# --- checksums as linear sums --------------------------------------------------------------------------------------


def mending_order(checksums: tuple[Checksum, ...]) -> list[Checksum]:
    """Those that another one covers come before it."""
    left, ordered = list(checksums), list[Checksum]()
    while left:
        ready = [c for c in left if not any(c is not o and c.covers(o.offset_bytes, o.offset_bytes + 2) for o in left)]
        ordered += ready
        left = [c for c in left if c not in ready]
    return ordered


def weights(checksums: tuple[Checksum, ...], start: int, stop: int, end: int) -> list[int]:
    """By how much each checksum's sum grows, modulo 0xffff, when the number whose last byte is at `end` - 1 grows by 1.

    The change is within the bytes from `start` to `stop`. Sums of checksums that another one covers count there too:
    as the sum grows its field shrinks.
    """
    found: dict[Checksum, int] = {}
    for checksum in mending_order(checksums):
        weight = _factor(checksum, start, stop, end)
        for inner in found:
            place = inner.offset_bytes
            weight -= found[inner] * _factor(checksum, place, place + 2, place + 2)
        found[checksum] = weight % 0xFFFF
    return [*(found[checksum] for checksum in checksums), *[0] * (MAX_CHECKSUMS - len(checksums))]


def _factor(checksum: Checksum, start: int, stop: int, end: int) -> int:
    """A byte at an odd distance from where the summing starts is the low one of its 16-bit word."""
    for low, high in checksum.ranges:
        if low <= start and stop <= high:
            return 1 if (end - 1 - low) % 2 else 256
    return 0
