"""The steps as real runs of the file's scenario."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pktswarm.master.benchmark.latency import latencies
from pktswarm.master.benchmark.load import Load, load_of
from pktswarm.master.benchmark.runs import Runs
from pktswarm.master.benchmark.trial import Tolerance, trial_of
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.plan.allowlist import Allow
from pktswarm.master.report import over_time
from pktswarm.master.report.folder import SAMPLES
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.row import Row, stream_values
from pktswarm.master.y1564.procedure import ToldOfAll, Wanted
from pktswarm.master.y1564.services import File, Service
from pktswarm.master.y1564.steps import PERFORMANCE, Measured, availability, steps

SLACK = 0.01
"""How far a load may be off, as a share of it."""


TOGETHER = ""
"""In place of a service's name: all of them, at their CIR."""


def loads(file: File, inventory: Inventory, longest_s: float) -> dict[str, Load]:
    """Of each service alone, and of all. BadInput for what cannot be sent."""
    alone = {name: load_of(file.path, file.alone(name), inventory, [name]) for name in file.services}
    together = load_of(file.path, file.scenario, inventory, list(file.services))
    together.check_lasting(longest_s)
    return {**alone, TOGETHER: together}


class Tester:
    def __init__(
        self,
        file: File,
        loads: dict[str, Load],
        hosts: Path,
        folder: Path,
        patience: float,
        console: Console,
        allow: Allow,
    ) -> None:
        self.file, self.folder = file, folder
        losses = tuple({service.loss_ratio for service in file.services.values()})
        tolerance = Tolerance(SLACK, losses=losses, figures=True)
        self.runs = {
            name: Runs(load, hosts, folder, tolerance, patience, console, allow) for name, load in loads.items()
        }

    def check(self, longest_s: float) -> None:
        """Everything that can be known to be wrong without the hosts."""
        together = self.runs[TOGETHER]
        together.plan(together.load.own_pps, longest_s)
        for name, service in self.file.services.items():
            for step in steps(service):
                self.runs[name].plan(self.file.pps(name, step.bps), longest_s)

    def measure(self, wanted: Wanted) -> ToldOfAll:
        runs = self.runs[wanted.service]
        alone = wanted.service != TOGETHER
        load_pps = self.file.pps(wanted.service, wanted.step.bps) if alone else runs.load.own_pps
        trial, outcome = runs.run(load_pps, wanted.duration_s)
        names = [wanted.service] if alone else list(self.file.services)
        measured = {} if trial.problem else {name: self._measured(name, wanted, outcome) for name in names}
        if wanted.step.kind == PERFORMANCE and not trial.problem:
            folder = self.folder.parent / trial.results
            measured = {name: self._available(name, one, wanted, folder) for name, one in measured.items()}
        return ToldOfAll(trial, None, measured)

    def _measured(self, name: str, wanted: Wanted, outcome: Outcome) -> Measured:
        rows = [row for row in outcome.rows if row.leg.stream == name]
        trial = trial_of(0.0, wanted.duration_s, {name}, Tolerance(SLACK), outcome, Path(), 0.0)
        values = [stream_values(row) for row in rows]
        return Measured(received_bps(rows, wanted.duration_s), trial.loss_ratio, latencies(rows), rows=values)

    def _available(self, name: str, measured: Measured, wanted: Wanted, folder: Path) -> Measured:
        """By what came in each whole second of the sending."""
        service: Service = self.file.services[name]
        found = None
        samples = over_time.read(folder / SAMPLES, [name], 1.0)
        if samples is not None and name in samples.received_pps:
            within = (samples.begins_s >= 0) & (samples.begins_s + 1 <= wanted.duration_s)
            found = availability(samples.received_pps[name][within].tolist(), self.file.pps(name, service.cir_bps))
        return replace(measured, availability=found)


def received_bps(rows: list[Row], duration_s: float) -> float | None:
    """Of the frames with FCS. What is still in the device's queue when the sending ends counts too."""
    got = [row.received_bytes for row in rows]
    return None if not got or None in got else 8 * sum(one or 0 for one in got) / duration_s
