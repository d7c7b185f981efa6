"""The page of an activation: the verdicts, the steps of each service, and the performance test."""

from __future__ import annotations

from pathlib import Path

from pktswarm.master.benchmark.page import Page, write
from pktswarm.master.y1564.document import ActivationDocument
from pktswarm.master.y1564.show import cells, failed, remarks
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

VERDICTS = {EXIT_AS_EXPECTED: ("Every service passed", "good"), EXIT_INCOMPLETE: ("Incomplete", "doubt")}
FAILED = ("Not every service passed", "bad")
FILES = [
    ("y1564.json", "options, deviations and all results"),
    ("steps.csv", "a row for each step of each service, and of the performance test; bits/s, ns, ratios of 1"),
    ("runs/", "the runs of the trials"),
]


def make(folder: Path, document: ActivationDocument) -> Path:
    """Write the page into the results folder. Raises OSError."""
    return write(folder, html(folder, document))


def html(folder: Path, document: ActivationDocument) -> str:
    options = document["asked"]
    command = (
        f"pktswarm y1564 {document['scenario_file']} --hosts {document['hosts_file']} "
        f"--tests {','.join(options['tests'])} --step {options['step_s']:g} --performance {options['performance_s']:g}"
    )
    page = Page(
        template="y1564.html",
        title="Service activation (Y.1564)",
        verdict=VERDICTS.get(document["status"], FAILED),
        remarks=remarks(document),
        command=command,
        files=FILES,
    )
    return page.html(folder, document, cells=cells, failed=failed)
