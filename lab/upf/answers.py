"""The answers of the UPF to orders, as JSON (docs/lab.md)."""

from __future__ import annotations

from typing import TypedDict


class Error(TypedDict):
    error: str


class Waiting(TypedDict):
    """Packets buffered for users, packets that found no room, and frames that a fault holds."""

    users: int
    overflowed: int
    faults: int


class SinceFaults(TypedDict):
    """Packets and session requests since the last order of faults."""

    uplink: int
    downlink: int
    session_requests: int


class Status(TypedDict):
    associations: int
    sessions: int
    totals: dict[str, int]
    waiting: Waiting
    could_not_be_sent: int
    end_markers_sent: int
    since_faults: SinceFaults
    interfaces: dict[str, dict[str, int]]


class PdrCounts(TypedDict):
    pdr: int
    direction: str
    teid: int | None
    ue_ipv4: str | None
    ue_ipv6: str | None
    packets: int
    bytes: int
    dropped: dict[str, int]


class SessionCounts(TypedDict):
    seid: int
    smf_seid: int
    pdrs: list[PdrCounts]


class Sessions(TypedDict):
    sessions: list[SessionCounts]


class FaultsSet(TypedDict):
    """`faults`: number of packets with a fault."""

    faults: int
    n4: dict[str, int]


class Restarted(TypedDict):
    restarted: bool


Answer = Error | Status | Sessions | FaultsSet | Restarted
