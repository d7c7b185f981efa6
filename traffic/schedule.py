"""A schedule: what the XDP sender executes, compiled from legs: streams, made from rules, and traces.

What a slot, a rule, a window and a weight are is written in kernel/send.h.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from traffic import schedule_trace, stamp
from traffic.frames import build_frame
from traffic.schedule_records import (
    COUNT,
    GAP_FRACTION_BITS,
    LARGEST_BYTES,
    MAX_CHECKSUMS,
    MAX_LEGS,
    MAX_RULES,
    NEVER,
    RANDOM,
    WINDOW_BYTES,
    LegRecord,
    NoiseRecord,
    RuleRecord,
    SlotRecord,
    SumRecord,
    TraceRecord,
)
from traffic.sums import mending_order, weights
from traffic.task import FCS_BYTES, Leg
from traffic.template import Checksum, Template, VaryingField
from traffic.traces import Trace

LATE_NS = 100_000
"""A frame that leaves so long after its due time counts as late."""
GRACE_NS = 10_000_000
"""How long after its duration a timed leg may catch up on what was due within it."""
MOST_WEIGHTS = 65536
"""Weights of sizes make a list with each size as often as its weight says, their common divisor taken out."""
STREAM_OPTIONS = ("burst", "late", "stamp", "imix_weights")
TRACE_OPTIONS = ("late", "keep_bytes")


@dataclass
class CompiledLeg:
    """Numbers in it (its first slot, record, place in the table) count from this leg's own first."""

    record: LegRecord
    slots: list[SlotRecord] = field(default_factory=list)
    """One for each size: the first frame, stamped but for its time, its checksums right."""
    table: list[int] = field(default_factory=list)
    trace: list[TraceRecord] = field(default_factory=list)
    store: bytes = b""
    lead_ns: int = 0
    """When its first frame is due, from the start."""
    duration_ns: int | None = None
    largest_bytes: int = 0

    def stop_ns(self, start_ns: int) -> int:
        return NEVER if self.duration_ns is None else start_ns + self.duration_ns

    def give_up_ns(self, start_ns: int) -> int:
        grace_ns = GRACE_NS if self.record.timed else 0
        return NEVER if self.duration_ns is None else start_ns + self.duration_ns + grace_ns

    def first_due_ns(self, start_ns: int) -> int:
        return start_ns + self.lead_ns if self.record.remaining else NEVER


# --- what it can do ------------------------------------------------------------------------------------------------


def unable(leg: Leg) -> str:
    """Why no schedule can be made of this leg; empty when one can."""
    known = TRACE_OPTIONS if leg.kind == "trace" else STREAM_OPTIONS
    odd = [name for name in leg.options if name not in known]
    if odd:
        return f"it has no option {odd[0]!r} for a {leg.kind}"
    if leg.options.get("late", "catch_up") not in ("catch_up", "skip"):
        return f"late is catch_up or skip, not {leg.options['late']!r}"
    if leg.kind == "trace":
        return schedule_trace.unable(leg)
    return _unable_options(leg) or _unable_frame(leg)


def _unable_options(leg: Leg) -> str:
    burst = leg.options.get("burst", 1)
    if not isinstance(burst, int) or not 1 <= burst <= 65536:
        return f"burst is a whole number from 1 to 65536, not {burst!r}"
    if "imix_weights" in leg.options:
        return _unable_sizes(leg.options["imix_weights"])
    return ""


def _unable_sizes(pairs: object) -> str:
    whole = isinstance(pairs, list) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(n, int) and n >= 1 for n in pair)
        for pair in pairs
    )
    if not whole or not isinstance(pairs, list) or not 1 <= len(pairs) <= 255:
        return "imix_weights is 1 to 255 pairs of a size and a weight, each 1 or more"
    total = sum(weight for _, weight in pairs) // math.gcd(*(weight for _, weight in pairs))
    return f"its weights of sizes add up to at most {MOST_WEIGHTS}, not {total}" if total > MOST_WEIGHTS else ""


def _unable_frame(leg: Leg) -> str:
    sizes = [size for size, _ in sizes_bytes(leg)]
    if max(sizes) - FCS_BYTES > LARGEST_BYTES:
        return f"its frames have at most {LARGEST_BYTES + FCS_BYTES} bytes"
    if leg.options.get("stamp") and not _has_room(leg):
        least = stamp.least_size_bytes(leg.frame["headers"])
        return f"a stamp needs {stamp.PLAIN_BYTES} bytes of free payload: a frame of at least {least} bytes"
    template = build_frame(leg.frame, min(sizes))
    if len(template.fields) > MAX_RULES:
        return f"it varies at most {MAX_RULES} fields of a frame, not {len(template.fields)}"
    if len(template.checksums) > MAX_CHECKSUMS:
        return f"it keeps at most {MAX_CHECKSUMS} checksums, not {len(template.checksums)}"
    for one in template.fields:
        if one.first >> 64 != one.last >> 64 or (one.shift_bits and one.width_bytes > WINDOW_BYTES):
            return f"{one.name} varies in more than its last 64 bits"
    return ""


