"""The document of a table: NAME.json in the folder of its points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pktswarm.master.benchmark.document import Resumable
from pktswarm.master.cluster.dut import DutEntry
from pktswarm.master.tables import failure_table, family, netspec
from pktswarm.master.tables.family import PointResult, Runs
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

FORMAT_VERSION = 1
NETSPEC = "netspec"


class TableDocument(Resumable, total=False):
    """`points` are PointResult of a family, and netspec.Measured of netspec."""

    title: str
    what: str
    """The argument of the command."""
    seconds: float
    points: list[dict[str, Any]]
    problems: list[str]
    table: str
    axes: list[str]
    reference: str | None
    failures: list[failure_table.PartRow]
    family: dict[str, Any]
    """The family as run."""
    bottleneck: Any
    figures: list[netspec.Curves]


def of_family(what: str, work: Runs, points: Sequence[PointResult], dut: DutEntry | None) -> TableDocument:
    problems = [f"{', '.join(point['labels'])}: {point['problem']}" for point in points if point["problem"]]
    made: TableDocument = {
        **work.document(),  # type: ignore[typeddict-item] # table, seconds, axes and reference
        "points": [dict(point) for point in points],
        "problems": problems,
        **_outcome(work.family.table, work.family.title, what, problems),
        "family": work.family.model_dump(mode="json", exclude_defaults=True),
    }
    if work.family.failures:
        made["failures"] = failure_table.rows(work.family, list(points))
    return _with_device(made, dut)


def of_netspec(work: netspec.Netspec, points: Sequence[netspec.Measured], dut: DutEntry | None) -> TableDocument:
    problems = [
        f"{point.set}, background {point.background_mbps} Mbit/s, {point.target}: {point.problem}"
        for point in points
        if point.problem
    ]
    made: TableDocument = {
        "seconds": work.seconds,
        "bottleneck": work.inventory.variables.get("pktswarm_bottleneck"),
        "points": [asdict(point) for point in points],
        "figures": netspec.figures(list(points)),
        "problems": problems,
        **_outcome(NETSPEC, "NetSpec's target flows against background traffic (Lee 1998)", NETSPEC, problems),
    }
    return _with_device(made, dut)


def captions(document: TableDocument) -> list[str]:
    """The lines below the tables."""
    if "family" not in document:
        return netspec.captions()
    points = [_point(point) for point in document["points"]]
    reference, less = document["reference"], family.not_sent(points)
    return [document["title"], *([f"in brackets: {reference}"] if reference else []), *([less] if less else [])]


def tables(document: TableDocument) -> list[Any]:
    """The tables of the terminal."""
    if "family" not in document:
        return netspec.tables([netspec.Measured(**point) for point in document["points"]])
    known, points = family.Family.model_validate(document["family"]), [_point(point) for point in document["points"]]
    made = family.tables(known, points)
    return [*made, failure_table.table(known, points)] if known.failures else made


def _point(point: dict[str, Any]) -> PointResult:
    measured, reference = point["measured"], point["reference"]
    return {
        "labels": tuple(point["labels"]),
        "measured": measured,
        "reference": reference,
        "problem": point["problem"],
    }


def _outcome(name: str, title: str, what: str, problems: list[str]) -> TableDocument:
    made: TableDocument = {
        "format_version": FORMAT_VERSION,
        "name": name,
        "title": title,
        "what": what,
        "status": EXIT_INCOMPLETE if problems else EXIT_AS_EXPECTED,
        "problem": "",
    }
    return made


def _with_device(document: TableDocument, dut: DutEntry | None) -> TableDocument:
    if dut is not None:
        document["dut"] = dut
    return document
