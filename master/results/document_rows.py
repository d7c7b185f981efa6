"""The types of the counts in run.json: sums, flows, connections, users. None: not measured."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

Ends = TypedDict("Ends", {"from": str, "to": str})


class PacketSums(TypedDict):
    intended_packets: int | None
    sent_packets: int | None
    received_packets: int | None
    lost_packets: int | None
    k: float | None
    k_sender: float | None


class StreamTotal(PacketSums):
    stream: str


class GroupTotal(PacketSums):
    group: str


class NodeTotal(PacketSums):
    node: str
    role: str


class LatencyColumns(TypedDict):
    latency_min_ns: NotRequired[int | None]
    latency_mean_ns: NotRequired[int | None]
    latency_p50_ns: NotRequired[int | None]
    latency_p90_ns: NotRequired[int | None]
    latency_p99_ns: NotRequired[int | None]
    latency_p999_ns: NotRequired[int | None]
    latency_max_ns: NotRequired[int | None]
    latency_bound_ns: NotRequired[int | None]
    latency_packets: NotRequired[int | None]
    """The number of packets in the figures; a receiver of fast frames does not time each."""
    latency_by: NotRequired[str | None]
    """stamps, round trip or captures."""


class StampColumns(TypedDict):
    duplicated_packets: NotRequired[int | None]
    reordered_packets: NotRequired[int | None]
    altered_packets: NotRequired[int | None]
    jitter_sd_ns: NotRequired[int | None]
    jitter_rfc3550_ns: NotRequired[int | None]


class StreamRow(Ends, LatencyColumns, StampColumns):
    """A row of streams.csv: the counts of one flow."""

    stream: str
    intended_packets: int | None
    sent_packets: int | None
    received_packets: int | None
    lost_packets: int | None
    late_packets: NotRequired[int | None]
    sent_bytes: int | None
    received_bytes: int | None
    lost_by: NotRequired[str | None]
    engine: str
    first_ns: int | None
    last_ns: int | None
    sent_pps: float | None
    received_pps: float | None
    sent_bps: float | None
    received_bps: float | None
    k: float | None
    k_sender: float | None
    group: NotRequired[str]
    resent_packets: NotRequired[int | None]
    unstamped_sent_packets: NotRequired[int | None]
    unstamped_received_packets: NotRequired[int | None]
    sent_frames: NotRequired[int | None]
    received_frames: NotRequired[int | None]
    misdelivered_packets: NotRequired[int | None]


class ReceiverPart(LatencyColumns):
    """The counts of one receiver of a flow that several receivers count."""

    to: str
    received_packets: int | None
    received_frames: NotRequired[int | None]
    duplicated_packets: int | None
    reordered_packets: int | None
    altered_packets: int | None
    received_bytes: int | None
    first_ns: int | None
    last_ns: int | None


class RunRow(StreamRow):
    leg: int
    each: NotRequired[list[ReceiverPart]]


class NodeRow(TypedDict):
    """A row of nodes.csv: one rank."""

    node: str
    role: str
    state: str
    interface: str
    driver: str | None
    kernel: str | None
    sent_packets: int | None
    received_packets: int | None
    missed_packets: int | None
    tx_packets: int | None
    rx_packets: int | None
    tx_dropped_packets: int | None
    rx_dropped_packets: int | None
    tx_error_packets: int | None
    rx_error_packets: int | None
    failed_packets: int | None
    clock_offset_ns: int | None
    clock_bound_ns: int | None
    released_ns: int | None
    problem: str


class ReplayedFlow(Ends):
    """A row of flows.csv: a flow of an interactive trace."""

    stream: str
    flow: int
    ports: str
    state: str
    recorded_ns: int
    replayed_ns: int | None
    stretch: float | None
    sent_packets: int
    resent_packets: int
    received_packets: int | None
    answers_sent_packets: int | None
    answers_resent_packets: int | None
    answers_received_packets: int
    duplicated_packets: int | None


class ConnectionResult(Ends):
    """A row of connections.csv."""

    leg: int
    connections: str
    direction: str
    role: str
    protocol: str
    parallel: int
    intended_blocks: NotRequired[int | None]
    sent_blocks: NotRequired[int]
    received_blocks: NotRequired[int]
    late_blocks: NotRequired[int | None]
    intended_bytes: NotRequired[int | None]
    sent_bytes: NotRequired[int]
    received_bytes: NotRequired[int]
    sent_datagrams: NotRequired[int | None]
    received_datagrams: NotRequired[int | None]
    lost_datagrams: int | None
    duplicated_datagrams: NotRequired[int | None]
    reordered_datagrams: NotRequired[int | None]
    goodput_bps: NotRequired[int | None]
    retransmitted_segments: NotRequired[int | None]
    rtt_min_ns: NotRequired[int | None]
    rtt_mean_ns: NotRequired[int | None]
    rtt_sd_ns: NotRequired[int | None]
    delay_min_ns: NotRequired[int]
    delay_mean_ns: NotRequired[int]
    delay_max_ns: NotRequired[int]
    delay_bound_ns: NotRequired[int | None]
    jitter_sd_ns: NotRequired[int | None]
    congestion: NotRequired[str | None]
    first_ns: NotRequired[int | None]
    last_ns: NotRequired[int | None]


class VerifiedTrace(Ends):
    """The packets of a captured trace compared with the intended ones."""

    leg: int
    stream: str
    intended: int
    captured: int
    as_intended: int
    altered: int
    lost: int
    duplicated: int
    reordered: int
    error_p50_ns: int | None
    error_p90_ns: int | None
    error_p99_ns: int | None
    error_max_ns: int | None


class CaptureLatency(TypedDict):
    """Latency from due times to captures."""

    leg: int
    frames: int
    min_ns: int
    mean_ns: float
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    negative: NotRequired[int]
    bound_ns: int | None
    latest_ns: int | None


class UserRow(Ends):
    """A row of users.csv."""

    stream: str
    user: str
    sent_packets: NotRequired[int | None]
    received_packets: NotRequired[int | None]
    lost_packets: NotRequired[int | None]
    sent_bytes: NotRequired[int | None]
    received_bytes: NotRequired[int | None]
    latency_min_ns: NotRequired[int | None]
    latency_mean_ns: NotRequired[int | None]
    latency_max_ns: NotRequired[int | None]
    handovers: NotRequired[int]
    failed_handovers: NotRequired[int]


class WorstUser(TypedDict):
    user: str
    group: str
    lost_packets: int
    sent_packets: int
    latency_mean_ns: int | None
    latency_max_ns: int | None
    streams: list[UserRow]


class UserAboveMbr(TypedDict):
    user: str
    rate_bps: int
    beyond: float
    """Rate above the MBR, as a share of the MBR."""


class MbrResult(TypedDict):
    """The received rates of one group's users in one direction against their MBR. `users` None: not measured."""

    group: str
    direction: str
    mbr_bps: float
    users: int | None
    seconds: NotRequired[float]
    highest_bps: NotRequired[int]
    beyond_users: NotRequired[int]
    beyond: NotRequired[list[UserAboveMbr]]


class UsersResult(TypedDict):
    worst: list[WorstUser]
    mbr: list[MbrResult]