def sizes_bytes(leg: Leg) -> list[tuple[int, int]]:
    """(size with FCS, weight) of a stream's frames."""
    return [(size, weight) for size, weight in leg.options.get("imix_weights", [(leg.size_bytes, 1)])]


def stamped(leg: Leg) -> bool:
    """Whether its frames carry a stamp: a stream's do where there is room in each, unless it says otherwise."""
    return leg.kind == "stream" and bool(leg.options.get("stamp", True)) and _has_room(leg)


def _has_room(leg: Leg) -> bool:
    """Free payload only: bytes that the scenario gives in hex are the user's."""
    taken = "hex" in leg.frame.get("payload", {}) or "arp" in leg.frame["headers"][-1]
    held = stamp.payload_offset(leg.frame["headers"]) + stamp.PLAIN_BYTES + FCS_BYTES
    return not taken and min(size for size, _ in sizes_bytes(leg)) >= held and leg.id <= stamp.LARGEST_STREAM


# --- a leg ---------------------------------------------------------------------------------------------------------


def compile_leg(leg: Leg, seed: int, trace: Trace | None = None) -> CompiledLeg:
    """Of a leg that unable() has nothing against. The same seed draws the same random values. `trace`: a trace's."""
    if leg.kind == "trace":
        if trace is None:
            raise ValueError(f"stream {leg.stream} is a trace")
        return _compile_trace(leg, trace)
    templates = [build_frame(leg.frame, size) for size, _ in sizes_bytes(leg)]
    return compile_stream(leg, templates, seed)


def compile_stream(leg: Leg, templates: list[Template], seed: int) -> CompiledLeg:
    """`templates`: the same headers in each of the leg's sizes, in their order."""
    record = LegRecord(random=_spread(seed))
    compiled = CompiledLeg(record)
    first = templates[0]
    for index, checksum in enumerate(first.checksums):
        record.sum[index] = SumRecord(checksum.offset_bytes, checksum.zero_is_ones)
    record.sums = len(first.checksums)
    if stamped(leg):
        _place_stamp(record, leg, first.checksums)
    for index, varying in enumerate(first.fields):
        record.rule[index] = _rule(varying, first.checksums)
    record.rules = len(first.fields)
    start = max(first.random_payload[0], record.stamp + stamp.PLAIN_BYTES if record.stamp else 0)
    record.noise = _noise(max(templates, key=lambda template: len(template.data)), start)
    compiled.slots = [_slot(leg, template, record, start) for template in templates]
    compiled.largest_bytes = max(len(template.data) for template in templates)
    compiled.table = _sizes(record, [weight for _, weight in sizes_bytes(leg)])
    record.burst = leg.options.get("burst", 1)
    record.gap = gap(leg.rate_pps, record.burst)
    record.timed = leg.rate_pps is not None
    _pace(compiled, leg)
    return compiled


def _spread(seed: int) -> int:
    """A generator's first state from a small number: splitmix64's step. xorshift must not begin with 0."""
    mixed = (seed + 1) * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    return (mixed ^ mixed >> 27) or 1


def _place_stamp(record: LegRecord, leg: Leg, checksums: tuple[Checksum, ...]) -> None:
    record.stamp = stamp.payload_offset(leg.frame["headers"])
    # The sequence number and the time end an even number of bytes apart: the same weights do for both.
    time = record.stamp + stamp.TIME_OFFSET
    record.stamp_weight[:] = weights(checksums, record.stamp, time, time)


def _rule(varying: VaryingField, checksums: tuple[Checksum, ...]) -> RuleRecord:
    stop = varying.offset_bytes + varying.width_bytes
    window = max(0, stop - WINDOW_BYTES)
    shift = (window + WINDOW_BYTES - stop) * 8 + varying.shift_bits
    random = varying.mode == "random"
    count = varying.values % 2**64 if random else min(varying.values, NEVER)
    step = -varying.step if varying.mode == "decrement" else varying.step
    return RuleRecord(
        first=varying.first % 2**64,
        step=step % 2**64,
        count=count,
        # A counter goes one further before each frame.
        position=0 if random else count - 1,
        mask=((1 << min(varying.width_bits, 64)) - 1) << shift,
        window=window,
        shift=shift,
        mode=RANDOM if random else COUNT,
        weight=_words(weights(checksums, max(varying.offset_bytes, window), stop, window + WINDOW_BYTES)),
    )


