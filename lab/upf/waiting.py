"""Buffered packets: of users whose FAR buffers, and those that a fault delays or holds; and end markers.

What waits for a user goes out as a datagram of the UPF's kernel, what a fault kept as the frame that it was.
"""

from __future__ import annotations

import heapq
import itertools
import socket
import struct
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from pktswarm.lab.upf.datapath import EVENT_DELAYED, EVENT_HELD, EVENT_RELEASE, Event
from pktswarm.lab.upf.rules import BUFFER, FORWARD
from pktswarm.lab.upf.session import Moved

GTPU_PORT = 2152
MOST_PACKETS = 1_000
"""Buffered packets of one PDR; a further one replaces the oldest."""
_G_PDU, _END_MARKER = 255, 254
PORTS = ("n3", "n6")


class Sent(Protocol):
    def add_sent(self, index: int, packets: int, size: int) -> None: ...


def g_pdu(teid: bytes, packet: bytes, qfi: int | None) -> bytes:
    """Returns GTP-U as the data path writes it: with a PDU session container where there is a QFI."""
    options = b"" if qfi is None else bytes([0, 0, 0, 0x85, 1, 0, qfi, 0])
    head = struct.pack(">BBH4s", 0x30 if qfi is None else 0x34, _G_PDU, len(options) + len(packet), teid)
    return head + options + packet


class UserPackets:
    """Buffers packets of idle users. `gtpu`: sockets on N3's addresses, port 2152, by the length of the address."""

    def __init__(self, gtpu: Mapping[int, socket.socket], sent: Sent) -> None:
        self._gtpu, self._sent = gtpu, sent
        self._kept: dict[int, deque[bytes]] = {}
        self.overflowed = self.failed = 0
        self.end_markers = self.end_markers_asked = 0
        self.no_end_marker_every = 0
        """A fault: of so many end markers requested, the last one is not sent."""

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def keep(self, counts: int, packet: bytes) -> None:
        kept = self._kept.setdefault(counts, deque())
        if len(kept) == MOST_PACKETS:
            kept.popleft()
            self.overflowed += 1
        kept.append(packet)

    def led_elsewhere(self, one: Moved) -> None:
        """Sends an end marker on the previous path, and the buffered packets on the new one."""
        if one.end_marker and one.before.gnb:
            self._mark_end(one.before.teid, one.before.gnb)
        if one.after.action & FORWARD:
            for packet in self._kept.pop(one.pdr.counts, ()):
                self.send(one, packet)
        elif not one.after.action & BUFFER:
            self.forget(one.pdr.counts)

    def _mark_end(self, teid: bytes, gnb: bytes) -> None:
        self.end_markers_asked += 1
        if not self.no_end_marker_every or self.end_markers_asked % self.no_end_marker_every:
            self.end_markers += self._out(struct.pack(">BBH4s", 0x30, _END_MARKER, 0, teid), gnb)

    def send(self, one: Moved, packet: bytes) -> None:
        if self._out(g_pdu(one.after.teid, packet, one.qfi), one.after.gnb):
            self._sent.add_sent(one.pdr.counts, 1, len(packet))

    def _out(self, data: bytes, gnb: bytes) -> bool:
        """Sends a packet; returns whether the kernel accepted it: the address from the SMF can be unreachable."""
        try:
            channel = self._gtpu[len(gnb)]
            channel.sendto(data, (socket.inet_ntop(channel.family, gnb), GTPU_PORT))
        except OSError:
            self.failed += 1
            return False
        return True

    def forget(self, counts: int) -> None:
        self._kept.pop(counts, None)


class FaultyFrames:
    """Frames that a fault delays or holds."""

    def __init__(self, sockets: tuple[socket.socket, socket.socket]) -> None:
        self._sockets = sockets
        self._delayed: list[tuple[int, int, Event]] = []
        self._held: list[Event] = []
        self._order = itertools.count()
        self.failed = 0

    def __len__(self) -> int:
        return len(self._delayed) + len(self._held)

    def take(self, event: Event) -> None:
        if event.kind == EVENT_DELAYED:
            heapq.heappush(self._delayed, (event.time_ns + event.value, next(self._order), event))
        elif event.kind == EVENT_HELD:
            self._held.append(event)
        elif event.kind == EVENT_RELEASE:
            free = [one for one in self._held if one.port == event.port and one.number + one.value <= event.number]
            for one in free:
                self._held.remove(one)
                self._send(one)

    def next_ns(self) -> int | None:
        """Returns the next due time, on CLOCK_MONOTONIC."""
        return self._delayed[0][0] if self._delayed else None

    def send_due(self, now_ns: int) -> None:
        while self._delayed and self._delayed[0][0] <= now_ns:
            self._send(heapq.heappop(self._delayed)[2])

    def send_all(self) -> None:
        """Sends all frames that are held."""
        for event in [one for _, _, one in sorted(self._delayed)] + self._held:
            self._send(event)
        self._delayed, self._held = [], []

    def _send(self, event: Event) -> None:
        try:
            self._sockets[event.port].send(event.frame)
        except OSError:
            self.failed += 1
