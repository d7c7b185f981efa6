"""The page of a run: everything that the template shows, gathered from its results folder."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from pktswarm.master.report import limits, over_time, plots
from pktswarm.master.report.folder import SAMPLES, Results
from pktswarm.master.report.over_time import MOST_STREAMS, PEAK_S, OverTime
from pktswarm.master.report.plots import Plot
from pktswarm.master.report.render import render
from pktswarm.master.report.shapes import Shapes, shapes
from pktswarm.master.results.row import STREAM_COLUMNS
from pktswarm.master.results.verdicts import node_totals
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.traffic.connections.counts import COLUMNS
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

MOST_ROWS = 200
"""Of a table in the page; the CSV has all."""
VERDICTS = {EXIT_AS_EXPECTED: "As expected", EXIT_INCOMPLETE: "Incomplete"}
REPORT = ("kernel", "machine", "cpus", "python", "pktswarm")
INTERFACE = ("name", "driver", "speed_mbps")
"""What a node tells of itself; one that was lost early told nothing."""
DESCRIBED = {
    "streams.csv": "one row for each leg",
    "users.csv": "one row for each user of each leg",
    "flows.csv": "one row for each flow of interactive traces",
    "flow_counts.csv": "one row for each flow of captured traces",
    "connections.csv": "real connections",
    "sessions.csv": "the UPF's sessions",
    "nodes.csv": "one row for each rank",
    "samples.csv": "counts over time",
    "run.json": "everything but the samples",
    "log.jsonl": "every event as it came",
}


def html(results: Results) -> str:
    """The page; writes the CSV files of its plots into the results folder. OSError where that cannot be."""
    return render("report.html", _context(results))


def _context(results: Results) -> dict[str, Any]:
    document = results.document
    rows = [{**dict.fromkeys(STREAM_COLUMNS), **row} for row in document.get("rows", [])]
    document = {**document, "rows": rows}
    samples = _samples(results, rows)
    shaped, peaks = _shapes(results), _peaks(results, samples)
    nodes = _table(results.path / "nodes.csv")
    verdicts = document.get("verdicts", [])
    timed = [row for row in rows if row["latency_max_ns"] is not None]
    return {
        "name": document.get("name", results.path.name),
        "folder": results.path.resolve().name,
        "path": results.path,
        "crashed": results.crashed,
        "missing": results.missing,
        "document": document,
        "outcome": _outcome(document, results.crashed),
        "failed": [one for one in verdicts if not one["holds"]],
        "held": [one for one in verdicts if one["holds"]],
        "totals": [*document.get("totals", [])[:-1], *_groups(document), *document.get("totals", [])[-1:]],
        "rows": _worst_first(limits.asked_and_obtained(document)),
        "timed": _worst_first(timed),
        "all_timed": timed,
        "stamped": [row for row in rows if row["duplicated_packets"] is not None],
        "shown": MOST_ROWS,
        "nodes": _nodes(document, nodes, samples, peaks),
        "losses": node_totals(rows),
        "connections": [{**dict.fromkeys(COLUMNS), **row} for row in document.get("connections", [])],
        "worst": document.get("users", {}).get("worst", []),
        "samples": samples,
        "plots": plots.over_time(samples, results.path) if samples is not None else [],
        "latency_plots": _latency_plots(samples, timed, results.path),
        "shapes": shaped,
        "shape_plots": _shape_plots(shaped, results.path),
        "peaks": peaks is not None,
        "peak_in": None if peaks is None else round(float(peaks.in_pps.max()) * PEAK_S),
        "peak_out": None if peaks is None else round(float(peaks.out_pps.max()) * PEAK_S),
        "clocks": _clocks(document),
        "limits": limits.describe(document, nodes, samples),
        "so_far": _so_far(samples) if results.crashed and samples is not None else [],
        "scenario": _yaml(document.get("scenario", {})),
        "files": [(name, told) for name, told in DESCRIBED.items() if (results.path / name).is_file()],
    }


def _outcome(document: dict[str, Any], crashed: bool) -> dict[str, str]:
    status = document["status"]
    verdict = VERDICTS.get(status, "Not as expected")
    if status == EXIT_AS_EXPECTED and not document.get("verdicts"):
        verdict = "Whole; nothing was expected"
    kind = {EXIT_AS_EXPECTED: "good", EXIT_INCOMPLETE: "doubt"}.get(status, "bad")
    return {"verdict": "Incomplete: the run crashed" if crashed else verdict, "kind": kind}


def _groups(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**one, "stream": f"all {one['group']}"} for one in document.get("groups", [])]


def _worst_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As they stand in streams.csv, unless there are too many to show."""
    if len(rows) <= MOST_ROWS:
        return rows
    return sorted(rows, key=lambda row: -(row.get("lost_packets") or 0))[:MOST_ROWS]


# --- over time -------------------------------------------------------------------------------------------------------


