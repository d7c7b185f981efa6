"""Reads the figures of the counting program from its maps: tallies, users, unmatched frames, fragments, samples."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Sequence

from pktswarm.nodes.receivers.xdp_matching import Matching
from pktswarm.nodes.receivers.xdp_program import NAME, CounterProgram
from pktswarm.traffic.counting import sequence_bitmap, tally, users
from pktswarm.traffic.counting.kernel_structs import (
    FRAGMENTS,
    UNMATCHED_KINDS,
    RawFiltered,
    RawFragments,
    RawHistogram,
    RawPutTogether,
    RawTally,
    RawUnmatched,
    RawUser,
    RawUserRule,
)
from pktswarm.traffic.counting.latency_histogram import HISTOGRAM_BUCKETS
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask

READ_ATTEMPTS = 1000


class Figures:
    """The figures of one loaded program. They can be read at any time until the program is closed."""

    def __init__(self, task: ReceiveTask, matching: Matching, program: CounterProgram) -> None:
        self._task, self._matching, self._program = task, matching, program

    @property
    def timed_every(self) -> int:
        """The receiver times two of so many frames in a row; 1: each."""
        return self._program.timed_every

    def tallies(self) -> dict[int, tally.Tally]:
        """Returns leg id → tally; for a stamped trace, the tally of its frames with a stamp."""
        return {leg.id: self.tally(slot) for slot, leg in enumerate(self._task.legs)}

    def tally(self, slot: int) -> tally.Tally:
        raw = self.raw(slot)
        if slot not in self._matching.expectations:
            return tally.unstamped(raw)
        expectation = self._matching.expectations[slot]
        return tally.stamped(raw, self.buckets(slot) if expectation.timed else None, expectation.bias_ns)

    def raw(self, slot: int) -> RawTally:
        """Returns a consistent tally. Without a lock, repeats a reading that a frame interrupted."""
        for _ in range(READ_ATTEMPTS):
            raw = self._program.tally(slot)
            if not tally.torn(raw, slot in self._matching.expectations):
                return raw
        if not tally.torn(raw, stamped=False):
            return raw  # a lasting contradiction, which the user of the figures reports
        raise EngineError(NAME, f"map tallies, entry {slot}: no consistent reading in {READ_ATTEMPTS} attempts")

    def buckets(self, slot: int) -> Sequence[int]:
        """Returns the histogram of a leg's latencies."""
        histogram = self._program.read(RawHistogram, "histograms", slot)
        return struct.unpack(f"{HISTOGRAM_BUCKETS}Q", bytes(histogram))

    def delays(self, slot: int) -> list[list[int]] | None:
        """Returns [latency in ns, frames] of a leg; None where its frames are not timed."""
        made = self._matching.expectations.get(slot)
        return tally.delays(self.raw(slot), self.buckets(slot), made.bias_ns) if made and made.timed else None

    def sample(self) -> dict[int, dict[str, int | None]]:
        """Returns the counts so far, by leg id."""
        samples = {leg.id: self._so_far(slot) for slot, leg in enumerate(self._task.legs)}
        for slot, unstamped_slot in self._matching.unstamped_slots.items():
            sample, unstamped = samples[self._task.legs[slot].id], self._so_far(unstamped_slot)
            sample |= {name: (sample[name] or 0) + (unstamped[name] or 0) for name in ("packets", "bytes")}
        return samples

    def _so_far(self, slot: int) -> dict[str, int | None]:
        made = self._matching.expectations.get(slot)
        return tally.so_far(self.raw(slot), made is not None, made is not None and bool(made.timed))

    def users(self, leg_id: int) -> dict[str, list[int]] | None:
        """Returns the columns of users.COLUMNS; None for a leg without users. Consistent only after stop()."""
        slot = next(slot for slot, leg in enumerate(self._task.legs) if leg.id == leg_id)
        if (rule := self._matching.user_rules.get(slot)) is None:
            return None
        columns = self._user_columns(rule)
        if slot in self._matching.unstamped_slots:
            # Duplicates are undetectable without a stamp: every such frame counts as distinct.
            unstamped = self._user_columns(self._matching.user_rules[self._matching.unstamped_slots[slot]])
            for name, more in (("packets", "packets"), ("bytes", "bytes"), ("distinct", "packets")):
                columns[name] = [with_ + without for with_, without in zip(columns[name], unstamped[more], strict=True)]
        return columns

    def _user_columns(self, rule: RawUserRule) -> dict[str, list[int]]:
        size = ctypes.sizeof(RawUser)
        with self._program.memory("users") as memory:
            part = memory[rule.base * size : (rule.base + rule.count + 1) * size]
        values = memoryview(part).cast("q").tolist()
        fields = [name for name, _ in RawUser._fields_]
        return {name: values[fields.index(name) :: len(fields)] for name in users.COLUMNS}

    def packed_users(self, leg_id: int) -> dict[str, str] | None:
        columns = self.users(leg_id)
        return None if columns is None else {name: users.pack(column) for name, column in columns.items()}

    def packed_bitmap(self, leg: Leg, distinct: int | None) -> str | None:
        """Returns the bitmap of the sequence numbers received; None for a leg that one node counts alone.

        Raises EngineError when it does not have `distinct` bits set.
        """
        if leg.id not in self._matching.bitmaps:
            return None
        first, count = (8 * words for words in self._matching.bitmaps[leg.id])
        with self._program.memory("marks") as memory:
            data = memory[first : first + count]
        if (marked := int.from_bytes(data, sys.byteorder).bit_count()) != distinct:
            problem = f"{leg.stream}: {marked} sequence numbers in the bitmap, {distinct} distinct packets counted"
            raise EngineError(NAME, problem)
        return sequence_bitmap.pack(data)

    def unmatched(self) -> dict[str, int]:
        """Returns kind → frames that belong to no leg; they went on to the host. "filtered": rejected by the filter."""
        per_cpu = self._program.read_per_cpu(RawUnmatched, "unmatched")
        frames = {kind: sum(raw.packets[index] for raw in per_cpu) for index, kind in enumerate(UNMATCHED_KINDS)}
        if self._task.filter_program:
            frames["filtered"] = sum(raw.packets for raw in self._program.read_per_cpu(RawFiltered, "filtered"))
        return frames

    def last_arrival_ns(self) -> int:
        """Returns the time of the last frame, of whichever leg or none, by the program's clock; 0: there was none.

        Frames that the filter rejected are not in it, nor fragments of packets that are not whole.
        """
        times = [int(self.raw(slot).last_ns) for slot in range(self._matching.slots)]
        times += [int(raw.last_ns) for raw in self._program.read_per_cpu(RawUnmatched, "unmatched")]
        return max(times)

    def misdelivered(self) -> dict[str, int]:
        """Returns leg id → stamped frames of a leg of another receiver, where there are any."""
        with self._program.memory("misdelivered") as memory:
            packets = memoryview(memory[: 8 * self._task.streams]).cast("Q").tolist()
        return {str(leg): number for leg, number in enumerate(packets) if number}

    def fragments(self) -> dict[str, int]:
        """Returns the events of kernel_structs.FRAGMENTS, of the receiver as a whole."""
        per_cpu = self._program.read_per_cpu(RawFragments, "fragment_events")
        return {name: sum(raw.events[index] for raw in per_cpu) for index, name in enumerate(FRAGMENTS)}

    def reassembled(self, slot: int) -> RawPutTogether:
        """Returns a leg's packets that arrived in fragments, and the number of these."""
        return self._program.read(RawPutTogether, "put_together", slot)
