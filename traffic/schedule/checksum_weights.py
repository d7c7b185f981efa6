"""Weights of a field in the checksums of its frame: checksums as linear sums modulo 0xffff."""

from __future__ import annotations

from collections.abc import Collection

from pktswarm.traffic.frames.template import Checksum, mending_order
from pktswarm.traffic.schedule.records import MAX_CHECKSUMS


def weights(
    checksums: tuple[Checksum, ...], start: int, stop: int, end: int, pseudo: Collection[Checksum] = ()
) -> list[int]:
    """The growth of each checksum's sum, modulo 0xffff, when the number whose last byte is at `end` - 1 grows by 1.

    The change is within the bytes from `start` to `stop`. A checksum covered by another one counts there too: its field
    shrinks as its sum grows. `pseudo`: checksums whose pseudo header contains the number as well.
    """
    found: dict[Checksum, int] = {}
    for checksum in mending_order(checksums):
        weight = _factor(checksum, start, stop, end) + (checksum in pseudo)
        for inner in found:
            place = inner.offset_bytes
            weight -= found[inner] * _factor(checksum, place, place + 2, place + 2)
        found[checksum] = weight % 0xFFFF
    return [*(found[checksum] for checksum in checksums), *[0] * (MAX_CHECKSUMS - len(checksums))]


def _factor(checksum: Checksum, start: int, stop: int, end: int) -> int:
    """A byte at an odd distance from the start of the sum is the low byte of its 16-bit word."""
    for low, high in checksum.ranges:
        if low <= start and stop <= high:
            return 1 if (end - 1 - low) % 2 else 256
    return 0
