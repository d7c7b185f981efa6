"""Capture files of netsniff-ng: frames with their times, and their VLAN tags restored.

They are read frame by frame, as they are counted: without NumPy, which a node would load for nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pktswarm.traffic.capture.constants import (
    LONGEST_WIRE_BYTES,
    NS_PER_S,
    PCAP_HEADER_BYTES,
    PCAP_NS_PER_TICK,
    PCAP_RECORD_BYTES,
)
from pktswarm.traffic.errors import BadInput

MACS_BYTES = 12
BUFFER_BYTES = 1 << 20


@dataclass
class CaptureFile:
    """A classic pcap file written by this machine. `cut`, after reading: the last record is incomplete."""

    path: Path
    cut: bool = False

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """(UTC ns, bytes on the wire, captured frame) of each record. BadInput for a file that is not a capture, or
        that is not there."""
        try:
            file = self.path.open("rb", BUFFER_BYTES)
        except OSError as error:
            raise BadInput(self.path, f"cannot be read: {error.strerror}") from None
        with file:
            order, ns_per_tick = self._form(file.read(PCAP_HEADER_BYTES))
            record, read, number = struct.Struct(order + "IIII"), file.read, 0
            while header := read(PCAP_RECORD_BYTES):
                number += 1
                if len(header) < PCAP_RECORD_BYTES:
                    self.cut = True
                    return
                seconds, ticks, captured, wire = record.unpack(header)
                if not captured <= wire <= LONGEST_WIRE_BYTES or ticks * ns_per_tick >= NS_PER_S:
                    shown = f"{captured} of {wire} bytes at {seconds} s and {ticks * ns_per_tick} ns"
                    raise BadInput(self.path, f"packet {number} has {shown}: the file is damaged")
                frame = read(captured)
                if len(frame) < captured:
                    self.cut = True
                    return
                yield seconds * NS_PER_S + ticks * ns_per_tick, wire, frame

    def put_tag_back(self, tpid: int, tci: int) -> None:
        """Rewrites the file with the outermost tag, which the kernel had removed, in every frame."""
        with self.path.open("rb") as file:
            header = file.read(PCAP_HEADER_BYTES)
        order, ns_per_tick = self._form(header)
        tag, record = struct.pack(">HH", tpid, tci), struct.Struct(order + "IIII")
        parts = [header]
        for time_ns, wire, frame in self.frames():
            seconds, fraction = divmod(time_ns, NS_PER_S)
            parts += [record.pack(seconds, fraction // ns_per_tick, len(frame) + 4, wire + 4)]
            parts += [frame[:MACS_BYTES], tag, frame[MACS_BYTES:]]
        whole = self.path.with_suffix(".tmp")
        whole.write_bytes(b"".join(parts))
        whole.replace(self.path)

    def _form(self, header: bytes) -> tuple[str, int]:
        """Byte order, and nanoseconds of a tick, by the file's header."""
        for order in "<>":
            ns_per_tick = PCAP_NS_PER_TICK.get(struct.unpack_from(order + "I", header.ljust(4))[0])
            if ns_per_tick and len(header) == PCAP_HEADER_BYTES:
                return order, ns_per_tick
        raise BadInput(self.path, "is not a capture file", value=header[:4].hex(), allowed="pcap")
