"""The files of a trace for a node: its frames as pcap, and a row for each with the fields that instances change.

A frame without payload is stored as one that the snap length cut; the rest of it is zeros.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic import ragged
from pktswarm.traffic.capture.constants import (
    LINKTYPE_ETHERNET,
    NS_PER_S,
    PCAP_HEADER_BYTES,
    PCAP_MAGIC_NS,
    SNAPLEN_BYTES,
)
from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.capture.index import CaptureIndex, index_capture
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.dissect import VLAN_TYPES
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.replay import oversize, timing
from pktswarm.traffic.replay import shift as shifting
from pktswarm.traffic.replay.frames import ALIGN_BYTES, CHUNK_PACKETS, Frames

RECORD_HEADER_BYTES = 16
ROW = np.dtype(
    [
        ("ip_at", "<u2"),
        ("l4_at", "<u2"),
        ("sum_at", "<u2"),
        ("teid_at", "<u2"),
        ("down", "<u2"),
        ("ends", "<u2"),
        ("flow", "<u4"),
        ("number", "<u4"),
        ("stamp_at", "<u2"),
    ]
)


def pcap_bytes(frames: Frames) -> bytearray:
    """The frames as a pcap file with nanosecond times, little-endian, Ethernet."""
    header = np.array([PCAP_MAGIC_NS, 2 | 4 << 16, 0, 0, SNAPLEN_BYTES, LINKTYPE_ETHERNET], "<u4").tobytes()
    out = bytearray(PCAP_HEADER_BYTES + RECORD_HEADER_BYTES * len(frames) + int(frames.stored.sum()))
    out[:PCAP_HEADER_BYTES] = header
    target = np.frombuffer(out, np.uint8)
    stop = PCAP_HEADER_BYTES + np.cumsum(RECORD_HEADER_BYTES + frames.stored)
    for first in range(0, len(frames), CHUNK_PACKETS):
        rows = slice(first, first + CHUNK_PACKETS)
        records = np.empty((len(frames.place[rows]), 4), "<u4")
        records[:, 0], records[:, 1] = np.divmod(frames.time_ns[rows], NS_PER_S)
        records[:, 2], records[:, 3] = frames.stored[rows], frames.length[rows]
        at, heads = stop[rows] - frames.stored[rows], records.view(np.uint8).ravel()
        every = np.arange(len(records)) * RECORD_HEADER_BYTES
        ragged.copy(target, at - RECORD_HEADER_BYTES, heads, every, np.full(len(records), RECORD_HEADER_BYTES))
        ragged.copy(target, at, frames.store, frames.place[rows], frames.stored[rows])
    return out


def row_bytes(frames: Frames) -> bytes:
    rows = np.zeros(len(frames), ROW)
    for name in ROW.names or ():
        rows[name] = getattr(frames, name)
    out = io.BytesIO()
    np.save(out, rows)
    return out.getvalue()


def rows_name(trace_file: str) -> str:
    return trace_file.removesuffix(".pcap") + ".rows.npy"


def read_frames(path: Path) -> Frames:
    """Reads the files of pcap_bytes() and row_bytes()."""
    index = index_capture(path)
    stored = index.captured_bytes
    padded = -(-stored // ALIGN_BYTES) * ALIGN_BYTES
    place = np.cumsum(padded) - padded
    store = np.zeros(int(padded.sum()) + ALIGN_BYTES, np.uint8)
    source = np.frombuffer(index.data, np.uint8)
    for first in range(0, len(place), CHUNK_PACKETS):
        some = slice(first, first + CHUNK_PACKETS)
        ragged.copy(store, place[some], source, index.start[some], stored[some])
    return _described(path, index, store, place)


def mapped_frames(path: Path) -> Frames:
    """As read_frames(), with the bytes mapped from the file: frames can begin at any place."""
    index = index_capture(path)
    return _described(path, index, np.frombuffer(index.data, np.uint8), index.start)


def _described(path: Path, index: CaptureIndex, store: NDArray[np.uint8], place: NDArray[np.int64]) -> Frames:
    rows = _rows(path.with_name(rows_name(path.name)), len(place))

    def column(name: str) -> NDArray[np.int64]:
        return rows[name].astype(np.int64)

    return Frames(
        store, place, index.wire_bytes, index.captured_bytes, index.time_ns, column("ip_at"), column("l4_at"),
        column("sum_at"), column("teid_at"), column("down"), column("ends"), column("flow"), column("number"),
        column("stamp_at"),
    )  # fmt: skip


def _rows(path: Path, packets: int) -> NDArray[np.void]:
    """The rows; zeros without a file, for a trace that is sent unchanged."""
    if not path.exists():
        none = np.zeros(packets, ROW)
        none["number"] = np.arange(1, packets + 1)
        return none
    try:
        rows = np.load(path)
    except (OSError, ValueError) as error:
        raise BadInput(path, f"cannot be read: {error}") from None
    if rows.dtype != ROW or len(rows) != packets:
        raise BadInput(path, f"has {len(rows)} rows for {packets} packets of its trace")
    return np.asarray(rows)


def trace_path(leg: Leg, folder: Path) -> Path:
    """Reads the frames of a leg's file. BadInput for an instance without rows."""
    if leg.trace_file is None:
        raise ValueError(f"stream {leg.stream} is not a trace")
    path = folder / leg.trace_file
    if leg.shift and not path.with_name(rows_name(path.name)).exists():
        raise BadInput(path, "has no file of rows, which an instance needs")
    return path


def frames_to_send(leg: Leg, folder: Path) -> tuple[Frames, NDArray[np.int64]]:
    """The frames of a leg as sent, with the times of the instance, and the order of one pass, which differs from the
    file's in an instance with a random start."""
    frames = read_frames(trace_path(leg, folder))
    shifting.apply(frames, leg.shift)
    return in_order(frames, leg)


def in_order(frames: Frames, leg: Leg) -> tuple[Frames, NDArray[np.int64]]:
    """The same frames with the leg's own times, and the order of one pass."""
    random = leg.timing.random
    if random is None:
        return frames, np.argsort(frames.time_ns, kind="stable")
    drawn = random.instance, random.width_ns, random.seed
    order, ordered = timing.random_times(frames.time_ns, frames.flow, *drawn)
    times = np.empty_like(ordered)
    times[order] = ordered
    return replace(frames, time_ns=times), order


def packets(frames: Frames, order: NDArray[np.int64]) -> list[Packet]:
    """The frames as packets."""
    times = frames.time_ns.tolist()
    return [Packet(times[row], frames.frame(row)) for row in order.tolist()]


def check_mtu(frames: Frames, mtu_bytes: int, interface: str, path: Path) -> None:
    """BadInput for the first frame that `interface` cannot send."""
    at = frames.place + 12
    kinds = frames.store[at].astype(np.int64) << 8 | frames.store[at + 1]
    tags = np.where(np.isin(kinds, VLAN_TYPES), oversize.TAG_BYTES, 0)
    oversize.refuse_long(path, frames.length, tags, np.arange(1, len(frames) + 1), mtu_bytes, interface)
