"""A leg compiled for the XDP sender: the rules of a stream, or the records of a trace or sequence.

kernel/send.h defines slots, rules, windows and weights.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.template import Checksum, Template, VaryingField
from pktswarm.traffic.frames.values import places
from pktswarm.traffic.leg import FlowUsers, Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule import leg_frames, sequence_check
from pktswarm.traffic.schedule import pace as schedule_pace
from pktswarm.traffic.schedule.checksum_weights import weights
from pktswarm.traffic.schedule.fragments import Part, parts_of
from pktswarm.traffic.schedule.pace import gap
from pktswarm.traffic.schedule.records import (
    COUNT,
    LINKED,
    MAX_CHECKSUMS,
    NEVER,
    RANDOM,
    USER,
    WINDOW_BYTES,
    AnySlot,
    EditRecord,
    LegRecord,
    NoiseRecord,
    PartRecord,
    RuleRecord,
    StepRecord,
    SumRecord,
    slot_record,
)

if TYPE_CHECKING:
    from pktswarm.traffic.schedule.sequence import Records
    from pktswarm.traffic.schedule.trace import Passes

LATE_NS = 100_000
"""A frame sent this long after its due time counts as late."""
STRETCH_NS, STRETCH_GAPS = 2_000_000, 4
"""A delay from which a schedule is stretched, in gaps at low rates: less is caught up without a burst that matters."""
STRETCHED_SHARE = 0.002
"""The share of its duration by which a schedule is stretched in all where the user does not ask for more."""
GRACE_NS = 1_000_000_000
"""Time after the duration in which a timed leg still sends frames that were due within it."""


@dataclass
class CompiledLeg:
    """Indices (first slot, first record, place in the table) count from the leg's own first."""

    record: LegRecord
    slots: list[AnySlot] = field(default_factory=list)
    """One for each size: the first frame with its checksums, and a stamp without the time."""
    parts: list[list[PartRecord]] = field(default_factory=list)
    """The fragments of each slot; empty for a frame that is sent whole."""
    table: list[int] = field(default_factory=list)
    passes: Passes | None = None
    """A trace's passes."""
    sequence: Records | None = None
    lead_ns: int = 0
    """Due time of the first frame, from the start."""
    duration_ns: int | None = None
    held: bool = False
    """It sends nothing until it is started."""
    largest_bytes: int = 0
    steps: list[StepRecord] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    """The table of random gaps."""
    users: list[int] = field(default_factory=list)
    """The user of Leg.users at each position of the users' rule; empty: users are not counted."""

    def stop_ns(self, start_ns: int) -> int:
        return NEVER if self.duration_ns is None else start_ns + self.duration_ns

    def give_up_ns(self, start_ns: int) -> int:
        grace_ns = GRACE_NS if self.record.timed else 0
        return NEVER if self.duration_ns is None else start_ns + self.duration_ns + grace_ns

    def pass_ns(self, start_ns: int) -> int:
        """Start of the first pass through a trace, a sequence or the steps of a pace."""
        return start_ns if self.steps or self.sequence is not None else start_ns + self.lead_ns

    def step_end_ns(self, start_ns: int) -> int:
        return NEVER if self.record.step_end_ns == NEVER else start_ns + self.record.step_end_ns

    def first_due_ns(self, start_ns: int) -> int:
        return start_ns + self.lead_ns if self.record.remaining else NEVER


def compile_leg(leg: Leg, seed: int, passes: Passes | None = None, sequence: Records | None = None) -> CompiledLeg:
    """Compiles a leg within the limits of xdp_limits. The same seed draws the same random values. `passes`: those of a
    trace; `sequence`: the records of a leg that has a sequence."""
    if leg.kind == "trace":
        if passes is None:
            raise ValueError(f"stream {leg.stream} is a trace")
        return _compile_trace(leg, passes)
    sizes = [size for size, _ in leg_frames.sizes_bytes(leg)]
    if leg.sequence_file is None:
        return compile_stream(leg, [build_frame(leg.frame, size) for size in sizes], seed)
    if sequence is None:
        raise ValueError(f"stream {leg.stream} is a sequence")
    template = build_frame(leg.frame, max(sizes))
    sequence_check.check(leg, sequence, template)
    return _with_records(compile_stream(leg, [template], seed), leg, template, sequence)


