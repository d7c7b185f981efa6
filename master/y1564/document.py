"""What was found, as y1564.json has it; the tables, the page and the terminal show the same figures."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pktswarm.master.rfc2544.options import WARNING
from pktswarm.master.y1564.procedure import Activation, Done
from pktswarm.master.y1564.steps import PERFORMANCE, TOLERANCE

FORMAT_VERSION = 1
VERDICTS = {True: "pass", False: "fail", None: "not known"}
CONFORMITY = "Like ITU-T Y.1564, and not conformant to it: see the deviations."


def deviations(activation: Activation) -> list[str]:
    """Sentences."""
    return [
        f"Steps of {activation.step_s:g} s, and a performance test of {activation.performance_s:g} s; Y.1564 asks for "
        "15 minutes, 2 hours or 24 hours of the latter.",
        "Frames are not marked: all tests are colour-blind, and no EBS or CBS is tested.",
        f"Above the CIR up to {100 * TOLERANCE:g} % more than CIR + EIR may arrive: what a device's token bucket and "
        "queue hold counts in short steps.",
        "Delay is the mean of all stamped frames, delay variation the 99.9th percentile less the least, of the worst "
        "pair of nodes; they are as good as the bound of the two clocks.",
        "Availability is by what arrived in each whole second (less than half of what was sent: severely errored); an "
        "unavailable time begins with 10 such seconds in a row, so that a shorter test is always available.",
        "One direction for each stream of the file.",
    ]


def document(activation: Activation, about: dict[str, Any]) -> dict[str, Any]:
    """Rates in bits/s of frames with FCS, ratios of 1; None: not measured. `about`: the file."""
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
            {"service": name, **service.model_dump(), "verdict": verdict(activation, name)}
            for name, service in activation.services.items()
        ],
        "steps": [_step(done) for done in activation.done if done.step.kind != PERFORMANCE],
        "performance": [_step(done) for done in activation.done if done.step.kind == PERFORMANCE],
        "trials": [
            {"trial": number, "service": wanted.service, "step": wanted.step.name}
            | {**asdict(trial), "loss_ratio": trial.loss_ratio}
            for number, (wanted, trial) in enumerate(activation.trials, 1)
        ],
    }


def verdict(activation: Activation, name: str) -> str:
    """Of all that was made of a service."""
    passed = [done.passed for done in activation.done if done.service == name]
    if not passed or None in passed:
        return VERDICTS[None if False not in passed else False]
    return VERDICTS[all(passed)]


def _step(done: Done) -> dict[str, Any]:
    measured = done.measured
    timed = None if measured is None else measured.latencies
    return {
        "service": done.service,
        "step": done.step.name,
        "load_bps": done.step.bps,
        "duration_s": done.duration_s,
        "received_bps": None if measured is None else measured.ir_bps,
        "loss_ratio": None if measured is None else measured.loss_ratio,
        "delay_mean_ns": None if timed is None else timed.mean_ns,
        "delay_variation_ns": None if timed is None else timed.variation_ns,
        "delay_bound_ns": None if timed is None else timed.bound_ns,
        "availability": None if measured is None else measured.availability,
        "verdict": VERDICTS[done.passed],
        "checks": [{**asdict(check), "holds": check.holds, "outcome": check.outcome} for check in done.checks],
        "problem": done.problem,
    }
