"""The configuration test of each service in turn, then the performance test of all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pktswarm.master.benchmark.attempts import NoFigure, Procedure, TrialResult
from pktswarm.master.y1564.services import Service
from pktswarm.master.y1564.steps import PERFORMANCE, Check, Measured, Step, judge, steps
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED

CONFIGURATION = "configuration"
TESTS = (CONFIGURATION, PERFORMANCE)


@dataclass(frozen=True)
class TrialPlan:
    """One trial: a step of one service, or (`service` is empty) all services at their CIR."""

    service: str
    step: Step
    duration_s: float


@dataclass(frozen=True)
class ActivationResult(TrialResult):
    """A trial with its figures. `measured`: by service."""

    measured: Mapping[str, Measured] = field(default_factory=dict)


@dataclass(frozen=True)
class StepResult:
    """A step, or the performance test, of one service. `problem`: why it has no verdict."""

    service: str
    step: Step
    duration_s: float
    measured: Measured | None
    checks: list[Check]
    problem: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether all checks hold; None: not known."""
        holds = [check.holds for check in self.checks]
        if self.problem or not holds or None in holds:
            return None
        return all(holds)


class Activation(Procedure[TrialPlan, ActivationResult]):
    """The tests of all services. `measure` makes one trial; `on_trial` is called after it."""

    def __init__(
        self,
        services: dict[str, Service],
        tests: tuple[str, ...],
        step_s: float,
        performance_s: float,
        measure: Callable[[TrialPlan], ActivationResult],
        on_trial: Callable[[Activation], None] = lambda activation: None,
    ) -> None:
        super().__init__(measure, lambda: on_trial(self))
        self.services, self.tests, self.step_s, self.performance_s = services, tests, step_s, performance_s
        self.results: list[StepResult] = []

    def _run(self) -> None:
        if CONFIGURATION in self.tests:
            for name in self.services:
                self._configuration(name)
        if PERFORMANCE in self.tests:
            self._performance()

    @property
    def status(self) -> int:
        """The exit status."""
        passed = [result.passed for result in self.results]
        if self.problem or not passed or None in passed:
            return EXIT_INCOMPLETE
        return EXIT_AS_EXPECTED if all(passed) else EXIT_NOT_AS_EXPECTED

    def _configuration(self, name: str) -> None:
        """Test one service. A load that the tester cannot send ends its steps, as it says nothing about the device."""
        for step in steps(self.services[name]):
            if not self._step(TrialPlan(name, step, self.step_s)):
                return

    def _performance(self) -> None:
        together = sum(service.cir_bps for service in self.services.values())
        self._step(TrialPlan("", Step(PERFORMANCE, "all services at CIR", together), self.performance_s))

    def _step(self, plan: TrialPlan) -> bool:
        """Make a step, and return whether it has figures."""
        names = [plan.service] if plan.service else list(self.services)
        try:
            measured = self.attempts.valid(plan).measured
            self.results += [self._judged(name, plan, measured[name]) for name in names]
        except NoFigure as why:
            self.results += [
                StepResult(name, self._own(name, plan), plan.duration_s, None, [], str(why)) for name in names
            ]
            return False
        return True

    def _judged(self, name: str, plan: TrialPlan, measured: Measured) -> StepResult:
        checks = judge(self.services[name], plan.step.kind, measured)
        missing = [f"{check.what}: was {check.outcome}" for check in checks if check.holds is None]
        problem = "; ".join(missing)
        return StepResult(name, self._own(name, plan), plan.duration_s, measured, checks, problem)

    def _own(self, name: str, plan: TrialPlan) -> Step:
        """Return the step with the rate of one service: in the performance test, its CIR."""
        if plan.service:
            return plan.step
        return Step(plan.step.kind, plan.step.name, self.services[name].cir_bps)
