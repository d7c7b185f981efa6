"""Due times, sizes and users of a leg's frames without sending them, as arrays in blocks.

They are computed from the rules that the engines execute: due times by traffic.schedule.due_times, sizes and users by
the rules of the frame, with the kernel's random generator for the engine xdp.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.connections.blocks import Blocks
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.values import places
from pktswarm.traffic.leg import MADE_IN_KERNEL, Leg
from pktswarm.traffic.random.xorshift import FrameStates, Words, drawn
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import due_times, leg_frames, pace, pktgen
from pktswarm.traffic.schedule.leg_frames import templates_as_sent

NOBODY = -1
"""User of a frame without a user."""
GAP_BINS_PER_DECADE = 10
GAP_DECADES = 16
"""Decades of the histogram of gaps: from 1 ns to more than a week."""
MOST_BINS = 2**20

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Frames of one leg in their order. `size_bytes` counts the FCS; `user`: the user's position, or NOBODY."""

    time_ns: Integers
    size_bytes: Integers
    user: Integers

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True)
class Rows:
    """Frames that are sent from a list (one pass of a trace, or a sequence), `lead_ns` after the start."""

    due_ns: Integers
    size_bytes: Integers
    user: Integers
    lead_ns: int = 0
    period_ns: int = 0


def untimed(leg: Leg) -> str:
    """Why the due times of the leg's frames are unknown; empty if they are known."""
    if leg.kind == "connections":
        return "the kernel's own stack decides on its packets"
    if leg.engine == "interactive":
        return "each packet goes out when what it acknowledges has come, and that is decided by the device"
    if leg.kind == "trace":
        return "it is sent as fast as the engine can" if leg.timing.mode == "top" else ""
    if leg.sequence_file is not None:
        return ""
    if leg.rate_pps is None and not leg.rates:
        return "it is sent as fast as the engine can"
    return "it has no end" if leg.count_packets is None and leg.duration_s is None else ""


def blocks(leg: Leg, rows: Rows | None = None) -> Iterator[Block]:
    """The frames of a leg with known due times. `rows`: those of a trace or a sequence."""
    if rows is not None:
        yield from _passes(leg, rows)
        return
    marks = KernelMarks(leg) if leg.engine in MADE_IN_KERNEL else Marks(leg)
    for due in due_times.due_blocks(leg):
        if len(due):
            size_bytes, user = marks.take(len(due))
            yield Block(due.astype(np.int64), size_bytes, user)


