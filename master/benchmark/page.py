"""The HTML page of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pktswarm.master.benchmark.document import Outcome
from pktswarm.master.cluster.dut import facts
from pktswarm.master.files import replace_text
from pktswarm.master.report.render import render
from pktswarm.master.report.tabular import Section

PAGE = "report.html"
MOST_ROWS = 200
"""Rows of a table in the page; the files of the folder have all."""
Verdict = tuple[str, str]
"""Text, and the class of its style: good, bad, doubt."""


@dataclass(frozen=True)
class Page:
    """The parts of a page that every benchmark has."""

    template: str
    title: str
    verdict: Verdict
    remarks: Sequence[str]
    command: str
    """The command that repeats the benchmark."""
    files: Sequence[tuple[str, str]]
    """Name and content of each file in the results folder."""

    def html(self, folder: Path, document: Outcome, **own: object) -> str:
        """Render the page. `own`: the variables of this benchmark's template."""
        text, kind = self.verdict
        context = {
            "name": document["name"],
            "what": self.title,
            "folder": folder.resolve().name,
            "path": folder,
            "document": document,
            "dut": facts(document.get("dut")),
            "outcome": {"verdict": text, "kind": kind},
            "remarks": self.remarks,
            "command": self.command,
            "files": self.files,
        }
        return render(self.template, {**context, **own})

    def sections(self, folder: Path, document: Outcome, sections: Sequence[Section]) -> str:
        """Render a page that consists of tables."""
        return self.html(folder, document, sections=sections, shown=MOST_ROWS)


def write(folder: Path, html: str) -> Path:
    """Write the page into a results folder. Raises OSError."""
    replace_text(folder / PAGE, html)
    return folder / PAGE
