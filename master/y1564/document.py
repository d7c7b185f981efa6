"""The document of an activation, y1564.json. Rates in bits/s of frames with FCS, ratios of 1; None: not measured."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from pktswarm.master.benchmark.document import Document, TrialFields, trial_fields
from pktswarm.master.benchmark.options import WARNING
from pktswarm.master.cluster.dut import DutEntry
from pktswarm.master.results.document import Judgement
from pktswarm.master.y1564.procedure import Activation, StepResult
from pktswarm.master.y1564.services import Service
from pktswarm.master.y1564.steps import PERFORMANCE, TOLERANCE, Check

FORMAT_VERSION = 1
VERDICTS = {True: "pass", False: "fail", None: "not known"}
CONFORMITY = "Like ITU-T Y.1564, and not conformant to it: see the deviations."


class About(TypedDict):
    """The part that is known before the first trial."""

    name: str
    scenario_file: str
    hosts_file: str
    dut: NotRequired[DutEntry]


class OptionFields(TypedDict):
    tests: tuple[str, ...]
    step_s: float
    performance_s: float


class ServiceFields(TypedDict):
    """A service as the file describes it, and its verdict."""

    service: str
    cir_bps: float
    eir_bps: float
    loss: str
    delay_ms: float | None
    delay_variation_ms: float | None
    availability: str | None
    expect: dict[str, object]
    policing: bool
    verdict: str


class CheckFields(TypedDict):
    """A figure of a service beside its limits."""

    what: str
    found: float | None
    at_least: float | None
    at_most: float | None
    bound: float
    holds: bool | None
    outcome: Judgement


class StepFields(TypedDict):
    """The result of one step of one service."""

    service: str
    step: str
    load_bps: float
    duration_s: float
    received_bps: float | None
    loss_ratio: float | None
    delay_mean_ns: float | None
    delay_variation_ns: int | None
    delay_bound_ns: int | None
    availability: float | None
    verdict: str
    checks: list[CheckFields]
    problem: str


class ActivationTrial(TrialFields):
    trial: int
    service: str
    step: str


class ActivationDocument(Document):
    hosts_file: str
    conformant: bool
    conformity: str
    deviations: list[str]
    warning: str
    asked: OptionFields
    services: list[ServiceFields]
    steps: list[StepFields]
    performance: list[StepFields]
    trials: list[ActivationTrial]


def deviations(activation: Activation) -> list[str]:
    """The deviations from Y.1564, a sentence or two each."""
    return [
        f"Steps of {activation.step_s:g} s, and a performance test of {activation.performance_s:g} s; Y.1564 requires "
        "15 minutes, 2 hours or 24 hours for the latter.",
        "Frames are not marked: all tests are colour-blind, and no EBS or CBS is tested.",
        f"Above the CIR up to {100 * TOLERANCE:g} % more than CIR + EIR may arrive: the token bucket and the queue of "
        "a device add to the received rate in short steps.",
        "Delay is the mean of all stamped frames; delay variation is the 99.9th percentile less the minimum, of the "
        "worst pair of nodes. Both are as precise as the bound of the two clocks.",
        "Availability is computed from the frames received in each whole second (less than half of the sent frames: "
        "severely errored). Unavailable time begins with 10 such seconds in a row, so that a shorter test is always "
        "available.",
        "One direction for each stream of the file.",
    ]


def document(activation: Activation, about: About) -> ActivationDocument:
    """The state of an activation."""
    results = activation.results
    return {
        "format_version": FORMAT_VERSION,
        **about,
        "conformant": False,
        "conformity": CONFORMITY,
        "deviations": deviations(activation),
        "warning": WARNING,
        "status": activation.status,
        "problem": activation.problem,
        "asked": {"tests": activation.tests, "step_s": activation.step_s, "performance_s": activation.performance_s},
        "services": [
            _service(name, service, verdict(activation, name)) for name, service in activation.services.items()
        ],
        "steps": [_step(result) for result in results if result.step.kind != PERFORMANCE],
        "performance": [_step(result) for result in results if result.step.kind == PERFORMANCE],
        "trials": [
            {"trial": number, "service": plan.service, "step": plan.step.name, **trial_fields(trial)}
            for number, (plan, trial) in enumerate(activation.trials, 1)
        ],
        "interruptions": [],
    }


def verdict(activation: Activation, name: str) -> str:
    """The verdict of all steps of a service."""
    passed = [result.passed for result in activation.results if result.service == name]
    if not passed or None in passed:
        return VERDICTS[None if False not in passed else False]
    return VERDICTS[all(passed)]


def _service(name: str, service: Service, verdict: str) -> ServiceFields:
    return {
        "service": name,
        "cir_bps": service.cir_bps,
        "eir_bps": service.eir_bps,
        "loss": service.loss,
        "delay_ms": service.delay_ms,
        "delay_variation_ms": service.delay_variation_ms,
        "availability": service.availability,
        "expect": service.expect.model_dump(),
        "policing": service.policing,
        "verdict": verdict,
    }


def _step(result: StepResult) -> StepFields:
    measured = result.measured
    latencies = None if measured is None else measured.latencies
    return {
        "service": result.service,
        "step": result.step.name,
        "load_bps": result.step.bps,
        "duration_s": result.duration_s,
        "received_bps": None if measured is None else measured.ir_bps,
        "loss_ratio": None if measured is None else measured.loss_ratio,
        "delay_mean_ns": None if latencies is None else latencies.mean_ns,
        "delay_variation_ns": None if latencies is None else latencies.variation_ns,
        "delay_bound_ns": None if latencies is None else latencies.bound_ns,
        "availability": None if measured is None else measured.availability,
        "verdict": VERDICTS[result.passed],
        "checks": [_check(check) for check in result.checks],
        "problem": result.problem,
    }


def _check(check: Check) -> CheckFields:
    return {
        "what": check.what,
        "found": check.found,
        "at_least": check.at_least,
        "at_most": check.at_most,
        "bound": check.bound,
        "holds": check.holds,
        "outcome": check.outcome,
    }
