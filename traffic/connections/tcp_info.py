"""struct tcp_info (linux/tcp.h) as returned by getsockopt(TCP_INFO). The kernel only appends fields to it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pktswarm.traffic.errors import EngineError

CLOSED_STATES = (6, 7)
"""TCP_TIME_WAIT, TCP_CLOSE: all sent bytes are acknowledged, or the connection is aborted."""
ASKED_BYTES = 256
_UNACKED, _RTT, _RTTVAR, _TOTAL_RETRANS = 24, 68, 72, 100
_PACING_RATE, _NOTSENT, _MIN_RTT, _DATA_SEGS_OUT = 104, 144, 148, 156
LEAST_BYTES = 160
"""Size of the struct up to data_segs_out (Linux 4.6)."""
NO_RTT = 0xFFFFFFFF


@dataclass(frozen=True)
class TcpInfo:
    """Times in nanoseconds (the kernel's are in microseconds); None: not measured yet."""

    state: int
    unacked_segments: int
    notsent_bytes: int
    rtt_ns: int | None
    """Smoothed round-trip time (RFC 6298)."""
    rttvar_ns: int | None
    min_rtt_ns: int | None
    retransmitted_segments: int
    data_segments: int
    """Segments with data that were sent, retransmissions included."""
    pacing_rate_bps: int | None
    """None: not paced."""

    @property
    def all_acknowledged(self) -> bool:
        return self.state in CLOSED_STATES or (self.unacked_segments == 0 and self.notsent_bytes == 0)


def parse(data: bytes) -> TcpInfo:
    """Decodes the struct. EngineError for one that is too short."""
    if len(data) < LEAST_BYTES:
        raise EngineError("socket", f"TCP_INFO has {len(data)} bytes: at least {LEAST_BYTES} are needed (Linux 4.6)")
    rtt_us, min_rtt_us = _u32(data, _RTT), _u32(data, _MIN_RTT)
    pacing_bytes = int(struct.unpack_from("=Q", data, _PACING_RATE)[0])
    return TcpInfo(
        state=data[0],
        unacked_segments=_u32(data, _UNACKED),
        notsent_bytes=_u32(data, _NOTSENT),
        rtt_ns=rtt_us * 1000 if rtt_us else None,
        rttvar_ns=_u32(data, _RTTVAR) * 1000 if rtt_us else None,
        min_rtt_ns=min_rtt_us * 1000 if min_rtt_us != NO_RTT else None,
        retransmitted_segments=_u32(data, _TOTAL_RETRANS),
        data_segments=_u32(data, _DATA_SEGS_OUT),
        pacing_rate_bps=pacing_bytes * 8 if pacing_bytes < 1 << 60 else None,
    )


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("=I", data, at)[0])
