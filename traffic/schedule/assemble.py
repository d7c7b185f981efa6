"""The schedule of one interface, assembled from its compiled legs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import leg_frames
from pktswarm.traffic.schedule.compile import CompiledLeg, compile_leg
from pktswarm.traffic.schedule.pace import seed_of
from pktswarm.traffic.schedule.records import (
    MAX_LEGS,
    MAX_PARTS,
    NEVER,
    AnySlot,
    PartRecord,
    SettingsRecord,
    StepRecord,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pktswarm.traffic.schedule import trace
    from pktswarm.traffic.schedule.sequence import Records


@dataclass
class Schedule:
    """The legs and their parts in the order of the kernel program's maps."""

    legs: list[CompiledLeg]
    slots: list[AnySlot] = field(default_factory=list)
    parts: list[PartRecord] = field(default_factory=list)
    """MAX_PARTS of each slot if any is sent in fragments; else empty."""
    table: list[int] = field(default_factory=list)
    records: list[NDArray[np.void]] = field(default_factory=list)
    """Records of traces and sequences, laid out as TraceRecord; instances share a list."""
    stores: list[tuple[int, trace.Store]] = field(default_factory=list)
    """The frames of traces: (place of the first byte, store)."""
    steps: list[StepRecord] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    users: int = 0
    """Entries of the map of users."""

    @property
    def largest_bytes(self) -> int:
        return max(leg.largest_bytes for leg in self.legs)

    @property
    def is_noisy(self) -> bool:
        """Whether frames have random payload."""
        return any(slot.noise_windows for slot in self.slots)

    def settings(self) -> SettingsRecord:
        """What its legs have; the rest of the program is left out when it is loaded. Without what is not of the
        schedule: clock, batch and interface."""
        legs = [leg.record for leg in self.legs]
        sizes = [leg.size for leg in legs if leg.sizes > 1]
        rules = [rule for leg in legs for rule in leg.rule[: leg.rules]] + sizes
        return SettingsRecord(
            rules=max(leg.rules for leg in legs),
            modes=sum({1 << rule.mode for rule in rules}),
            tables=any(rule.table for rule in rules),
            sizes=bool(sizes),
            noise=self.is_noisy,
            parts=any(leg.in_parts for leg in legs),
            traces=any(leg.records and not leg.sequence_of_records for leg in legs),
            sequences=any(leg.sequence_of_records for leg in legs),
            steps=any(leg.steps for leg in legs),
        )

    @property
    def store_bytes(self) -> int:
        return sum(store.size_bytes for _, store in self.stores)


def compile_schedule(legs: list[Leg], read: trace.Read, read_sequence: Callable[[Leg], Records]) -> Schedule:
    """`read` returns the frames of a trace's file, `read_sequence` the records of a leg with a sequence."""
    traces = _traces(legs, read)
    places = {leg.id: place for place, leg in enumerate(legs)}
    compiled = []
    for leg in legs:
        passes = traces.of(leg) if traces is not None and leg.kind == "trace" else None
        sequence = read_sequence(leg) if leg.sequence_file is not None else None
        compiled.append(compile_leg(leg, seed_of(leg), passes, sequence))
        compiled[-1].record.numbered_with = places[first_of(leg)]
    return assemble(compiled)


def _traces(legs: list[Leg], read: trace.Read) -> trace.Traces | None:
    """None: there are none. NumPy, which traces need, is a tenth of a second of a guard's start."""
    if all(leg.kind != "trace" for leg in legs):
        return None
    from pktswarm.traffic.schedule import trace

    return trace.Traces(read, {leg.trace_file for leg in legs if leg.shift or leg_frames.stamped(leg)})


def first_of(leg: Leg) -> int:
    """The leg whose sequence numbers the leg uses: instances of a stamped trace share theirs."""
    return leg.id if leg.merged_into is None or not leg_frames.stamped(leg) else leg.merged_into


def assemble(legs: list[CompiledLeg]) -> Schedule:
    if not 1 <= len(legs) <= MAX_LEGS:
        raise ValueError(f"an interface has 1 to {MAX_LEGS} legs, not {len(legs)}")
    whole = Schedule(legs)
    for leg in legs:
        leg.record.slot = len(whole.slots)
        leg.record.first_step, leg.record.first_gap = len(whole.steps), len(whole.gaps)
        leg.record.users, whole.users = whole.users, whole.users + len(leg.users)
        for rule in (leg.record.size, *leg.record.rule):
            rule.first += len(whole.table) if rule.table else 0
        whole.slots += leg.slots
        whole.table += leg.table
        whole.steps += leg.steps
        whole.gaps += leg.gaps
    if any(leg.record.in_parts for leg in legs):
        each = [parts for leg in legs for parts in leg.parts]
        whole.parts = [part for one in each for part in [*one, *[PartRecord()] * (MAX_PARTS - len(one))]]
    _place_records(whole)
    return whole


def _place_records(whole: Schedule) -> None:
    """Places lists of records one behind another, and each store of frames in a new chunk."""
    first_record: dict[int, int] = {}
    first_byte: dict[int, int] = {}
    for leg in whole.legs:
        records = leg.passes.records if leg.passes is not None else leg.sequence
        if records is None:
            continue
        if id(records) not in first_record:
            first_record[id(records)] = sum(map(len, whole.records))
            whole.records.append(records)
            if leg.passes is not None:
                store = leg.passes.store
                if id(store) not in first_byte:
                    first_byte[id(store)] = whole.store_bytes
                    whole.stores.append((whole.store_bytes, store))
                records["place"] += first_byte[id(store)]
        leg.record.first_record = first_record[id(records)]


def tournament(due_ns: list[int]) -> tuple[int, list[int]]:
    """(leaves, the winning leg of each node). Leaves beyond the last leg are never due."""
    leaves = 1 << (len(due_ns) - 1).bit_length()
    due_ns = due_ns + [NEVER] * (leaves - len(due_ns))
    winner = [0] * leaves + list(range(leaves))
    for node in reversed(range(1, leaves)):
        winner[node] = min(winner[2 * node], winner[2 * node + 1], key=lambda leg: due_ns[leg])
    return leaves, winner
