"""Recorded traces, read strictly: packets that cannot be replayed are refused before anything is sent."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

from pktswarm.traffic.capture.constants import LINKTYPE_ETHERNET
from pktswarm.traffic.capture.files import Packet, RawPacket, link_type_name, read_capture, write_pcap, write_pcapng
from pktswarm.traffic.errors import BadInput

__all__ = ["Packet", "Trace", "read_packets", "read_trace", "write_pcap", "write_pcapng"]

ETHERNET_HEADER_BYTES = 14


@dataclass(frozen=True)
class Trace:
    """A recording that can be replayed. `packets` are in the file's order, with the file's times."""

    path: Path
    packets: list[Packet]
    notes: list[str] = field(default_factory=list)
    """Warnings for the user, such as time that goes backwards."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all frames, without FCS."""
        return sum(len(packet.data) for packet in self.packets)

    @property
    def duration_ns(self) -> int:
        times = [packet.time_ns for packet in self.packets]
        return max(times) - min(times)

    @property
    def period_ns(self) -> int:
        """From the start of one pass to the start of the next: the duration and one mean gap."""
        return self.duration_ns + self.duration_ns // max(1, len(self.packets) - 1)


def read_trace(path: Path) -> Trace:
    """Reads a trace that can be replayed as recorded. BadInput names the file and the packet.

    Packets stay in the file's order even where time goes backwards; they are scheduled in the order of time.
    """
    raw = read_capture(path)
    if not raw:
        raise BadInput(path, "contains no packet")
    for number, packet in enumerate(raw, 1):
        _check_replayable(path, number, packet)
    packets = [Packet(packet.time_ns, packet.data) for packet in raw]
    return Trace(path, packets, _notes(path, packets))


def read_packets(path: Path) -> list[Packet]:
    """Reads a receiver's capture: as read_trace(), but an empty capture is valid."""
    raw = read_capture(path)
    for number, packet in enumerate(raw, 1):
        _check_replayable(path, number, packet)
    return [Packet(packet.time_ns, packet.data) for packet in raw]


def _check_replayable(path: Path, number: int, packet: RawPacket) -> None:
    if packet.link_type != LINKTYPE_ETHERNET:
        raise BadInput(
            path,
            f"packet {number} has a link type that is not Ethernet",
            value=link_type_name(packet.link_type),
            allowed=link_type_name(LINKTYPE_ETHERNET),
        )
    if len(packet.data) < packet.wire_bytes:
        raise BadInput(
            path,
            f"packet {number} was cut when it was recorded, and cannot be replayed truly: record with a larger "
            "snap length",
            value=f"{len(packet.data)} of {packet.wire_bytes} bytes",
        )
    if len(packet.data) < ETHERNET_HEADER_BYTES:
        raise BadInput(
            path,
            f"packet {number} is shorter than an Ethernet header",
            value=f"{len(packet.data)} bytes",
            allowed=f"{ETHERNET_HEADER_BYTES} bytes or more",
        )


def _notes(path: Path, packets: list[Packet]) -> list[str]:
    pairs = enumerate(itertools.pairwise(packets), 2)
    back = [number for number, (before, after) in pairs if after.time_ns < before.time_ns]
    if not back:
        return []
    return [f"{path}: time goes backwards at {len(back)} packets, first at {back[0]}: they are sent in order of time"]
