"""What RFC 2544 and RFC 9004 compute. Sizes count the FCS; rates are of all streams together."""

from __future__ import annotations

from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

SIZES_BYTES = (64, 128, 256, 512, 1024, 1280, 1518)
"""Of Ethernet, RFC 2544, 9.1."""
LOADS_PERCENT = tuple(range(100, 0, -10))
"""Of the frame loss rate, RFC 2544, 26.3: the coarsest steps that it allows."""
CLEAN_LOADS = 2
"""So many in a row without loss end the test of the frame loss rate."""


def maximum_pps(medium_l1_bps: float, size_bytes: int) -> float:
    """The most frames a second that the medium carries: 1,488,095 of 64 bytes at 1 Gbit/s (RFC 2544, appendix B)."""
    return medium_l1_bps / (8 * (size_bytes + ETHERNET_OVERHEAD_BYTES))


def loss_percent(sent: int | None, lost: int | None) -> float | None:
    """RFC 2544, 26.3; None: not measured."""
    return None if lost is None or not sent else 100 * lost / sent


def implied_buffer_s(frames: float, maximum: float) -> float:
    """RFC 9004, 5.4: how long the longest burst without loss takes to come. `maximum`: frames/s."""
    return frames / maximum


def corrected_buffer_s(frames: float, throughput: float, maximum: float) -> float:
    """RFC 9004, 5.4: without what the device passes on while the burst comes. Both rates in frames/s."""
    implied_s = implied_buffer_s(frames, maximum)
    return implied_s - implied_s * throughput / maximum
