"""Capture files of netsniff-ng: frames with their times, and their VLAN tags restored."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pktswarm.traffic.capture.constants import NS_PER_S
from pktswarm.traffic.capture.index import PCAP_HEADER_BYTES, PCAP_NS_PER_TICK, index_capture

MACS_BYTES = 12
CHUNK_PACKETS = 1 << 16


@dataclass
class CaptureFile:
    """A classic pcap file written by this machine. `cut`, after reading: the last record is incomplete."""

    path: Path
    cut: bool = False

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """(UTC ns, bytes on the wire, captured frame) of each record. BadInput for a file that is not a capture."""
        index = index_capture(self.path, whole=False)
        self.cut = index.cut
        columns = (index.time_ns, index.wire_bytes, index.start, index.captured_bytes)
        for first in range(0, len(index.start), CHUNK_PACKETS):
            part = (column[first : first + CHUNK_PACKETS].tolist() for column in columns)
            for time_ns, wire, at, size in zip(*part, strict=True):
                yield time_ns, wire, index.data[at : at + size]

    def put_tag_back(self, tpid: int, tci: int) -> None:
        """Rewrites the file with the outermost tag, which the kernel had removed, in every frame."""
        with self.path.open("rb") as file:
            header = file.read(PCAP_HEADER_BYTES)
        order = next(order for order in "<>" if _magic(header, order) in PCAP_NS_PER_TICK)
        ns_per_tick = PCAP_NS_PER_TICK[_magic(header, order)]
        tag, record = struct.pack(">HH", tpid, tci), struct.Struct(order + "IIII")
        parts = [header]
        for time_ns, wire, frame in self.frames():
            seconds, fraction = divmod(time_ns, NS_PER_S)
            parts += [record.pack(seconds, fraction // ns_per_tick, len(frame) + 4, wire + 4)]
            parts += [frame[:MACS_BYTES], tag, frame[MACS_BYTES:]]
        whole = self.path.with_suffix(".tmp")
        whole.write_bytes(b"".join(parts))
        whole.replace(self.path)


def _magic(header: bytes, order: str) -> int:
    return int(struct.unpack_from(order + "I", header)[0])
