"""A calibration: measures the figures that the capacity file lacks, and writes each into the file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pktswarm.master.calibrate.measure import Receiver, Sender, Transmitter
from pktswarm.master.calibrate.options import RECEIVERS, SENDERS, Options
from pktswarm.master.calibrate.rate_search import RateResult
from pktswarm.master.calibrate.runs import Flow, Runs
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.cluster.node import reports_by_host
from pktswarm.master.plan.capacity import FAILED, UNCONFIRMED, USED, Capacity, Figure, missing_of
from pktswarm.master.scenario.receive import Receive
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
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
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
        known = self.capacity.figure(job.key)
        if known is not None and self._is_current(known):
            self._add(known, True)
            return
        figure = self._measured(job)
        if figure.state != FAILED:
            self.capacity = self.capacity.with_figure(figure)
            self.capacity.write()
        self._add(figure, False)

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
        work = Transmitter(
            lambda rate_pps: self.runs.sent(
                Flow(job.node, job.engine, rate_pps), target, job.size_bytes, self.options.form.trial_s
            ),
            self.options.form,
        )
        return Measurement(work.measure(), top_pps=work.top_pps)

    def _receiver(self, job: Job) -> Measurement:
        available = self._senders(job)
        if not available:
            problem = f"no transmitter has a figure for {job.size_bytes} bytes: calibrate the transmitters first"
            return Measurement(RateResult(FAILED, problem=problem))
        receive = Receive.model_validate({"engine": job.engine, "mode": job.mode})
        work = Receiver(
            lambda flows, trial_s: self.runs.received(flows, job.node, job.size_bytes, trial_s, receive),
            available,
            self.options.form,
        )
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
