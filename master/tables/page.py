"""The page of a table."""

from __future__ import annotations

from pathlib import Path

from pktswarm.master.benchmark.page import Page, write
from pktswarm.master.report import tabular
from pktswarm.master.report.tabular import Section
from pktswarm.master.tables.document import TableDocument, captions, tables
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, BadInput

COMPLETE, INCOMPLETE = ("Every point was measured", "good"), ("Points have problems", "doubt")


def make(folder: Path, document: TableDocument) -> Path:
    """Write the page into the results folder. Raises OSError."""
    return write(folder, html(folder, document))


def html(folder: Path, document: TableDocument) -> str:
    """Raises BadInput for the document of an earlier version, which lacks the form of the table."""
    if "name" not in document:
        problem = "its version of pktswarm stored no form of the table"
        raise BadInput(
            folder, problem, allowed="the same `pktswarm table` again, which takes the points from the folder"
        )
    name = document["name"]
    page = Page(
        template=tabular.TEMPLATE,
        title=document["title"],
        verdict=COMPLETE if document["status"] == EXIT_AS_EXPECTED else INCOMPLETE,
        remarks=document["problems"],
        command=f"pktswarm table {document['what']} --seconds {document['seconds']:g} --out {folder}",
        files=[(f"{name}.json", "all points"), ("POINT.yaml, POINT.json", "each point"), ("runs/", "the runs")],
    )
    grids = [tabular.grid(table) for table in tables(document)]
    return page.sections(folder, document, [Section("points", "Points", grids, captions(document))])
