"""Output of a probe: the profile, a folder with page and JSON, and the tables on the terminal."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from pktswarm.master.files import new_folder, replace_text, utc
from pktswarm.master.scenario import upf_profile as profiles
from pktswarm.master.upf.probe import conclusions, page, tables
from pktswarm.master.upf.probe.findings import Findings
from pktswarm.traffic.errors import EXIT_INCOMPLETE


@dataclass
class Probed:
    """`problem`: the reason why the probe ended early. `path`: the profile's; None: it is not written."""

    findings: Findings
    problem: str
    path: Path | None
    made: str = field(default_factory=lambda: utc(time.time_ns()))

    @property
    def status(self) -> int:
        return EXIT_INCOMPLETE if self.problem else conclusions.status(self.findings)

    @property
    def profile(self) -> profiles.Profile | None:
        """None of a probe that ended early: its profile would be incomplete."""
        return None if self.problem else conclusions.profile(self.findings, self.made)

    @property
    def document(self) -> dict[str, Any]:
        is_written = self.path is not None and self.profile is not None
        return {
            **self.findings.to_json(),
            "made": self.made,
            "problem": self.problem,
            "status": self.status,
            "profile": str(self.path) if is_written else None,
        }

    def write(self, results: Path, command: str) -> Path:
        """Writes the profile, and a new folder in `results`; returns the folder."""
        profile = self.profile if self.path is not None else None
        if self.path is not None and profile is not None:
            replace_text(self.path, profiles.text(profile))
        folder = new_folder(results, "upf-probe")
        replace_text(folder / "probe.json", json.dumps({**self.document, "command": command}, indent=2) + "\n")
        replace_text(folder / "report.html", page.html(self.findings, self.status, profile, self.path, command))
        return folder

    def print(self, console: Console, folder: Path) -> None:
        tables.print_findings(console, self.findings)
        if self.problem:
            console.print(self.problem, style="red", markup=False)
        if self.path is not None and self.profile is not None:
            console.print(f"profile: {self.path} ({self.profile.describe()})", markup=False, highlight=False)
        console.print(f"page: {folder / 'report.html'}", markup=False, highlight=False)
