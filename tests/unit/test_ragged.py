"""Rows of any length copied at once: each byte where it belongs, and none beside it."""

from __future__ import annotations

import numpy as np
import pytest

from pktswarm.traffic import ragged


@pytest.mark.parametrize("most", [1, 5, 64, 700, 3000])
def test_copies_are_those_of_slices(most: int) -> None:
    draw = np.random.default_rng(most)
    source = draw.integers(0, 256, 200_000, np.uint8)
    size = draw.integers(0, most + 1, 300)
    size[:12] = np.minimum(most, [0, 1, 2, 3, 255, 256, 257, 511, 512, 513, 767, 768])
    at = draw.integers(0, len(source) - size + 1)
    gap = draw.integers(0, 9, 300)
    to = np.cumsum(size + gap) - size
    target = np.full(int(to[-1] + size[-1]), 7, np.uint8)
    expected = target.copy()
    for begin, first, many in zip(to.tolist(), at.tolist(), size.tolist(), strict=True):
        expected[begin : begin + many] = source[first : first + many]
    ragged.copy(target, to, source, at, size)
    assert (target == expected).all()


def test_the_same_bytes_to_many_places() -> None:
    target = np.zeros(30, np.uint8)
    ragged.fill(target, np.array([1, 27]), b"abc")
    assert target.tobytes() == b"\0abc" + bytes(23) + b"abc"


def test_counts_that_numpy_cannot_cast_safely_repeat_too() -> None:
    """Of 64 bits on a processor of 32, as these are for one of 64."""
    counts = np.array([1, 0, 2], np.uint64)
    with pytest.raises(TypeError):
        np.repeat(np.arange(3), counts)
    assert ragged.repeat(np.arange(3), counts).tolist() == [0, 2, 2]
