"""Results of N4, as JSON, CSV, tables and lines."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Column, Table

from pktswarm.master.upf.document import GroupResult, N4Document, RequestCounts, SessionRow
from pktswarm.master.upf.operations import Operation
from pktswarm.master.upf.sessions import DOWNLINK, STATES, TOTAL, UPLINK, Sessions

if TYPE_CHECKING:
    from pktswarm.master.upf.signalling_load import Loads
    from pktswarm.master.upf.smf import Smf

TROUBLE = ("restarted", "gone", "forgotten")
HARMLESS = ("profiled", "replaced", "waited", "numbered", "unreleased")
"""Kinds of events (master.upf.smf.Event) that make a run incomplete, and those that are notes."""


def document(smf: Smf, loads: Loads) -> N4Document:
    """Returns all results but the single sessions (Sessions.user)."""
    done = {
        name: operation.statistics.to_json()
        for name, operation in operations(smf, loads).items()
        if operation.statistics.requested
    }
    made: N4Document = {
        "upf": {"n4": smf.upf.n4, "node_id": smf.upf_node_id, "features": smf.features.hex()},
        "smf": {"address": smf.own.address, "node_id": smf.own.node_id},
        "groups": [_group(smf.sessions, number) for number in range(len(smf.upf.groups))],
        "operations": done,
    }
    loads.add_due(made)
    made["heartbeats"] = smf.heartbeats.statistics.to_json()
    made["heartbeats_answered"] = smf.heartbeats_answered
    made["datagrams"] = smf.exchange.counts.to_json()
    made["events"] = [event.to_json() for event in smf.events]
    return made


def operations(smf: Smf, loads: Loads) -> dict[str, Operation]:
    return {
        "establishment": smf.establishing,
        **{f"modification ({action})": operation for action, operation in smf.modifying.items()},
        **loads.operations(),
        "deletion": smf.deleting,
    }


def failed(smf: Smf, loads: Loads) -> bool:
    """Returns whether the association was lost or a request failed."""
    trouble = any(event.kind in TROUBLE for event in smf.events)
    return trouble or any(operation.statistics.failed for operation in operations(smf, loads).values())


def write_users(file: Path, sessions: Sessions) -> None:
    """Writes a row for each session; a missing figure is empty."""
    with file.open("w", newline="") as out:
        rows = (sessions.user(row) for row in range(sessions.count))
        writer = csv.DictWriter(out, fieldnames=list(sessions.user(0)))
        writer.writeheader()
        writer.writerows(rows)


def group_table(document: N4Document) -> Table:
    """A row for each group of sessions."""
    groups = Table("group", "sessions", "users", "uplink to", "downlink to", "usage up / down, bytes", box=box.SIMPLE)
    for group in document["groups"]:
        states = ", ".join(f"{count} {name}" for name, count in group["states"].items())
        groups.add_row(group["name"], states, *(_span(group, of) for of in (_ue, _uplink, _downlink)), _usage(group))
    return groups


def operation_table(document: N4Document) -> Table:
    """A row for each kind of request."""
    columns = (
        "procedure",
        "requests",
        "accepted",
        "failed",
        "repeated",
        "per second",
        "p50, ms",
        "p99, ms",
        "maximum, ms",
    )
    table = Table(columns[0], *(Column(name, justify="right") for name in columns[1:]), box=box.SIMPLE)
    for name, counts in document["operations"].items():
        numbers = [counts["requested"], counts["accepted"], counts["failed"], counts["repeated"], counts["per_s"]]
        milliseconds = ["" if value is None else f"{value / 1e6:.3f}" for value in _times(counts)]
        table.add_row(name, *("" if value is None else f"{value:,.0f}" for value in numbers), *milliseconds)
    return table


def failures(document: N4Document) -> list[str]:
    """A line for each reason of failed requests."""
    operations = document.get("operations", {}).values()
    return [f"{count} x {reason}" for counts in operations for reason, count in counts["failures"].items()]


def print_tables(console: Console, document: N4Document) -> None:
    console.print(group_table(document))
    console.print(operation_table(document))
    for line in failures(document):
        console.print(line, style="yellow", markup=False)
    for event in document["events"]:
        style = "red" if event["kind"] in TROUBLE else None
        console.print(f"{event['kind']}: {event['words']}", style=style, markup=False, highlight=False)


def lines(document: N4Document) -> list[str]:
    """Returns requests, response times and final states, for the end of a run."""
    made = []
    for name, counts in document["operations"].items():
        line = f"{name}: {counts['accepted']:,} of {counts['requested']:,} accepted"
        line += f", {counts['repeated']:,} repeated" if counts["repeated"] else ""
        if counts["response"]["count"]:
            times = " / ".join(f"{(ns or 0) / 1e6:.2f}" for ns in _times(counts))
            line += f", answered in {times} ms (p50 / p99 / maximum)"
        made.append(line)
    return [*made, *closing(document)]


def closing(document: N4Document) -> list[str]:
    """Returns what the tables do not have: churn that was not requested, final states and heartbeats."""
    made = []
    intended = document.get("churn_intended", 0)
    establishing = document["operations"].get("churn: establishment")
    requested = establishing["requested"] if establishing else 0
    if intended != requested:
        made.append(f"churn: {intended:,} due, {requested:,} requested")
    states = ", ".join(f"{count:,} {name}" for name, count in _states(document).items())
    beats = document["heartbeats"]
    answered = f"{beats['accepted']} of {beats['requested']} heartbeats answered by the UPF"
    return [*made, f"sessions at the end: {states}; {answered}, {document['heartbeats_answered']} by the SMF"]


def _times(counts: RequestCounts) -> tuple[int | None, int | None, int | None]:
    response = counts["response"]
    return response["p50_ns"], response["p99_ns"], response["max_ns"]


def _states(document: N4Document) -> dict[str, int]:
    found: dict[str, int] = {}
    for group in document["groups"]:
        for name, count in group["states"].items():
            found[name] = found.get(name, 0) + count
    return found


def _span(group: GroupResult, of: Callable[[SessionRow], str]) -> str:
    first, last = of(group["first"]), of(group["last"])
    return first if first == last else f"{first}\n{last}"


def _ue(user: SessionRow) -> str:
    return " ".join(address for address in (user["ue_v4"], user["ue_v6"]) if address)


def _uplink(user: SessionRow) -> str:
    return f"{user['upf']} {user['uplink_teid']:#x}" if user["upf"] else ""


def _downlink(user: SessionRow) -> str:
    return f"{user['gnb']} {user['downlink_teid']:#x}"


def _usage(group: GroupResult) -> str:
    figures = [group["uplink_bytes"], group["downlink_bytes"]]
    return " / ".join("" if value is None else f"{value:,}" for value in figures) if group["usage_reports"] else ""


def _group(sessions: Sessions, number: int) -> GroupResult:
    rows = sessions.rows(number)
    states = np.bincount(sessions.state[rows], minlength=len(STATES)).tolist()
    group = sessions.upf.groups[number]
    first = int(sessions.starts[number])
    reports = int(sessions.usage_reports[rows].sum())
    return {
        "name": group.name,
        "sessions": group.sessions,
        "states": {name: count for name, count in zip(STATES, states, strict=True) if count},
        "first": sessions.user(first),
        "last": sessions.user(first + group.sessions - 1),
        "usage_reports": reports,
        "uplink_bytes": _sum(sessions.uplink_bytes[rows], sessions.measured[rows], UPLINK),
        "downlink_bytes": _sum(sessions.downlink_bytes[rows], sessions.measured[rows], DOWNLINK),
        "total_bytes": _sum(sessions.total_bytes[rows], sessions.measured[rows], TOTAL),
        "notifications": int(sessions.notifications[rows].sum()),
    }


def _sum(values: NDArray[np.uint64], measured: NDArray[np.uint8], which: int) -> int | None:
    """Sums the sessions whose reports have this volume; None if none has: not measured is not 0."""
    has_it = (measured & which) != 0
    return int(values[has_it].sum()) if has_it.any() else None
