"""Section `sources`: the users of an application."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from pktswarm.master.scenario.section import Seed, Traffic


class Source(Traffic):
    """An application's users, each with packets of their own; split among its transmitters by user."""

    # `source` is the application here, and not, as elsewhere, another word for `from`.
    model_config = ConfigDict(extra="forbid", populate_by_name=False)

    application: str | dict[str, object] = Field(
        alias="source", description="www, or {www: {parameter: value}}; see docs/sources.md"
    )
    users: int | None = Field(None, ge=1, description="left out: as many as make mean_bps, or one")
    mean_bps: float | None = Field(None, gt=0, description="of all users together, bits of the frames with FCS")
    duration_s: float = Field(gt=0, le=7 * 86400)
    profile: dict[str, object] | None = Field(None, description="how often sessions begin, over time: a rate's shape")
    seed: Seed | None = Field(None, description="of all that is drawn; left out: the scenario's")
    headers: list[dict[str, dict[str, object] | None]] | None = Field(
        None, description="Ethernet, IPv4 and UDP between the nodes, a source port for each user, if left out"
    )
    user_field: str = Field("", description="the counter in headers that each user has a value of; else the first")
    count_users: bool = Field(True, description="the receiver xdp counts each user by itself")
    expect: dict[str, object] = Field(default_factory=dict, description="as of streams")
