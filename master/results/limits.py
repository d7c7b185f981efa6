"""Whether what was measured is within its limits; as sure as it was measured, and no surer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pktswarm.master.results.row import Row, stream_values
from pktswarm.master.results.users import Users
from pktswarm.master.scenario.expectations import METRICS, Expect, Limits, Metric, allowed
from pktswarm.traffic.counting.tally import LARGEST_ERROR

Outcome = Literal["held", "failed", "not decided", "not measured"]
Values = Mapping[str, Any]
"""A row of streams.csv."""


@dataclass(frozen=True)
class Found:
    """In the unit of its limit. `bound`: how far off it may be."""

    value: float
    bound: float = 0.0

    def against(self, limit: float, at_least: bool) -> Outcome:
        short = limit - self.value if at_least else self.value - limit
        if short + self.bound <= 0:
            return "held"
        return "failed" if short - self.bound > 0 else "not decided"

    def __str__(self) -> str:
        return number(self.value) + (f" ± {number(self.bound)}" if self.bound else "")


def number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1e5 else f"{value:,.1f}"


def verdict(what: str, found: object, expected: object, outcome: Outcome, called: str = "") -> dict[str, Any]:
    """`what` is the same from run to run; `called`: what it is called where that does not read with `found`."""
    parts = {"what": called or what.rstrip(":"), "found": str(found), "expected": str(expected), "outcome": outcome}
    more = f": {outcome}" if outcome == "not decided" else ""
    return {"text": f"{what} {found}, expected {expected}{more}", "holds": outcome == "held", **parts}


def of_streams(expect: Expect, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One a stream and limit."""
    told = []
    for name in dict.fromkeys(row.leg.stream for row in rows):
        told += of_limits(name, expect.limits(name), [stream_values(row) for row in rows if row.leg.stream == name])
    return told


def of_limits(name: str, limits: Limits, rows: Sequence[Values]) -> list[dict[str, Any]]:
    """`rows`: the stream's, one for each pair of nodes."""
    told = []
    for key, limit in limits.given().items():
        metric = METRICS[key]
        expected = f"at {'least' if metric.at_least else 'most'} {limit if isinstance(limit, str) else number(limit)}"
        one = measured(metric, rows)
        base = whole(metric, rows)
        if one is None or base is None:
            told.append(verdict(f"{name}: {key}", "not measured", expected, "not measured"))
        else:
            told.append(verdict(f"{name}: {key}", one, expected, one.against(allowed(limit, base), metric.at_least)))
    return told


def whole(metric: Metric, rows: Sequence[Values]) -> float | None:
    """What a share is of; 0 where there are none."""
    return _sum(rows, metric.of) if metric.of else 0.0


def measured(metric: Metric, rows: Sequence[Values]) -> Found | None:
    """Of all pairs of nodes of a stream together; None where a part of it was not measured. Percentiles of several
    pairs make none of all: the longest stands for them."""
    if metric.unit != "us":
        total = _sum(rows, metric.column)
        return None if total is None else Found(total)
    values = [float(value) for row in rows if (value := row.get(metric.column)) is not None]
    if not values or len(values) < len(rows):
        return None
    if metric.column == "latency_mean_ns":
        packets = [row["received_packets"] or 0 for row in rows]
        if not sum(packets):
            return None
        value = sum(one * many for one, many in zip(values, packets, strict=True)) / sum(packets)
    else:
        value = max(values)
    return Found(value / 1000, max(_bound_ns(metric, row) for row in rows) / 1000)


def _bound_ns(metric: Metric, row: Values) -> float:
    """How well the clocks are known, and the width of the buckets that percentiles are made of. How well PTP steers
    clocks (`clock: ptp`) only PTP can tell: no bound is known then, and none is counted in."""
    if metric.stamped:
        return 0.0
    return (row.get("latency_bound_ns") or 0) + (LARGEST_ERROR * row[metric.column] if metric.rounded else 0)


def _sum(rows: Sequence[Values], column: str) -> float | None:
    values = [row.get(column) for row in rows]
    return None if not values or None in values else sum(value for value in values if value is not None)


