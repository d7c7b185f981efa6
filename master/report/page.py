"""The page of a run: collects the values of the template from a results folder."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import yaml

from pktswarm.master.cluster.dut import facts
from pktswarm.master.report import bottlenecks, n4, over_time, plots
from pktswarm.master.report.folder import SAMPLES, Results
from pktswarm.master.report.head import head
from pktswarm.master.report.over_time import MOST_STREAMS, PEAK_S, Node, OverTime
from pktswarm.master.report.plots import Plot
from pktswarm.master.report.render import render
from pktswarm.master.report.shapes import Shapes, shapes
from pktswarm.master.report.topology import topology
from pktswarm.master.results import latency_histogram
from pktswarm.master.results.document import InterfaceReport, NodeReport, RunDocument, ScenarioEntry
from pktswarm.master.results.document_rows import RunRow, StreamTotal
from pktswarm.master.results.latency_histogram import Flow, Points
from pktswarm.master.results.streams_csv import STREAM_COLUMNS
from pktswarm.master.results.totals import node_totals
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.traffic.connections.counts import COLUMNS
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE
from pktswarm.traffic.protocol.node_report import counts_whole_frames

R = TypeVar("R", bound=RunRow)
MOST_ROWS = 200
"""Rows of a table in the page; the CSV file has all."""
VERDICTS = {EXIT_AS_EXPECTED: "As expected", EXIT_INCOMPLETE: "Incomplete"}
SAME_AS_VERDICT = ("as expected", "nothing was expected")
"""Reasons that say no more than the verdict."""
REPORT = ("kernel", "machine", "cpus", "python", "pktswarm")
INTERFACE = ("name", "driver", "speed_mbps")
"""The reported properties of a node; a node that was lost early reported none."""
DESCRIBED = {
    "streams.csv": "one row for each flow",
    "users.csv": "one row for each user of each flow",
    latency_histogram.FILE: "packets of each latency",
    "flows.csv": "one row for each 5-tuple of interactive traces",
    "flow_counts.csv": "one row for each 5-tuple of captured traces",
    "connections.csv": "real connections",
    "sessions.csv": "the UPF's sessions",
    "nodes.csv": "one row for each rank",
    "samples.csv": "counts over time",
    "run.json": "the whole result, without the samples",
    "log.jsonl": "the events of the run",
}


def html(results: Results, base: str = "") -> str:
    """The page. Writes the CSV files of its plots into the results folder; raises OSError where it cannot. `base`: the
    address of the results folder, relative to the page, with a slash at its end."""
    return render("report.html", _context(results), base)


def _context(results: Results) -> dict[str, object]:
    """The variables of the template."""
    document = results.document
    rows = [cast(RunRow, {**dict.fromkeys(STREAM_COLUMNS), **row}) for row in document["rows"]]
    document = cast(RunDocument, {**document, "rows": rows})
    samples = _samples(results, rows)
    shaped, peaks = _shapes(results), _peaks(results, samples)
    nodes = _table(results.path / "nodes.csv")
    histograms = latency_histogram.read(results.path)
    timed = [row for row in rows if row.get("latency_max_ns") is not None]
    return {
        **_outcome(document, results),
        **_counts_by_row(document, rows, timed),
        "head": head(document, histograms),
        "name": document["name"],
        "folder": results.path.resolve().name,
        "path": results.path,
        "crashed": results.crashed,
        "missing": results.missing,
        "document": document,
        "shown": MOST_ROWS,
        "nodes": _nodes(document, nodes, samples, peaks),
        "samples": samples,
        "plots": plots.over_time(samples, results.path) if samples is not None else [],
        "latency_plots": _latency_plots(samples, timed, histograms, results.path),
        "shapes": shaped,
        "shape_plots": _shape_plots(shaped, results.path),
        "peaks": peaks is not None,
        "peak_in": None if peaks is None else round(float(peaks.in_pps.max()) * PEAK_S),
        "peak_out": None if peaks is None else round(float(peaks.out_pps.max()) * PEAK_S),
        "clocks": _clocks(document),
        "topology": topology(document),
        "n4": n4.of_run(document),
        "users": n4.users(document),
        "dut": facts(document.get("dut")),
        "limits": bottlenecks.describe(document, nodes, samples),
        "so_far": _so_far(samples) if results.crashed and samples is not None else [],
        "scenario": _yaml(document["scenario"]),
        "files": [(name, content) for name, content in DESCRIBED.items() if (results.path / name).is_file()],
    }


def _outcome(document: RunDocument, results: Results) -> dict[str, object]:
    status, verdicts = document["status"], document["verdicts"]
    title = VERDICTS.get(status, "Not as expected")
    if status == EXIT_AS_EXPECTED and not verdicts:
        title = "Complete; the scenario has no expectations"
    reason = "" if document["reason"] in SAME_AS_VERDICT else document["reason"]
    kind = {EXIT_AS_EXPECTED: "good", EXIT_INCOMPLETE: "doubt"}.get(status, "bad")
    return {
        "outcome": {"verdict": "Incomplete: the run crashed" if results.crashed else title, "kind": kind},
        "reason": reason,
        "failed": [verdict for verdict in verdicts if not verdict["holds"]],
        "held": [verdict for verdict in verdicts if verdict["holds"]],
    }


def _counts_by_row(document: RunDocument, rows: list[RunRow], timed: list[RunRow]) -> dict[str, object]:
    users = document.get("users")
    return {
        "totals": [*document["totals"][:-1], *_groups(document), *document["totals"][-1:]],
        "rows": _worst_first(bottlenecks.with_intended_rates(document)),
        "timed": _worst_first(timed),
        "all_timed": timed,
        "stamped": [row for row in rows if row.get("duplicated_packets") is not None],
        "losses": node_totals(rows),
        "connections": [{**dict.fromkeys(COLUMNS), **row} for row in document.get("connections", [])],
        "worst": [] if users is None else users["worst"],
    }


def _groups(document: RunDocument) -> list[dict[str, object]]:
    return [{**group, "stream": f"all {group['group']}"} for group in document.get("groups", [])]


def _worst_first(rows: Sequence[R]) -> Sequence[R]:
    """The rows in the order of streams.csv; if there are more than MOST_ROWS, those with the most loss."""
    if len(rows) <= MOST_ROWS:
        return rows
    return sorted(rows, key=lambda row: -(row["lost_packets"] or 0))[:MOST_ROWS]


# --- over time -------------------------------------------------------------------------------------------------------


def _samples(results: Results, rows: list[RunRow]) -> OverTime | None:
    totals = results.document["totals"][:-1]
    ranked = sorted(totals, key=lambda total: -_loss(total)) if len(totals) > MOST_STREAMS else totals
    wanted = None if results.crashed else [total["stream"] for total in ranked[:MOST_STREAMS]]
    legs = None if results.crashed else [(row["stream"], row["from"], row["to"]) for row in rows]
    means_ns = {(row["stream"], row["from"], row["to"]): row.get("latency_mean_ns") for row in rows}
    known = {leg: mean for leg, mean in means_ns.items() if mean is not None}
    return over_time.read(results.path / SAMPLES, wanted, None, known, legs)


def _peaks(results: Results, samples: OverTime | None) -> OverTime | None:
    """The rates in bins of PEAK_S; None where the samples are farther apart."""
    if samples is None or samples.bin_s > PEAK_S:
        return None
    return samples if samples.bin_s == PEAK_S else over_time.read(results.path / SAMPLES, [], PEAK_S)


def _latency_plots(
    samples: OverTime | None, timed: list[RunRow], histograms: Mapping[Flow, Points], folder: Path
) -> list[Plot]:
    over = plots.latency_over_time(samples, folder) if samples is not None else None
    made = [plots.latency(timed, histograms, folder), over]
    return [plot for plot in made if plot is not None]


def _shapes(results: Results) -> Shapes | None:
    """None for a crashed run, and where no shape is known."""
    found = None if results.crashed else shapes(results.path, results.document)
    return found if found is not None and (found.each or found.left_out) else None


def _shape_plots(found: Shapes | None, folder: Path) -> list[Plot]:
    made = [plots.sizes(found, folder), plots.gaps(found, folder)] if found is not None and found.each else []
    return [plot for plot in made if plot is not None]


def _loss(total: StreamTotal) -> float:
    return (total["lost_packets"] or 0) / (total["sent_packets"] or 1)


def _so_far(samples: OverTime) -> list[dict[str, object]]:
    return [
        {"stream": stream, "from": source, "to": target, **counts}
        for (stream, source, target), counts in samples.last.items()
    ]


# --- nodes and clocks ------------------------------------------------------------------------------------------------


@dataclass
class NodeEntry:
    """A node in the tables of the page."""

    host: str
    role: str
    side: str
    report: NodeReport
    interface: InterfaceReport
    peak: Node | None
    peak_packets: int | None
    """Packets in the busiest 100 ms."""
    peak_bps: float | None
    """Bits/s with FCS; None: the interface does not count whole frames."""
    load: float | None
    """Utilisation of the link at the peak, as a share of its speed."""
    counted: dict[str, int | None]
    state: str
    problem: str


def _nodes(
    document: RunDocument, table: list[dict[str, str]], samples: OverTime | None, peaks: OverTime | None
) -> list[NodeEntry]:
    """`table`: nodes.csv; `peaks`: in bins of PEAK_S."""
    sides = {host["name"]: host.get("side", "") for host in document["inventory"]}
    counted = {(row["node"], row["role"]): row for row in table}
    long = {(node.node, node.role): node for node in samples.nodes} if samples is not None else {}
    short = {(node.node, node.role): node for node in peaks.nodes} if peaks is not None else {}
    entries = []
    for rank in document["ranks"].values():
        key = (rank["host"], rank["role"])
        interface = cast(InterfaceReport, {**dict.fromkeys(INTERFACE), **rank.get("interface", {})})
        peak, row = long.get(key), counted.get(key, {})
        whole = counts_whole_frames(interface["driver"], rank["role"])
        entries.append(
            NodeEntry(
                host=rank["host"],
                role=rank["role"],
                side=sides.get(rank["host"], ""),
                report=cast(NodeReport, {**dict.fromkeys(REPORT), **rank}),
                interface=interface,
                peak=peak,
                peak_packets=round(short[key].peak_pps * PEAK_S) if key in short else None,
                peak_bps=None if peak is None or not whole else peak.peak_bps,
                load=None if peak is None or not whole else peak.load(interface["speed_mbps"]),
                counted={name: int(value) if value else None for name, value in _counts(row)},
                state=row.get("state", ""),
                problem=row.get("problem", ""),
            )
        )
    return entries


def _counts(row: dict[str, str]) -> Iterable[tuple[str, str]]:
    names = ("sent", "failed", "received", "missed", "tx", "rx", "tx_dropped", "rx_dropped", "tx_error", "rx_error")
    return ((name, row.get(f"{name}_packets", "")) for name in names)


def _clocks(document: RunDocument) -> list[dict[str, object]]:
    """The clock readings of each rank, and the drift from the first to the last."""
    entries: list[dict[str, object]] = []
    for number, readings in document["clocks"].items():
        rank = document["ranks"].get(number)
        first, last = readings.get("before"), readings.get("after")
        drift_ns = last["offset_ns"] - first["offset_ns"] if first and last else None
        host, role = (number, "") if rank is None else (rank["host"], rank["role"])
        entries.append({"host": host, "role": role, "drift_ns": drift_ns, **readings})
    return entries


# --- files -----------------------------------------------------------------------------------------------------------


def _table(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="", errors="replace") as file:
        return list(csv.DictReader(file))


def _yaml(scenario: ScenarioEntry) -> str:
    """A scenario file. Keys with default values are left out if this version can read the scenario."""
    shown: Mapping[str, object] = scenario
    with contextlib.suppress(ValueError):
        shown = Scenario.model_validate(scenario).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump(dict(shown), sort_keys=False, allow_unicode=True, width=100) if shown else ""
