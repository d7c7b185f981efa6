"""Trials as runs of a scenario at a load."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pktswarm.master.benchmark import latency_trend
from pktswarm.master.benchmark.job import Job
from pktswarm.master.benchmark.journal import LoadPlan
from pktswarm.master.benchmark.load import Load
from pktswarm.master.benchmark.trial import Tolerance, Trial, trial_of
from pktswarm.master.cluster.dut import NO_LABELS
from pktswarm.master.live.watch import Watch
from pktswarm.master.plan.allowlist import Allow
from pktswarm.master.results.folder import Outcome
from pktswarm.master.run.kept_ranks import KeptRanks
from pktswarm.master.run.run import Run


@contextlib.contextmanager
def watching(console: Console, run: Run, job: Job | None, rate_pps: float | None) -> Iterator[Watch]:
    """Watch a run as a trial of a job: its live document has the progress of the job, and its metrics are served."""
    if job is None:
        with Watch(console, run, tables=False) as watch:
            yield watch
        return
    job.begin_trial(rate_pps)
    with Watch(console, run, tables=False, job=job.newest) as watch:
        job.watch(watch)
        yield watch


class Runs:
    """Makes the trials. `tolerance`: the default of `run`. `job`: what they are part of."""

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
        job: Job | None = None,
    ) -> None:
        self.load, self.hosts, self.folder, self.tolerance, self.patience = load, hosts, folder, tolerance, patience
        self.allow, self.kept, self.labels, self.job = allow, kept, labels, job
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

    def journaled(self, job: Job) -> Callable[[float, float], Trial]:
        """Return `measure`, with the trials that the job has stored in place of new ones."""
        journal = job.journal(Trial, lambda trial: trial.problem)

        def measure(load_pps: float, duration_s: float) -> Trial:
            return journal.measure(LoadPlan(load_pps, duration_s), lambda: self.measure(load_pps, duration_s))

        return measure

    def run(self, load_pps: float, duration_s: float, tolerance: Tolerance | None = None) -> tuple[Trial, Outcome]:
        """Make a trial, and return it with the outcome of its run."""
        began = time.monotonic()
        run = self.plan(load_pps, duration_s)
        with watching(self.console, run, self.job, load_pps) as watch:
            finished = run.execute(watch)
        took_s = round(time.monotonic() - began, 3)
        names, results = set(self.load.unit_pps), finished.folder.relative_to(self.folder.parent)
        tolerance = tolerance or self.tolerance
        trial = trial_of(load_pps, duration_s, names, tolerance, finished.outcome, results, took_s)
        rise = latency_trend.rise_ns_per_s(finished.folder / "samples.csv", names)
        return replace(trial, latency_rise_ns_per_s=rise), finished.outcome
