"""What a replay puts in place of recorded headers: addresses, ports, tags and GTP-U tunnels."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
OUTER_IP_BYTES, OUTER_UDP_BYTES = 20, 8


@dataclass(frozen=True)
class Tunnel:
    """GTP-U around the uplink (3GPP TS 29.281, TS 38.415): outer addresses of the base station and the UPF."""

    source: bytes
    target: bytes
    sequence: bool = False
    qfi: int | None = None
    """With a PDU session container of this QoS flow; None: without."""
    ttl: int = 64

    @property
    def header_bytes(self) -> int:
        options = 4 if self.sequence or self.qfi is not None else 0
        return 8 + options + (4 if self.qfi is not None else 0)

    @property
    def overhead_bytes(self) -> int:
        return OUTER_IP_BYTES + OUTER_UDP_BYTES + self.header_bytes


@dataclass(frozen=True)
class Rewrite:
    """What becomes of the packets of each pair and each channel. Every array is looked up by their numbers."""

    source: list[bytes]
    """New source address of each pair."""
    target: list[bytes]
    sport: Integers
    """New ports of each channel; -1 where it has none."""
    dport: Integers
    macs: bytes
    """Target and source MAC: every frame goes between these two."""
    direction: Integers
    """Of each pair: 0 up, 1 down."""
    ends: Integers
    """Of each pair: 1 where its source is a server, 2 where its target is one; the sum of both."""
    tag: bytes | None = None
    """In place of all VLAN tags: type and TCI; None: the recorded ones stay."""
    tunnel: Tunnel | None = None
    teid: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    """Of each pair."""
    headers_only: bool = False
    """Zeros in place of payloads, which are not stored either."""


def gtpu_header(tunnel: Tunnel) -> bytes:
    """The header with length, TEID and sequence number zero (TS 29.281 section 5.1, TS 38.415 section 5.5.2.2)."""
    flags = 0x30 | (0x02 if tunnel.sequence else 0) | (0x04 if tunnel.qfi is not None else 0)
    header = bytes((flags, 0xFF)) + bytes(6)
    if tunnel.header_bytes > 8:
        header += bytes((0, 0, 0, 0x85 if tunnel.qfi is not None else 0))
    if tunnel.qfi is not None:
        header += bytes((1, 0x10, tunnel.qfi, 0))
    return header
