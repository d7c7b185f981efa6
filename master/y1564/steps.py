"""The steps of a service, and what passes (ITU-T Y.1564, 8.1 and 8.2; colour-blind: frames are not marked)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pktswarm.master.benchmark.latency import Latencies
from pktswarm.master.results import limits
from pktswarm.master.results.limits import Found, Outcome, Values
from pktswarm.master.scenario.expectations import METRICS, allowed
from pktswarm.master.y1564.services import Service

WORST_FIRST: tuple[Outcome, ...] = ("failed", "not measured", "not decided", "held")
CIR_PERCENT = (25, 50, 75, 100)
LEAST_EIR = 0.2
"""Of the CIR: with less EIR the policing test goes above the CIR in place of the EIR."""
TOO_MUCH = 1.25
TOLERANCE = 0.02
"""Of CIR + EIR, by which more may arrive: what the device's token bucket and queue hold in a step. Y.1564's M."""
SEVERE_LOSS = 0.5
"""Of a second's frames: it is severely errored (ITU-T Y.1563)."""
IN_A_ROW = 10
"""Seconds severely errored begin unavailable time, as many that are not end it."""
CIR, EIR, POLICING, PERFORMANCE = "CIR", "CIR + EIR", "policing", "performance"


@dataclass(frozen=True)
class Step:
    kind: str
    name: str
    bps: float
    """Of the frames with FCS."""


@dataclass(frozen=True)
class Measured:
    """Of one service in one step; None: not measured."""

    ir_bps: float | None
    """Received, over the time of the sending."""
    loss_ratio: float | None
    latencies: Latencies | None
    availability: float | None = None
    rows: Sequence[Values] = ()
    """Of its stream in streams.csv."""


@dataclass(frozen=True)
class Check:
    """`found` and what is allowed in the unit of `what`. `holds` None: it was not measured, or not well enough."""

    what: str
    found: float | None
    at_least: float | None = None
    at_most: float | None = None
    bound: float = 0.0
    """How far off `found` may be."""

    @property
    def outcome(self) -> Outcome:
        if self.found is None:
            return "not measured"
        found, outcomes = Found(self.found, self.bound), set()
        if self.at_least is not None:
            outcomes.add(found.against(self.at_least, at_least=True))
        if self.at_most is not None:
            outcomes.add(found.against(self.at_most, at_least=False))
        return next(one for one in WORST_FIRST if one in outcomes)

    @property
    def holds(self) -> bool | None:
        return {"held": True, "failed": False}.get(self.outcome)


def steps(service: Service) -> list[Step]:
    """Of the service configuration test, in order."""
    found = [Step(CIR, f"{percent} % of CIR", service.cir_bps * percent / 100) for percent in CIR_PERCENT]
    if service.eir_bps:
        found.append(Step(EIR, EIR, service.cir_bps + service.eir_bps))
    if service.policing:
        found.append(Step(POLICING, POLICING, policing_bps(service)))
    return found


def policing_bps(service: Service) -> float:
    """CIR + 125 % of EIR; where that is hardly more than CIR, 125 % of CIR + EIR."""
    if service.eir_bps < LEAST_EIR * service.cir_bps:
        return TOO_MUCH * service.cir_bps + service.eir_bps
    return service.cir_bps + TOO_MUCH * service.eir_bps


def judge(service: Service, kind: str, measured: Measured) -> list[Check]:
    """Up to the CIR the service has to be what was agreed; above it, at least the CIR has to arrive, and no more than
    CIR + EIR."""
    if kind in (EIR, POLICING):
        least = service.cir_bps * (1 - service.loss_ratio)
        most = (service.cir_bps + service.eir_bps) * (1 + TOLERANCE)
        return [Check("received, bit/s", measured.ir_bps, at_least=least, at_most=most)]
    checks = [Check("loss ratio", measured.loss_ratio, at_most=service.loss_ratio)]
    timed = measured.latencies
    if service.delay_ms is not None:
        found, bound = (None, 0.0) if timed is None else (timed.mean_ns / 1e6, (timed.bound_ns or 0) / 1e6)
        checks.append(Check("delay, ms", found, at_most=service.delay_ms, bound=bound))
    if service.delay_variation_ms is not None:
        found = None if timed is None else timed.variation_ns / 1e6
        checks.append(Check("delay variation, ms", found, at_most=service.delay_variation_ms))
    checks += [_of_limit(key, limit, measured.rows) for key, limit in service.expect.given().items()]
    if kind == PERFORMANCE and service.availability_ratio is not None:
        checks.append(Check("availability", measured.availability, at_least=service.availability_ratio))
    return checks


def _of_limit(key: str, limit: int | str | float, rows: Sequence[Values]) -> Check:
    metric = METRICS[key]
    found, whole = limits.measured(metric, rows), limits.whole(metric, rows)
    if found is None or whole is None:
        return Check(key, None)
    bounds = {"at_least" if metric.at_least else "at_most": allowed(limit, whole)}
    return Check(key, found.value, **bounds, bound=found.bound)


def availability(received_pps: Sequence[float], intended_pps: float) -> float | None:
    """Of whole seconds. ITU-T Y.1563: unavailable from the first of 10 severely errored ones in a row to the first of
    10 in a row that are not."""
    severe = [one < (1 - SEVERE_LOSS) * intended_pps for one in received_pps]
    if not severe:
        return None
    available, seconds = True, 0
    for at in range(len(severe)):
        row = severe[at : at + IN_A_ROW]
        if len(row) == IN_A_ROW and all(one == available for one in row):
            available = not available
        seconds += available
    return seconds / len(severe)
