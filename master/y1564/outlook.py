"""How far an activation is. Pure."""

from __future__ import annotations

from pktswarm.master.benchmark.outlook import Outlook
from pktswarm.master.y1564.procedure import CONFIGURATION, Activation
from pktswarm.master.y1564.steps import PERFORMANCE, steps


def outlook(activation: Activation) -> Outlook:
    """The step of the last trial, and the steps left."""
    made = len(activation.trials)
    plan = activation.trials[-1][0] if made else None
    done = {(plan.service, plan.step.name) for plan, trial in activation.trials if not trial.held_up}
    # The further steps of a service whose load could not be sent are left out.
    over = {plan.service for plan, trial in activation.trials if trial.problem and not trial.held_up}
    left_s: list[float] = []
    for name in activation.services if CONFIGURATION in activation.tests else ():
        if name not in over:
            left_s += [activation.step_s for step in steps(activation.services[name]) if (name, step.name) not in done]
    performed = any(not service for service, _ in done)
    if PERFORMANCE in activation.tests and not performed:
        left_s.append(activation.performance_s)
    stage = "" if plan is None else f"{plan.service or 'all services'}, {plan.step.name}"
    return Outlook(made, stage).with_left([trial for _, trial in activation.trials], left_s)