def _noise(template: Template, start: int) -> NoiseRecord:
    stop = template.random_payload[1]
    if start >= stop:
        return NoiseRecord()
    return NoiseRecord(start, _words(weights(template.checksums, start, stop, start + WINDOW_BYTES)))


def _slot(leg: Leg, template: Template, record: LegRecord, noise_start: int) -> SlotRecord:
    data = bytearray(template.data)
    if record.stamp:
        data[record.stamp : record.stamp + stamp.PLAIN_BYTES] = stamp.Stamp(leg.id, 0, 0).pack()
    for checksum in mending_order(template.checksums):
        checksum.mend(data)
    stop = template.random_payload[1]
    slot = SlotRecord(len(data), stop, -(-max(0, stop - noise_start) // WINDOW_BYTES))
    slot.bytes[: len(data)] = data
    return slot


def _sizes(record: LegRecord, weight: list[int]) -> list[int]:
    """The rule that draws the size by its weight, and its list of slots."""
    record.sizes = len(weight)
    common = math.gcd(*weight)
    table = [slot for slot, often in enumerate(weight) for _ in range(often // common)] if len(weight) > 1 else []
    record.size = RuleRecord(count=len(table), mode=RANDOM, table=1)
    return table


def _words(values: list[int]) -> ctypes.Array[ctypes.c_uint16]:
    return (ctypes.c_uint16 * MAX_CHECKSUMS)(*values)


def _compile_trace(leg: Leg, trace: Trace) -> CompiledLeg:
    passes = schedule_trace.arrange(leg, trace)
    compiled = CompiledLeg(LegRecord(records=len(passes.records), period_ns=passes.period_ns, timed=passes.timed))
    compiled.trace, compiled.store, compiled.lead_ns = passes.records, passes.store, passes.lead_ns
    compiled.largest_bytes = max(record.frame_bytes for record in passes.records)
    _pace(compiled, leg)
    return compiled


def _pace(compiled: CompiledLeg, leg: Leg) -> None:
    compiled.record.late_ns = LATE_NS
    compiled.record.skip = leg.options.get("late") == "skip"
    count = leg.count_packets
    if count is None and leg.rate_pps is not None and leg.duration_s is not None:
        count = round(leg.rate_pps * leg.duration_s)  # a rate and a duration make a count, so that it is exact
    compiled.record.remaining = NEVER if count is None else count
    compiled.duration_ns = None if leg.duration_s is None else round(leg.duration_s * 1e9)


def gap(rate_pps: float | None, burst: int = 1) -> int:
    """Between the due times of two bursts, in 2**-24 ns; up to 18 minutes."""
    return 0 if rate_pps is None else max(1, round(burst * 1e9 * 2**GAP_FRACTION_BITS / rate_pps))


# --- all legs of an interface --------------------------------------------------------------------------------------


@dataclass
class Schedule:
    """The legs with all their parts one behind another, as the kernel program finds them."""

    legs: list[CompiledLeg]
    slots: list[SlotRecord] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    trace: list[TraceRecord] = field(default_factory=list)
    store: bytearray = field(default_factory=bytearray)

    @property
    def largest_bytes(self) -> int:
        return max(leg.largest_bytes for leg in self.legs)


def compile_schedule(legs: list[Leg], read: Callable[[Leg], Trace]) -> Schedule:
    """`read` gives a trace leg's recording. A leg's number is its seed."""
    traces = {leg.id: read(leg) for leg in legs if leg.kind == "trace"}
    return assemble([compile_leg(leg, leg.id, traces.get(leg.id)) for leg in legs])


def assemble(legs: list[CompiledLeg]) -> Schedule:
    if not 1 <= len(legs) <= MAX_LEGS:
        raise ValueError(f"an interface has 1 to {MAX_LEGS} legs, not {len(legs)}")
    whole = Schedule(legs)
    for leg in legs:
        leg.record.slot = len(whole.slots)
        leg.record.first_record = len(whole.trace)
        for rule in (leg.record.size, *leg.record.rule):
            rule.first += len(whole.table) if rule.table else 0
        whole.slots += leg.slots
        whole.table += leg.table
        schedule_trace.append(whole.trace, whole.store, leg.trace, leg.store)
    return whole


def tournament(due_ns: list[int]) -> tuple[int, list[int]]:
    """(leaves, the leg that each node has). Leaves beyond the last leg stand for legs that are never due."""
    leaves = 1 << (len(due_ns) - 1).bit_length()
    due_ns = due_ns + [NEVER] * (leaves - len(due_ns))
    winner = [0] * leaves + list(range(leaves))
    for node in reversed(range(1, leaves)):
        winner[node] = min(winner[2 * node], winner[2 * node + 1], key=lambda leg: due_ns[leg])
    return leaves, winner
