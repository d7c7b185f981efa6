"""The steps of a service and their limits (ITU-T Y.1564, 8.1 and 8.2; colour-blind: frames are not marked)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pktswarm.master.benchmark.latency import Latencies
from pktswarm.master.results import metric_verdicts
from pktswarm.master.results.document import Judgement
from pktswarm.master.results.document_rows import StreamRow
from pktswarm.master.results.judgement import Measurement
from pktswarm.master.scenario.expectations import METRICS, allowed
from pktswarm.master.y1564.services import Service

WORST_FIRST: tuple[Judgement, ...] = ("failed", "not measured", "not decided", "held")
CIR_PERCENT = (25, 50, 75, 100)
LEAST_EIR = 0.2
"""Share of the CIR: with less EIR, the overload of the policing test is relative to the CIR."""
TOO_MUCH = 1.25
"""Factor of the overload in the policing test."""
TOLERANCE = 0.02
"""Share of CIR + EIR that may arrive in excess, from the device's token bucket and queue (Y.1564's M)."""
SEVERE_LOSS = 0.5
"""Share of lost frames above which a second is severely errored (ITU-T Y.1563)."""
IN_A_ROW = 10
"""Successive severely errored seconds that begin unavailable time, and other seconds that end it."""
CIR, EIR, POLICING, PERFORMANCE = "CIR", "CIR + EIR", "policing", "performance"


@dataclass(frozen=True)
class Step:
    """One load of a service."""

    kind: str
    name: str
    bps: float
    """Rate of frames with FCS."""


@dataclass(frozen=True)
class Measured:
    """The figures of one service in one step; None: not measured."""

    ir_bps: float | None
    """Received information rate, over the duration of the step."""
    loss_ratio: float | None
    latencies: Latencies | None
    availability: float | None = None
    rows: Sequence[StreamRow] = ()
    """The rows of its stream in streams.csv."""


@dataclass(frozen=True)
class Check:
    """A figure and its limits, in the unit of `what`. `holds` is None if the figure or its bound decides nothing."""

    what: str
    found: float | None
    at_least: float | None = None
    at_most: float | None = None
    bound: float = 0.0
    """Error bound of `found`."""

    @property
    def outcome(self) -> Judgement:
        if self.found is None:
            return "not measured"
        figure, outcomes = Measurement(self.found, self.bound), set()
        if self.at_least is not None:
            outcomes.add(figure.against(self.at_least, at_least=True))
        if self.at_most is not None:
            outcomes.add(figure.against(self.at_most, at_least=False))
        return next(outcome for outcome in WORST_FIRST if outcome in outcomes)

    @property
    def holds(self) -> bool | None:
        return {"held": True, "failed": False}.get(self.outcome)


def steps(service: Service) -> list[Step]:
    """The steps of the service configuration test, in order."""
    made = [Step(CIR, f"{percent} % of CIR", service.cir_bps * percent / 100) for percent in CIR_PERCENT]
    if service.eir_bps:
        made.append(Step(EIR, EIR, service.cir_bps + service.eir_bps))
    if service.policing:
        made.append(Step(POLICING, POLICING, policing_bps(service)))
    return made


def policing_bps(service: Service) -> float:
    """CIR + 125 % of EIR; with an EIR below a fifth of the CIR, 125 % of CIR + EIR."""
    if service.eir_bps < LEAST_EIR * service.cir_bps:
        return TOO_MUCH * service.cir_bps + service.eir_bps
    return service.cir_bps + TOO_MUCH * service.eir_bps


def judge(service: Service, kind: str, measured: Measured) -> list[Check]:
    """Check a step. All limits apply up to the CIR; above it at least the CIR and at most CIR + EIR must arrive."""
    if kind in (EIR, POLICING):
        least = service.cir_bps * (1 - service.loss_ratio)
        most = (service.cir_bps + service.eir_bps) * (1 + TOLERANCE)
        return [Check("received, bit/s", measured.ir_bps, at_least=least, at_most=most)]
    checks = [Check("loss ratio", measured.loss_ratio, at_most=service.loss_ratio)]
    timed = measured.latencies
    if service.delay_ms is not None:
        mean, bound = (None, 0.0) if timed is None else (timed.mean_ns / 1e6, (timed.bound_ns or 0) / 1e6)
        checks.append(Check("delay, ms", mean, at_most=service.delay_ms, bound=bound))
    if service.delay_variation_ms is not None:
        variation = None if timed is None else timed.variation_ns / 1e6
        checks.append(Check("delay variation, ms", variation, at_most=service.delay_variation_ms))
    checks += [_of_limit(key, limit, measured.rows) for key, limit in service.expect.given().items()]
    if kind == PERFORMANCE and service.availability_ratio is not None:
        checks.append(Check("availability", measured.availability, at_least=service.availability_ratio))
    return checks


def _of_limit(key: str, limit: int | str | float, rows: Sequence[StreamRow]) -> Check:
    metric = METRICS[key]
    figure, base = metric_verdicts.measured(metric, rows), metric_verdicts.base_count(metric, rows)
    if figure is None or base is None:
        return Check(key, None)
    bounds = {"at_least" if metric.at_least else "at_most": allowed(limit, base)}
    return Check(key, figure.value, **bounds, bound=figure.bound)


def availability(received_pps: Sequence[float], intended_pps: float) -> float | None:
    """The share of available seconds; None: there is no whole second.

    ITU-T Y.1563: unavailable time begins with the first of 10 successive severely errored seconds, and ends with the
    first of 10 successive others.
    """
    severe = [received < (1 - SEVERE_LOSS) * intended_pps for received in received_pps]
    if not severe:
        return None
    available, seconds = True, 0
    for at in range(len(severe)):
        row = severe[at : at + IN_A_ROW]
        if len(row) == IN_A_ROW and all(second == available for second in row):
            available = not available
        seconds += available
    return seconds / len(severe)
