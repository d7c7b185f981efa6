"""A sequence file: due time, user and size of every frame that a source sends.

It has a heading of 8 bytes, then records of 16 bytes, little-endian, in the order of time. The frame itself is the
leg's template: the field `Leg.user_field`, and those linked with it, are at the record's user, lengths follow the size.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.template import Template
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES

MAGIC = b"PKTSEQ1\n"
RECORD = np.dtype([("due_ns", "<u8"), ("user", "<u4"), ("unused", "<u2"), ("frame_bytes", "<u2")])
"""`due_ns` from the start; `user`: a position from 0 within the leg; `frame_bytes` without FCS. Laid out as struct
record of kernel/send.h."""

Records = NDArray[np.void]


def make(due_ns: ArrayLike, user: ArrayLike, size_bytes: ArrayLike) -> Records:
    """Records of frames with these sizes, FCS included, in the order of time."""
    due, size = np.asarray(due_ns), np.asarray(size_bytes)
    records: Records = np.zeros(due.size, RECORD)
    records["due_ns"], records["user"], records["frame_bytes"] = due, user, size - FCS_BYTES
    return records


def pack(records: Records) -> bytes:
    return MAGIC + records.tobytes()


def unpack(data: bytes, where: object) -> Records:
    """Decodes a sequence. BadInput for an invalid one."""
    body = data[len(MAGIC) :]
    if not data.startswith(MAGIC) or len(body) % RECORD.itemsize:
        raise BadInput(where, "not a sequence, or truncated", value=f"{len(data)} bytes")
    records: Records = np.frombuffer(body, RECORD)
    if not records.size:
        raise BadInput(where, "a sequence without frames")
    if np.any(records["due_ns"][1:] < records["due_ns"][:-1]):
        raise BadInput(where, "the records are not in the order of time")
    return records


def read_sequence(path: Path) -> Records:
    """Reads the sequence file of a leg. BadInput for an invalid one."""
    try:
        return unpack(path.read_bytes(), path)
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None


def sizes_bytes(records: Records) -> list[list[int]]:
    """Leg.sizes: the smallest and the largest frame, FCS included, with equal weights."""
    ends = {int(records["frame_bytes"].min()) + FCS_BYTES, int(records["frame_bytes"].max()) + FCS_BYTES}
    return [[size, 1] for size in sorted(ends)]


def frames(leg: Leg, records: Records) -> Iterator[tuple[int, bytes]]:
    """(due time, frame without a stamp) of each record, for engines that send ready frames."""
    templates: dict[int, Template] = {}
    made: dict[tuple[int, int], bytes] = {}
    for due_ns, user, _, frame_bytes in records.tolist():
        if frame_bytes not in templates:
            templates[frame_bytes] = build_frame(leg.frame, frame_bytes + FCS_BYTES)
        if (user, frame_bytes) not in made:
            made[user, frame_bytes] = templates[frame_bytes].at(leg.user_field, user)
        yield due_ns, made[user, frame_bytes]
