"""The report of one end of an interactive replay on a flow, part of the sender's count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FlowState = Literal["playing", "complete", "given up", "unfinished"]


@dataclass
class FlowReport:
    """The result of a flow at one end."""

    flow: int
    label: str
    state: FlowState
    recorded_ns: int
    replayed_ns: int | None
    """From the first to the last packet sent or first received here."""
    sent: int
    resent: int
    received: int
    """Different packets."""
    duplicates: int
    sent_bytes: int
    resent_bytes: int
    received_bytes: int