# --- users ------------------------------------------------------------------------------------------------------------


def of_users(expect: Expect, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """One a stream and limit: of how many users it does not hold, and the worst one."""
    counted: dict[str, list[Row]] = {}
    for row in rows:
        if row.users is not None:
            counted.setdefault(row.leg.stream, []).append(row)
    return [
        _of_all(name, key, limit, those)
        for name, those in (counted or {"all streams": []}).items()
        for key, limit in expect.of_users.items()
    ]


def _of_all(name: str, key: str, limit: int | str | float, rows: list[Row]) -> dict[str, Any]:
    """The least sure outcome of any user is that of all: what was not measured, then what failed."""
    outcomes: dict[Outcome, int] = {}
    worst: tuple[float, str, Found] | None = None
    for row in rows:
        for user, (found, most) in _each(row, key, limit):
            outcome = "not measured" if found is None else found.against(most, at_least=False)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if found is not None and (worst is None or found.value - most > worst[0]):
                worst = found.value - most, user, found
    expected = f"at most {limit if isinstance(limit, str) else number(limit)} of each"
    what = f"{name}: users' {key}"
    if not outcomes:
        return verdict(what, "not measured", expected, "not measured")
    least = next(one for one in ("failed", "not measured", "not decided", "held") if one in outcomes)
    words = f"{outcomes[least]:,} of {sum(outcomes.values()):,} {least}"
    return verdict(what, words + (f", the worst {worst[1]}: {worst[2]}" if worst else ""), expected, least)


def _each(row: Row, key: str, limit: int | str | float) -> Iterable[tuple[str, tuple[Found | None, float]]]:
    """Each user of a leg with what was found of him, and the most that it may be."""
    users = row.users
    assert users is not None
    values = _losses(users) if key == "loss" else _latencies(users, key, row.clock_bound_ns)
    for n, found in enumerate(values):
        yield users.name(n), (found, allowed(limit, users.sent[n] if users.sent is not None else 0))


def _losses(users: Users) -> list[Found | None]:
    lost = users.lost()
    return [None] * users.count if lost is None else [Found(max(0, one)) for one in lost]


def _latencies(users: Users, key: str, bound_ns: float | None) -> list[Found | None]:
    """Who received nothing has none."""
    bound = bound_ns or 0
    if key == "latency_mean_us":
        values = users.latency_means_ns()
    elif users.received is None or not users.timed:
        values = []
    else:
        pairs = zip(users.received["latency_max_ns"], users.received["latencies"], strict=True)
        values = [float(most + users.shift_ns) if frames else None for most, frames in pairs]
    known = [None if one is None else Found(one / 1000, bound / 1000) for one in values[: users.count]]
    return known or [None] * users.count


# --- sessions ---------------------------------------------------------------------------------------------------------


def of_end_markers(expect: Expect, handover: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Compares the end markers that arrived with those requested of the UPF, where loss is judged. `handover`: that of
    run.json (master.upf.moved.report)."""
    markers = None if handover is None else handover["end_markers"]
    if expect.loss is None or handover is None or markers is None or not markers["asked"]:
        return []
    what, came = f"end markers of the UPF, handover of {handover['group']}:", f"{markers['came']:,} came"
    outcome = Found(markers["came"]).against(markers["asked"], at_least=True)
    return [verdict(what, came, f"{markers['asked']:,}", outcome)]


def of_sessions(expect: Expect, upf: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """`upf`: what became of the procedures on N4 (master.upf.session_results)."""
    if expect.sessions_accepted is None:
        return []
    what, expected = "sessions accepted:", f"at least {expect.sessions_accepted}"
    told = None if upf is None else upf["operations"].get("establishment")
    if told is None:
        return [verdict(what, "not measured", expected, "not measured")]
    least = allowed(expect.sessions_accepted, told["requested"])
    outcome = Found(told["accepted"]).against(least, at_least=True)
    return [verdict(what, f"{told['accepted']:,} of {told['requested']:,}", expected, outcome)]
