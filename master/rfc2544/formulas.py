"""The formulas of RFC 2544 and RFC 9004. Sizes include the FCS; rates are the sum of all streams."""

from __future__ import annotations

from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

SIZES_BYTES = (64, 128, 256, 512, 1024, 1280, 1518)
"""Frame sizes for Ethernet, RFC 2544, 9.1."""
LOADS_PERCENT = tuple(range(100, 0, -10))
"""Loads of the frame loss rate, RFC 2544, 26.3: the coarsest steps that it allows."""
CLEAN_LOADS = 2
"""Number of successive loads without loss that end the test of the frame loss rate."""


def maximum_pps(medium_l1_bps: float, size_bytes: int) -> float:
    """The maximum frame rate of the medium: 1,488,095 frames/s of 64 bytes at 1 Gbit/s (RFC 2544, appendix B)."""
    return medium_l1_bps / (8 * (size_bytes + ETHERNET_OVERHEAD_BYTES))


def loss_percent(sent: int | None, lost: int | None) -> float | None:
    """The frame loss rate (RFC 2544, 26.3); None: not measured."""
    return None if lost is None or not sent else 100 * lost / sent


def implied_buffer_s(frames: float, maximum: float) -> float:
    """The implied buffer time (RFC 9004, 5.4): the duration of the burst. `maximum`: frames/s."""
    return frames / maximum


def corrected_buffer_s(frames: float, throughput: float, maximum: float) -> float:
    """The corrected buffer time (RFC 9004, 5.4): without the frames forwarded during the burst. Rates in frames/s."""
    implied_s = implied_buffer_s(frames, maximum)
    return implied_s - implied_s * throughput / maximum
