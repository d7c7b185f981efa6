"""Accepted and failed handovers of a run, per user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.leg import Leg

if TYPE_CHECKING:
    from pktswarm.master.upf.signalling_load import Handover


@dataclass(frozen=True)
class Move:
    """An accepted handover. `left`: address of the source gNB; `teid`: the tunnel there, ended by an end marker."""

    at_ns: int
    left: str
    teid: int


@dataclass(frozen=True)
class Moves:
    """The handovers of a run. Times are the master's CLOCK_MONOTONIC."""

    group: str
    end_marker: bool
    """Whether the requests ask for end markers."""
    intended: int
    requested: int
    failures: dict[str, int]
    accepted: list[Move]
    by_user: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)
    """Initial gNB → accepted and failed handovers of each of its users, in order."""

    @classmethod
    def of_load(cls, load: Handover, now_ns: int) -> Moves:
        sessions, statistics = load.sessions, load.moving.statistics
        rows = sessions.rows_of(load.settings.group)
        made = [
            Move(at_ns, str(sessions.gnb_addresses[load.left(gnb)]), int(sessions.downlink_teid[row]))
            for at_ns, row, gnb in zip(*load.moves, strict=True)
        ]
        return cls(
            group=load.settings.group,
            end_marker=load.settings.end_marker,
            intended=load.rate.intended(now_ns),
            requested=statistics.requested,
            failures=dict(statistics.failures),
            accepted=made,
            by_user={name: _counts(load, rows[load.home[rows] == n]) for n, name in enumerate(sessions.gnbs)},
        )

    def of(self, leg: Leg) -> tuple[list[int], list[int]] | None:
        """Returns Users.moves of a leg."""
        session = None if leg.users is None else leg.users.session
        return None if session is None or session.group != self.group else self.by_user[session.gnb]


def _counts(load: Handover, rows: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    return load.accepted[rows].tolist(), load.failed[rows].tolist()
