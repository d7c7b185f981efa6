"""The trials as real runs: the scenario's streams at a frame size and a load."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from pktswarm.master.benchmark.attempts import Told
from pktswarm.master.benchmark.latency import latencies
from pktswarm.master.benchmark.load import Load, load_of
from pktswarm.master.benchmark.runs import Runs
from pktswarm.master.benchmark.trial import Tolerance
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.plan.allowlist import Allow
from pktswarm.master.plan.streams import default_headers
from pktswarm.master.rfc2544.formulas import maximum_pps
from pktswarm.master.rfc2544.options import BACK_TO_BACK, LATENCY, LOSS, Asked
from pktswarm.master.rfc2544.procedure import Limit, Wanted
from pktswarm.master.scenario.addresses import PLACEHOLDERS, fill
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.stream import Stream
from pktswarm.master.search import goals
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.stamp import least_size_bytes
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

BURST_SLACK_S = 0.001
"""By how much a burst may take longer or shorter than at the maximum rate."""


@dataclass(frozen=True)
class Loads:
    """The scenario at each frame size. `medium_l1_bps`: 100 %."""

    asked: Asked
    medium_l1_bps: float
    of_size: dict[int, Load]

    def limits(self) -> dict[int, Limit]:
        """BadInput where the maximum is too low for a trial."""
        return {size: self._limits(size, load) for size, load in self.of_size.items()}

    def _limits(self, size_bytes: int, load: Load) -> Limit:
        most_pps = maximum_pps(self.medium_l1_bps, size_bytes)
        form = self.asked.form
        wanted = goals.Asked((0.0,), None, most_pps, self.asked.precision, form.trial_s, form.trials)
        lowest_pps, _ = goals.bounds(load.path, wanted, load.own_pps, load.least_pps)
        return Limit(most_pps, lowest_pps, load.parts)


def loads(path: Path, scenario: Scenario, inventory: Inventory, asked: Asked) -> Loads:
    """BadInput for what has no rate of the medium, and for frames that a stamp does not fit."""
    searched = [stream for stream in scenario.streams if not stream.background]
    drain_s = max(asked.form.drain_s, scenario.receive.drain_s)
    scenario = scenario.model_copy(update={"receive": scenario.receive.model_copy(update={"drain_s": drain_s})})
    for index, stream in enumerate(scenario.streams):
        if stream in searched:
            _check(path, index, stream, asked)
    of_size = {size: load_of(path, _sized(scenario, size), inventory, []) for size in asked.sizes_bytes}
    size, load = next(iter(of_size.items()))
    own_l1_bps = load.own_pps * 8 * (size + ETHERNET_OVERHEAD_BYTES)
    load.check_lasting(max(asked.form.latency_s, asked.form.trial_s, asked.longest_burst_s))
    return Loads(asked, own_l1_bps if asked.medium_l1_bps is None else asked.medium_l1_bps, of_size)


def _check(path: Path, index: int, stream: Stream, asked: Asked) -> None:
    if asked.medium_l1_bps is None and stream.rate_l1_bps is None:
        problem = "the rate of the medium, the load of 100 %, is missing"
        raise BadInput(path, problem, key=f"streams.{index}.rate_l1_bps", allowed="rate_l1_bps, or --max")
    if stream.sessions is not None:
        return  # what their frames are made of is known once the sessions stand; all of them are stamped
    least = least_size_bytes(fill(stream.headers or default_headers(index), *PLACEHOLDERS))
    if least > asked.sizes_bytes[0]:
        problem = f"the frames of {stream.name} have no room for their headers and a stamp"
        allowed = f"{least} bytes or more"
        raise BadInput(path, problem, key="--sizes", value=asked.sizes_bytes[0], allowed=allowed)


def _sized(scenario: Scenario, size_bytes: int) -> Scenario:
    """The background keeps its sizes."""
    sized = [
        stream if stream.background else stream.model_copy(update={"size_bytes": size_bytes})
        for stream in scenario.streams
    ]
    return scenario.model_copy(update={"streams": sized})


class Tester:
    def __init__(
        self, loads: Loads, hosts: Path, folder: Path, patience: float, console: Console, allow: Allow
    ) -> None:
        self.settle_s = loads.asked.form.settle_s
        self.tolerance = Tolerance(loads.asked.precision)
        self.runs = {
            size: Runs(load, hosts, folder, self.tolerance, patience, console, allow)
            for size, load in loads.of_size.items()
        }
        self._before = False

    def check(self, limits: dict[int, Limit]) -> None:
        """Everything that can be known to be wrong without the hosts."""
        for size, limit in limits.items():
            for load_pps in (limit.lowest_pps, limit.maximum_pps):
                self.runs[size].plan(load_pps, 1.0)

    def measure(self, wanted: Wanted) -> Told:
        if self._before:
            time.sleep(self.settle_s)
        self._before = True
        runs = self.runs[wanted.size_bytes]
        trial, outcome = runs.run(wanted.load_pps, wanted.duration_s, self._tolerance(wanted.test))
        rows = [row for row in outcome.rows if row.leg.stream in runs.load.unit_pps]
        return Told(trial, latencies(rows))

    def _tolerance(self, test: str) -> Tolerance:
        if test == BACK_TO_BACK:
            return replace(self.tolerance, least_s=BURST_SLACK_S)
        return replace(self.tolerance, figures=test in (LATENCY, LOSS))
