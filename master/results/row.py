"""The counts of one flow: a row of streams.csv."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pktswarm.master.results.document_rows import LatencyColumns, StampColumns, StreamRow
from pktswarm.master.results.users import Users
from pktswarm.traffic.counting.tally import Latency, Tally
from pktswarm.traffic.leg import Leg

STREAM_COLUMNS = [
    "stream",
    "from",
    "to",
    "intended_packets",
    "sent_packets",
    "received_packets",
    "lost_packets",
    "duplicated_packets",
    "reordered_packets",
    "altered_packets",
    "late_packets",
    "sent_bytes",
    "received_bytes",
    "latency_min_ns",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "latency_max_ns",
    "latency_bound_ns",
    "jitter_sd_ns",
    "jitter_rfc3550_ns",
    "lost_by",
    "engine",
    "first_ns",
    "last_ns",
    "sent_pps",
    "received_pps",
    "sent_bps",
    "received_bps",
    "k",
    "k_sender",
    "group",
    "resent_packets",
    "latency_by",
    "unstamped_sent_packets",
    "unstamped_received_packets",
    "sent_frames",
    "received_frames",
    "misdelivered_packets",
]


@dataclass
class Row:
    """The counts of one flow. None: not measured, an empty cell."""

    leg: Leg
    engine: str = ""
    intended: int | None = None
    sent: int | None = None
    received: int | None = None
    stamped: int | None = None
    """Stamped packets in `sent`, of a stamped trace."""
    unstamped: int | None = None
    """Packets without a stamp in `received`, of a stamped trace."""
    latest_ns: int | None = None
    """The largest lateness of a frame."""
    late: int | None = None
    """Packets sent after their due times, by an engine that has due times."""
    sent_bytes: int | None = None
    received_bytes: int | None = None
    seconds: float | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    missed: int = 0
    """Frames that the receiving engine missed."""
    tally: Tally | None = None
    """From an engine that reads stamps."""
    clock_bound_ns: int | None = None
    misdelivered: dict[str, int] | None = None
    """Wrong host → packets that arrived there; None: no other host reads stamps."""
    omitted_timing: list[str] = field(default_factory=list)
    """The figures omitted because of a clock fault, each with the reason."""
    left_ns: int | None = None
    """Send time of the first frame since the start instant, if the engine reports it."""
    captured: int | None = None
    """Packets that a capturing engine beside the counting one received."""
    resent: int | None = None
    """Packets that the engine interactive sent again, not in `sent`."""
    flows: list[dict[str, Any]] | None = None
    """The report of the sending end of an interactive leg on each flow."""
    matched: Latency | None = None
    """Latency from due times to captures, of a captured trace."""
    matched_bound_ns: int | None = None
    users: Users | None = None
    """The counts of single users, of a stream that has them."""
    marks: str | None = None
    """Bitmap of the received sequence numbers (ReceiveCount.marks), where other nodes count the leg too."""
    delays: list[list[int]] | None = None
    parts: dict[str, Row] = field(default_factory=dict)
    """Receiver → its counts, of a leg whose users move."""
    at_several: int = 0
    """Packets that arrived at a second of these receivers: duplicates."""
    sent_frames: int | None = None
    """Frames, where packets are sent in fragments."""
    received_frames: int | None = None

    @property
    def lost(self) -> int | None:
        """Stamped: distinct sequence numbers sent and never received. Unstamped: sent − received, which is negative if
        more packets were received than sent (duplicates, unmatched packets)."""
        if self.tally is not None and self.tally.distinct is not None:
            return self._lost_of_numbers(self.tally)
        return None if self.sent is None or self.received is None else self.sent - self.received

    @property
    def latency_by(self) -> str | None:
        if self.tally is not None and self.tally.latency is not None:
            return "stamps" if self.leg.echo_of is None else "round trip"
        return None if self.matched is None else "captures"

    @property
    def unstamped_sent(self) -> int | None:
        """Frames without room for a stamp, of a stamped trace."""
        return None if self.sent is None or self.stamped is None else self.sent - self.stamped

    def _lost_of_numbers(self, tally: Tally) -> int | None:
        if self.sent is None or self.unstamped is None:
            return None if self.sent is None else tally.lost(self.sent)
        lost = None if self.stamped is None else tally.lost(self.stamped)
        return None if lost is None or self.unstamped_sent is None else lost + self.unstamped_sent - self.unstamped

    @property
    def received_seconds(self) -> float | None:
        if self.first_ns is None or self.last_ns is None or self.last_ns <= self.first_ns:
            return None
        return (self.last_ns - self.first_ns) / 1e9

    @property
    def sent_gaps(self) -> int | None:
        """Gaps in `seconds`: those of xdp end with the last frame, those of others with the gap behind it."""
        return self.sent - 1 if self.sent and self.engine == "xdp" else self.sent

    @property
    def k(self) -> float | None:
        return _ratio(self.received, self.intended)

    @property
    def k_sender(self) -> float | None:
        return _ratio(self.sent, self.intended)


def stream_values(row: Row) -> StreamRow:
    """One row of streams.csv; bytes and bits count the FCS."""
    return {
        "stream": row.leg.stream,
        "from": row.leg.source,
        "to": row.leg.to,
        "intended_packets": row.intended,
        "sent_packets": row.sent,
        "received_packets": row.received,
        "lost_packets": row.lost,
        "late_packets": row.late,
        "sent_bytes": row.sent_bytes,
        "received_bytes": row.received_bytes,
        "lost_by": lost_by(row),
        **_stamp_values(row),
        **_latency_values(row),
        "engine": row.engine,
        "first_ns": row.first_ns,
        "last_ns": row.last_ns,
        "sent_pps": rate(row.sent_gaps, row.seconds),
        "received_pps": rate(None if row.received is None else row.received - 1, row.received_seconds),
        "sent_bps": rate(None if row.sent_bytes is None else 8 * row.sent_bytes, row.seconds),
        "received_bps": rate(None if row.received_bytes is None else 8 * row.received_bytes, row.received_seconds),
        "k": _rounded(row.k),
        "k_sender": _rounded(row.k_sender),
        "group": row.leg.group,
        "resent_packets": row.resent,
        "unstamped_sent_packets": row.unstamped_sent,
        "unstamped_received_packets": row.unstamped,
        "sent_frames": row.sent_frames,
        "received_frames": row.received_frames,
        "misdelivered_packets": None if row.misdelivered is None else sum(row.misdelivered.values()),
    }


def lost_by(row: Row) -> str | None:
    if row.lost is None:
        return None
    if row.tally is None or row.tally.distinct is None:
        return "difference"
    return "stamps+difference" if row.unstamped or row.unstamped_sent else "stamps"


def _stamp_values(row: Row) -> StampColumns:
    """The columns that only stamps fill; empty for engines without stamps."""
    if row.tally is None:
        return {}
    values: StampColumns = {
        "duplicated_packets": row.tally.duplicated,
        "reordered_packets": row.tally.reordered,
        "altered_packets": row.tally.altered,
    }
    if row.tally.jitter is not None:
        values["jitter_sd_ns"] = round(row.tally.jitter.sd_ns)
        values["jitter_rfc3550_ns"] = round(row.tally.jitter.rfc3550_ns)
    return values


def _latency_values(row: Row) -> LatencyColumns:
    by = row.latency_by
    latency = row.matched if by == "captures" else None if row.tally is None else row.tally.latency
    if latency is None:
        return {}
    return {
        "latency_min_ns": latency.min_ns,
        "latency_mean_ns": round(latency.mean_ns),
        "latency_p50_ns": latency.p50_ns,
        "latency_p90_ns": latency.p90_ns,
        "latency_p99_ns": latency.p99_ns,
        "latency_p999_ns": latency.p999_ns,
        "latency_max_ns": latency.max_ns,
        "latency_bound_ns": row.matched_bound_ns if by == "captures" else row.clock_bound_ns,
        "latency_by": by,
    }


def rate(amount: int | None, seconds: float | None) -> float | None:
    return None if amount is None or not seconds else round(amount / seconds, 1)


def _ratio(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
