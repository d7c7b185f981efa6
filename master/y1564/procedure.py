"""The configuration test of one service after another, then all of them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pktswarm.master.benchmark.attempts import NoFigure, Procedure, Told
from pktswarm.master.y1564.services import Service
from pktswarm.master.y1564.steps import PERFORMANCE, Check, Measured, Step, judge, steps
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED

CONFIGURATION = "configuration"
TESTS = (CONFIGURATION, PERFORMANCE)
NOT_MEASURED = "was not measured"


@dataclass(frozen=True)
class Wanted:
    """One run: a step of a service alone, or (`service` empty) all at their CIR."""

    service: str
    step: Step
    duration_s: float


@dataclass(frozen=True)
class ToldOfAll(Told):
    """`measured`: of each service that was sent."""

    measured: Mapping[str, Measured] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """A step, or the performance test, of one service. `problem`: why it has no figures."""

    service: str
    step: Step
    duration_s: float
    measured: Measured | None
    checks: list[Check]
    problem: str = ""

    @property
    def passed(self) -> bool | None:
        """None: not known."""
        held = [check.holds for check in self.checks]
        if self.problem or not held or None in held:
            return None
        return all(held)


class Activation(Procedure[Wanted, ToldOfAll]):
    """`measure` makes one run; `tell` is told behind each."""

    def __init__(
        self,
        services: dict[str, Service],
        tests: tuple[str, ...],
        step_s: float,
        performance_s: float,
        measure: Callable[[Wanted], ToldOfAll],
        tell: Callable[[Activation], None] = lambda activation: None,
    ) -> None:
        super().__init__(measure, lambda: tell(self))
        self.services, self.tests, self.step_s, self.performance_s = services, tests, step_s, performance_s
        self.done: list[Done] = []

    def _run(self) -> None:
        if CONFIGURATION in self.tests:
            for name in self.services:
                self._configuration(name)
        if PERFORMANCE in self.tests:
            self._performance()

    @property
    def status(self) -> int:
        """The exit status."""
        passed = [one.passed for one in self.done]
        if self.problem or not passed or None in passed:
            return EXIT_INCOMPLETE
        return EXIT_AS_EXPECTED if all(passed) else EXIT_NOT_AS_EXPECTED

    def _configuration(self, name: str) -> None:
        """A load that the tester could not send ends the service's steps: they are not the device's."""
        for step in steps(self.services[name]):
            if not self._step(Wanted(name, step, self.step_s)):
                return

    def _performance(self) -> None:
        together = sum(service.cir_bps for service in self.services.values())
        self._step(Wanted("", Step(PERFORMANCE, "all services at CIR", together), self.performance_s))

    def _step(self, wanted: Wanted) -> bool:
        """Whether it has figures."""
        names = [wanted.service] if wanted.service else list(self.services)
        try:
            measured = self.attempts.sound(wanted).measured
            self.done += [self._judged(name, wanted, measured[name]) for name in names]
        except NoFigure as why:
            self.done += [Done(name, self._own(name, wanted), wanted.duration_s, None, [], str(why)) for name in names]
            return False
        return True

    def _judged(self, name: str, wanted: Wanted, measured: Measured) -> Done:
        checks = judge(self.services[name], wanted.step.kind, measured)
        missing = [f"{check.what}: was {check.outcome}" for check in checks if check.holds is None]
        problem = "; ".join(missing)
        return Done(name, self._own(name, wanted), wanted.duration_s, measured, checks, problem)

    def _own(self, name: str, wanted: Wanted) -> Step:
        """Of the performance test: the service's own rate."""
        if wanted.service:
            return wanted.step
        return Step(wanted.step.kind, wanted.step.name, self.services[name].cir_bps)
