"""Trials as runs: the streams of a scenario at a frame size and a load."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from pktswarm.master.benchmark.attempts import TrialResult
from pktswarm.master.benchmark.job import Job
from pktswarm.master.benchmark.latency import latencies
from pktswarm.master.benchmark.load import Load, load_of
from pktswarm.master.benchmark.runs import Runs
from pktswarm.master.benchmark.trial import Tolerance
from pktswarm.master.cluster.dut import NO_LABELS
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.plan.allowlist import Allow
from pktswarm.master.plan.streams import default_headers
from pktswarm.master.rfc2544.document import About
from pktswarm.master.rfc2544.formulas import maximum_pps
from pktswarm.master.rfc2544.options import BACK_TO_BACK, LATENCY, LOSS, Options
from pktswarm.master.rfc2544.procedure import Limit, TrialPlan
from pktswarm.master.run.kept_ranks import KeptRanks
from pktswarm.master.scenario.addresses import PLACEHOLDERS, fill
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.stream import Stream
from pktswarm.master.search.goals import SearchOptions, bounds
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.stamp import least_size_bytes
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

BURST_SLACK_S = 0.001
"""Tolerance of the duration of a burst at the maximum rate."""


@dataclass(frozen=True)
class Loads:
    """The scenario at each frame size. `medium_l1_bps`: a load of 100 %."""

    options: Options
    medium_l1_bps: float
    of_size: dict[int, Load]

    def about(self, hosts: Path) -> About:
        """The part of the document that is known before the first trial."""
        load = next(iter(self.of_size.values()))
        return {**load.about(), "hosts_file": str(hosts), "medium_l1_bps": self.medium_l1_bps}

    def limits(self) -> dict[int, Limit]:
        """Return the limits by frame size. Raises BadInput if the maximum is too low for a trial."""
        return {size: self._limits(size, load) for size, load in self.of_size.items()}

    def _limits(self, size_bytes: int, load: Load) -> Limit:
        most_pps = maximum_pps(self.medium_l1_bps, size_bytes)
        form = self.options.form
        goal = SearchOptions((0.0,), None, most_pps, self.options.precision, form.trial_s, form.trials)
        lowest_pps, _ = bounds(load.path, goal, load.own_pps, load.least_pps)
        return Limit(most_pps, lowest_pps, load.parts, load.lasts_s())


def loads(path: Path, scenario: Scenario, inventory: Inventory, options: Options) -> Loads:
    """Prepare the scenario for each frame size. Raises BadInput if a rate or the room for a stamp is missing."""
    searched = [stream for stream in scenario.streams if not stream.background]
    drain_s = max(options.form.drain_s, scenario.receive.drain_s)
    scenario = scenario.model_copy(update={"receive": scenario.receive.model_copy(update={"drain_s": drain_s})})
    for index, stream in enumerate(scenario.streams):
        if stream in searched:
            _check(path, index, stream, options)
    of_size = {size: load_of(path, _sized(scenario, size), inventory, []) for size in options.sizes_bytes}
    size, load = next(iter(of_size.items()))
    own_l1_bps = load.own_pps * 8 * (size + ETHERNET_OVERHEAD_BYTES)
    form = options.form
    load.check_lasting(max(form.latency_s, form.trial_s, form.confirm_s or 0.0, options.longest_burst_s))
    return Loads(options, own_l1_bps if options.medium_l1_bps is None else options.medium_l1_bps, of_size)


def _check(path: Path, index: int, stream: Stream, options: Options) -> None:
    if options.medium_l1_bps is None and stream.rate_l1_bps is None:
        problem = "the rate of the medium, the load of 100 %, is missing"
        raise BadInput(path, problem, key=f"streams.{index}.rate_l1_bps", allowed="rate_l1_bps, or --max")
    if stream.sessions is not None:
        return  # the frames are known once the sessions are established, and all of them are stamped
    least = least_size_bytes(fill(stream.headers or default_headers(index), *PLACEHOLDERS))
    if least > options.sizes_bytes[0]:
        problem = f"the frames of {stream.name} have no room for their headers and a stamp"
        allowed = f"{least} bytes or more"
        raise BadInput(path, problem, key="--sizes", value=options.sizes_bytes[0], allowed=allowed)


def _sized(scenario: Scenario, size_bytes: int) -> Scenario:
    """Set the frame size of all streams but the background."""
    sized = [
        stream if stream.background else stream.model_copy(update={"size_bytes": size_bytes})
        for stream in scenario.streams
    ]
    return scenario.model_copy(update={"streams": sized})


class Tester:
    """Makes the trials of a benchmark."""

    def __init__(
        self,
        loads: Loads,
        hosts: Path,
        folder: Path,
        patience: float,
        console: Console,
        allow: Allow,
        kept: KeptRanks,
        labels: Mapping[str, str] = NO_LABELS,
        job: Job | None = None,
    ) -> None:
        self.settle_s = loads.options.form.settle_s
        self.tolerance = Tolerance(loads.options.precision)
        self.runs = {
            size: Runs(load, hosts, folder, self.tolerance, patience, console, allow, kept, labels, job)
            for size, load in loads.of_size.items()
        }
        self._before = False

    def check(self, limits: dict[int, Limit]) -> None:
        """Plan the extreme loads of each size without contacting a host. Raises BadInput."""
        for size, limit in limits.items():
            for load_pps in (limit.lowest_pps, limit.maximum_pps):
                self.runs[size].plan(load_pps, 1.0)

    def journaled(self, job: Job) -> Callable[[TrialPlan], TrialResult]:
        """Return `measure`, with the trials that the job has stored in place of new ones."""
        journal = job.journal(TrialResult, lambda result: result.trial.problem)
        return lambda plan: journal.measure(plan, lambda: self.measure(plan))

    def measure(self, plan: TrialPlan) -> TrialResult:
        if self._before:
            time.sleep(self.settle_s)
        self._before = True
        runs = self.runs[plan.size_bytes]
        trial, outcome = runs.run(plan.load_pps, plan.duration_s, self._tolerance(plan.test))
        rows = [row for row in outcome.rows if row.leg.stream in runs.load.unit_pps]
        return TrialResult(trial, latencies(rows))

    def _tolerance(self, test: str) -> Tolerance:
        if test == BACK_TO_BACK:
            return replace(self.tolerance, least_s=BURST_SLACK_S)
        return replace(self.tolerance, figures=test in (LATENCY, LOSS))
