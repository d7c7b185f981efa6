"""The offline recount: captured frames compared with sent frames, byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pktswarm.traffic.counting.trace_verify import MIN_WIRE_BYTES, digest


@dataclass(frozen=True)
class Recount:
    """The counts of one leg. `captured` = received + duplicated + altered."""

    sent: int
    captured: int
    received: int
    """Sent frames that were captured, each once."""
    lost: int
    """sent - received; includes altered frames."""
    duplicated: int
    """Captured frames that are as sent, in excess of those sent."""
    altered: int
    """Captured frames that equal no sent frame."""
    reordered: int | None
    """Received frames that arrived after one sent later (RFC 4737, type-P-reordered). None for frames without numbers,
    equal frames, and duplicates."""


def recount_trace(sent: Iterable[bytes], captured: Iterable[bytes], stamped: int | None = None) -> Recount:
    """`sent` in the order of sending (every repeat), `captured` the frames of this leg in the order of capture.
    `stamped`: the stream in their stamps, whose numbers and times are not compared."""
    order = [digest(frame, stamped) for frame in sent]
    arrived = [digest(frame, stamped) for frame in captured]
    expected, seen = Counter(order), Counter(arrived)
    received = sum((expected & seen).values())
    altered = sum(count for name, count in seen.items() if name not in expected)
    return Recount(
        sent=len(order),
        captured=len(arrived),
        received=received,
        lost=len(order) - received,
        duplicated=len(arrived) - received - altered,
        altered=altered,
        reordered=_reordered(order, arrived, expected, seen),
    )


def recount_stream(shapes: Sequence[tuple[bytes, bytes]], sent: int, captured: Iterable[bytes]) -> Recount:
    """Compares frames with the stream's shapes, one for each size: (template, varying mask), with a 1 in the mask for a
    bit that can differ.

    `sent` is the sender's count: frames of a stream are not distinguishable, so only frames in excess of those sent
    count as duplicates.
    """
    known = [_Shape(template, varying_mask) for template, varying_mask in shapes]
    frames = [any(shape.fits(frame) for shape in known) for frame in captured]
    fitting = sum(frames)
    received = min(fitting, sent)
    return Recount(
        sent=sent,
        captured=len(frames),
        received=received,
        lost=sent - received,
        duplicated=fitting - received,
        altered=len(frames) - fitting,
        reordered=None,
    )


class _Shape:
    """The bits that all frames of a stream have in common."""

    def __init__(self, template: bytes, varying_mask: bytes) -> None:
        if len(template) != len(varying_mask):
            raise ValueError(f"a template of {len(template)} bytes with a mask of {len(varying_mask)}")
        self._bytes = len(template)
        self._padded_bytes = max(self._bytes, MIN_WIRE_BYTES)
        self._constant = ~int.from_bytes(varying_mask, "big")
        self._value = int.from_bytes(template, "big") & self._constant

    def fits(self, frame: bytes) -> bool:
        if len(frame) not in (self._bytes, self._padded_bytes):
            return False
        # The padding of a short frame is not part of the stream.
        return int.from_bytes(frame[: self._bytes], "big") & self._constant == self._value


def _reordered(order: list[bytes], arrived: list[bytes], expected: Counter[bytes], seen: Counter[bytes]) -> int | None:
    if any(count > 1 for count in expected.values()) or any(seen[name] > 1 for name in expected):
        return None
    place = {name: index for index, name in enumerate(order)}
    reordered, next_expected = 0, 0
    for index in (place[name] for name in arrived if name in place):
        reordered += index < next_expected
        next_expected = max(next_expected, index + 1)
    return reordered
