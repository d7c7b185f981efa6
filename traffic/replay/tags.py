"""The VLAN tags of a trace's packets, as far as Linux takes them out of received frames."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.frames.layout import TAG_TYPES
from pktswarm.traffic.replay.parse import ETHERNET_BYTES, Columns, Reader

MACS_BYTES = 12


def outer_tags(columns: Columns, rows: NDArray[np.int64]) -> tuple[tuple[int, int] | None, ...]:
    """The outermost tags (TPID, TCI) of these packets, each once; None, in front, for those without."""
    tagged = columns.l3[rows] > ETHERNET_BYTES
    words = np.unique(Reader(columns.data).of(4, columns.start[rows][tagged] + MACS_BYTES)).tolist()
    tags = [(word >> 16, word & 0xFFFF) for word in words if word >> 16 in TAG_TYPES]
    untagged = not tagged.all() or len(tags) < len(words)
    return (*([None] if untagged else []), *tags)
