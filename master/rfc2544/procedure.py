"""The benchmarks one after another, for each frame size: what is tried, and what is found."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from pktswarm.master.benchmark.attempts import NoFigure, Procedure, Told
from pktswarm.master.benchmark.latency import Latencies
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.rfc2544 import formulas
from pktswarm.master.rfc2544.bursts import BurstSearch
from pktswarm.master.rfc2544.options import BACK_TO_BACK, LATENCY, LOSS, THROUGHPUT, Asked
from pktswarm.master.search import goals
from pktswarm.master.search.engine import BELOW, HIGHEST, Found, Search
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED, PktswarmError

BURST_PRECISION = 0.01
"""How close the bounds of a burst's length are in the end."""
BURST_REPEATS = 9
"""A burst is short, and its time kept narrowly: where other work holds up a sender that is nearly each one's."""
HOLDS_ALL = "the device holds the maximum rate: no burst fills its buffers (RFC 9004, 5.1)"
NO_RATE = "no throughput was found to go by"
NO_LATENCY = "latency was not measured: frames carry no stamps, or none came"


@dataclass(frozen=True)
class Wanted:
    """One trial."""

    test: str
    size_bytes: int
    load_pps: float
    duration_s: float


@dataclass(frozen=True)
class LossAt:
    """Of the frame loss rate: one load, in percent of the maximum."""

    load_percent: int
    load_pps: float
    sent_packets: int
    lost_packets: int

    @property
    def loss_percent(self) -> float | None:
        return formulas.loss_percent(self.sent_packets, self.lost_packets)


@dataclass(frozen=True)
class Burst:
    """What one search for the longest burst found. `limited`: none that may be sent was too long."""

    frames: int
    step_frames: int
    limited: bool


@dataclass
class OfSize:
    """All that is known of one frame size. `problem`: why its tests ended; `left_out`: test → why it was not made."""

    size_bytes: int
    maximum_pps: float
    throughput: Found | None = None
    latency: list[Latencies] = field(default_factory=list)
    loss: list[LossAt] = field(default_factory=list)
    bursts: list[Burst] = field(default_factory=list)
    problem: str = ""
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def rate_pps(self) -> float | None:
        return None if self.throughput is None else self.throughput.rate_pps

    @property
    def burst_frames(self) -> float | None:
        """The benchmark: the mean of the searches."""
        return statistics.fmean(burst.frames for burst in self.bursts) if self.bursts else None


@dataclass(frozen=True)
class Limit:
    """`lowest_pps`: the least that is tried; `parts`: so many legs share the load."""

    maximum_pps: float
    lowest_pps: float
    parts: int


class Benchmark(Procedure[Wanted, Told]):
    """`limits`: of each frame size; `measure` makes one trial; `tell` is told each one."""

    def __init__(
        self,
        asked: Asked,
        limits: dict[int, Limit],
        measure: Callable[[Wanted], Told],
        tell: Callable[[Benchmark], None] = lambda benchmark: None,
    ) -> None:
        super().__init__(measure, lambda: tell(self))
        self.asked, self.limits = asked, limits
        self.sizes = [OfSize(size, limit.maximum_pps) for size, limit in limits.items()]

    def _run(self) -> None:
        for of in self.sizes:
            self._size(of)

    @property
    def status(self) -> int:
        """The exit status: 1 where the device does not hold even the lowest rate of a size."""
        if self.problem or any(of.problem for of in self.sizes):
            return EXIT_INCOMPLETE
        below = any(of.throughput is not None and of.throughput.state == BELOW for of in self.sizes)
        return EXIT_NOT_AS_EXPECTED if below else EXIT_AS_EXPECTED

    def _size(self, of: OfSize) -> None:
        """A tester that did not send the load ends it: what it could not send is none of the device's figures."""
        tests = {
            THROUGHPUT: self._throughput,
            LATENCY: self._latency,
            LOSS: self._loss,
            BACK_TO_BACK: self._back_to_back,
        }
        for name in self.asked.tests:
            try:
                tests[name](of)
            except NoFigure as ended:
                of.problem = f"{name}: {ended}"
                return

    # --- the tests ----------------------------------------------------------------------------------------------

    def _throughput(self, of: OfSize) -> None:
        """RFC 2544, 26.1."""
        form, limit = self.asked.form, self.limits[of.size_bytes]
        wanted = goals.Asked((0.0,), precision=self.asked.precision, duration_s=form.trial_s, trials=form.trials)

        def trial(load_pps: float, duration_s: float) -> Trial:
            return self.attempts.one(Wanted(THROUGHPUT, of.size_bytes, load_pps, duration_s)).trial

        search = Search(wanted, limit.lowest_pps, limit.maximum_pps, trial)
        search.run()
        of.throughput = search.found()[0]
        if self.attempts.ended:
            raise PktswarmError(self.attempts.ended)
        if search.problem:
            raise NoFigure(search.problem)

    def _latency(self, of: OfSize) -> None:
        """RFC 2544, 26.2: at the throughput."""
        if of.rate_pps is None:
            of.left_out[LATENCY] = NO_RATE
            return
        for _ in range(self.asked.form.latency_trials):
            told = self.attempts.sound(Wanted(LATENCY, of.size_bytes, of.rate_pps, self.asked.form.latency_s))
            if told.latencies is None:
                of.left_out[LATENCY] = NO_LATENCY
                return
            of.latency.append(told.latencies)

    def _loss(self, of: OfSize) -> None:
        """RFC 2544, 26.3."""
        clean = 0
        for percent in formulas.LOADS_PERCENT:
            load_pps = of.maximum_pps * percent / 100
            told = self.attempts.sound(Wanted(LOSS, of.size_bytes, load_pps, self.asked.form.trial_s))
            sent, lost = told.counts
            of.loss.append(LossAt(percent, load_pps, sent, lost))
            clean = clean + 1 if not lost else 0
            if clean == formulas.CLEAN_LOADS:
                return

    def _back_to_back(self, of: OfSize) -> None:
        """RFC 2544, 26.4, as RFC 9004 has it."""
        if of.throughput is None or of.rate_pps is None:
            of.left_out[BACK_TO_BACK] = NO_RATE
        elif of.throughput.state == HIGHEST:
            of.left_out[BACK_TO_BACK] = HOLDS_ALL
        else:
            for _ in range(self.asked.form.bursts):
                of.bursts.append(self._longest_burst(of, of.rate_pps))

    def _longest_burst(self, of: OfSize, throughput_pps: float) -> Burst:
        longest = int(of.maximum_pps * self.asked.longest_burst_s)
        parts = self.limits[of.size_bytes].parts
        search = BurstSearch(longest, throughput_pps / of.maximum_pps, BURST_PRECISION, parts)
        while (frames := search.next()) is not None:
            wanted = Wanted(BACK_TO_BACK, of.size_bytes, of.maximum_pps, frames / of.maximum_pps)
            search.take(*self._burst(wanted))
        return Burst(search.held, search.step, search.over_the_limit)

    def _burst(self, wanted: Wanted) -> tuple[int, int]:
        """Sent and lost frames. Loss has to show twice: a device may have been held up for once (RFC 9004, 5.2
        recommends the search with loss verification of ETSI GS NFV-TST 009)."""
        sent, lost = self.attempts.sound(wanted, BURST_REPEATS).counts
        if not lost:
            return sent, lost
        return min((sent, lost), self.attempts.sound(wanted, BURST_REPEATS).counts, key=lambda told: told[1])
