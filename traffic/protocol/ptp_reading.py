"""How PTP steers the clock of a node, as its guard reads it."""

from __future__ import annotations

from pktswarm.traffic.plain import plain

SYNCHRONIZED = ("SLAVE", "MASTER", "GRAND_MASTER")


@plain
class PtpReading:
    """`problem`: why ptp4l cannot be relied on; empty: it can."""

    tai_offset_s: int
    """TAI - UTC of the kernel."""
    problem: str = ""
    state: str = ""
    """State of ptp4l's port (IEEE 1588, 9.2.5)."""
    grandmaster: str = ""
    """Identity of the clock that all follow."""
    offset_ns: int = 0
    """From the clock that the port follows, by the last Sync message; 0 at the grandmaster."""
    path_delay_ns: int = 0
    """Mean delay of a message, from there to here."""
