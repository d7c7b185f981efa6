"""The tests of RFC 2544, one after another for each frame size."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from pktswarm.master.benchmark.attempts import NoFigure, Procedure, TrialResult
from pktswarm.master.benchmark.latency import Latencies
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.rfc2544 import formulas
from pktswarm.master.rfc2544.bursts import BurstSearch
from pktswarm.master.rfc2544.options import BACK_TO_BACK, LATENCY, LOSS, THROUGHPUT, Options
from pktswarm.master.search.engine import BELOW, HIGHEST, GoalRate, Search
from pktswarm.master.search.goals import SearchOptions
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED, PktswarmError

BURST_PRECISION = 0.01
"""Largest relative distance of the bounds of the longest burst."""
BURST_REPEATS = 9
"""Repetitions of a burst in which a node was held up. It is frequent on a busy node, as the tolerance is small."""
HOLDS_ALL = "the device forwards the maximum rate: no burst fills its buffers (RFC 9004, 5.1)"
NO_RATE = "no throughput was found, which this test requires"
NO_LATENCY = "latency was not measured: frames carry no stamps, or no frame was received"


@dataclass(frozen=True)
class TrialPlan:
    """One trial."""

    test: str
    size_bytes: int
    load_pps: float
    duration_s: float


@dataclass(frozen=True)
class LossAt:
    """The loss at one load of the frame loss rate."""

    load_percent: int
    load_pps: float
    sent_packets: int
    lost_packets: int

    @property
    def loss_percent(self) -> float | None:
        return formulas.loss_percent(self.sent_packets, self.lost_packets)


@dataclass(frozen=True)
class Burst:
    """The result of one search for the longest burst. `limited`: the longest allowed burst lost nothing."""

    frames: int
    step_frames: int
    limited: bool


@dataclass
class SizeResult:
    """The results of one frame size. `problem`: why its tests ended early. `left_out`: test → why it was left out."""

    size_bytes: int
    maximum_pps: float
    throughput: GoalRate | None = None
    latency: list[Latencies] = field(default_factory=list)
    loss: list[LossAt] = field(default_factory=list)
    bursts: list[Burst] = field(default_factory=list)
    burst_starts: list[int] = field(default_factory=list)
    """The number of trials before each search for the longest burst."""
    problem: str = ""
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def rate_pps(self) -> float | None:
        return None if self.throughput is None else self.throughput.rate_pps

    @property
    def burst_frames(self) -> float | None:
        """The longest burst: the mean of the searches."""
        return statistics.fmean(burst.frames for burst in self.bursts) if self.bursts else None


@dataclass(frozen=True)
class Limit:
    """The range of loads of a frame size.

    `parts`: number of flows that share the load. `lasts_s`: duration of the traffic beside them.
    """

    maximum_pps: float
    lowest_pps: float
    parts: int
    lasts_s: float = math.inf


class Benchmark(Procedure[TrialPlan, TrialResult]):
    """The benchmarks of RFC 2544. `limits`: by frame size. `measure` makes one trial; `on_trial` is called after it."""

    def __init__(
        self,
        options: Options,
        limits: dict[int, Limit],
        measure: Callable[[TrialPlan], TrialResult],
        on_trial: Callable[[Benchmark], None] = lambda benchmark: None,
    ) -> None:
        super().__init__(measure, lambda: on_trial(self))
        self.options, self.limits = options, limits
        self.sizes = [SizeResult(size, limit.maximum_pps) for size, limit in limits.items()]
        self.search: Search | None = None
        """The search for the throughput of the last size that has one."""

    def _run(self) -> None:
        for size in self.sizes:
            self._size(size)

    @property
    def status(self) -> int:
        """The exit status; 1: the device loses frames of a size even at the lowest rate."""
        if self.problem or any(size.problem for size in self.sizes):
            return EXIT_INCOMPLETE
        below = any(size.throughput is not None and size.throughput.state == BELOW for size in self.sizes)
        return EXIT_NOT_AS_EXPECTED if below else EXIT_AS_EXPECTED

    def _size(self, size: SizeResult) -> None:
        """Make the tests of a frame size. A load that the tester cannot send ends them."""
        tests = {
            THROUGHPUT: self._throughput,
            LATENCY: self._latency,
            LOSS: self._loss,
            BACK_TO_BACK: self._back_to_back,
        }
        for name in self.options.tests:
            try:
                tests[name](size)
            except NoFigure as ended:
                size.problem = f"{name}: {ended}"
                return

    def _throughput(self, size: SizeResult) -> None:
        """The test of RFC 2544, 26.1."""
        limit = self.limits[size.size_bytes]

        def trial(load_pps: float, duration_s: float) -> Trial:
            return self.attempts.measure(TrialPlan(THROUGHPUT, size.size_bytes, load_pps, duration_s)).trial

        self.search = search = Search(self.goal(size), limit.lowest_pps, limit.maximum_pps, trial)
        search.run()
        size.throughput = search.goals()[0]
        if self.attempts.ended:
            raise PktswarmError(self.attempts.ended)
        if search.problem:
            raise NoFigure(search.problem)

    def goal(self, size: SizeResult) -> SearchOptions:
        """The search for the throughput of a frame size."""
        form = self.options.form
        return SearchOptions(
            (0.0,),
            precision=self.options.precision,
            duration_s=form.trial_s,
            trials=form.trials,
            confirm_s=form.confirm_s,
            longest_confirm_s=self.limits[size.size_bytes].lasts_s,
        )

    def _latency(self, size: SizeResult) -> None:
        """The test of RFC 2544, 26.2, at the throughput."""
        if size.rate_pps is None:
            size.left_out[LATENCY] = NO_RATE
            return
        for _ in range(self.options.form.latency_trials):
            result = self.attempts.valid(
                TrialPlan(LATENCY, size.size_bytes, size.rate_pps, self.options.form.latency_s)
            )
            if result.latencies is None:
                size.left_out[LATENCY] = NO_LATENCY
                return
            size.latency.append(result.latencies)

    def _loss(self, size: SizeResult) -> None:
        """The test of RFC 2544, 26.3."""
        clean = 0
        for percent in formulas.LOADS_PERCENT:
            load_pps = size.maximum_pps * percent / 100
            result = self.attempts.valid(TrialPlan(LOSS, size.size_bytes, load_pps, self.options.form.trial_s))
            sent, lost = result.counts
            size.loss.append(LossAt(percent, load_pps, sent, lost))
            clean = clean + 1 if not lost else 0
            if clean == formulas.CLEAN_LOADS:
                return

    def _back_to_back(self, size: SizeResult) -> None:
        """The test of RFC 2544, 26.4, as updated by RFC 9004."""
        if size.throughput is None or size.rate_pps is None:
            size.left_out[BACK_TO_BACK] = NO_RATE
        elif size.throughput.state == HIGHEST:
            size.left_out[BACK_TO_BACK] = HOLDS_ALL
        else:
            for _ in range(self.options.form.bursts):
                size.burst_starts.append(len(self.trials))
                size.bursts.append(self._longest_burst(size, size.rate_pps))

    def _longest_burst(self, size: SizeResult, throughput_pps: float) -> Burst:
        longest = int(size.maximum_pps * self.options.longest_burst_s)
        parts = self.limits[size.size_bytes].parts
        search = BurstSearch(longest, throughput_pps / size.maximum_pps, BURST_PRECISION, parts)
        while (frames := search.next()) is not None:
            plan = TrialPlan(BACK_TO_BACK, size.size_bytes, size.maximum_pps, frames / size.maximum_pps)
            search.take(*self._burst(plan))
        return Burst(search.held, search.step, search.over_the_limit)

    def _burst(self, plan: TrialPlan) -> tuple[int, int]:
        """Send a burst, and return the sent and the lost frames.

        A burst with loss is repeated, and the smaller loss counts: RFC 9004, 5.2 recommends the search with loss
        verification of ETSI GS NFV-TST 009.
        """
        sent, lost = self.attempts.valid(plan, BURST_REPEATS).counts
        if not lost:
            return sent, lost
        return min((sent, lost), self.attempts.valid(plan, BURST_REPEATS).counts, key=lambda counts: counts[1])
