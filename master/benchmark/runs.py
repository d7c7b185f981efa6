"""Trials as runs of a scenario at a load."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pktswarm.master.benchmark import latency_trend
from pktswarm.master.benchmark.load import Load
from pktswarm.master.benchmark.trial import Tolerance, Trial, trial_of
from pktswarm.master.cluster.dut import NO_LABELS
from pktswarm.master.live.watch import Watch
from pktswarm.master.plan.allowlist import Allow
from pktswarm.master.results.folder import Outcome
from pktswarm.master.run.kept_ranks import KeptRanks
from pktswarm.master.run.run import Run


class Runs:
    """Makes the trials. `tolerance`: the default of `run`."""

    def __init__(
        self,
        load: Load,
        hosts: Path,
        folder: Path,
        tolerance: Tolerance,
        patience: float,
        console: Console,
        allow: Allow,
        kept: KeptRanks,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> None:
        self.load, self.hosts, self.folder, self.tolerance, self.patience = load, hosts, folder, tolerance, patience
        self.allow, self.kept, self.labels = allow, kept, labels
        # Progress of a run is shown on a terminal only; elsewhere a line for each trial suffices.
        self.console = console if console.is_terminal else Console(stderr=True, quiet=True)

    def plan(self, load_pps: float, duration_s: float) -> Run:
        """Check and plan a trial. Raises BadInput if its load cannot be sent."""
        scenario = self.load.at(load_pps, duration_s)
        return Run(
            self.load.path,
            self.hosts,
            self.folder,
            self.patience,
            keep_sent=False,
            scenario=scenario,
            allow=self.allow,
            kept=self.kept,
            labels=self.labels,
        )

    def check(self, loads_pps: Iterable[float], duration_s: float) -> None:
        """Plan trials at all of the loads. Raises BadInput."""
        for load_pps in loads_pps:
            self.plan(load_pps, duration_s)

    def measure(self, load_pps: float, duration_s: float) -> Trial:
        return self.run(load_pps, duration_s)[0]

    def run(self, load_pps: float, duration_s: float, tolerance: Tolerance | None = None) -> tuple[Trial, Outcome]:
        """Make a trial, and return it with the outcome of its run."""
        began = time.monotonic()
        run = self.plan(load_pps, duration_s)
        with Watch(self.console, run, tables=False) as watch:
            finished = run.execute(watch)
        took_s = round(time.monotonic() - began, 3)
        names, results = set(self.load.unit_pps), finished.folder.relative_to(self.folder.parent)
        tolerance = tolerance or self.tolerance
        trial = trial_of(load_pps, duration_s, names, tolerance, finished.outcome, results, took_s)
        rise = latency_trend.rise_ns_per_s(finished.folder / "samples.csv", names)
        return replace(trial, latency_rise_ns_per_s=rise), finished.outcome
