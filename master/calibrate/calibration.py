"""A calibration: which figures are wanted, which of them are known, and the others one by one into the file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pktswarm.master.calibrate.measure import Able, Receiver, Transmitter
from pktswarm.master.calibrate.options import RECEIVERS, SENDERS, Asked
from pktswarm.master.calibrate.rate_search import Held
from pktswarm.master.calibrate.runs import Flow, Runs
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.cluster.node import reports_by_host
from pktswarm.master.plan.capacity import FAILED, UNCONFIRMED, USED, Capacity, Figure, missing_of
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
    """A figure that is wanted."""

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


@dataclass
class Calibration:
    """`tell` is told each figure as it stands, and whether it was known before."""

    inventory: Inventory
    asked: Asked
    runs: Runs
    capacity: Capacity
    tell: Callable[[Figure, bool], None]
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: list[Figure] = field(default_factory=list)
    problem: str = ""

    def run(self) -> None:
        """Whatever ends it, what was found until then is in the file. Raises BadInput, and errors before that."""
        run = self.runs.probe(self.pairs())
        self.reports = reports_by_host(run.ledger.nodes.values())
        missing = {**(self.capacity.missing or {}), **{name: missing_of(one) for name, one in self.reports.items()}}
        self.capacity = replace(self.capacity, missing=missing)
        try:
            for job in self.jobs():
                self._do(job)
        except PktswarmError as error:
            self.problem = str(error)

    def pairs(self) -> list[tuple[str, str]]:
        """Each transmitter with a receiver, and each receiver with a transmitter, none with itself."""
        found: dict[tuple[str, str], None] = {}
        names = [[host.name for host in self.inventory.with_role(role)] for role in ("transmit", "receive")]
        for number in range(max(map(len, names))):
            source = names[0][number % len(names[0])]
            targets = [name for name in names[1] if name != source]
            if targets:
                found[source, targets[number % len(targets)]] = None
        return list(found)

    def jobs(self) -> Iterator[Job]:
        """Transmitters first: what they can send is what receivers are overloaded with. Of engines that a node has."""
        roles: list[tuple[Role, tuple[str, ...], str]] = [
            ("transmit", SENDERS, ""),
            ("receive", RECEIVERS, self.asked.mode),
        ]
        for role, engines, mode in roles:
            hosts = [host.name for host in self.inventory.with_role(role) if host.name in self.asked.nodes]
            hosts = [name for name in hosts if name in self.reports]
            for size, engine, node in itertools.product(self.asked.sizes, self.asked.engines, hosts):
                if engine in engines and not self.lacks(node, role, engine):
                    yield Job(node, role, engine, size, mode)

    def lacks(self, node: str, role: Role, engine: str) -> str:
        """Why the node cannot do it; empty where it can."""
        kind = "senders" if role == "transmit" else "receivers"
        return str(self.reports[node][kind].get(engine, "this version has no such engine"))

    def lacking(self) -> list[str]:
        """Engines that were asked for and are not there, a line each."""
        found: dict[tuple[str, str], list[str]] = {}
        for host in (host for host in self.inventory.hosts if host.name in self.reports):
            for role, engine in itertools.product(host.roles, self.asked.engines):
                known = SENDERS if role == "transmit" else RECEIVERS
                if host.name in self.asked.nodes and engine in known and (why := self.lacks(host.name, role, engine)):
                    found.setdefault((engine, why), []).append(host.name)
        return [
            f"{engine} is not on {', '.join(dict.fromkeys(names))}: {why}" for (engine, why), names in found.items()
        ]

    def _do(self, job: Job) -> None:
        known = self.capacity.figure(job.key)
        if known is not None and self._holds(known):
            self._tell(known, True)
            return
        figure = self._measured(job)
        if figure.state != FAILED:
            self.capacity = self.capacity.with_figure(figure)
            self.capacity.write()
        self._tell(figure, False)

    def _measured(self, job: Job) -> Figure:
        """What a node refuses (a frame longer than its MTU, a stream that its engine cannot send) is its own affair."""
        try:
            held, more = self._transmitter(job) if job.role == "transmit" else self._receiver(job)
        except (BadInput, EngineError) as error:
            held, more = Held(FAILED, problem=str(error)), {}
        return self._figure(job, held, more)

    def _tell(self, figure: Figure, known: bool) -> None:
        self.done.append(figure)
        self.tell(figure, known)

    def _holds(self, known: Figure) -> bool:
        """As good as is asked for now, and of the node as it is."""
        form = self.asked.form
        as_good = (known.trial_s or 0) >= form.trial_s and (known.precision or 1) <= form.precision
        return not self.asked.again and known.state in USED and as_good and not known.changed(self.reports[known.node])

    def _transmitter(self, job: Job) -> tuple[Held, dict[str, Any]]:
        target = next((target for source, target in self.pairs() if source == job.node), "")
        if not target:
            return Held(FAILED, problem="no other node can receive what it sends"), {}
        work = Transmitter(
            lambda rate_pps: self.runs.sent(
                Flow(job.node, job.engine, rate_pps), target, job.size_bytes, self.asked.form.trial_s
            ),
            self.asked.form,
        )
        held = work.found()
        return held, {"top_pps": work.top_pps}

    def _receiver(self, job: Job) -> tuple[Held, dict[str, Any]]:
        able = self._able(job)
        if not able:
            problem = f"no other node is known to send {job.size_bytes} bytes: calibrate the transmitters first"
            return Held(FAILED, problem=problem), {}
        receive = {"engine": job.engine, "mode": job.mode}
        work = Receiver(
            lambda flows, trial_s: self.runs.received(flows, job.node, job.size_bytes, trial_s, receive),
            able,
            self.asked.form,
        )
        held = work.found()
        return held, {"senders": [one.node for one in work.senders]}

    def _able(self, job: Job) -> list[Able]:
        """Each other transmitter by the engine with which it sends most."""
        able: dict[str, list[Able]] = {}
        for one in self.capacity.figures:
            wanted = (one.role, one.size_bytes, one.node != job.node) == ("transmit", job.size_bytes, True)
            there = one.node in self.reports and not one.changed(self.reports[one.node])
            if wanted and there and one.rate_pps is not None:
                able.setdefault(one.node, []).append(Able(one.node, one.engine, one.rate_pps))
        return [max(those, key=lambda one: one.rate_pps) for those in able.values()]

    def _figure(self, job: Job, held: Held, more: dict[str, Any]) -> Figure:
        report = self.reports[job.node]
        interface = report["interface"]
        return Figure(
            **asdict(job),
            **{name: getattr(held, name) for name in ("state", "rate_pps", "above_pps", "trials", "problem")},
            **more,
            kernel=report["kernel"],
            driver=interface.get("driver") or "",
            speed_mbps=interface.get("speed_mbps"),
            engine_version=report.get("versions", {}).get(job.engine, ""),
            pktswarm=report["pktswarm"],
            utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            trial_s=self.asked.form.trial_s,
            precision=self.asked.form.precision,
        )

    @property
    def status(self) -> int:
        if self.problem or any(one.state == FAILED for one in self.done):
            return EXIT_INCOMPLETE
        return EXIT_NOT_AS_EXPECTED if any(one.state == UNCONFIRMED for one in self.done) else EXIT_AS_EXPECTED
