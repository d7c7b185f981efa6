"""The columns of streams.csv, and the code that fills them from the counts of a flow."""

from __future__ import annotations

from pktswarm.master.results.document_rows import LatencyColumns, StampColumns, StreamRow
from pktswarm.master.results.row import ReceivedCounts, Row
from pktswarm.traffic.counting.tally import Latency

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
    "latency_packets",
]


def stream_values(row: Row) -> StreamRow:
    """One row of streams.csv; bytes and bits count the FCS."""
    sent, received = row.sent, row.received
    return {
        "stream": row.leg.stream,
        "from": row.leg.source,
        "to": row.leg.to,
        "intended_packets": row.intended,
        "sent_packets": sent.packets,
        "received_packets": received.packets,
        "lost_packets": row.lost,
        "late_packets": sent.late,
        "sent_bytes": sent.bytes,
        "received_bytes": received.bytes,
        "lost_by": row.lost_by,
        **_stamp_values(received),
        **_latency_values(row),
        "engine": sent.engine,
        "first_ns": received.first_ns,
        "last_ns": received.last_ns,
        "sent_pps": _rate(sent.gaps, sent.seconds),
        "received_pps": _rate(None if received.packets is None else received.packets - 1, received.seconds),
        "sent_bps": _rate(None if sent.bytes is None else 8 * sent.bytes, sent.seconds),
        "received_bps": _rate(None if received.bytes is None else 8 * received.bytes, received.seconds),
        "k": _rounded(row.k),
        "k_sender": _rounded(row.k_sender),
        "group": row.leg.group,
        "resent_packets": sent.resent,
        "unstamped_sent_packets": sent.unstamped,
        "unstamped_received_packets": received.unstamped,
        "sent_frames": sent.frames,
        "received_frames": received.frames,
        "misdelivered_packets": None if row.misdelivered is None else sum(row.misdelivered.values()),
    }


def _stamp_values(received: ReceivedCounts) -> StampColumns:
    """The columns that only stamps fill; empty for engines without stamps."""
    tally = received.tally
    if tally is None:
        return {}
    values: StampColumns = {
        "duplicated_packets": tally.duplicated,
        "reordered_packets": tally.reordered,
        "altered_packets": tally.altered,
    }
    if tally.jitter is not None:
        values["jitter_sd_ns"] = round(tally.jitter.sd_ns)
        values["jitter_rfc3550_ns"] = round(tally.jitter.rfc3550_ns)
    return values


def _latency_values(row: Row) -> LatencyColumns:
    """The latency by stamps, or by captures where there is none; empty where neither was measured."""
    if row.received.latency is not None:
        values = latency_values(row.received.latency, row.received.latency_bound_ns)
    elif row.capture.latency is not None:
        values = latency_values(row.capture.latency, row.capture.latency_bound_ns)
    else:
        return {}
    return {**values, "latency_by": row.latency_by}


def latency_values(latency: Latency, bound_ns: int | None) -> LatencyColumns:
    return {
        "latency_min_ns": latency.min_ns,
        "latency_mean_ns": round(latency.mean_ns),
        "latency_p50_ns": latency.p50_ns,
        "latency_p90_ns": latency.p90_ns,
        "latency_p99_ns": latency.p99_ns,
        "latency_p999_ns": latency.p999_ns,
        "latency_max_ns": latency.max_ns,
        "latency_bound_ns": bound_ns,
        "latency_packets": latency.frames,
    }


def _rate(amount: int | None, seconds: float | None) -> float | None:
    return None if amount is None or not seconds else round(amount / seconds, 1)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
