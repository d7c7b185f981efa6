"""Keys that several sections of a scenario have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from pktswarm.master.scenario.fields import Name, Strict
from pktswarm.traffic.frames.sizes import FORMS, in_bytes, parse_sizes


def _a_size(given: Any) -> Any:
    parse_sizes(given)
    return in_bytes(given)


Size = Annotated[Any, AfterValidator(_a_size), WithJsonSchema(FORMS)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Group = Annotated[str, Field(description="a group (transmit, receive) or the name of one host")]


class Traffic(Strict):
    """Keys common to streams, sources and traces."""

    name: Name
    source: Group = Field("transmit", alias="from")
    target: Group = Field("receive", alias="to")
    engine: Literal["auto", "xdp", "pktgen", "trafgen", "tcpreplay"] = "auto"
    options: dict[str, Any] = Field(default_factory=dict, description="the engine's own settings")
    background: bool = Field(False, description="reported apart from the targets in the results")
