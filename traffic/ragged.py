"""Copies of byte rows of different lengths between NumPy arrays."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
BLOCK_BYTES = 256


def copy(target: Bytes, to: Integers, source: Bytes, at: Integers, size: Integers) -> None:
    """Copies rows: `size` bytes from `at` in the source to `to` in the target. Target rows must not overlap. It is
    fastest with some thousand rows, which fit into a processor's cache."""
    _copy_blocks(target, to, source, at, size)
    width = BLOCK_BYTES
    while width:
        # The rest of a long row, and a row of up to twice the width, has at least `width` bytes up to its end.
        some = np.flatnonzero((size >= width) & ((size < 2 * width) | (width == BLOCK_BYTES)))
        if len(some):
            rest = size[some] - width
            if width < BLOCK_BYTES:
                _copy_pieces(target, to[some], source, at[some], width)
            _copy_pieces(target, to[some] + rest, source, at[some] + rest, width)
        width //= 2


def _copy_blocks(target: Bytes, to: Integers, source: Bytes, at: Integers, size: Integers) -> None:
    """Copies the whole blocks of each row."""
    blocks = size // BLOCK_BYTES
    row = repeat(np.arange(len(size)), blocks)
    begin = (np.arange(len(row)) - (np.cumsum(blocks) - blocks)[row]) * BLOCK_BYTES
    if len(row):
        _copy_pieces(target, to[row] + begin, source, at[row] + begin, BLOCK_BYTES)


def repeat(values: NDArray[Any], counts: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """np.repeat with counts of 64 bits, which it refuses where an address has 32."""
    return np.repeat(values, counts.astype(np.intp, copy=False))


def fill(target: Bytes, to: Integers, data: bytes) -> None:
    """Writes the same bytes at many places."""
    anywhere(target, f"V{len(data)}")[to] = np.void(data)


def _copy_pieces(target: Bytes, to: Integers, source: Bytes, at: Integers, width: int) -> None:
    kind = f"V{width}"
    anywhere(target, kind)[to] = anywhere(source, kind)[at]


def anywhere(data: Bytes | bytes | mmap.mmap, kind: str) -> NDArray[Any]:
    """A view with an unaligned element of dtype `kind` at each byte."""
    return np.ndarray((max(0, len(data) - np.dtype(kind).itemsize + 1),), kind, data, strides=(1,))
