"""The types of `handover` in run.json. Those of `upf` are in master.upf.document."""

from __future__ import annotations

from typing_extensions import TypedDict


class EndMarkers(TypedDict):
    asked: int
    came: int
    others: int
    not_looked_for: int


class HandoverLoss(TypedDict):
    users: int
    lost_packets: int
    sent_packets: int


class HandoverResult(TypedDict):
    """The handovers of a group of users between gNBs. `end_markers` None: none requested."""

    group: str
    intended: int
    requested: int
    accepted: int
    failures: dict[str, int]
    users: dict[str, int]
    end_markers: EndMarkers | None
    lost: dict[str, dict[str, HandoverLoss | None]]
    """Direction → moved, failed or stayed → loss; None: not measured."""