def compile_stream(leg: Leg, templates: list[Template], seed: int) -> CompiledLeg:
    """`templates`: one for each of the leg's sizes, in their order."""
    record = LegRecord(random=_spread(seed))
    compiled = CompiledLeg(record)
    first = templates[0]
    _sizes(compiled, leg, len(templates))
    for index, checksum in enumerate(first.checksums):
        record.sum[index] = SumRecord(checksum.offset_bytes, checksum.zero_is_ones)
    record.sums = len(first.checksums)
    if leg_frames.stamped(leg):
        _place_stamp(record, leg, first.checksums)
    for index, varying in enumerate(first.fields):
        record.rule[index] = _rule(varying, first.checksums, compiled.table)
    record.rules = len(first.fields)
    start = max(first.random_payload[0], record.stamp + leg_frames.stamp_bytes(leg) if record.stamp else 0)
    record.noise = _noise(max(templates, key=lambda template: len(template.data)), start)
    compiled.slots = [_slot(leg, template, record, start) for template in templates]
    _cut(compiled, leg, templates)
    compiled.largest_bytes = max(len(template.data) for template in templates)
    if leg.users:
        _count_users(compiled, leg.stream, leg.users, [varying.name for varying in first.fields])
    record.burst = leg.options.get("burst", 1)
    record.gap = gap(leg.rate_pps, record.burst)
    record.timed = leg.rate_pps is not None or bool(leg.rates)
    if schedule_pace.is_paced(leg):
        pace, compiled.lead_ns = schedule_pace.place(record, leg)
        compiled.steps, compiled.gaps = pace.steps, pace.table
    _pace(compiled, leg)
    return compiled


def _with_records(compiled: CompiledLeg, leg: Leg, template: Template, sequence: Records) -> CompiledLeg:
    """Adds the records that set due times, users and sizes; the slot holds the largest frame."""
    record = compiled.record
    for index, varying in enumerate(template.fields):
        if varying.name == leg.user_field:
            record.rule[index].mode, record.rule[index].position = USER, 0
    for rule in sequence_check.size_rules(leg, template.checksums, _words):
        record.rule[record.rules] = rule
        record.rules += 1
    record.records, record.sequence_of_records, record.timed = len(sequence), 1, 1
    compiled.sequence, compiled.lead_ns = sequence, int(sequence["due_ns"][0])
    compiled.duration_ns = None  # its records end it
    return compiled


def _spread(seed: int) -> int:
    """The first state of a generator: a small number mixed as in splitmix64 without its last shift, and never 0, which
    xorshift cannot leave."""
    mixed = (seed + 1) * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    return (mixed ^ mixed >> 27) or 1


def _place_stamp(record: LegRecord, leg: Leg, checksums: tuple[Checksum, ...]) -> None:
    record.stamp = stamp.payload_offset(leg.frame["headers"])
    record.checked = leg_frames.stamp_bytes(leg) == stamp.CHECKED_BYTES
    # Sequence number, time and checksum end at even distances: the same weights apply to all.
    time = record.stamp + stamp.TIME_OFFSET
    record.stamp_weight[:] = weights(checksums, record.stamp, time, time)


def _rule(varying: VaryingField, checksums: tuple[Checksum, ...], table: list[int]) -> RuleRecord:
    """Adds the values to `table` unless the position determines them."""
    stop = varying.offset_bytes + varying.width_bytes
    window = max(0, stop - WINDOW_BYTES)
    shift = (window + WINDOW_BYTES - stop) * 8 + varying.shift_bits
    mode = LINKED if varying.link is not None else RANDOM if varying.drawn else COUNT
    count = varying.values % 2**64 if mode == RANDOM else min(varying.values, NEVER)
    step = -varying.step if varying.mode == "decrement" else varying.step
    listed = [varying.at(position) % 2**64 for position in range(count)] if varying.listed or varying.places else []
    first = len(table) if listed else varying.first % 2**64
    table += listed
    return RuleRecord(
        first=first,
        step=step % 2**64,
        count=count,
        # A counter advances before each frame.
        position=count - 1 if mode == COUNT else 0,
        stay=varying.every - 1 if mode == COUNT else 0,
        mask=((1 << min(varying.width_bits, 64)) - 1) << shift,
        window=window,
        shift=shift,
        mode=mode,
        table=bool(listed),
        link=varying.link or 0,
        weight=_words(weights(checksums, max(varying.offset_bytes, window), stop, window + WINDOW_BYTES)),
    )


def _noise(template: Template, start: int) -> NoiseRecord:
    stop = template.random_payload[1]
    if start >= stop:
        return NoiseRecord()
    return NoiseRecord(start, _words(weights(template.checksums, start, stop, start + WINDOW_BYTES)))


