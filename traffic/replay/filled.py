"""Packets that a snap length cut, with zeros in place of what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pktswarm.traffic import ragged
from pktswarm.traffic.capture.index import CaptureIndex
from pktswarm.traffic.errors import BadInput

MOST_BYTES = 4 << 30
"""The most for all packets that were cut: more is a file made to fill the memory."""
CHUNK = 1 << 13
"""Packets copied at a time."""
SLACK_BYTES = 64


def filled(path: Path, index: CaptureIndex) -> tuple[CaptureIndex, list[str]]:
    """Returns the index with all bytes of each packet in its data, and a note if some were missing.

    `captured_bytes` stays what was recorded.
    """
    cut = np.flatnonzero(index.captured_bytes < index.wire_bytes)
    if not len(cut):
        return index, []
    size, source = index.wire_bytes[cut], np.frombuffer(index.data, np.uint8)
    total = int(size.sum())
    if total > MOST_BYTES:
        problem = "the packets that were cut when they were recorded are too long together to be filled with zeros"
        raise BadInput(path, problem, value=f"{total} bytes", allowed=f"up to {MOST_BYTES}")
    place = np.cumsum(size) - size
    store = np.zeros(total + SLACK_BYTES, np.uint8)
    for first in range(0, len(cut), CHUNK):
        some = slice(first, first + CHUNK)
        rows = cut[some]
        ragged.copy(store, place[some], source, index.start[rows], index.captured_bytes[rows])
    start = index.start.copy()
    start[cut] = len(source) + place
    note = f"{len(cut)} packets were cut when they were recorded: zeros stand for what is missing of them"
    return replace(index, data=index.data[:] + store.tobytes(), start=start), [note]
