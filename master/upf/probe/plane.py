"""Single packets through the UPF, checked at the other end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pktswarm.master.upf.probe import packets
from pktswarm.master.upf.probe.ends import End
from pktswarm.master.upf.probe.findings import WORKS, Outcome
from pktswarm.master.upf.probe.packets import G_PDU, Gtpu, Tunnel, Wiring

TRIES, WAIT_S = 3, 0.2
"""The first packet may be lost while the UPF resolves a neighbour."""
QUIET_S = 0.3
"""Wait for a packet that must not be received."""
T = TypeVar("T")


@dataclass(frozen=True)
class Down:
    outcome: Outcome
    has_container: bool = False


class UserPlane:
    """`gnb` and `server` are open; frames received between two calls are read by the next one."""

    def __init__(self, gnb: End, server: End, wiring: Wiring) -> None:
        self.gnb, self.server, self.wiring = gnb, server, wiring
        self._number = 0

    def over(self, gnb: str, n3: str) -> UserPlane:
        """Returns the same ends, with tunnels between other addresses."""
        other = UserPlane(self.gnb, self.server, replace(self.wiring, gnb=gnb, n3=n3))
        other._number = self._number + 1_000_000
        return other

    def up(self, tunnel: Tunnel, ip_bytes: int = 0, tries: int = TRIES) -> Outcome:
        for _ in range(tries):
            number = self._next()
            frame = packets.uplink(self.wiring, tunnel, number, ip_bytes)
            received = self._pass(frame, self.gnb, self.server, partial(self._user_packet, number))
            if received is not None:
                return self._judge_up(received, tunnel, number, ip_bytes)
        return Outcome("no answer", "no packet received by the data network")

    def down(self, tunnel: Tunnel, ip_bytes: int = 0, tries: int = TRIES) -> Down:
        for _ in range(tries):
            number = self._next()
            frame = packets.downlink(self.wiring, tunnel, number, ip_bytes)
            received = self._pass(frame, self.server, self.gnb, partial(self._g_pdu, number))
            if received is not None:
                return Down(self._judge_down(received, tunnel, number, ip_bytes), received.has_container)
        return Down(Outcome("no answer", "no packet received by the gNB"))

    def send_down(self, tunnel: Tunnel) -> int:
        """Sends one packet and returns its number, for arrives()."""
        number = self._next()
        self.server.exchange([packets.downlink(self.wiring, tunnel, number)], 0, 0)
        return number

    def arrives(self, number: int, seconds: float) -> Gtpu | None:
        """Waits until the gNB receives the packet of this number."""
        return self._await(self.gnb, partial(self._g_pdu, number), seconds)

    def message(self, frame: bytes | None, kind: int, seconds: float = WAIT_S) -> Gtpu | None:
        """Sends `frame` from the gNB; returns the GTP-U message of this kind that it receives."""
        if frame is not None:
            self.gnb.exchange([frame], 0, 0)
        return self._await(self.gnb, partial(_of_kind, kind), seconds)

    def send_up(self, tunnel: Tunnel) -> None:
        self.gnb.exchange([packets.uplink(self.wiring, tunnel, self._next())], 0, 0)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _pass(self, frame: bytes, sender: End, receiver: End, found: Callable[[bytes], T | None]) -> T | None:
        sender.exchange([frame], 0, 0)
        return self._await(receiver, found, WAIT_S)

    @staticmethod
    def _await(end: End, found: Callable[[bytes], T | None], seconds: float) -> T | None:
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            for frame in end.exchange([], left_s, 1):
                if (match := found(frame)) is not None:
                    return match
        return None

    @staticmethod
    def _user_packet(number: int, frame: bytes) -> tuple[bytes, Any] | None:
        packet = packets.user_packet_of(frame)
        return (frame, packet) if packets.number_of(packet) == number else None

    @staticmethod
    def _g_pdu(number: int, frame: bytes) -> Gtpu | None:
        message = packets.gtpu(frame)
        is_it = message is not None and message.kind == G_PDU and packets.number_of(message.inner) == number
        return message if is_it else None

    def _judge_up(self, received: tuple[bytes, Any], tunnel: Tunnel, number: int, ip_bytes: int) -> Outcome:
        frame, packet = received
        sent = packets.user_packet(self.wiring, tunnel.user, number, up=True, ip_bytes=ip_bytes)
        if source := _differs("MAC address", frame[6:12].hex(":"), self.wiring.n6_mac):
            return source
        return _same_packet(packet, sent)

    def _judge_down(self, received: Gtpu, tunnel: Tunnel, number: int, ip_bytes: int) -> Outcome:
        sent = packets.user_packet(self.wiring, tunnel.user, number, up=False, ip_bytes=ip_bytes)
        for what, value, wanted in (
            ("TEID", hex(received.teid), hex(tunnel.downlink_teid)),
            ("outer source address", received.source, self.wiring.n3),
        ):
            if wrong := _differs(what, value, wanted):
                return wrong
        return _same_packet(received.inner, sent)


def _differs(what: str, received: object, wanted: object) -> Outcome | None:
    return None if received == wanted else Outcome("wrong", f"{what} {received}, expected {wanted}")


def _same_packet(received: Any, sent: Any) -> Outcome:
    """Compares user packets, but for TTL, hop limit and checksums, which a router may change."""
    for name in ("src", "dst"):
        if wrong := _differs(f"user packet's {name}", getattr(received, name), getattr(sent, name)):
            return wrong
    if bytes(received.payload.payload) != bytes(sent.payload.payload):
        return Outcome("wrong", "user packet's payload changed")
    return WORKS


def _of_kind(kind: int, frame: bytes) -> Gtpu | None:
    message = packets.gtpu(frame)
    return message if message is not None and message.kind == kind else None
