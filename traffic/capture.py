"""The fast path through netsniff-ng's capture files: every frame with its time, and VLAN tags put back in."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_HEADER_BYTES, RECORD_HEADER_BYTES = 24, 16
NANOSECONDS, MICROSECONDS = 0xA1B23C4D, 0xA1B2C3D4
MACS_BYTES = 12


@dataclass
class CaptureFile:
    """A classic pcap file written by this machine. `cut` tells, after reading, that the last record is incomplete."""

    path: Path
    cut: bool = False

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """(UTC ns, bytes on the wire, frame as captured). Raises ValueError when it is no such file."""
        data = self.path.read_bytes()
        order, scale = _format(data, self.path)
        record = struct.Struct(order + "IIII")
        at = FILE_HEADER_BYTES
        while at + RECORD_HEADER_BYTES <= len(data):
            seconds, fraction, captured, wire = record.unpack_from(data, at)
            start, stop = at + RECORD_HEADER_BYTES, at + RECORD_HEADER_BYTES + captured
            if stop > len(data):
                break
            yield seconds * 1_000_000_000 + fraction * scale, wire, data[start:stop]
            at = stop
        self.cut = at != len(data)

    def put_tag_back(self, tpid: int, tci: int) -> None:
        """Rewrites the file with this outermost tag in every frame, which the kernel had taken out."""
        data = self.path.read_bytes()
        order, scale = _format(data, self.path)
        tag, record = struct.pack(">HH", tpid, tci), struct.Struct(order + "IIII")
        parts = [data[:FILE_HEADER_BYTES]]
        for time_ns, wire, frame in self.frames():
            seconds, fraction = divmod(time_ns, 1_000_000_000)
            parts += [record.pack(seconds, fraction // scale, len(frame) + 4, wire + 4)]
            parts += [frame[:MACS_BYTES], tag, frame[MACS_BYTES:]]
        whole = self.path.with_suffix(".tmp")
        whole.write_bytes(b"".join(parts))
        whole.replace(self.path)


def _format(data: bytes, path: Path) -> tuple[str, int]:
    """(byte order, nanoseconds in one unit of a record's fraction)."""
    for order in "<>":
        if len(data) >= FILE_HEADER_BYTES:
            magic = struct.unpack_from(order + "I", data)[0]
            if magic in (NANOSECONDS, MICROSECONDS):
                return order, 1 if magic == NANOSECONDS else 1000
    raise ValueError(f"{path.name}: not a classic pcap file")
