"""The places of the records of a pcap file, a chain in which the length of a record gives the place of the next.

Many walkers follow it at once, in NumPy, each from a place that has the form of a record. A walker's records count only
if the walker before it arrives exactly at its beginning; otherwise that walker continues in its part. The result is
that of a single walker from the first record on.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.ragged import anywhere

Integers = NDArray[np.int64]
Data = bytes | mmap.mmap
HEADER_BYTES = 16
FRACTION, CAPTURED, WIRE = 1, 2, 3
WALKER_BYTES, MOST_WALKERS = 1 << 16, 512
"""Minimum part of the file for a walker."""
WINDOW_BYTES = 2048
"""Range in which a walker searches for its beginning."""
LIKELY_BYTES = 14, 1 << 18
NS_PER_S = 1_000_000_000
HOPS = 3


@dataclass(frozen=True)
class Chain:
    at: Integers
    """The places of the records whose header is whole."""
    header: NDArray[np.uint32]
    """(records, 4): seconds, their fraction, bytes captured, bytes on the wire."""
    end: int
    """The place behind the last record."""


def walk(data: Data, order: str, first: int) -> Chain:
    """`order`: "<" or ">"."""
    walkers = _Walkers(data, order)
    return walkers.follow(np.append(first, walkers.likely_beginnings(first)))


@dataclass
class _Found:
    """The results of the walkers, step by step."""

    walker: list[Integers] = field(default_factory=list)
    at: list[Integers] = field(default_factory=list)
    header: list[NDArray[np.void]] = field(default_factory=list)

    def in_order(self, keep: NDArray[np.bool_], kind: str) -> tuple[Integers, NDArray[np.uint32]]:
        """The records of the walkers to keep."""
        if not self.at:
            return np.zeros(0, np.int64), np.zeros((0, 4), np.uint32)
        walker = np.concatenate(self.walker)
        # Each walker's places ascend, and so do walkers; NumPy sorts 16-bit numbers by radix.
        order = np.argsort(walker.astype(np.uint16), kind="stable")
        order = order[keep[walker[order]]]
        header = np.concatenate(self.header)[order].view(kind).reshape(-1, 4)
        return np.concatenate(self.at)[order], header


class _Walkers:
    def __init__(self, data: Data, order: str) -> None:
        self._end = len(data)
        self._bytes = np.frombuffer(data, np.uint8)
        self._headers = anywhere(data, f"V{HEADER_BYTES}")
        self._kind = f"{order}u4"

    def _read(self, at: Integers) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
        header = self._headers[at]
        return header, header.view(self._kind).reshape(-1, 4)

    def follow(self, begins: Integers) -> Chain:
        found, keep = _Found(), np.ones(len(begins), np.bool_)
        at = begins.copy()
        while True:
            mine = np.flatnonzero(keep)
            limit = np.append(begins[mine[1:]], self._end - HEADER_BYTES + 1)
            at[mine] = self._run(mine, at[mine], limit, found)
            # A walker that arrived elsewhere replaces the one ahead of it.
            invalid_sequence = mine[1:][at[mine[:-1]] != begins[mine[1:]]]
            if not len(invalid_sequence):
                return Chain(*found.in_order(keep, self._kind), int(at[mine[-1]]))
            keep[invalid_sequence] = False

    def _run(self, walker: Integers, at: Integers, limit: Integers, found: _Found) -> Integers:
        """The place of each walker at its limit, or beyond."""
        stop = at.copy()
        row = np.flatnonzero(at < limit)
        here, limit = at[row], limit[row]
        while len(row):
            header, words = self._read(here)
            found.walker.append(walker[row])
            found.at.append(here)
            found.header.append(header)
            here = here + HEADER_BYTES + words[:, CAPTURED]
            on = here < limit
            if not on.all():
                stop[row[~on]] = here[~on]
                row, here, limit = row[on], here[on], limit[on]
        return stop

    def likely_beginnings(self, first: int) -> Integers:
        """At most one beginning in each part of the file but the first."""
        parts = min(MOST_WALKERS, (self._end - first) // WALKER_BYTES)
        if parts < 2:
            return np.zeros(0, np.int64)
        begin = first + np.arange(1, parts) * ((self._end - first) // parts)
        begin = begin[begin + WINDOW_BYTES + HEADER_BYTES <= self._end]
        window = self._bytes[begin[:, None] + np.arange(WINDOW_BYTES + HEADER_BYTES)]
        shape = len(begin), WINDOW_BYTES + HEADER_BYTES - 3
        words = np.ndarray(shape, self._kind, window.data, strides=(window.shape[1], 1))
        row, place = np.nonzero(_likely(*(words[:, 4 * n : 4 * n + WINDOW_BYTES] for n in (FRACTION, CAPTURED, WIRE))))
        at = begin[row] + place
        row, at = self._chained(row, at)
        return at[np.unique(row, return_index=True)[1]]

    def _chained(self, row: Integers, at: Integers) -> tuple[Integers, Integers]:
        """The places that are followed by records of the same form."""
        then = at
        for _ in range(HOPS):
            then = then + HEADER_BYTES + self._read(then)[1][:, CAPTURED]
            inside = then <= self._end - HEADER_BYTES
            row, at, then = row[inside], at[inside], then[inside]
            likely = _likely(*self._read(then)[1].T[FRACTION:])
            row, at, then = row[likely], at[likely], then[likely]
        return row, at


def _likely(fraction: NDArray[np.uint32], captured: NDArray[np.uint32], wire: NDArray[np.uint32]) -> NDArray[np.bool_]:
    least, most = LIKELY_BYTES
    return np.asarray((captured >= least) & (wire < most) & (captured <= wire) & (fraction < NS_PER_S))
