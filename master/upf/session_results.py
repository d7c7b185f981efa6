"""What became of the sessions, as JSON and as tables."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from pktswarm.master.upf.operations import Operation
from pktswarm.master.upf.sessions import DOWNLINK, STATES, TOTAL, UPLINK, Sessions

if TYPE_CHECKING:
    from pktswarm.master.upf.signalling_load import Loads
    from pktswarm.master.upf.smf import Smf

TROUBLE = ("restarted", "gone", "forgotten")
HARMLESS = ("profiled", "replaced", "waited", "numbered", "unreleased")
"""Kinds of events (master.upf.smf.Event): those that make a run incomplete, and those that are a note."""


def document(smf: Smf, loads: Loads) -> dict[str, Any]:
    """Everything but the single sessions (Sessions.user has those)."""
    done = {name: one.statistics.to_json() for name, one in operations(smf, loads).items() if one.statistics.requested}
    return {
        "upf": {"n4": smf.upf.n4, "node_id": smf.upf_node_id, "features": smf.features.hex()},
        "smf": {"address": smf.own.address, "node_id": smf.own.node_id},
        "groups": [_group(smf.sessions, number) for number in range(len(smf.upf.groups))],
        "operations": done,
        **loads.to_json(),
        "heartbeats": smf.heartbeats.statistics.to_json(),
        "heartbeats_answered": smf.heartbeats_answered,
        "datagrams": asdict(smf.exchange.counts),
        "events": [asdict(event) for event in smf.events],
    }


def operations(smf: Smf, loads: Loads) -> dict[str, Operation]:
    return {
        "establishment": smf.establishing,
        **{f"modification ({action})": one for action, one in smf.modifying.items()},
        "usage query": smf.querying,
        **loads.operations(),
        "deletion": smf.deleting,
    }


def failed(smf: Smf, loads: Loads) -> bool:
    """Whether anything was not as it was asked for."""
    trouble = any(event.kind in TROUBLE for event in smf.events)
    return trouble or any(one.statistics.failed for one in operations(smf, loads).values())


def write_users(file: Path, sessions: Sessions) -> None:
    """Every session as a row; a figure that there is not is empty."""
    with file.open("w", newline="") as out:
        rows = (sessions.user(row) for row in range(sessions.count))
        writer = csv.DictWriter(out, fieldnames=list(sessions.user(0)))
        writer.writeheader()
        writer.writerows(rows)


def print_tables(console: Console, told: dict[str, Any]) -> None:
    groups = Table("group", "sessions", "users", "uplink to", "downlink to", "usage up / down, bytes", box=box.SIMPLE)
    for group in told["groups"]:
        states = ", ".join(f"{count} {name}" for name, count in group["states"].items())
        groups.add_row(group["name"], states, *(_span(group, of) for of in (_ue, _uplink, _downlink)), _usage(group))
    console.print(groups)
    columns = ("asked", "requests", "accepted", "failed", "repeated", "per second", "p50, ms", "p99, ms", "max, ms")
    table = Table(*columns, box=box.SIMPLE)
    for name, one in told["operations"].items():
        times = [one["response"][f"{point}_ns"] for point in ("p50", "p99", "max")]
        numbers = [one["requested"], one["accepted"], one["failed"], one["repeated"], one["per_s"]]
        milliseconds = ["" if value is None else f"{value / 1e6:.3f}" for value in times]
        table.add_row(name, *("" if value is None else f"{value:,.0f}" for value in numbers), *milliseconds)
    console.print(table)
    for one in told["operations"].values():
        for words, count in one["failures"].items():
            console.print(f"{count} x {words}", style="yellow", markup=False)
    for event in told["events"]:
        style = "red" if event["kind"] in TROUBLE else None
        console.print(f"{event['kind']}: {event['words']}", style=style, markup=False, highlight=False)


def lines(told: dict[str, Any]) -> list[str]:
    """Of document(), for the end of a run: what was asked of the UPF, how fast it answered, what became of it all."""
    made = []
    for name, one in told["operations"].items():
        words = f"{name}: {one['accepted']:,} of {one['requested']:,} accepted"
        words += f", {one['repeated']:,} repeated" if one["repeated"] else ""
        times = [one["response"][f"{point}_ns"] for point in ("p50", "p99", "max")]
        if one["response"]["count"]:
            words += ", answered in " + " / ".join(f"{ns / 1e6:.2f}" for ns in times) + " ms (p50 / p99 / max)"
        made.append(words)
    intended = told.get("churn_intended", 0)
    came = told["operations"].get("churn: establishment", {"requested": 0})["requested"]
    if intended != came:
        made.append(f"churn: {intended:,} were due, {came:,} came")
    states = ", ".join(f"{count:,} {name}" for name, count in _states(told).items())
    beats = told["heartbeats"]
    answered = f"{beats['accepted']} of {beats['requested']} heartbeats answered"
    return [*made, f"sessions at the end: {states}; {answered}, {told['heartbeats_answered']} of the UPF's"]


def _states(told: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for group in told["groups"]:
        for name, count in group["states"].items():
            found[name] = found.get(name, 0) + count
    return found


def _span(group: dict[str, Any], of: Callable[[dict[str, Any]], str]) -> str:
    first, last = of(group["first"]), of(group["last"])
    return first if first == last else f"{first}\n{last}"


def _ue(user: dict[str, Any]) -> str:
    return " ".join(address for address in (user["ue_v4"], user["ue_v6"]) if address)


def _uplink(user: dict[str, Any]) -> str:
    return f"{user['upf']} {user['uplink_teid']:#x}" if user["upf"] else ""


def _downlink(user: dict[str, Any]) -> str:
    return f"{user['gnb']} {user['downlink_teid']:#x}"


def _usage(group: dict[str, Any]) -> str:
    figures = [group["uplink_bytes"], group["downlink_bytes"]]
    return " / ".join("" if value is None else f"{value:,}" for value in figures) if group["usage_reports"] else ""


def _group(sessions: Sessions, number: int) -> dict[str, Any]:
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
    """None where no report told it: what was not measured is not 0."""
    told = (measured & which) != 0
    return int(values[told].sum()) if told.any() else None
