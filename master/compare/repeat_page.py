"""The page of a repeated run: the dispersion of its figures."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from pktswarm.master.benchmark.page import Page, write
from pktswarm.master.compare.dispersion import spread
from pktswarm.master.compare.run_sets import side
from pktswarm.master.compare.show import dispersion_table
from pktswarm.master.report import tabular
from pktswarm.master.report.tabular import Section
from pktswarm.master.run.repeat import RepeatedDocument
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

VERDICTS = {EXIT_AS_EXPECTED: ("As expected", "good"), EXIT_INCOMPLETE: ("Incomplete", "doubt")}
FILES = [("repeat.json", "the runs, and the status of each"), ("runs/", "the runs, each with a report of its own")]


def make(folder: Path, document: RepeatedDocument) -> Path:
    """Write the page into the results folder. Raises OSError."""
    return write(folder, html(folder, document))


def html(folder: Path, document: RepeatedDocument) -> str:
    read = side("A", str(folder))
    first = read.runs[0].document
    scenario, hosts = first.get("scenario_file"), first.get("hosts_file")
    page = Page(
        template=tabular.TEMPLATE,
        title="repeated run",
        verdict=VERDICTS.get(document["status"], ("Not as expected", "bad")),
        remarks=[*read.left_out, *read.doubts],
        command=f"pktswarm run {scenario} --hosts {hosts} --repeat {document['asked_runs']}",
        files=FILES,
    )
    runs = [[Path(run["folder"]).name, str(run["status"]), run["reason"]] for run in document["runs"]]
    note = f"{len(read.runs)} complete runs; sd: standard deviation of a run."
    sections = [
        Section("figures", "Figures", [tabular.grid(dispersion_table(spread(read)), "Figures over the runs")], [note]),
        Section("runs", "Runs", [tabular.Grid("Runs in their order", ["run", "#exit status", "reason"], runs)]),
    ]
    described = {**document, "dut": first["dut"]} if "dut" in first else {**document}
    return page.sections(folder, cast(RepeatedDocument, described), sections)
