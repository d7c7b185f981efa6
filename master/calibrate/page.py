"""The page of a calibration: the figures of each node."""

from __future__ import annotations

from pathlib import Path

from pktswarm.master.benchmark.page import Page, write
from pktswarm.master.calibrate.document import CalibrationDocument
from pktswarm.master.calibrate.show import NOTES, head, table
from pktswarm.master.plan.capacity import Figure
from pktswarm.master.report import tabular
from pktswarm.master.report.tabular import Section
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

VERDICTS = {EXIT_AS_EXPECTED: ("Complete", "good"), EXIT_INCOMPLETE: ("Incomplete", "doubt")}
UNCONFIRMED = ("A rate held in one run and not again", "bad")
FILES = [
    ("calibrate.json", "all figures, with the properties of the nodes"),
    ("calibrate.csv", "a row for each figure; packets/s"),
    ("runs/", "the runs of the trials"),
]


def make(folder: Path, document: CalibrationDocument) -> Path:
    """Write the page into the results folder. Raises OSError."""
    return write(folder, html(folder, document))


def html(folder: Path, document: CalibrationDocument) -> str:
    figures = [Figure.model_validate(figure) for figure in document["figures"]]
    states = {figure.state for figure in figures}
    page = Page(
        template=tabular.TEMPLATE,
        title="calibration of the nodes",
        verdict=VERDICTS.get(document["status"], UNCONFIRMED),
        remarks=[*(f"{head(each)}: {each.problem}" for each in figures if each.problem), *document["lacking"]],
        command=f"pktswarm calibrate --hosts {document['hosts_file']}",
        files=FILES,
    )
    notes = [*(note for state, note in NOTES.items() if state in states), f"Wiring: {document['wiring']}."]
    notes.append(f"Plans take the figures from {document['capacity']}.")
    grids = [tabular.grid(table(figures), "Rates that each node sends, and receives without loss")]
    return page.sections(folder, document, [Section("rates", "Rates", grids, notes)])
