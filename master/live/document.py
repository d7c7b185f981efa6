"""Types of the live document (status.json, `pktswarm status --json`, the metrics).

None: not reported, or for a sum, not reported by every part of it. Bytes and bits include the FCS.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from pktswarm.master.live.job import JobDocument, JobProgress
from pktswarm.master.results.document_rows import StreamTotal

FORMAT_VERSION = 1
State = Literal["running", "finished", "died"]
NodeHealth = Literal["ok", "failed", "lost"]


class LatencyFigures(TypedDict):
    """Latency of the timed legs since the start; the mean is over the rate window."""

    latency_packets: int | None
    latency_sum_ns: int | None
    latency_mean_ns: float | None
    latency_min_ns: int | None
    latency_max_ns: int | None
    latency_bound_ns: int | None


class Counters(LatencyFigures):
    """Counts since the start; rates over the rate window."""

    intended_packets: int | None
    """Packets due by now."""
    intended_in_all_packets: int | None
    sent_packets: int | None
    sent_bytes: int | None
    sent_pps: float | None
    sent_bps: float | None
    received_packets: int | None
    received_bytes: int | None
    missing_packets: int | None
    duplicated_packets: int | None
    reordered_packets: int | None
    altered_packets: int | None
    received_pps: float | None
    received_bps: float | None
    loss_ratio: float | None
    """Missing ÷ all sequence numbers up to the highest received, of one sample of each receiver; None: not reported, or
    packets are sent and none arrives."""


class PartFigures(Counters):
    last_minute_pps: list[float | None]


class StreamFigures(PartFigures):
    stream: str
    group: str
    """target or background."""


class InterfaceFigures(TypedDict, total=False):
    """Linux' counters since the start; empty before the node's first sample."""

    tx_packets: int | None
    rx_packets: int | None
    tx_dropped: int | None
    rx_dropped: int | None
    link_downs: int | None
    tx_bytes: int | None
    tx_pps: float | None
    tx_bps: float | None
    rx_bytes: int | None
    rx_pps: float | None
    rx_bps: float | None
    cpu_busy_s: float | None
    cpu_ratio: float | None
    """1: all processors are busy."""


class NodeFigures(PartFigures):
    node: str
    role: str
    state: NodeHealth
    problem: str
    interface: InterfaceFigures


class SessionProgress(TypedDict):
    """Sessions that the UPF answered, and all that are requested."""

    done: int
    asked: int


class Warning(TypedDict):
    """`at_s`: seconds from the start to the first occurrence."""

    at_s: float
    text: str


class LiveDocument(TypedDict):
    format_version: int
    name: str
    utc: str
    phase: str
    sessions: SessionProgress | None
    """Present in the phases that establish and delete sessions."""
    elapsed_s: float
    expected_s: float
    left_s: float
    total: PartFigures
    streams: list[StreamFigures]
    nodes: list[NodeFigures]
    warnings: list[Warning]
    job: JobProgress | None
    """The search, benchmark, calibration or table that the run is part of; missing in documents of older versions."""


class StatusDocument(TypedDict, total=False):
    """Output of `pktswarm status --json`; `totals` of a finished run only."""

    results: str
    state: State
    status: int | None
    reason: str | None
    totals: list[StreamTotal]
    figures: LiveDocument | None
    job: JobDocument | None
