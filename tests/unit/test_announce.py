"""The frame by which a receiver makes itself known to a switch, and its socket."""

from __future__ import annotations

import socket

import pytest

from pktswarm.nodes import announce


class Raw:
    """As much of a packet socket as an announcement needs."""

    def __init__(self, *kind: object) -> None:
        MADE.append(self)
        self.sent: list[tuple[bytes, object]] = []

    def sendto(self, frame: bytes, address: object) -> None:
        self.sent.append((frame, address))


MADE: list[Raw] = []


def test_all_announcements_leave_by_one_socket_which_receives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The closing of a packet socket takes 16 ms."""
    monkeypatch.setattr(socket, "socket", Raw)
    announce._socket.cache_clear()
    MADE.clear()
    try:
        for interface, mac in (
            ("eth1", "02:00:00:00:00:01"),
            ("eth1", "02:00:00:00:00:01"),
            ("eth2", "02:00:00:00:00:02"),
        ):
            announce.announce(interface, mac)
    finally:
        announce._socket.cache_clear()
    (one,) = MADE
    assert [address for _, address in one.sent] == [("eth1", 0), ("eth1", 0), ("eth2", 0)]
    frame = one.sent[2][0]
    assert len(frame) == 60 and frame[:14] == b"\xff" * 6 + bytes.fromhex("020000000002") + b"\x80\x35"