def _slot(leg: Leg, template: Template, record: LegRecord, noise_start: int) -> AnySlot:
    data = bytearray(template.data)
    if record.stamp:
        behind = data[record.stamp + stamp.CHECKED_BYTES :]
        first = stamp.Stamp(leg.id, 0, 0, stamp.payload_sum(bytes(behind)) if record.checked else None).pack()
        data[record.stamp : record.stamp + len(first)] = first
    template.mend(data)
    stop = template.random_payload[1]
    slot = slot_record(leg.engine)(len(data), stop, -(-max(0, stop - noise_start) // WINDOW_BYTES))
    slot.bytes[: len(data)] = data
    return slot


def _cut(compiled: CompiledLeg, leg: Leg, templates: list[Template]) -> None:
    """Adds the fragments of frames longer than the MTU."""
    compiled.parts = [list(map(_part, parts_of(leg, len(one.data) + FCS_BYTES))) for one in templates]
    compiled.record.in_parts = any(compiled.parts)
    for slot, parts in zip(compiled.slots, compiled.parts, strict=True):
        slot.parts = len(parts)


def _part(part: Part) -> PartRecord:
    record = PartRecord(part.head_bytes, part.start, part.stop - part.start, len(part.edits))
    for index, one in enumerate(part.edits):
        value = int.from_bytes(one.value.to_bytes(2, "big"), sys.byteorder)
        record.edit[index] = EditRecord(one.at, value, one.kind)
    return record


def _sizes(compiled: CompiledLeg, leg: Leg, templates: int) -> None:
    """Adds the rule that chooses the size, by weight or in turn, and its list of slots."""
    sizes = leg_frames.sizes_bytes(leg)
    compiled.record.sizes = templates
    if templates > 1:
        compiled.table += places([weight for _, weight in sizes])
    count = len(compiled.table)
    mode, position = (COUNT, max(0, count - 1)) if leg.sizes_in_turn else (RANDOM, 0)
    compiled.record.size = RuleRecord(count=count, mode=mode, position=position, table=1)


def _count_users(compiled: CompiledLeg, stream: str, counted: FlowUsers, fields: list[str]) -> None:
    """Adds the user of each position. BadInput for a value that belongs to no user."""
    import numpy as np  # for a million users; a leg without any does without it

    number = fields.index(counted.field)
    rule = compiled.record.rule[number]
    positions = np.arange(rule.count, dtype=np.uint64)
    if rule.table:
        values = np.array(compiled.table, dtype=np.uint64)[int(rule.first) + positions.astype(np.int64)]
    else:
        values = np.uint64(rule.first) + positions * np.uint64(rule.step)
    # Modulo 2^64, so that differences keep their sign.
    above = np.subtract(values, np.uint64(counted.first % 2**64))
    users, rest = np.divmod(above.astype(np.int64), counted.step)
    odd = np.flatnonzero((rest != 0) | (users < 0) | (users >= counted.count))
    if odd.size:
        problem, value = f"{fields[number]} takes a value that belongs to no user", int(values[odd[0]])
        raise BadInput(stream, problem, key="users", value=value)
    compiled.record.user_rule = number + 1
    compiled.users = users.tolist()


def _words(values: list[int]) -> ctypes.Array[ctypes.c_uint16]:
    return (ctypes.c_uint16 * MAX_CHECKSUMS)(*values)


def _compile_trace(leg: Leg, passes: Passes) -> CompiledLeg:
    record = LegRecord(records=len(passes.records), period_ns=passes.period_ns, timed=passes.timed)
    add = leg.shift
    record.shifted = bool(leg.shift)
    record.add_address[:] = add.user % 2**32, add.server % 2**32
    record.add_port, record.add_teid = add.port % 2**16, add.teid % 2**32
    compiled = CompiledLeg(record, passes=passes, lead_ns=leg.timing.lead_ns)
    compiled.largest_bytes = int(passes.records["frame_bytes"].max())
    if leg_frames.stamped(leg):
        record.stamp, record.user_rule, compiled.users = 1, 1, [0, 1]
    _pace(compiled, leg)
    return compiled


def _when_late(record: LegRecord, leg: Leg, steady_ns: float | None) -> None:
    """Sets what is done about a delay. `steady_ns`: duration of a leg with one rate; None: another leg, or no end."""
    late = leg.options.get("late")
    record.skip = late == "skip"
    record.stretch_ns = record.most_stretched_ns = NEVER
    if late is None and steady_ns is not None:
        record.most_stretched_ns = round(STRETCHED_SHARE * steady_ns)
    elif late != "stretch":
        return
    gap_ns = 1e9 * leg.options.get("burst", 1) / leg.rate_pps if leg.rate_pps else 0.0
    record.stretch_ns = max(STRETCH_NS, round(STRETCH_GAPS * gap_ns))


def _pace(compiled: CompiledLeg, leg: Leg) -> None:
    compiled.record.late_ns = LATE_NS
    count = leg.count_packets
    steady_pps = None if compiled.steps else leg.rate_pps
    if count is None and steady_pps is not None and leg.duration_s is not None:
        count = round(steady_pps * leg.duration_s)  # a rate and a duration make a count, so that it is exact
    compiled.record.remaining = NEVER if count is None else count
    steady_ns = None
    if steady_pps is not None and count is not None and leg.kind != "trace" and leg.sequence_file is None:
        steady_ns = 1e9 * count / steady_pps
    _when_late(compiled.record, leg, steady_ns)
    compiled.held = leg.held
    compiled.duration_ns = None if leg.duration_s is None else round(leg.duration_s * 1e9)
