"""16-bit words in network byte order, as they stand in this machine's memory."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Words = NDArray[np.uint16]
ONES = 0xFFFF


def word(value: int) -> int:
    return int.from_bytes(value.to_bytes(2, "big"), sys.byteorder)


def words_of(values: Integers) -> Words:
    """Numbers as words in network byte order in memory."""
    return values.astype(">u2").view(np.uint16)


def values_of(words: Words) -> Integers:
    return words.view(">u2").astype(np.int64)
