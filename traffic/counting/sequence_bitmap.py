"""The sequence numbers of a leg that several nodes count, a bit for each: put together they tell what came at all.

Each node has marks of its own (kernel/count.bpf.c), and the master ors them: a number that no node has is lost, one
that two nodes have came twice.
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
"""Of one receiver: 32 MiB, for 268,435,456 numbers."""


def words(leg: Leg) -> int:
    """That hold a bit for each of its numbers, and one word more; 0 for a leg that one node counts. ValueError where
    nobody knows how many there are: what is beyond the marks would count as damaged."""
    if not leg.handover_targets:
        return 0
    if leg.intended_packets is None:
        raise ValueError(f"{leg.stream} is counted at several nodes: its number of packets must be fixed")
    return -(-leg.intended_packets // WORD_BITS) + 1


def places(where: str, legs: Sequence[Leg]) -> dict[int, tuple[int, int]]:
    """Leg id → (its first word, how many), of the legs that have some. BadInput for more than there is room for."""
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
    """`data`: the words as they stand in memory."""
    held = array("Q", data)
    if sys.byteorder == "big":
        held.byteswap()
    return base64.b64encode(zlib.compress(held.tobytes(), 1)).decode()


def unpack(text: str) -> int:
    """Bit n tells whether the number n came."""
    return int.from_bytes(zlib.decompress(base64.b64decode(text)), "little")
