"""The sockets through which a node answers for the addresses that it plays (traffic.frames.responder), while a run
lasts.

A kernel answers for its own addresses only, and a traffic interface need not have any. What the sockets see is cut down
in the kernel: test traffic that passes an XDP receiver on its way to a capture must not be copied here too. Closing
them leaves nothing behind, the interface's multicast membership included.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from pktswarm.traffic.frames.headers import GTPU_PORT
from pktswarm.traffic.frames.neighbours import ADVERTISEMENT, ICMPV6, SOLICITATION
from pktswarm.traffic.frames.responder import UDP, Responder
from pktswarm.traffic.protocol.proxy_count import ProxyCount

AS_IF_LOST = (errno.EAGAIN, errno.ENOBUFS, errno.ENETDOWN)
"""A queue is full, or the link is down: who asked asks again."""
MOST_AT_ONCE = 256
"""Frames answered before the guard looks after its other work again."""
MOST_WAITING = 1 << 16
"""More than a socket has room for."""
FRAME_BYTES = 2048
ETH_P_ARP, ETH_P_IP, ETH_P_IPV6 = 0x0806, 0x0800, 0x86DD
G_PDU = 255
_SO_ATTACH_FILTER = 26
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_STATISTICS, _PACKET_MR_ALLMULTI = 263, 1, 6, 2
_STATISTICS = struct.Struct("=II")
"""linux/if_packet.h, struct tpacket_stats: packets, and how many of them were dropped; reading sets both to 0."""

# linux/bpf_common.h: load a byte or a half word, at a place or behind X; compare; return.
_LDB, _LDH, _LDB_X, _LDH_X, _LDX_IHL = 0x30, 0x28, 0x50, 0x48, 0xB1
_JEQ, _JSET, _RET = 0x15, 0x45, 0x06
Step = tuple[int, int, int, int]
"""An instruction: code, how many to skip if true, and if not, and its constant."""

_IPV4_GTPU: list[Step] = [
    (_LDB, 0, 0, 23),
    (_JEQ, 0, 8, UDP),
    (_LDH, 0, 0, 20),
    (_JSET, 6, 0, 0x1FFF),  # a later fragment has no UDP header
    (_LDX_IHL, 0, 0, 14),
    (_LDH_X, 0, 0, 16),
    (_JEQ, 0, 3, GTPU_PORT),
    (_LDB_X, 0, 0, 23),
    (_JEQ, 1, 0, G_PDU),
    (_RET, 0, 0, FRAME_BYTES),
    (_RET, 0, 0, 0),
]
_IPV6_GTPU_OR_NEIGHBOUR: list[Step] = [
    (_LDB, 0, 0, 20),
    (_JEQ, 0, 2, ICMPV6),
    (_LDB, 0, 0, 54),
    (_JEQ, 5, 6, SOLICITATION),
    (_JEQ, 0, 5, UDP),
    (_LDH, 0, 0, 56),
    (_JEQ, 0, 3, GTPU_PORT),
    (_LDB, 0, 0, 63),
    (_JEQ, 1, 0, G_PDU),
    (_RET, 0, 0, FRAME_BYTES),
    (_RET, 0, 0, 0),
]
ADVERTISEMENTS: list[Step] = [
    (_LDB, 0, 0, 20),
    (_JEQ, 0, 3, ICMPV6),
    (_LDB, 0, 0, 54),
    (_JEQ, 0, 1, ADVERTISEMENT),
    (_RET, 0, 0, FRAME_BYTES),
    (_RET, 0, 0, 0),
]
"""Answers to neighbour solicitations."""


class Answers:
    """Answers on `interface` from now on, whenever `serve` is called; `addresses` first ask for each of `neighbours`.
    OSError: a socket cannot be had (needs root)."""

    def __init__(self, interface: str, mac: str, addresses: list[str], neighbours: Iterable[str] = ()) -> None:
        self.responder = Responder(mac, addresses)
        self._sockets: list[socket.socket] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            for protocol, steps in ((ETH_P_ARP, []), (ETH_P_IP, _IPV4_GTPU), (ETH_P_IPV6, _IPV6_GTPU_OR_NEIGHBOUR)):
                self._sockets.append(packet_socket(interface, protocol, steps))
            for frame in (each for target in neighbours for each in self.responder.greetings(target)):
                with as_if_lost():
                    self._sockets[0].send(frame)
            undo.pop_all()

    def serve(self, most: int = MOST_AT_ONCE) -> None:
        """Answers what has come, without waiting."""
        for one in self._sockets:
            with as_if_lost():
                for _ in range(most):
                    frame = one.recv(FRAME_BYTES)
                    if reply := self.responder.answer(frame):
                        with as_if_lost():
                            one.send(reply)

    def counts(self) -> ProxyCount:
        """The counts of all frames that have come."""
        self.serve(MOST_WAITING)
        for one in self._sockets:
            _, dropped = _STATISTICS.unpack(one.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size))
            self.responder.received.missed += dropped
        received = self.responder.received
        ended = {str(teid): markers for teid, markers in received.ended.items()}
        return ProxyCount(dict(received.counts), received.teids, ended, received.missed)

    def close(self) -> None:
        for one in self._sockets:
            one.close()
        self._sockets = []


@contextmanager
def as_if_lost() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in AS_IF_LOST:
            raise


def packet_socket(interface: str, protocol: int, steps: list[Step]) -> socket.socket:
    """A socket for the frames of one protocol on an interface that pass the filter `steps`; empty: all of them."""
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # bound first: none of another interface's
    try:
        if steps:
            _attach(one, steps)
        one.bind((interface, protocol))
        if protocol == ETH_P_IPV6:
            # A neighbour solicitation goes to a multicast address of its own for each address.
            membership = struct.pack("=iHH8s", socket.if_nametoindex(interface), _PACKET_MR_ALLMULTI, 0, b"")
            one.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
        one.setblocking(False)
    except OSError:
        one.close()
        raise
    return one


def _attach(one: socket.socket, steps: list[Step]) -> None:
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(code, len(code))
    pointer = struct.pack("@HP" if sys.maxsize > 2**32 else "@HI", len(steps), ctypes.addressof(held))
    one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)
