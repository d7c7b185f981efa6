"""Types of the results of N4: `upf` of run.json, and `pktswarm upf sessions --json`."""

from __future__ import annotations

from typing_extensions import TypedDict

from pktswarm.master.cluster.dut import DutEntry


class ResponseTimes(TypedDict):
    """Times from a request's first transmission to its response; None without a response."""

    count: int
    min_ns: int | None
    mean_ns: float | None
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None


class RequestCounts(TypedDict):
    """Counts of one kind of request (master.upf.statistics.Statistics)."""

    requested: int
    accepted: int
    failed: int
    failures: dict[str, int]
    outstanding: int
    repeated: int
    late: int
    other_seid: int
    seconds: float
    per_s: float | None
    response: ResponseTimes


class SessionRow(TypedDict):
    """One session, with its user's addresses. `upf`: the UPF's N3 address of the gNB's IP version."""

    group: str
    state: str
    ue_v4: str | None
    ue_v6: str | None
    local_seid: int
    remote_seid: int
    uplink_teid: int
    upf: str | None
    downlink_teid: int
    gnb: str


class GroupResult(TypedDict):
    """Sessions of a group by state; byte counts are the UPF's, None if no usage report has them."""

    name: str
    sessions: int
    states: dict[str, int]
    first: SessionRow
    last: SessionRow
    usage_reports: int
    uplink_bytes: int | None
    downlink_bytes: int | None
    total_bytes: int | None
    notifications: int


class UpfIdentity(TypedDict):
    n4: str
    node_id: str
    features: str


class SmfIdentity(TypedDict):
    address: str
    node_id: str


class Datagrams(TypedDict):
    sent: int
    repeated: int
    received: int
    late: int
    stray: int
    unreadable: int
    refused_by_host: int


class EventRow(TypedDict):
    unix_ns: int
    kind: str
    words: str


class N4Document(TypedDict, total=False):
    """All results but the single sessions; empty before the end of a run's N4 side."""

    upf: UpfIdentity
    smf: SmfIdentity
    groups: list[GroupResult]
    operations: dict[str, RequestCounts]
    churn_intended: int
    handover_intended: int
    heartbeats: RequestCounts
    heartbeats_answered: int
    datagrams: Datagrams
    events: list[EventRow]
    set_up_s: float
    dut: DutEntry
    """Only `pktswarm sessions` fills it: a run has it at the top of run.json."""
