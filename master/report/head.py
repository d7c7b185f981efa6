"""The head of a report: rate, loss, latency and verdict of each stream and of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pktswarm.master.report.formatting import NOT_MEASURED, microseconds
from pktswarm.master.results.document import RunDocument, Verdict
from pktswarm.master.results.document_rows import RunRow, StreamTotal
from pktswarm.master.results.latency_histogram import Flow, Points, nearest_rank

P99 = 0.99


@dataclass
class HeadRow:
    """The figures of a stream, or of all. `received_pps`, `received_bps`: means from the first arrival to the last."""

    name: str
    received_pps: float | None
    received_bps: float | None
    lost_packets: int | None
    sent_packets: int | None
    p99: str
    """In µs, with the bound of the clocks."""
    verdict: str
    kind: str
    """Class of the verdict's style; empty: nothing was expected."""


def head(document: RunDocument, histograms: Mapping[Flow, Points]) -> list[HeadRow]:
    """One row for each stream; with several, or with verdicts on more than streams, one for all at the end."""
    if not document["totals"]:
        return []
    *streams, total = document["totals"]
    verdicts, rows = document["verdicts"], document["rows"]
    made = [
        _row(each, each["stream"], [row for row in rows if row["stream"] == each["stream"]], histograms, judged)
        for each in streams
        for judged in [[one for one in verdicts if _what(one).startswith(f"{each['stream']}: ")]]
    ]
    if len(made) == 1 and sum(_what(one).startswith(f"{made[0].name}: ") for one in verdicts) == len(verdicts):
        return made
    return [*made, _row(total, "all", rows, histograms, verdicts)]


def _what(verdict: Verdict) -> str:
    return verdict.get("what", verdict["text"])


def _row(
    total: StreamTotal,
    name: str,
    rows: Sequence[RunRow],
    histograms: Mapping[Flow, Points],
    verdicts: Sequence[Verdict],
) -> HeadRow:
    pps, bps = _rates(rows)
    judged, kind = _judged(verdicts)
    return HeadRow(name, pps, bps, total["lost_packets"], total["sent_packets"], _p99(rows, histograms), judged, kind)


def _rates(rows: Sequence[RunRow]) -> tuple[float | None, float | None]:
    """Packets/s and bits/s from the first arrival of all flows to the last; of one flow as in streams.csv."""
    if len(rows) == 1:
        return rows[0]["received_pps"], rows[0]["received_bps"]
    received = [row for row in rows if row["received_packets"] != 0]
    packets, size = ([row[name] for row in received] for name in ("received_packets", "received_bytes"))
    firsts, lasts = ([row[name] for row in received if row[name] is not None] for name in ("first_ns", "last_ns"))
    if not received or None in packets or len(firsts) < len(received) or len(lasts) < len(received):
        return None, None
    seconds = (max(ns for ns in lasts if ns is not None) - min(ns for ns in firsts if ns is not None)) / 1e9
    if seconds <= 0:
        return None, None
    bps = None if None in size else 8 * sum(one or 0 for one in size) / seconds
    return (sum(one or 0 for one in packets) - 1) / seconds, bps


def _p99(rows: Sequence[RunRow], histograms: Mapping[Flow, Points]) -> str:
    """The 99th percentile over the flows with latency: from their histograms, or the largest as its upper limit."""
    each = [row for row in rows if row.get("latency_p99_ns") is not None]
    received = [row for row in rows if row["received_packets"]]
    if not each or len(each) < len(received):
        return NOT_MEASURED
    points = [histograms.get((row["stream"], row["from"], row["to"])) for row in each]
    largest_ns = max(row.get("latency_p99_ns") or 0 for row in each)
    known = [one for one in points if one is not None]
    if len(each) == 1:
        text = microseconds(largest_ns)
    elif len(known) == len(each):
        text = microseconds(nearest_rank(sorted(point for one in known for point in one), P99))
    else:
        text = f"≤ {microseconds(largest_ns)}"
    bounds = [bound for row in each if (bound := row.get("latency_bound_ns")) is not None]
    return f"{text} ± {microseconds(max(bounds))}" if bounds else text


def _judged(verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """The verdict in words, and the class of its style."""
    if not verdicts:
        return "nothing expected", ""
    outcomes = [one.get("outcome") or ("held" if one["holds"] else "failed") for one in verdicts]
    for outcome, kind, mark in (("failed", "bad", "✗"), ("not measured", "doubt", "!"), ("not decided", "doubt", "!")):
        if count := outcomes.count(outcome):  # type: ignore[arg-type] # one of Judgement
            return f"{mark} {outcome}: {count} of {len(outcomes)}", kind
    return f"✓ held: {len(outcomes)} of {len(outcomes)}", "good"
