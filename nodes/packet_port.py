"""A packet socket on a traffic interface: the guard sends single frames through it, and reads what comes.

For a probe, not for load: a few frames at a time, each call bounded in count and time. Beside it the node answers for
the addresses that it plays (nodes.responder_sockets). Closing the sockets leaves nothing behind.
"""

from __future__ import annotations

import select
import socket
import time

from pktswarm.nodes.responder_sockets import Answers
from pktswarm.traffic.errors import BadInput

ETH_P_ALL = 3
PACKET_OUTGOING = 4
"""linux/if_packet.h: a frame that this host sent itself."""
MOST_FRAMES, MOST_SECONDS = 64, 5.0
LONGEST_FRAME_BYTES = 9216
POLL_S = 0.01


class PacketPort:
    """Open from its creation on: a frame that comes between two calls of exchange() is returned by the next one."""

    def __init__(self, interface: str, mac: str, addresses: list[str], neighbours: list[str]) -> None:
        self.mac = bytes.fromhex(mac.replace(":", ""))
        self.answers = Answers(interface, mac, addresses, neighbours)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((interface, ETH_P_ALL))
        self._socket.setblocking(False)

    def exchange(self, frames: list[bytes], seconds: float, wanted: int) -> list[bytes]:
        """Sends `frames`, then returns the frames that came to this MAC: when there are `wanted`, or after `seconds`.

        BadInput for more frames or a longer time than a probe needs. OSError if a frame cannot be sent.
        """
        _check(frames, seconds)
        for frame in frames:
            self._socket.send(frame)
        found: list[bytes] = []
        deadline = time.monotonic() + seconds
        while len(found) < min(wanted, MOST_FRAMES):
            self.answers.serve()
            found += self._read(wanted - len(found))
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            if len(found) < wanted:
                select.select([self._socket], [], [], min(POLL_S, left_s))
        return found

    def _read(self, most: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < most:
            try:
                frame, address = self._socket.recvfrom(LONGEST_FRAME_BYTES)
            except BlockingIOError:
                break
            if address[2] != PACKET_OUTGOING and frame[:6] == self.mac:
                found.append(frame)
        return found

    def close(self) -> None:
        self._socket.close()
        self.answers.close()


def _check(frames: list[bytes], seconds: float) -> None:
    if len(frames) > MOST_FRAMES:
        raise BadInput("guard", "too many frames at once", key="frames", value=len(frames), allowed=f"{MOST_FRAMES}")
    if not 0 <= seconds <= MOST_SECONDS:
        raise BadInput("guard", "out of range", key="seconds", value=seconds, allowed=f"0 to {MOST_SECONDS:g}")
