"""The addresses between which the frames of a trace go, as a router sees them: those of the outermost IP header."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.frames.address_set import AddressSet, Range
from pktswarm.traffic.leg import Shift
from pktswarm.traffic.replay.frames import Frames, Integers

IP_AT = 14
"""Offset of the outermost IP header of an untagged frame."""
SERVER_BITS = {"source": 1, "target": 2}
"""Flags in Frames.ends."""
PLACES = {"source": (12, 8), "target": (16, 24)}
"""Offset of an address in an IPv4 and in an IPv6 header."""
LOW = 1 << 32


@dataclass(frozen=True)
class Ends:
    sources: AddressSet = field(default_factory=AddressSet)
    targets: AddressSet = field(default_factory=AddressSet)


def ends_of(frames: Frames, shifts: Iterable[Shift]) -> Ends:
    """The ends of frames without VLAN tags in all instances; `shifts` are those of the instances."""
    known = list(shifts)
    return Ends(_side(frames, "source", known), _side(frames, "target", known))


def _side(frames: Frames, side: str, shifts: list[Shift]) -> AddressSet:
    version = frames.store[frames.place + IP_AT] >> 4
    is_server = (frames.ends & SERVER_BITS[side]) > 0
    # Behind another IP header, as in a tunnel, are the addresses that instances change.
    changes = frames.ip_at == IP_AT
    found: list[Range] = []
    for number, place, size in ((4, PLACES[side][0], 4), (6, PLACES[side][1], 16)):
        rows = np.flatnonzero(version == number)
        if not len(rows):
            continue
        at = frames.place[rows] + IP_AT + place
        data = frames.store[at[:, None] + np.arange(size)[None, :]]
        for of_server, shifted in ((False, False), (False, True), (True, False), (True, True)):
            some = data[(is_server[rows] == of_server) & (changes[rows] == shifted)]
            steps = [(shift.server if of_server else shift.user) if shifted else 0 for shift in shifts]
            found += _ranges(number, some, steps)
    return AddressSet(found)


def _ranges(version: int, addresses: NDArray[np.uint8], steps: list[int]) -> list[Range]:
    """Ranges of addresses, rows of bytes, with each step added to their last 32 bits."""
    found: list[Range] = []
    for high in np.unique(addresses[:, :-4], axis=0) if version == 6 else [addresses[:0, :-4]]:
        some = addresses if version == 4 else addresses[(addresses[:, :-4] == high).all(axis=1)]
        low = some[:, -4:].copy().view(">u4").ravel().astype(np.int64)
        base = int.from_bytes(high.tobytes(), "big") << 32
        for step in dict.fromkeys(steps):
            found += [(version, base | first, base | last) for first, last in _runs((low + step) % LOW)]
    return found


def _runs(values: Integers) -> list[tuple[int, int]]:
    values = np.unique(values)
    if not len(values):
        return []
    breaks = np.flatnonzero(np.diff(values) != 1)
    firsts, lasts = values[np.r_[0, breaks + 1]], values[np.r_[breaks, len(values) - 1]]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
