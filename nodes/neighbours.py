"""Asks for the MAC addresses of neighbours on a traffic interface, as addresses that the kernel does not have."""

from __future__ import annotations

import select
import socket
import time
from contextlib import ExitStack

from pktswarm.nodes.responder_sockets import (
    ADVERTISEMENTS,
    ETH_P_ARP,
    ETH_P_IPV6,
    FRAME_BYTES,
    as_if_lost,
    packet_socket,
)
from pktswarm.traffic.frames.neighbours import answer, packed_mac, question
from pktswarm.traffic.protocol.neighbours import Question

TRIES, TRY_S = 4, 0.5
"""A bridge port or a router's neighbour entry may need a moment; a guard must not be away for longer."""


def find(interface: str, mac: str, questions: list[Question]) -> dict[str, str]:
    """Address → MAC of those that answered. OSError: a socket cannot be had (needs root)."""
    found: dict[str, str] = {}
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(packet_socket(interface, ETH_P_ARP, [])),
            stack.enter_context(packet_socket(interface, ETH_P_IPV6, ADVERTISEMENTS)),
        ]
        for _ in range(TRIES):
            waiting = [one for one in questions if one.address not in found]
            if not waiting:
                break
            for one in waiting:
                with as_if_lost():
                    sockets[0].send(question(packed_mac(mac), one.asked_from, one.address))
            _read_answers(sockets, {one.address for one in waiting}, found)
    return found


def _read_answers(sockets: list[socket.socket], wanted: set[str], found: dict[str, str]) -> None:
    """Until all of `wanted` are in `found`, or for TRY_S."""
    deadline = time.monotonic() + TRY_S
    while not wanted <= found.keys() and (left_s := deadline - time.monotonic()) > 0:
        for ready in select.select(sockets, [], [], left_s)[0]:
            with as_if_lost():
                known = answer(ready.recv(FRAME_BYTES))
                if known is not None and known[0] in wanted:
                    found.setdefault(*known)