def _samples(results: Results, rows: list[dict[str, Any]]) -> OverTime | None:
    totals = results.document.get("totals", [])[:-1]
    ranked = sorted(totals, key=lambda one: -_loss(one)) if len(totals) > MOST_STREAMS else totals
    wanted = None if results.crashed else [one["stream"] for one in ranked[:MOST_STREAMS]]
    per_s = results.document.get("scenario", {}).get("samples_per_s")
    means_ns = {(row["stream"], row["from"], row["to"]): row["latency_mean_ns"] for row in rows}
    known = {leg: mean for leg, mean in means_ns.items() if mean is not None}
    return over_time.read(results.path / SAMPLES, wanted, 1 / per_s if per_s else None, known)


def _peaks(results: Results, samples: OverTime | None) -> OverTime | None:
    """In bins of PEAK_S; None where the samples are farther apart."""
    if samples is None or samples.bin_s > PEAK_S:
        return None
    return samples if samples.bin_s == PEAK_S else over_time.read(results.path / SAMPLES, [], PEAK_S)


def _latency_plots(samples: OverTime | None, timed: list[dict[str, Any]], folder: Path) -> list[Plot]:
    found = [plots.latency_over_time(samples, folder) if samples is not None else None, plots.latency(timed, folder)]
    return [one for one in found if one is not None]


def _shapes(results: Results) -> Shapes | None:
    """None where there is no telling."""
    found = None if results.crashed else shapes(results.path, results.document)
    return found if found is not None and (found.each or found.left_out) else None


def _shape_plots(found: Shapes | None, folder: Path) -> list[Plot]:
    each = [plots.sizes(found, folder), plots.gaps(found, folder)] if found is not None and found.each else []
    return [one for one in each if one is not None]


def _loss(total: dict[str, Any]) -> float:
    return (total["lost_packets"] or 0) / (total["sent_packets"] or 1)


def _so_far(samples: OverTime) -> list[dict[str, Any]]:
    return [
        {"stream": stream, "from": source, "to": target, **counts}
        for (stream, source, target), counts in samples.last.items()
    ]


# --- nodes and clocks ------------------------------------------------------------------------------------------------


def _nodes(
    document: dict[str, Any], table: list[dict[str, str]], samples: OverTime | None, in_peaks: OverTime | None
) -> list[dict[str, Any]]:
    """`in_peaks`: in bins of PEAK_S."""
    sides = {host["name"]: host.get("side", "") for host in document.get("inventory", [])}
    counted = {(row["node"], row["role"]): row for row in table}
    peaks = {(one.node, one.role): one for one in samples.nodes} if samples is not None else {}
    short = {(one.node, one.role): one for one in in_peaks.nodes} if in_peaks is not None else {}
    found = []
    for rank in document.get("ranks", {}).values():
        who = (rank.get("host", ""), rank.get("role", ""))
        interface, peak = {**dict.fromkeys(INTERFACE), **rank.get("interface", {})}, peaks.get(who)
        found.append(
            {
                "host": who[0],
                "role": who[1],
                "side": sides.get(who[0], ""),
                "report": {**dict.fromkeys(REPORT), **rank},
                "interface": interface,
                "peak": peak,
                "peak_packets": round(short[who].peak_pps * PEAK_S) if who in short else None,
                "load": None if peak is None else peak.load(interface["speed_mbps"]),
                "counted": {name: int(value) if value else None for name, value in _counts(counted.get(who, {}))},
                "state": counted.get(who, {}).get("state", ""),
                "problem": counted.get(who, {}).get("problem", ""),
            }
        )
    return found


def _counts(row: dict[str, str]) -> Iterable[tuple[str, str]]:
    names = ("sent", "failed", "received", "missed", "tx", "rx", "tx_dropped", "rx_dropped", "tx_error", "rx_error")
    return ((name, row.get(f"{name}_packets", "")) for name in names)


def _clocks(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each rank: how its clock stood to the master's, and how sure that is; how far it went in the run."""
    found = []
    for number, readings in document.get("clocks", {}).items():
        rank = document.get("ranks", {}).get(number, {})
        first, last = readings.get("before"), readings.get("after")
        drift = last["offset_ns"] - first["offset_ns"] if first and last else None
        found.append({"host": rank.get("host", number), "role": rank.get("role", ""), "drift_ns": drift, **readings})
    return found


# --- files -----------------------------------------------------------------------------------------------------------


def _table(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="", errors="replace") as file:
        return list(csv.DictReader(file))


def _yaml(scenario: dict[str, Any]) -> str:
    """As a file that can be run: what stands at its default is left out, where this version knows the defaults."""
    try:
        scenario = Scenario.model_validate(scenario).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    except ValueError:
        pass
    return yaml.safe_dump(scenario, sort_keys=False, allow_unicode=True, width=100) if scenario else ""
