"""The services file: a scenario with a section `services`, which describes streams of the scenario."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from pktswarm.master.cluster.inventory import load_yaml
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.master.scenario.expectations import Limits
from pktswarm.master.scenario.fields import Strict, Yaml
from pktswarm.master.scenario.problems import refuse
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.stream import Stream
from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput

RATES = ("rate", "rate_pps", "rate_bps", "rate_l1_bps")
ENDS = ("count_packets", "duration_s")
PLACE_S = 1.0
"""Placeholder for the duration of a service's stream; each step sets its own."""


class Service(Strict):
    """A service. Rates in bits/s of frames with FCS, as Y.1564's information rate.

    A limit that is left out is not checked, except the loss: its default is 0.
    """

    cir_bps: float = Field(gt=0, description="committed information rate")
    eir_bps: float = Field(0.0, ge=0, description="excess information rate, on top of it")
    loss: str = Field("0 %", description="frame loss ratio, 0.1 %")
    delay_ms: float | None = Field(None, gt=0, description="mean frame transfer delay")
    delay_variation_ms: float | None = Field(None, gt=0, description="99.9th percentile of the delay less the least")
    availability: str | None = Field(None, description="share of the available seconds of the performance test, 99.9 %")
    expect: Limits = Field(
        default_factory=lambda: Limits.model_validate({}),
        description="further limits up to the CIR, with the keys of a scenario's expect",
    )
    policing: bool = Field(False, strict=True, description="test that traffic above CIR + EIR is dropped")

    @model_validator(mode="after")
    def _loss_has_a_key_of_its_own(self) -> Service:
        if self.expect.loss is not None:
            raise ValueError("expect.loss: use the key loss of the service")
        return self

    @field_validator("loss", "availability", mode="before")
    @classmethod
    def _a_share(cls, given: Any) -> Any:
        text = "0 %" if given in (0, "0") else given
        try:
            ratio = 0 if text is None else units.share(text)
        except units.UnitError:
            ratio = 2
        if ratio > 1:
            raise ValueError("must be a percentage such as 0.1 %, at most 100 %")
        return text

    @property
    def loss_ratio(self) -> float:
        return _ratio(self.loss)

    @property
    def availability_ratio(self) -> float | None:
        return None if self.availability is None else _ratio(self.availability)


class Services(Strict):
    services: dict[str, Service] = Field(min_length=1)


@dataclass(frozen=True)
class File:
    """A services file. `scenario`: the stream of each service at its CIR."""

    path: Path
    scenario: Scenario
    services: dict[str, Service]

    def stream(self, name: str) -> Stream:
        return next(stream for stream in self.scenario.streams if stream.name == name)

    def pps(self, name: str, bps: float) -> float:
        return bps / (8 * self.stream(name).sizes().mean_bytes)

    def alone(self, name: str) -> Scenario:
        """The scenario with the stream of one service and the background."""
        streams = [stream for stream in self.scenario.streams if stream.background or stream.name == name]
        return self.scenario.model_copy(update={"streams": streams})


def load(path: Path) -> File:
    """Read a services file. Raises BadInput with the key."""
    data = load_yaml(path, Yaml)
    if not isinstance(data, dict) or "services" not in data:
        raise BadInput(path, "the file has no services", key="services", allowed="{NAME of a stream: {cir_bps: …}}")
    section = {"services": data.pop("services")}
    try:
        services = Services.model_validate(section).services
    except ValidationError as error:
        raise refuse(path, error, Services, section) from None
    streams = data.get("streams")
    for index, stream in enumerate(streams if isinstance(streams, list) else []):
        if isinstance(stream, dict) and stream.get("name") in services:
            _place(path, index, stream, services[stream["name"]])
    scenario = scenarios.checked(path, data)
    _check(path, scenario, services)
    return File(path, scenario, services)


def _place(path: Path, index: int, stream: dict[str, object], service: Service) -> None:
    """Set the rate and the duration of a service's stream in the raw scenario."""
    for key in (*RATES, *ENDS):
        if key in stream:
            problem = "the service defines the rate and the duration of its stream; remove this key"
            raise BadInput(path, problem, key=f"streams.{index}.{key}", value=stream[key])
    stream |= {"rate_bps": service.cir_bps, "duration_s": PLACE_S}


def _check(path: Path, scenario: Scenario, services: dict[str, Service]) -> None:
    names = [stream.name for stream in scenario.streams if not stream.background]
    if unknown := [name for name in services if name not in names]:
        raise BadInput(path, "no stream has this name", key="services", value=unknown[0], allowed=", ".join(names))
    if without := [name for name in names if name not in services]:
        problem = "a stream without a service must have background: true"
        raise BadInput(path, problem, key="services", value=without[0])
    for index, stream in enumerate(scenario.streams):
        if stream.name in services and stream.per == "node":
            raise BadInput(path, "a service's rate is the sum over its nodes", key=f"streams.{index}.per", value="node")


def _ratio(text: str) -> float:
    return float(units.share(text))
