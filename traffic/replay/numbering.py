"""Small numbers for large values, in the order of their first appearance: what a dictionary does, for arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
CHUNK = 1 << 16


class Numbering:
    """Equal values get equal numbers, the first one 0. Values are of one type that sorts (integers, bytes)."""

    def __init__(self) -> None:
        self._sorted: NDArray[np.generic] | None = None
        self._numbers: Integers = np.zeros(0, np.int64)

    @property
    def size(self) -> int:
        return len(self._numbers)

    def of(self, values: NDArray[np.generic]) -> Integers:
        """The number of each value; a value never seen gets the next one."""
        parts = [self._chunk(values[at : at + CHUNK]) for at in range(0, len(values), CHUNK)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _chunk(self, values: NDArray[np.generic]) -> Integers:
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
        whole = new if self._sorted is None else np.concatenate([self._sorted, new])
        place = np.argsort(whole, kind="stable")
        self._sorted, self._numbers = whole[place], np.concatenate([self._numbers, numbers])[place]

    def values(self) -> NDArray[np.generic]:
        """The values in the order of their numbers."""
        if self._sorted is None:
            return np.zeros(0, np.int64)
        return self._sorted[np.argsort(self._numbers)]
