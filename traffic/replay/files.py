"""What a node is given of a trace: the frames as a pcap file, and a row for each of what an instance changes in it.

A frame whose payload is left out stands in the file as one that a snap length cut; the rest of it is zeros.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traffic.capture_file import NS_PER_S, SNAPLEN_BYTES, Packet
from traffic.capture_format import LINKTYPE_ETHERNET, PCAP_MAGIC_NS
from traffic.capture_index import index_capture
from traffic.dissect import VLAN_TYPES
from traffic.errors import BadInput
from traffic.replay import oversize, timing
from traffic.replay import shift as shifting
from traffic.replay.build import ALIGN_BYTES, CHUNK_PACKETS, Frames
from traffic.replay.shift import Shift
from traffic.task import Leg

FILE_HEADER_BYTES, RECORD_HEADER_BYTES = 24, 16
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
    """Nanosecond times, little endian, Ethernet."""
    header = np.array([PCAP_MAGIC_NS, 2 | 4 << 16, 0, 0, SNAPLEN_BYTES, LINKTYPE_ETHERNET], "<u4").tobytes()
    out = bytearray(FILE_HEADER_BYTES + RECORD_HEADER_BYTES * len(frames) + int(frames.stored.sum()))
    out[:FILE_HEADER_BYTES] = header
    at, target, source = FILE_HEADER_BYTES, memoryview(out), frames.store.data
    for first in range(0, len(frames), CHUNK_PACKETS):
        rows = slice(first, first + CHUNK_PACKETS)
        records = np.empty((len(frames.place[rows]), 4), "<u4")
        records[:, 0], records[:, 1] = np.divmod(frames.time_ns[rows], NS_PER_S)
        records[:, 2], records[:, 3] = frames.stored[rows], frames.length[rows]
        heads = records.tobytes()
        places, sizes = frames.place[rows].tolist(), frames.stored[rows].tolist()
        for number, (place, size) in enumerate(zip(places, sizes, strict=True)):
            target[at : at + 16] = heads[16 * number : 16 * number + 16]
            target[at + 16 : at + 16 + size] = source[place : place + size]
            at += 16 + size
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
    """What pcap_bytes() and row_bytes() wrote, the latter beside the former."""
    index = index_capture(path)
    stored, length = index.captured_bytes, index.wire_bytes
    padded = -(-stored // ALIGN_BYTES) * ALIGN_BYTES
    place = np.cumsum(padded) - padded
    store = np.zeros(int(padded.sum()) + ALIGN_BYTES, np.uint8)
    source, target = memoryview(index.data), store.data
    for first in range(0, len(place), CHUNK_PACKETS):
        some = slice(first, first + CHUNK_PACKETS)
        for to, at, size in zip(place[some].tolist(), index.start[some].tolist(), stored[some].tolist(), strict=True):
            target[to : to + size] = source[at : at + size]
    rows = _rows(path.with_name(rows_name(path.name)), len(place))

    def column(name: str) -> NDArray[np.int64]:
        return rows[name].astype(np.int64)

    return Frames(
        store, place, length, stored, index.time_ns, column("ip_at"), column("l4_at"), column("sum_at"),
        column("teid_at"), column("down"), column("ends"), column("flow"), column("number"), column("stamp_at"),
    )  # fmt: skip


def _rows(path: Path, packets: int) -> NDArray[np.void]:
    """Zeros where there is no file: of a trace that is sent as it is nothing is changed."""
    if not path.exists():
        none = np.zeros(packets, ROW)
        none["number"] = np.arange(1, packets + 1)
        return none
    try:
        rows = np.load(path)
    except (OSError, ValueError) as error:
        raise BadInput(path, f"cannot be read: {error}") from None
    if rows.dtype != ROW or len(rows) != packets:
        raise BadInput(path, f"has {len(rows)} rows, the trace beside it {packets} packets")
    return np.asarray(rows)


def leg_frames(leg: Leg, folder: Path) -> tuple[Frames, NDArray[np.int64]]:
    """The frames of a leg as sent, and the order of one pass: of an instance that starts at random another than the
    file's. The times are those of the instance."""
    if leg.trace_file is None:
        raise ValueError(f"stream {leg.stream} is no trace")
    path = folder / leg.trace_file
    if leg.shift and not path.with_name(rows_name(path.name)).exists():
        raise BadInput(path, "has no rows beside it, which an instance needs")
    frames = read_frames(path)
    shifting.apply(frames, Shift(**leg.shift))
    order = np.argsort(frames.time_ns, kind="stable")
    random = leg.timing.get("random")
    if random:
        drawn = random["instance"], random["width_ns"], random["seed"]
        order, times = timing.random_times(frames.time_ns, frames.flow, *drawn)
        frames.time_ns[order] = times
    return frames, order


def packets(frames: Frames, order: NDArray[np.int64]) -> list[Packet]:
    """For what takes packets one by one."""
    times = frames.time_ns.tolist()
    return [Packet(times[row], frames.frame(row)) for row in order.tolist()]


def check_mtu(frames: Frames, mtu_bytes: int, interface: str, path: Path) -> None:
    """Raises BadInput for the first frame that `interface` cannot send."""
    kinds = frames.store.view(">u2")[(frames.place + 12) >> 1]
    tags = np.where(np.isin(kinds, VLAN_TYPES), oversize.TAG_BYTES, 0)
    oversize.refuse_long(path, frames.length, tags, np.arange(1, len(frames) + 1), mtu_bytes, interface)
