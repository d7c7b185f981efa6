"""Rows of bytes of any length, copied from anywhere to anywhere: what NumPy has no function for."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
BLOCK_BYTES = 256


def copy(target: Bytes, to: Integers, source: Bytes, at: Integers, size: Integers) -> None:
    """Row n: `size` bytes from place `at` of the source to place `to` of the target. Rows of the target lie apart.
    Best for some thousand rows at a time, which stay in a processor's cache."""
    _copy_blocks(target, to, source, at, size)
    width = BLOCK_BYTES
    while width:
        # What is left of a long row, and a row of up to twice the width, has that many bytes up to its end too.
        some = np.flatnonzero((size >= width) & ((size < 2 * width) | (width == BLOCK_BYTES)))
        if len(some):
            rest = size[some] - width
            if width < BLOCK_BYTES:
                _copy_pieces(target, to[some], source, at[some], width)
            _copy_pieces(target, to[some] + rest, source, at[some] + rest, width)
        width //= 2


def _copy_blocks(target: Bytes, to: Integers, source: Bytes, at: Integers, size: Integers) -> None:
    """The whole blocks of each row."""
    blocks = size // BLOCK_BYTES
    row = np.repeat(np.arange(len(size)), blocks)
    begin = (np.arange(len(row)) - (np.cumsum(blocks) - blocks)[row]) * BLOCK_BYTES
    if len(row):
        _copy_pieces(target, to[row] + begin, source, at[row] + begin, BLOCK_BYTES)


def fill(target: Bytes, to: Integers, data: bytes) -> None:
    """The same bytes to many places."""
    anywhere(target, f"V{len(data)}")[to] = np.void(data)


def _copy_pieces(target: Bytes, to: Integers, source: Bytes, at: Integers, width: int) -> None:
    kind = f"V{width}"
    anywhere(target, kind)[to] = anywhere(source, kind)[at]


def anywhere(data: Bytes | bytes | mmap.mmap, kind: str) -> NDArray[Any]:
    """What of this kind begins at each byte: a view that steps by one byte, which NumPy reads and writes unaligned."""
    return np.ndarray((max(0, len(data) - np.dtype(kind).itemsize + 1),), kind, data, strides=(1,))
