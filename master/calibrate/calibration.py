"""A calibration: measures the figures that the capacity file lacks, and writes each into the file."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pktswarm.master.benchmark.outlook import Outlook, left_by_parts
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.calibrate.kept import Kept, KeptFigure, Trials
from pktswarm.master.calibrate.measure import Receiver, Sender, Transmitter, bounds_sent, too_much
from pktswarm.master.calibrate.options import RECEIVERS, SENDERS, Options
from pktswarm.master.calibrate.rate_search import RateResult
from pktswarm.master.calibrate.runs import Flow, Runs, Sent
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.cluster.node import reports_by_host
from pktswarm.master.plan.capacity import FAILED, UNCONFIRMED, USED, Capacity, Figure, missing_of
from pktswarm.master.scenario.receive import Receive
from pktswarm.master.search.outlook import bounds
from pktswarm.traffic.errors import (
    EXIT_AS_EXPECTED,
    EXIT_INCOMPLETE,
    EXIT_NOT_AS_EXPECTED,
    BadInput,
    EngineError,
    PktswarmError,
)
from pktswarm.traffic.protocol.task import Role


@dataclass(frozen=True)
class Job:
    """A figure to measure."""

    node: str
    role: Role
    engine: str
    size_bytes: int
    mode: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.node, self.role, self.engine, self.mode, self.size_bytes

    def describe(self) -> str:
        return f"{self.node}, {self.role} by {self.engine}, {self.size_bytes} bytes"


@dataclass(frozen=True)
class Measurement:
    """The result of a job. `top_pps`: of a transmitter. `senders`: the transmitters that sent to a receiver."""

    result: RateResult
    top_pps: float | None = None
    senders: list[str] = field(default_factory=list)


@dataclass
class Calibration:
    """`on_figure` is called with each figure, and whether the file had it before."""

    inventory: Inventory
    options: Options
    runs: Runs
    capacity: Capacity
    on_figure: Callable[[Figure, bool], None]
    kept: Kept | None = None
    """The figures and trials of an interrupted calibration, and of this one; None: nothing is kept."""
    note: Callable[[Outlook], None] = lambda outlook: None
    """Called with what is found so far, before each figure."""
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    """The times of the figures that were measured."""
    made: int = 0
    """Number of trials."""
    tried: list[Trial] = field(default_factory=list)
    """The paced trials of the present figure."""
    problem: str = ""

    def run(self) -> None:
        """Measure all figures. An error after the first run ends the calibration, and its figures stay in the file."""
        run = self.runs.probe(self.pairs())
        self.reports = reports_by_host(run.ledger.nodes.values())
        missing = {
            **(self.capacity.missing or {}),
            **{name: missing_of(report) for name, report in self.reports.items()},
        }
        self.capacity = replace(self.capacity, missing=missing)
        try:
            for job in self.jobs():
                self._do(job)
        except PktswarmError as error:
            self.problem = str(error)

    @property
    def trials(self) -> list[Figure]:
        """The results so far, for benchmark.storage."""
        return self.figures

    def pairs(self) -> list[tuple[str, str]]:
        """Pair each transmitter with a receiver, and each receiver with a transmitter, on different nodes."""
        pairs: dict[tuple[str, str], None] = {}
        names = [[host.name for host in self.inventory.with_role(role)] for role in ("transmit", "receive")]
        for number in range(max(map(len, names))):
            source = names[0][number % len(names[0])]
            targets = [name for name in names[1] if name != source]
            if targets:
                pairs[source, targets[number % len(targets)]] = None
        return list(pairs)

    def jobs(self) -> Iterator[Job]:
        """The figures to measure. Transmitters come first, as receivers need their rates."""
        roles: list[tuple[Role, tuple[str, ...], str]] = [
            ("transmit", SENDERS, ""),
            ("receive", RECEIVERS, self.options.mode),
        ]
        for role, engines, mode in roles:
            hosts = [host.name for host in self.inventory.with_role(role) if host.name in self.options.nodes]
            hosts = [name for name in hosts if name in self.reports]
            for size, engine, node in itertools.product(self.options.sizes, self.options.engines, hosts):
                if engine in engines and not self.lacks(node, role, engine):
                    yield Job(node, role, engine, size, mode)

    def lacks(self, node: str, role: Role, engine: str) -> str:
        """Why a node lacks an engine; empty: it has it."""
        kind = "senders" if role == "transmit" else "receivers"
        return str(self.reports[node][kind].get(engine, "this version has no such engine"))

    def lacking(self) -> list[str]:
        """The requested engines that nodes lack, a line each."""
        nodes: dict[tuple[str, str], list[str]] = {}
        for host in (host for host in self.inventory.hosts if host.name in self.reports):
            for role, engine in itertools.product(host.roles, self.options.engines):
                known = SENDERS if role == "transmit" else RECEIVERS
                if host.name in self.options.nodes and engine in known and (why := self.lacks(host.name, role, engine)):
                    nodes.setdefault((engine, why), []).append(host.name)
        return [
            f"{engine} is not on {', '.join(dict.fromkeys(names))}: {why}" for (engine, why), names in nodes.items()
        ]

    def _do(self, job: Job) -> None:
        self.tried = []
        self.note(self._outlook(job))
        stored = None if self.kept is None else self.kept.figure(job.key)
        if stored is not None:
            if stored.figure.changed(self.reports[job.node]):
                problem = "its kernel, driver or link speed has changed since the interruption"
                raise PktswarmError(f"{job.node}: {problem}: calibrate without --resume")
            self._take(stored.figure)
            self.took_s.append(stored.took_s)
            self._add(stored.figure, True)
            return
        known = self.capacity.figure(job.key)
        if known is not None and self._is_current(known):
            self._add(known, True)
            return
        began = time.monotonic()
        figure = self._measured(job)
        self._take(figure)
        self.took_s.append(time.monotonic() - began)
        if self.kept is not None:
            self.kept.keep(job.key, KeptFigure(figure, self.took_s[-1]))
        self._add(figure, False)

    def _take(self, figure: Figure) -> None:
        if figure.state != FAILED:
            self.capacity = self.capacity.with_figure(figure)
            self.capacity.write()

    def _outlook(self, job: Job) -> Outlook:
        """What is found so far. The number of trials of a figure is not known in advance."""
        parts, done = len(list(self.jobs())), len(self.figures)
        left_s = left_by_parts(self.took_s, parts - done)
        found = bounds_sent(self.tried) if job.role == "transmit" else bounds(self.tried, 0.0)
        return Outlook(self.made, job.describe(), done + 1, parts, (found,), left_s=left_s)

    def _tried(self, job: Job, trial: Trial) -> None:
        self.made += 1
        self.tried += [trial] if trial.intended_pps else []
        self.note(self._outlook(job))

    def _measured(self, job: Job) -> Figure:
        """Measure a figure. A refusal by the node (e.g. of a frame longer than its MTU) is a failed figure."""
        try:
            measurement = self._transmitter(job) if job.role == "transmit" else self._receiver(job)
        except (BadInput, EngineError) as error:
            measurement = Measurement(RateResult(FAILED, problem=str(error)))
        return self._figure(job, measurement)

    def _add(self, figure: Figure, known: bool) -> None:
        self.figures.append(figure)
        self.on_figure(figure, known)

    def _is_current(self, known: Figure) -> bool:
        """Whether a figure is as precise as the options require, and the node is unchanged."""
        form = self.options.form
        as_good = (known.trial_s or 0) >= form.trial_s and (known.precision or 1) <= form.precision
        return (
            not self.options.again and known.state in USED and as_good and not known.changed(self.reports[known.node])
        )

    def _transmitter(self, job: Job) -> Measurement:
        target = next((target for source, target in self.pairs() if source == job.node), "")
        if not target:
            return Measurement(RateResult(FAILED, problem="no other node can receive its packets"))
        trial_s = self.options.form.trial_s

        def sent(rate_pps: float | None) -> Sent:
            flow = Flow(job.node, job.engine, rate_pps)
            found = trials.measure(flow, lambda: self.runs.sent(flow, target, job.size_bytes, trial_s))
            self._tried(job, found.trial)
            return found

        trials = Trials(self.kept, job.key, Sent, lambda sent: sent.problem)
        work = Transmitter(sent, self.options.form)
        return Measurement(work.measure(), top_pps=work.top_pps)

    def _receiver(self, job: Job) -> Measurement:
        available = self._senders(job)
        if not available:
            problem = f"no transmitter has a figure for {job.size_bytes} bytes: calibrate the transmitters first"
            return Measurement(RateResult(FAILED, problem=problem))
        receive = Receive.model_validate({"engine": job.engine, "mode": job.mode})

        def received(flows: Sequence[Flow], trial_s: float) -> Trial:
            found = trials.measure(
                [flows, trial_s], lambda: self.runs.received(flows, job.node, job.size_bytes, trial_s, receive)
            )
            self._tried(job, found)
            return found

        # A load that the transmitters cannot send is a result.
        trials = Trials(self.kept, job.key, Trial, lambda trial: "" if too_much(trial) else trial.problem)
        work = Receiver(received, available, self.options.form)
        return Measurement(work.measure(), senders=[sender.node for sender in work.senders])

    def _senders(self, job: Job) -> list[Sender]:
        """Each other transmitter with its fastest engine."""
        fastest: dict[str, Sender] = {}
        for figure in self.capacity.figures:
            fits = (figure.role, figure.size_bytes, figure.node != job.node) == ("transmit", job.size_bytes, True)
            current = figure.node in self.reports and not figure.changed(self.reports[figure.node])
            if fits and current and figure.rate_pps is not None:
                sender = Sender(figure.node, figure.engine, figure.rate_pps)
                fastest[figure.node] = max(fastest.get(figure.node, sender), sender, key=lambda each: each.rate_pps)
        return list(fastest.values())

    def _figure(self, job: Job, measurement: Measurement) -> Figure:
        report = self.reports[job.node]
        interface = report["interface"]
        return Figure(
            **asdict(job),
            **asdict(measurement.result),
            top_pps=measurement.top_pps,
            senders=measurement.senders,
            kernel=report["kernel"],
            driver=interface.get("driver") or "",
            speed_mbps=interface.get("speed_mbps"),
            engine_version=report.get("versions", {}).get(job.engine, ""),
            pktswarm=report["pktswarm"],
            utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            trial_s=self.options.form.trial_s,
            precision=self.options.form.precision,
        )

    @property
    def status(self) -> int:
        """The exit status."""
        if self.problem or any(figure.state == FAILED for figure in self.figures):
            return EXIT_INCOMPLETE
        return EXIT_NOT_AS_EXPECTED if any(figure.state == UNCONFIRMED for figure in self.figures) else EXIT_AS_EXPECTED
