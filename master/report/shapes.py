"""Packet sizes and inter-arrival times of the captured packets, or without captures of the scheduled ones.

All captured packets are read, but only the first packets of a schedule: a report takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.plan import interactive
from pktswarm.master.results.captures import captures_of
from pktswarm.master.results.document import RunDocument
from pktswarm.master.results.read_document import leg_of
from pktswarm.traffic.capture.index import index_capture
from pktswarm.traffic.errors import PktswarmError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.preview import due_frames
from pktswarm.traffic.preview.due_frames import Counts, Gaps
from pktswarm.traffic.preview.frames import of_sequence, recording
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule import sequence

MOST_CAPTURED_BYTES = 1 << 30
MOST_DUE_PACKETS = 1_000_000
PEAK_NS = 100_000_000
Integers = NDArray[np.int64]


@dataclass
class Shape:
    """The packets that one receiver captured, or that one flow was to send. Sizes with FCS."""

    name: str
    sizes: Counts = field(default_factory=Counts)
    gaps: Gaps = field(default_factory=Gaps)
    peak_packets: int | None = None
    """The maximum in 100 ms, of captured packets."""

    def add(self, time_ns: Integers, size_bytes: Integers) -> None:
        self.sizes.add(size_bytes, size_bytes)
        self.gaps.add(time_ns)

    @property
    def packets(self) -> int:
        return int(self.sizes.packets.sum())

    @property
    def mean_bytes(self) -> float:
        return float(self.sizes.bytes.sum() / self.packets)

    def listed(self) -> list[tuple[int, int]]:
        """(size, packets), ascending."""
        found = np.flatnonzero(self.sizes.packets)
        return list(zip(found.tolist(), self.sizes.packets[found].tolist(), strict=True))


@dataclass
class Shapes:
    """`of`: a description of the packets."""

    of: str
    each: list[Shape]
    left_out: list[str] = field(default_factory=list)


def shapes(folder: Path, document: RunDocument) -> Shapes:
    """Shapes of a complete run: from its captures if they are small enough, else from the due frames."""
    legs = [leg_of(entry) for entry in document["legs"]]
    hosts = dict.fromkeys(leg.target for leg in legs if leg.engine != interactive.ENGINE)
    captured = {host: files for host in hosts if (files := captures_of(folder, host))}
    size_bytes = sum(path.stat().st_size for files in captured.values() for path in files)
    if captured and size_bytes <= MOST_CAPTURED_BYTES:
        return _captured(captured, document)
    found = _due(folder, [leg for leg in legs if leg.kind != "connections"])
    if captured:
        found.left_out.append(
            f"captures of {size_bytes:,} bytes are not read for a page (up to {MOST_CAPTURED_BYTES:,})"
        )
    return found


# --- what was captured -----------------------------------------------------------------------------------------------


def _captured(captured: dict[str, list[Path]], document: RunDocument) -> Shapes:
    receive = document["scenario"].get("receive", {})
    of = "Packets that the receivers captured, by their capture times"
    if (every := receive.get("capture_every", 1)) != 1:
        of += f"; the first of each {every} frames of a flow"
    if receive.get("capture_filter"):
        of += f"; only those that pass the filter {receive['capture_filter']!r}"
    made = Shapes(of, [])
    for host, files in captured.items():
        try:
            shape = _of_captures(host, files)
        except PktswarmError as error:
            made.left_out.append(str(error))
            continue
        if shape.packets:
            made.each.append(shape)
    return made


def _of_captures(host: str, files: list[Path]) -> Shape:
    indexes = [index_capture(path, whole=False) for path in files]
    times = np.concatenate([index.time_ns for index in indexes])
    order = np.argsort(times, kind="stable")
    sizes = np.concatenate([index.wire_bytes for index in indexes]) + FCS_BYTES
    shape = Shape(host)
    shape.add(times[order], sizes[order])
    if len(times):
        shape.peak_packets = int(np.bincount((times - times.min()) // PEAK_NS).max())
    return shape


# --- what was due ----------------------------------------------------------------------------------------------------


def _due(folder: Path, legs: list[Leg]) -> Shapes:
    made = Shapes("Packets to send, by the schedule: nothing was captured", [])
    most = MOST_DUE_PACKETS // max(1, len(legs))
    for leg in legs:
        if why := "it returns received packets" if leg.echo_of is not None else due_frames.untimed(leg):
            made.left_out.append(f"{leg.stream} from {leg.source}: {why}")
            continue
        try:
            shape = _of_leg(folder, leg, most)
        except (PktswarmError, OSError, KeyError, TypeError, ValueError) as error:  # of a version before, or not kept
            made.left_out.append(f"{leg.stream} from {leg.source}: its schedule cannot be made again: {error}")
            continue
        if shape.packets:
            made.each.append(shape)
        if leg.intended_packets is None or shape.packets < leg.intended_packets:
            made.left_out.append(f"{shape.name}: the first {shape.packets:,} packets")
    return made


def _of_leg(folder: Path, leg: Leg, most: int) -> Shape:
    shape = Shape(f"{leg.stream}, {leg.source} → {leg.target}")
    for block in _blocks(folder / "sent", _cut(leg, most)):
        part = slice(max(0, most - shape.packets))
        shape.add(block.time_ns[part], block.size_bytes[part])
        if shape.packets >= most:
            break
    return shape


def _cut(leg: Leg, most: int) -> Leg:
    """The leg with at most `most` packets: due times of a stream are computed together."""
    known = leg.intended_packets is not None and leg.intended_packets <= most
    if known or leg.kind != "stream" or leg.sequence_file is not None:
        return leg
    return replace(leg, count_packets=min(most, leg.count_packets or most))


def _blocks(sent: Path, leg: Leg) -> Iterator[due_frames.Block]:
    if leg.sequence_file is not None:
        return due_frames.blocks(leg, of_sequence(leg, sequence.read_sequence(sent / leg.sequence_file)).rows)
    return due_frames.blocks(leg, recording(leg, sent).rows if leg.kind == "trace" else None)
