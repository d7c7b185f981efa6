"""Steps as runs of the scenario in the services file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pktswarm.master.benchmark.job import Job
from pktswarm.master.benchmark.latency import latencies
from pktswarm.master.benchmark.load import Load, load_of
from pktswarm.master.benchmark.runs import Runs
from pktswarm.master.benchmark.trial import Tolerance, trial_of
from pktswarm.master.cluster.dut import NO_LABELS
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.plan.allowlist import Allow
from pktswarm.master.report import over_time
from pktswarm.master.report.folder import SAMPLES
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.row import Row
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.run.kept_ranks import KeptRanks
from pktswarm.master.y1564.procedure import ActivationResult, TrialPlan
from pktswarm.master.y1564.services import File, Service
from pktswarm.master.y1564.steps import PERFORMANCE, Measured, availability, steps

SLACK = 0.01
"""Tolerance of a load, as a share of it."""
TOGETHER = ""
"""In place of a service's name: all services at their CIR."""


def loads(file: File, inventory: Inventory, longest_s: float) -> dict[str, Load]:
    """The load of each service alone, and of all together. Raises BadInput if one cannot be sent."""
    alone = {name: load_of(file.path, file.alone(name), inventory, [name]) for name in file.services}
    together = load_of(file.path, file.scenario, inventory, list(file.services))
    together.check_lasting(longest_s)
    return {**alone, TOGETHER: together}


class Tester:
    """Makes the trials of an activation."""

    def __init__(
        self,
        file: File,
        loads: dict[str, Load],
        hosts: Path,
        folder: Path,
        patience: float,
        console: Console,
        allow: Allow,
        kept: KeptRanks,
        labels: Mapping[str, str] = NO_LABELS,
        job: Job | None = None,
    ) -> None:
        self.file, self.folder = file, folder
        losses = tuple({service.loss_ratio for service in file.services.values()})
        tolerance = Tolerance(SLACK, losses=losses, figures=True)
        self.runs = {
            name: Runs(load, hosts, folder, tolerance, patience, console, allow, kept, labels, job)
            for name, load in loads.items()
        }

    def check(self, longest_s: float) -> None:
        """Plan all loads without contacting a host. Raises BadInput."""
        together = self.runs[TOGETHER]
        together.plan(together.load.own_pps, longest_s)
        for name, service in self.file.services.items():
            for step in steps(service):
                self.runs[name].plan(self.file.pps(name, step.bps), longest_s)

    def journaled(self, job: Job) -> Callable[[TrialPlan], ActivationResult]:
        """Return `measure`, with the trials that the job has stored in place of new ones."""
        journal = job.journal(ActivationResult, lambda result: result.trial.problem)
        return lambda plan: journal.measure(plan, lambda: self.measure(plan))

    def measure(self, plan: TrialPlan) -> ActivationResult:
        runs = self.runs[plan.service]
        alone = plan.service != TOGETHER
        load_pps = self.file.pps(plan.service, plan.step.bps) if alone else runs.load.own_pps
        trial, outcome = runs.run(load_pps, plan.duration_s)
        names = [plan.service] if alone else list(self.file.services)
        measured = {} if trial.problem else {name: self._measured(name, plan, outcome) for name in names}
        if plan.step.kind == PERFORMANCE and not trial.problem:
            folder = self.folder.parent / trial.results
            measured = {name: self._available(name, figures, plan, folder) for name, figures in measured.items()}
        return ActivationResult(trial, None, measured)

    def _measured(self, name: str, plan: TrialPlan, outcome: Outcome) -> Measured:
        rows = [row for row in outcome.rows if row.leg.stream == name]
        trial = trial_of(0.0, plan.duration_s, {name}, Tolerance(SLACK), outcome, Path(), 0.0)
        values = [stream_values(row) for row in rows]
        return Measured(received_bps(rows, plan.duration_s), trial.loss_ratio, latencies(rows), rows=values)

    def _available(self, name: str, measured: Measured, plan: TrialPlan, folder: Path) -> Measured:
        """Add the availability, from the packets received in each whole second of the step."""
        service: Service = self.file.services[name]
        share = None
        samples = over_time.read(folder / SAMPLES, [name], 1.0)
        if samples is not None and name in samples.received_pps:
            within = (samples.begins_s >= 0) & (samples.begins_s + 1 <= plan.duration_s)
            share = availability(samples.received_pps[name][within].tolist(), self.file.pps(name, service.cir_bps))
        return replace(measured, availability=share)


def received_bps(rows: list[Row], duration_s: float) -> float | None:
    """The received rate of frames with FCS. Frames that leave the device's queue after the last was sent count too."""
    received = [row.received.bytes for row in rows]
    return None if not received or None in received else 8 * sum(count or 0 for count in received) / duration_s
