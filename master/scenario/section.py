"""Keys that several sections of a scenario have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from pktswarm.master.cluster.gateways import NONE, parse_gateways
from pktswarm.master.scenario.fields import Name, Strict
from pktswarm.traffic.frames.sizes import FORMS, in_bytes, parse_sizes


def _a_size(given: Any) -> Any:
    parse_sizes(given)
    return in_bytes(given)


def _a_gateway(given: Any) -> Any:
    return given if given == NONE else list(parse_gateways(given))


Gateway = Annotated[
    list[str] | Literal["none"],
    BeforeValidator(_a_gateway, json_schema_input_type=str | list[str]),
]
Size = Annotated[Any, AfterValidator(_a_size), WithJsonSchema(FORMS)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Group = Annotated[str, Field(description="a group (transmit, receive) or the name of one host")]


class Traffic(Strict):
    """Keys common to streams, sources and traces."""

    name: Name
    source: Group = Field("transmit", alias="from")
    target: Group = Field("receive", alias="to")
    engine: Literal["auto", "xdp", "tc", "pktgen", "trafgen", "tcpreplay"] = "auto"
    options: dict[str, Any] = Field(default_factory=dict, description="the engine's own settings")
    background: bool = Field(False, description="reported apart from the targets in the results")
    gateway: Gateway | None = Field(
        None,
        description="the router that the frames are sent to, an address or a list of an IPv4 and an IPv6 one; left "
        "out: the host's (pktswarm_gateway); none: the receiver itself; see docs/routers.md",
    )
