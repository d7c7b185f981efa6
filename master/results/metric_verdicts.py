"""Verdicts on `expect`'s limits of metrics: latency, jitter and counts of streams, of users, and of sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import cast

from pktswarm.master.results.document import Judgement, Verdict
from pktswarm.master.results.document_handover import HandoverResult
from pktswarm.master.results.document_rows import StreamRow
from pktswarm.master.results.judgement import Measurement, number, verdict
from pktswarm.master.results.row import Row
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.results.users import Users
from pktswarm.master.scenario.expectations import METRICS, Expect, Limits, Metric, allowed
from pktswarm.master.upf.document import N4Document
from pktswarm.traffic.counting.latency_histogram import LARGEST_ERROR


def of_streams(expect: Expect, rows: Sequence[Row]) -> list[Verdict]:
    """One verdict for each stream and limit."""
    verdicts = []
    for name in dict.fromkeys(row.leg.stream for row in rows):
        flows = [stream_values(row) for row in rows if row.leg.stream == name]
        verdicts += of_limits(name, expect.limits(name), flows)
    return verdicts


def of_limits(name: str, limits: Limits, rows: Sequence[StreamRow]) -> list[Verdict]:
    """One verdict for each limit. `rows`: the flows of the stream."""
    verdicts = []
    for key, limit in limits.given().items():
        metric = METRICS[key]
        expected = f"at {'least' if metric.at_least else 'most'} {limit if isinstance(limit, str) else number(limit)}"
        value, base = measured(metric, rows), base_count(metric, rows)
        if value is None or base is None:
            verdicts.append(verdict(f"{name}: {key}", "not measured", expected, "not measured"))
        else:
            outcome = value.against(allowed(limit, base), metric.at_least)
            verdicts.append(verdict(f"{name}: {key}", value, expected, outcome))
    return verdicts


def base_count(metric: Metric, rows: Sequence[StreamRow]) -> float | None:
    """The count that a limit in percent refers to; 0 where the metric has none."""
    return _sum(rows, metric.of) if metric.of else 0.0


def measured(metric: Metric, rows: Sequence[StreamRow]) -> Measurement | None:
    """The metric over all flows of a stream; None where one of them was not measured. Percentiles of flows cannot be
    combined: the largest stands for the stream."""
    if metric.unit != "us":
        total = _sum(rows, metric.column)
        return None if total is None else Measurement(total)
    values = [value for row in rows if (value := _figure(row, metric.column)) is not None]
    if not values or len(values) < len(rows):
        return None
    if metric.column == "latency_mean_ns":
        packets = [row["received_packets"] or 0 for row in rows]
        if not sum(packets):
            return None
        value = sum(mean * count for mean, count in zip(values, packets, strict=True)) / sum(packets)
    else:
        value = max(values)
    return Measurement(value / 1000, max(_bound_ns(metric, row) for row in rows) / 1000)


def _bound_ns(metric: Metric, row: StreamRow) -> float:
    """The error bound of the clocks, if one is known, and the bucket width of percentiles."""
    if metric.stamped:
        return 0.0
    width_ns = LARGEST_ERROR * (_figure(row, metric.column) or 0) if metric.rounded else 0
    return (row.get("latency_bound_ns") or 0) + width_ns


def _sum(rows: Sequence[StreamRow], column: str) -> float | None:
    values = [_figure(row, column) for row in rows]
    return None if not values or None in values else sum(value for value in values if value is not None)


def _figure(row: StreamRow, column: str) -> float | None:
    return cast("float | None", row.get(column))


# --- users ------------------------------------------------------------------------------------------------------------


def of_users(expect: Expect, rows: Iterable[Row]) -> list[Verdict]:
    """One verdict for each stream and limit, with the number of users that violate it and the worst of them."""
    streams: dict[str, list[Row]] = {}
    for row in rows:
        if row.users is not None:
            streams.setdefault(row.leg.stream, []).append(row)
    return [
        _users_verdict(name, key, limit, flows)
        for name, flows in (streams or {"all streams": []}).items()
        for key, limit in expect.of_users.items()
    ]


def _users_verdict(name: str, key: str, limit: int | str | float, rows: Sequence[Row]) -> Verdict:
    """The verdict on all users: "failed" before "not measured", "not decided" and "held"."""
    outcomes: Counter[Judgement] = Counter()
    worst: tuple[float, str, Measurement] | None = None
    for row in rows:
        for user, value, most in _each_user(row, key, limit):
            outcomes["not measured" if value is None else value.against(most, at_least=False)] += 1
            if value is not None and (worst is None or value.value - most > worst[0]):
                worst = value.value - most, user, value
    expected = f"at most {limit if isinstance(limit, str) else number(limit)} per user"
    label = f"{name}: users' {key}"
    if not outcomes:
        return verdict(label, "not measured", expected, "not measured")
    order: tuple[Judgement, ...] = ("failed", "not measured", "not decided", "held")
    least = next(outcome for outcome in order if outcome in outcomes)
    text = f"{outcomes[least]:,} of {outcomes.total():,} {least}"
    return verdict(label, text + (f", the worst {worst[1]}: {worst[2]}" if worst else ""), expected, least)


def _each_user(row: Row, key: str, limit: int | str | float) -> Iterable[tuple[str, Measurement | None, float]]:
    """For each user of a flow: its name, its value and the highest allowed value."""
    users = row.users
    assert users is not None
    values = _losses(users) if key == "loss" else _latencies(users, key, row.received.latency_bound_ns)
    for n, value in enumerate(values):
        yield users.name(n), value, allowed(limit, users.sent[n] if users.sent is not None else 0)


def _losses(users: Users) -> list[Measurement | None]:
    lost = users.lost()
    return [None] * users.count if lost is None else [Measurement(max(0, packets)) for packets in lost]


def _latencies(users: Users, key: str, bound_ns: float | None) -> list[Measurement | None]:
    """None for a user that received nothing."""
    bound = bound_ns or 0
    if key == "latency_mean_us":
        values = users.latency_means_ns()
    elif users.received is None or not users.timed:
        values = []
    else:
        pairs = zip(users.received["latency_max_ns"], users.received["latencies"], strict=True)
        values = [float(most + users.shift_ns) if frames else None for most, frames in pairs]
    known = [None if ns is None else Measurement(ns / 1000, bound / 1000) for ns in values[: users.count]]
    return known or [None] * users.count


# --- sessions ---------------------------------------------------------------------------------------------------------


def of_end_markers(expect: Expect, handover: HandoverResult | None) -> list[Verdict]:
    """Compares the received end markers with those requested of the UPF, where loss is judged."""
    markers = None if handover is None else handover["end_markers"]
    if expect.loss is None or handover is None or markers is None or not markers["asked"]:
        return []
    label = f"end markers of the UPF, handover of {handover['group']}:"
    outcome = Measurement(markers["came"]).against(markers["asked"], at_least=True)
    return [verdict(label, f"{markers['came']:,} received", f"{markers['asked']:,}", outcome)]


def of_sessions(expect: Expect, upf: N4Document | None) -> list[Verdict]:
    """Compares the accepted with the requested sessions."""
    if expect.sessions_accepted is None:
        return []
    label, expected = "sessions accepted:", f"at least {expect.sessions_accepted}"
    requests = None if upf is None else upf.get("operations", {}).get("establishment")
    if requests is None:
        return [verdict(label, "not measured", expected, "not measured")]
    least = allowed(expect.sessions_accepted, requests["requested"])
    outcome = Measurement(requests["accepted"]).against(least, at_least=True)
    return [verdict(label, f"{requests['accepted']:,} of {requests['requested']:,}", expected, outcome)]
