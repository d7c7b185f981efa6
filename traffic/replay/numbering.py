"""Numbers for the distinct values of arrays, in the order of their first appearance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
CHUNK = 1 << 16
SLOT_BITS = 16
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 by the golden ratio: the upper bits of a product with it spread well (Knuth, volume 3, section 6.4)."""


class Numbering:
    """Assigns equal numbers to equal values, from 0. Values are of one sortable type (integers, bytes)."""

    def __init__(self) -> None:
        self._sorted: NDArray[np.generic] | None = None
        self._numbers: Integers = np.zeros(0, np.int64)
        self._values: NDArray[np.generic] | None = None
        # A cache of integers, one in each slot: most are found there, without a search.
        self._slots = np.zeros(1 << SLOT_BITS, np.int64)

    @property
    def size(self) -> int:
        return len(self._numbers)

    def of(self, values: NDArray[np.generic]) -> Integers:
        """The number of each value; a new value gets the next one."""
        number = np.empty(len(values), np.int64)
        search = self._by_slot if values.dtype.kind in "iu" else self._by_search
        for at in range(0, len(values), CHUNK):
            number[at : at + CHUNK] = search(values[at : at + CHUNK])
        return number

    def _by_slot(self, values: NDArray[Any]) -> Integers:
        if self._values is None:
            return self._by_search(values)
        slot = ((values.view(np.uint64) * SPREAD) >> np.uint64(64 - SLOT_BITS)).view(np.int64)
        number = self._slots[slot]
        other = np.flatnonzero(self._values[number] != values)
        if len(other):
            number[other] = self._by_search(values[other])
            self._slots[slot[other]] = number[other]
        return number

    def _by_search(self, values: NDArray[Any]) -> Integers:
        at, known = self._find(values)
        if not known.all():
            self._add(values[~known])
            at, _ = self._find(values)
        return self._numbers[at]

    def _find(self, values: NDArray[np.generic]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        if self._sorted is None:
            return np.zeros(len(values), np.intp), np.zeros(len(values), np.bool_)
        at = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        return at, np.asarray(self._sorted[at] == values)

    def _add(self, values: NDArray[np.generic]) -> None:
        new, first = np.unique(values, return_index=True)
        order = np.argsort(first, kind="stable")
        numbers = np.empty(len(new), np.int64)
        numbers[order] = np.arange(self.size, self.size + len(new))
        appeared = new[order]
        self._values = appeared if self._values is None else np.concatenate([self._values, appeared])
        whole = new if self._sorted is None else np.concatenate([self._sorted, new])
        place = np.argsort(whole, kind="stable")
        self._sorted, self._numbers = whole[place], np.concatenate([self._numbers, numbers])[place]

    def values(self) -> NDArray[np.generic]:
        """The values in the order of their numbers."""
        return np.zeros(0, np.int64) if self._values is None else self._values
