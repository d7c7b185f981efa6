"""Section `streams`: synthetic frames of one shape."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pktswarm.master.scenario.fields import Name
from pktswarm.master.scenario.section import Seed, Size, Traffic
from pktswarm.master.scenario.upf_shape import MOST_IN_A_ROW, Shape, SourcePort
from pktswarm.traffic.counting.echo import MOST_PERCENT
from pktswarm.traffic.frames.headers import GTPU_PORT
from pktswarm.traffic.frames.sizes import Sizes, parse_sizes
from pktswarm.traffic.leg import FIELD_ENGINES
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

OF_SESSIONS = ("oversize", "mtu_bytes", "outer_source_port", "interleave")
"""Keys of a stream with a default value that are valid only with sessions."""


class Stream(Traffic):
    """Synthetic frames of one shape. Rate and count apply to the whole stream and are split among its transmitters,
    unless `per` is "node"."""

    size_bytes: Size = Field(64, description="with the FCS (RFC 2544); several by weight, a list in turn")
    rate_pps: float | None = Field(None, gt=0)
    rate_bps: float | None = Field(None, gt=0, description="bits of the frames with FCS a second (layer 2)")
    rate_l1_bps: float | None = Field(None, gt=0, description="with preamble and gap: what the wire carries")
    rate: float | dict[str, object] | None = Field(
        None, description="packets/s, or a rate that changes, {sine: {…}, unit: bps}; see docs/sources.md"
    )
    arrivals: Literal["even", "poisson"] | dict[str, object] = Field(
        "even", description="how frames follow one another; a distribution of gaps: {pareto: {…}}"
    )
    burst: int = Field(1, ge=1, le=65536, description="so many frames back to back; the rate stays")
    seed: Seed | None = Field(None, description="of all that is drawn; left out: the scenario's")
    count_packets: int | None = Field(None, gt=0)
    duration_s: float | None = Field(None, gt=0, le=7 * 86400)
    held: bool = Field(
        False, description="nothing is sent until a program starts the stream, within its duration; see docs/python.md"
    )
    per: Literal["stream", "node"] = "stream"
    headers: list[dict[str, dict[str, object] | None]] | None = Field(
        None, description="Ethernet, IPv4 and UDP between the nodes if left out; see docs/headers.md"
    )
    payload: dict[str, object] = Field(default_factory=dict, description="{fill: 0}, {hex: …} or {random: true}")
    expect: dict[str, object] = Field(
        default_factory=dict,
        description="fields that the device is to change, {ttl: 63}, or may, {src_mac: null}; see docs/xdp-receiver.md",
    )
    users: str = Field(
        "", description="the counter that identifies users, header.field: each user is counted individually"
    )
    sessions: Name | None = Field(
        None, description="a group of upf.groups: frames of its users, in their tunnels; see docs/upf.md"
    )
    direction: Literal["up", "down"] | None = Field(None, description="of sessions: from the users, or to them")
    echo: Annotated[int, Field(ge=0, le=MOST_PERCENT, strict=True)] = Field(
        0, description="direction up: percent of what the data network receives that it sends back; see docs/upf.md"
    )
    ip: Literal["ipv4", "ipv6"] | None = Field(
        None, description="of sessions: IP version of the users' packets; left out: IPv4, if users have one"
    )
    oversize: Literal["refuse", "inner", "outer"] = Field(
        "refuse",
        description="of sessions: packets longer than the MTU; inner: the user's in fragments, each in the tunnel; "
        "outer: the tunnel's; see docs/upf.md",
    )
    mtu_bytes: int | None = Field(
        None,
        ge=576,
        le=9000,
        description="the MTU that oversize refers to: that of N3; left out: from the nodes' interfaces",
    )
    outer_source_port: SourcePort = Field(
        GTPU_PORT, description="of sessions, direction up: the tunnels' UDP source port; see docs/upf.md"
    )
    interleave: int = Field(
        1,
        ge=1,
        le=MOST_IN_A_ROW,
        strict=True,
        description="of sessions: frames of a user in a row, then the next one's",
    )

    @model_validator(mode="after")
    def _check_sessions(self) -> Stream:
        if self.sessions is None:
            self._refuse_keys_of_sessions()
        else:
            self._check_direction()
            self._refuse_keys_that_sessions_set()
        return self

    def _refuse_keys_of_sessions(self) -> None:
        if self.direction is not None:
            raise ValueError("direction needs sessions; without them from and to set the direction")
        if self.echo:
            raise ValueError("echo goes with sessions and direction: up")
        if self.ip is not None:
            raise ValueError("ip needs sessions; without them headers set the frame")
        if given := [name for name in OF_SESSIONS if getattr(self, name) != type(self).model_fields[name].default]:
            raise ValueError(f"{given[0]} goes with sessions")

    def _check_direction(self) -> None:
        if self.direction is None:
            raise ValueError("sessions need a direction: up or down")
        if self.echo and self.direction == "down":
            raise ValueError("echo needs direction: up; the data network sends back what it receives")
        if self.outer_source_port != GTPU_PORT and self.direction == "down":
            raise ValueError("outer_source_port needs direction: up; downlink tunnels have the UPF's port")

    def _refuse_keys_that_sessions_set(self) -> None:
        gnbs = ("source", "from") if self.direction == "up" else ("target", "to")
        own = {"headers": "headers", "users": "users", "per": "per", "gateway": "gateway", gnbs[0]: gnbs[1]}
        if given := [word for name, word in own.items() if name in self.model_fields_set]:
            raise ValueError(f"{given[0]} follows from the sessions; leave it out")
        if self.engine not in ("auto", *FIELD_ENGINES) or self.options.get("stamp") is False:
            raise ValueError("frames of sessions are identified by stamps, which need engine xdp or tc")
        if self.oversize == "refuse" and self.mtu_bytes is not None:
            raise ValueError("mtu_bytes goes with oversize: inner or outer")
        if self.oversize != "refuse" and self.echo:
            raise ValueError("echo cannot send back fragments: it needs oversize: refuse")

    @model_validator(mode="after")
    def _one_rate_and_an_end(self) -> Stream:
        given = [name for name in ("rate", "rate_pps", "rate_bps", "rate_l1_bps") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} contradict each other; give one")
        if not given and self.arrivals != "even":
            raise ValueError("arrivals need a rate")
        if self.burst > 1 and "burst" in self.options:
            raise ValueError("burst and options.burst contradict each other; give one")
        if self.count_packets is None and self.duration_s is None:
            raise ValueError("count_packets or duration_s is needed: a stream must end")
        if self.count_packets is not None and self.duration_s is not None:
            raise ValueError("count_packets and duration_s contradict each other; give one")
        if self.held and self.duration_s is None:
            raise ValueError("held needs duration_s: a number of packets could not end in time")
        if self.held and self.engine not in ("auto", *FIELD_ENGINES):
            raise ValueError("held needs engine xdp or tc, which can start a stream while others are sent")
        return self

    @property
    def echo_name(self) -> str:
        """Name of the stream of echoed frames."""
        return f"{self.name}-echo"

    @property
    def shape(self) -> Shape:
        """Turns, ports and servers of a stream of sessions."""
        return Shape(self.outer_source_port, self.interleave)

    def sizes(self) -> Sizes:
        return parse_sizes(self.size_bytes)

    def pps(self) -> float | None:
        """Rate in packets/s, from the mean frame size; None: unlimited."""
        if self.rate_bps is not None:
            return self.rate_bps / (8 * self.sizes().mean_bytes)
        if self.rate_l1_bps is not None:
            return self.rate_l1_bps / (8 * (self.sizes().mean_bytes + ETHERNET_OVERHEAD_BYTES))
        return self.rate_pps