def _passes(leg: Leg, rows: Rows) -> Iterator[Block]:
    """The passes of a list; short passes share a block."""
    left = leg.count_packets if leg.count_packets is not None else len(rows.due_ns) * leg.repeat
    at_once = max(1, due_times.BLOCK // len(rows.due_ns))
    for first in range(0, leg.repeat, at_once):
        number = min(at_once, leg.repeat - first)
        begin = rows.lead_ns + (first + np.arange(number)) * rows.period_ns
        time = (begin[:, None] + rows.due_ns[None, :]).ravel()
        columns = (time, np.tile(rows.size_bytes, number), np.tile(rows.user, number))
        # Frames due at the end or later are not sent.
        within = slice(None) if leg.duration_s is None else time[:left] < round(leg.duration_s * 1e9)
        yield from _sliced(Block(*(column[:left][within] for column in columns)))
        left -= min(left, len(time))


def _sliced(whole: Block) -> Iterator[Block]:
    for first in range(0, len(whole), due_times.BLOCK):
        part = slice(first, first + due_times.BLOCK)
        yield Block(whole.time_ns[part], whole.size_bytes[part], whole.user[part])


# --- sizes and users -------------------------------------------------------------------------------------------------


def _places(leg: Leg) -> tuple[list[int], tuple[int, ...]]:
    """(sizes with FCS, number of the size at each position of the rule that chooses it)."""
    mix = leg.sizes or leg.options.get("imix_weights", []) if leg.engine == "pktgen" else leg_frames.sizes_bytes(leg)
    mix = mix or [(size, 1) for size in pktgen.sizes_bytes(leg)]
    return [size for size, _ in mix], places([weight for _, weight in mix])


class Marks:
    """Sizes and users of a stream's frames in blocks. Random sizes are an example for their weights."""

    def __init__(self, leg: Leg) -> None:
        self._sizes, self._places = _places(leg)
        self._place_bytes = np.array(self._sizes, dtype=np.int64)[list(self._places)]
        self._in_turn = leg.sizes_in_turn
        self._fields = templates_as_sent(leg)[max(self._sizes)].fields
        self._user_fields = self._find(leg.users.field) if leg.users else []
        self._index = 0
        self._example = np.random.default_rng(pace.seed_of(leg))

    def _find(self, name: str) -> list[int]:
        """The number of the users' field, or of the field that it is linked with."""
        number = next(number for number, field in enumerate(self._fields) if field.name == name)
        chain = [number]
        while (link := self._fields[chain[0]].link) is not None:
            chain.insert(0, link)
        return chain

    def take(self, count: int) -> tuple[Integers, Integers]:
        index = np.arange(self._index, self._index + count, dtype=np.int64)
        self._index += count
        return self._take(index)

    def _take(self, index: Integers) -> tuple[Integers, Integers]:
        if len(self._places) == 1 or self._in_turn:
            return self._place_bytes[index % len(self._places)], self._users(index)
        return self._example.choice(self._place_bytes, len(index)), self._users(index)

    def _users(self, index: Integers, draws: Words | None = None) -> Integers:
        """The user of each frame. `draws`: random numbers of the field that chooses the user."""
        if not self._user_fields:
            return np.full(len(index), NOBODY)
        fields = [self._fields[number] for number in self._user_fields]
        root = fields[0]
        if not root.drawn:
            position = index // root.every % root.values
        elif draws is not None:
            position = (draws % np.uint64(root.values)).astype(np.int64)
        else:
            position = self._example.integers(0, root.values, len(index))
        for field in fields[1:]:
            position %= field.values
        places = fields[-1].places
        return np.array(places, dtype=np.int64)[position] if places else position


class KernelMarks(Marks):
    """The draws of kernel/send_fields.h: for each frame its size, then its fields in their order, then its random
    payload."""

    def __init__(self, leg: Leg) -> None:
        super().__init__(leg)
        compiled = schedule.compile_leg(leg, pace.seed_of(leg))
        self._size_drawn = len(self._sizes) > 1 and not self._in_turn
        fields = self._size_drawn + sum(field.drawn and field.link is None for field in self._fields)
        draws = [fields + slot.noise_windows for slot in compiled.slots]
        self._states = FrameStates(compiled.record.random, draws, self._places, self._in_turn)
        self._user_draw = self._draw_of_users()
        self._needed = self._size_drawn or self._user_draw is not None

    def _draw_of_users(self) -> int | None:
        if not self._user_fields or not self._fields[self._user_fields[0]].drawn:
            return None
        before = self._fields[: self._user_fields[0]]
        return self._size_drawn + sum(field.drawn and field.link is None for field in before)

    def _take(self, index: Integers) -> tuple[Integers, Integers]:
        if not self._needed:
            return super()._take(index)
        states = self._states.take(len(index))
        users = self._users(index, None if self._user_draw is None else drawn(states, self._user_draw))
        if not self._size_drawn:
            return self._place_bytes[index % len(self._places)], users
        return self._place_bytes[(drawn(states, 0) % np.uint64(len(self._places))).astype(np.int64)], users


# --- statistics ------------------------------------------------------------------------------------------------------


class Gaps:
    """Statistics of the inter-departure times of frames, added block by block."""

    def __init__(self) -> None:
        self.count = self.zero = self.largest_ns = 0
        self.least_ns: int | None = None
        self.first_ns: int | None = None
        self.last_ns = 0
        self._squares = 0.0
        self.histogram = np.zeros(GAP_DECADES * GAP_BINS_PER_DECADE, dtype=np.int64)
        """Histogram of the gaps above 0, with ten bins per decade from 1 ns."""

    def add(self, time_ns: Integers) -> None:
        if not len(time_ns):
            return
        before = time_ns[0] if self.first_ns is None else self.last_ns
        gaps = np.diff(time_ns, prepend=before)[self.first_ns is None :]
        self.first_ns = int(time_ns[0]) if self.first_ns is None else self.first_ns
        self.last_ns = int(time_ns[-1])
        if len(gaps):
            self._add(gaps)

    def _add(self, gaps: Integers) -> None:
        least, positive = int(gaps.min()), gaps[gaps > 0]
        self.least_ns = least if self.least_ns is None else min(self.least_ns, least)
        self.largest_ns = max(self.largest_ns, int(gaps.max()))
        self.count, self.zero = self.count + len(gaps), self.zero + len(gaps) - len(positive)
        self._squares += float(np.square(gaps, dtype=np.float64).sum())
        place = (np.log10(positive) * GAP_BINS_PER_DECADE).astype(np.int64)
        self.histogram += np.bincount(place, minlength=len(self.histogram))

    @property
    def span_ns(self) -> int:
        return 0 if self.first_ns is None else self.last_ns - self.first_ns

    @property
    def mean_ns(self) -> float | None:
        return self.span_ns / self.count if self.count else None

    @property
    def variation(self) -> float | None:
        """Coefficient of variation: standard deviation ÷ mean; None for a mean of 0."""
        mean = self.mean_ns
        return float(np.sqrt(max(0.0, self._squares / self.count - mean**2))) / mean if mean else None

    def edges_ns(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = 10 ** (np.arange(len(self.histogram) + 1) / GAP_BINS_PER_DECADE)
        return found


class Series:
    """Packets and bits (of frames with FCS) in bins of equal width from the start instant."""

    def __init__(self, bin_ns: int) -> None:
        self.bin_ns = bin_ns
        self.packets = np.zeros(0, dtype=np.int64)
        self.bits = np.zeros(0, dtype=np.int64)

    def add(self, time_ns: Integers, size_bytes: Integers) -> None:
        """Adds frames. BadInput for too many bins."""
        if not len(time_ns):
            return
        place = time_ns // self.bin_ns
        first, last = int(place.min()), int(place.max())
        if last >= MOST_BINS:
            seconds, allowed = self.bin_ns / 1e9, f"{(last + 1) * self.bin_ns / 1e9 / MOST_BINS:.3g} or more"
            raise BadInput(
                "preview", f"makes more than {MOST_BINS:,} bins", key="--bin", value=seconds, allowed=allowed
            )
        self._grow(last + 1)
        inside = slice(first, last + 1)
        self.packets[inside] += np.bincount(place - first)
        # Sums of a block are far below 2**53: floating point is exact.
        self.bits[inside] += np.bincount(place - first, weights=size_bytes).astype(np.int64) * 8

    def add_all(self, others: Iterable[Series]) -> None:
        """Adds another series with the same bin width."""
        for other in others:
            self._grow(len(other.packets))
            self.packets[: len(other.packets)] += other.packets
            self.bits[: len(other.bits)] += other.bits

    def _grow(self, bins: int) -> None:
        if (more := bins - len(self.packets)) > 0:
            self.packets, self.bits = np.pad(self.packets, (0, more)), np.pad(self.bits, (0, more))


class Counts:
    """Packets and bytes (with FCS) by a small integer: a size or a user."""

    def __init__(self) -> None:
        self.packets = np.zeros(0, dtype=np.int64)
        self.bytes = np.zeros(0, dtype=np.int64)

    def add(self, key: Integers, size_bytes: Integers) -> None:
        if not len(key):
            return
        if (more := int(key.max()) + 1 - len(self.packets)) > 0:
            self.packets, self.bytes = np.pad(self.packets, (0, more)), np.pad(self.bytes, (0, more))
        self.packets += np.bincount(key, minlength=len(self.packets))
        self.bytes += np.bincount(key, weights=size_bytes, minlength=len(self.bytes)).astype(np.int64)


@dataclass
class Share:
    """The statistics of one leg."""

    leg: Leg
    packets: int
    bytes: int
    """Bytes with FCS."""
    gaps: Gaps
    users: Counts


def in_order(each: Iterable[Iterator[Block]]) -> Iterator[Integers]:
    """The due times of several legs merged in order, with about a block of each in memory."""
    sources = list(each)
    held: list[Integers] = [np.zeros(0, dtype=np.int64) for _ in sources]
    open_ = set(range(len(sources)))
    while open_ or any(map(len, held)):
        for number in [number for number in open_ if not len(held[number])]:
            block = next(sources[number], None)
            if block is None:
                open_.discard(number)
            else:
                held[number] = block.time_ns
        horizon = min((int(held[number][-1]) for number in open_), default=None)
        cuts = [len(t) if horizon is None else int(np.searchsorted(t, horizon, side="right")) for t in held]
        yield np.sort(np.concatenate([t[:cut] for t, cut in zip(held, cuts, strict=True)]), kind="stable")
        held = [t[cut:] for t, cut in zip(held, cuts, strict=True)]


def due_blocks_of(blocks: Blocks) -> Iterator[tuple[Integers, Integers]]:
    """Due times and bytes of a connection's blocks, for one with a count and due times."""
    for first in range(0, blocks.count or 0, due_times.BLOCK):
        number = np.arange(first, min(blocks.count or 0, first + due_times.BLOCK), dtype=np.int64)
        if blocks.items is None:
            yield number * (blocks.period_ns or 0), np.full(len(number), blocks.block_bytes)
        else:
            rows = [(blocks.due_ns(one), blocks.size(one)) for one in number.tolist()]
            columns = np.array(rows, dtype=np.int64).reshape(-1, 2)
            yield columns[:, 0], columns[:, 1]


def nice_bin_ns(duration_ns: float) -> int:
    """A bin width of 1, 2 or 5 × 10**n ns with 50 to 125 bins."""
    least = max(1.0, duration_ns / 125)
    power = 10 ** math.floor(math.log10(least))
    return int(next(step * power for step in (1, 2, 5, 10) if step * power >= least))
