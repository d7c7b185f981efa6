"""Bitmaps of the received sequence numbers of a leg that several nodes count.

Each node has a bitmap (kernel/count.bpf.c), and the master combines them: a number in no bitmap is lost, one in two
bitmaps is a duplicate.
"""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from collections.abc import Sequence

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg

WORD_BITS = 64
MOST_WORDS = 1 << 22
"""Limit of one receiver: 32 MiB, for 268,435,456 numbers."""


def words(leg: Leg) -> int:
    """The number of words for the leg's numbers, plus one; 0 for a leg that one node counts. ValueError for a leg
    without a fixed number of packets: numbers beyond the bitmap would count as damaged."""
    if not leg.handover_targets:
        return 0
    if leg.intended_packets is None:
        raise ValueError(f"{leg.stream} is counted at several nodes: its number of packets must be fixed")
    return -(-leg.intended_packets // WORD_BITS) + 1


def places(where: str, legs: Sequence[Leg]) -> dict[int, tuple[int, int]]:
    """Leg id → (first word, number of words), for legs with a bitmap. BadInput beyond MOST_WORDS."""
    found, first = {}, 0
    for leg in legs:
        if count := words(leg):
            found[leg.id] = first, count
            first += count
    if first > MOST_WORDS:
        problem, allowed = "too many packets in streams with handovers", f"up to {MOST_WORDS * WORD_BITS:,}"
        raise BadInput(where, problem, key="streams", value=first * WORD_BITS, allowed=allowed)
    return found


def pack(data: bytes) -> str:
    """`data`: the words in this machine's byte order."""
    held = array("Q", data)
    if sys.byteorder == "big":
        held.byteswap()
    return base64.b64encode(zlib.compress(held.tobytes(), 1)).decode()


def unpack(text: str) -> int:
    """The bitmap as a number: bit n is set if number n was received."""
    return int.from_bytes(zlib.decompress(base64.b64decode(text)), "little")
