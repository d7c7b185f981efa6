"""The new headers of a replay: addresses, ports, tags and GTP-U tunnels."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
OUTER_IP_BYTES, OUTER_UDP_BYTES = 20, 8


@dataclass(frozen=True)
class Tunnel:
    """The GTP-U tunnel of the uplink (3GPP TS 29.281, TS 38.415): `source` is the base station, `target` the UPF."""

    source: bytes
    target: bytes
    sequence: bool = False
    qfi: int | None = None
    """QoS flow of a PDU session container; None: no container."""
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
    """New headers of each pair and channel, indexed by their numbers."""

    source: list[bytes]
    """New source address of each pair."""
    target: list[bytes]
    sport: Integers
    """New ports of each channel; -1: none."""
    dport: Integers
    macs: bytes
    """Destination and source MAC of every frame."""
    direction: Integers
    """Direction of each pair: 0 up, 1 down."""
    ends: Integers
    """Flags of each pair: 1, its source is a server; 2, its target is a server."""
    tag: bytes | None = None
    """Type and TCI that replace all VLAN tags; None: the recorded tags stay."""
    tunnel: Tunnel | None = None
    teid: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    """TEID of each pair."""
    headers_only: bool = False
    """Payloads are zeros and not stored."""


def gtpu_header(tunnel: Tunnel) -> bytes:
    """The GTP-U header with length, TEID and sequence number 0 (TS 29.281, section 5.1; TS 38.415, section 5.5.2.2)."""
    flags = 0x30 | (0x02 if tunnel.sequence else 0) | (0x04 if tunnel.qfi is not None else 0)
    header = bytes((flags, 0xFF)) + bytes(6)
    if tunnel.header_bytes > 8:
        header += bytes((0, 0, 0, 0x85 if tunnel.qfi is not None else 0))
    if tunnel.qfi is not None:
        header += bytes((1, 0x10, tunnel.qfi, 0))
    return header
