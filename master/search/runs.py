"""The trials of a search: runs of the scenario at a load."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from master.live.watch import Watch
from master.results import Outcome
from master.run import Run
from master.search.load import Load
from master.search.trial import LEAST_SLACK_S, Trial, trial_of
from master.under_test import Allow


class Runs:
    """`slack`: how far a trial's load may be off, as a share of it."""

    def __init__(
        self, load: Load, hosts: Path, folder: Path, slack: float, patience: float, console: Console, allow: Allow
    ) -> None:
        self.load, self.hosts, self.folder, self.slack, self.patience = load, hosts, folder, slack, patience
        self.allow = allow
        # Progress goes where it can be taken back; a line for each trial is enough elsewhere.
        self.console = console if console.is_terminal else Console(stderr=True, quiet=True)

    def plan(self, load_pps: float, duration_s: float) -> Run:
        """Checked and planned; BadInput for what cannot be sent at this load."""
        scenario = self.load.at(load_pps, duration_s)
        return Run(
            self.load.path,
            self.hosts,
            self.folder,
            self.patience,
            keep_sent=False,
            scenario=scenario,
            allow=self.allow,
        )

    def measure(self, load_pps: float, duration_s: float) -> Trial:
        return self.run(load_pps, duration_s)[0]

    def run(self, load_pps: float, duration_s: float, least_slack_s: float = LEAST_SLACK_S) -> tuple[Trial, Outcome]:
        """The trial, and all that its run tells."""
        began = time.monotonic()
        run = self.plan(load_pps, duration_s)
        with Watch(self.console, run, tables=False) as watch:
            finished = run.execute(watch)
        took_s = round(time.monotonic() - began, 3)
        names, results = set(self.load.unit_pps), finished.folder.relative_to(self.folder.parent)
        trial = trial_of(
            load_pps, duration_s, names, self.slack, finished.outcome, results, took_s, least_slack_s=least_slack_s
        )
        return trial, finished.outcome
