"""Section `traces`: recorded packets, replayed."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pktswarm.master.scenario.fields import Name, Strict
from pktswarm.master.scenario.section import Traffic
from pktswarm.traffic.leg import FIELD_ENGINES
from pktswarm.traffic.replay.prepare import Gtpu, Instances, Settings
from pktswarm.traffic.replay.table import IPV6_PREFIX, Pool, Rule, pool
from pktswarm.traffic.replay.timing import ReplayTiming

MOST_INSTANCES = 256


class Addresses(Strict):
    """A pool that stands for the users, or the servers, of a trace."""

    first: str = Field(description="the first IPv4 address")
    count: int | None = Field(None, ge=1, description="how many there are; as many as are needed if left out")
    ipv6: str = Field(IPV6_PREFIX, description="a /96 prefix: what IPv6 addresses are, before the IPv4 ones")

    @model_validator(mode="after")
    def _understood(self) -> Addresses:
        self.pool()
        return self

    def pool(self) -> Pool:
        return pool(self.first, self.count, self.ipv6)


class Window(Strict):
    from_s: float = Field(0.0, ge=0)
    to_s: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _not_empty(self) -> Window:
        if self.to_s is not None and self.to_s <= self.from_s:
            raise ValueError(f"to_s must be greater than from_s ({self.from_s:g})")
        return self


class PduSession(Strict):
    qfi: int = Field(ge=0, le=63, description="QoS flow")


class Outer(Strict):
    src: IPv4Address | None = Field(None, description="of the base station; the transmitter's own if left out")
    dst: IPv4Address | None = Field(None, description="of the UPF; the receiver's own if left out")


class GtpuOfTrace(Strict):
    """GTP-U around the uplink, a TEID for each user."""

    teid: int = Field(1, ge=0, lt=2**32, description="the first user's")
    sequence: bool = Field(False, description="sequence numbers")
    pdu_session: PduSession | None = None
    outer: Outer = Field(default_factory=lambda: Outer())


class Scale(Strict):
    """Concurrent instances of a trace. `users`, `servers`, `ports`: step that each further instance adds."""

    instances: int = Field(ge=1, le=MOST_INSTANCES)
    start: Literal["together", "spread", "random"] = "together"
    offset_s: float | None = Field(None, gt=0, description="start random: the longest offset; one mean gap if left out")
    seed: int = Field(1, ge=0)
    users: int | None = Field(None, ge=0, description="as many as the trace has, where they have a pool")
    servers: int | None = Field(None, ge=0)
    ports: int | None = Field(
        None, ge=0, description="left out: 0; the lowest number that distinguishes instances if no pool does"
    )


def _a_scale(given: Any) -> Any:
    return {"instances": given} if isinstance(given, int) else given


class Trace(Traffic):
    """A recorded trace, split by flow (or user) among its transmitters."""

    file: Path | Annotated[list[Path], Field(min_length=1, max_length=1000)] = Field(
        description="several, as a recorder writes them one after another, are one trace"
    )
    timing: Literal["original", "top"] | dict[Literal["multiplier", "pps", "bps"], float] = "original"
    speed: float | None = Field(None, gt=0, description="2: twice as fast")
    rate_pps: float | None = Field(None, gt=0, description="on average: the trace keeps its shape")
    rate_bps: float | None = Field(None, gt=0, description="on average; bits of the frames with FCS")
    longest_gap_s: float | None = Field(None, gt=0, description="longer ones are shortened to it")
    repeat: int = Field(1, ge=1, le=1_000_000)
    scale: Annotated[Scale, BeforeValidator(_a_scale, json_schema_input_type=int | Scale)] = Field(
        default_factory=lambda: Scale(instances=1),
        description="instances at once",
    )
    filter: str = Field("", max_length=2000, description="pcap syntax")
    window: Window | None = Field(None, description="seconds from the trace's start")
    users_by: Literal["first", "syn"] = Field(
        "first", description="the user is the source of the first packet (first) or the sender of the TCP SYN (syn)"
    )
    client_prefix: str | list[str] | None = Field(
        None, description="users are the hosts with an address in this prefix"
    )
    users: Addresses | None = Field(None, description="the node's own address if left out")
    servers: Addresses | None = None
    direction: Literal["up", "down", "both"] | None = Field(
        None, description="both: downlink packets go back, from the node in `to`; left out: all go one way"
    )
    gtpu: GtpuOfTrace | None = None
    vlan: int | None = Field(None, ge=0, le=4094, description="in place of all recorded tags")
    payload: Literal["keep", "fill", "sizes"] = Field(
        "keep", description="fill: zeros in place of what a snap length cut; sizes: in place of all payloads"
    )
    oversize: Literal["refuse", "cut", "skip"] = Field("refuse", description="frames longer than the MTU")
    mtu_bytes: int = Field(1500, ge=576, le=9000, description="the MTU that oversize refers to")
    split: Literal["flow", "user"] | None = None
    verify: bool = Field(False, description="compare the receiver's capture with what was intended, packet by packet")
    sessions: Name | None = Field(
        None, description="a group of upf.groups: the trace's users are its first ones, through the UPF; docs/upf.md"
    )
    interactive: bool = Field(
        False,
        description="both ends play it: a packet is sent only after the packets that it acknowledges have arrived",
    )

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.file,) if isinstance(self.file, Path) else tuple(self.file)

    @model_validator(mode="after")
    def _interactive_as_it_is(self) -> Trace:
        others = sorted(self.model_fields_set - {"name", "source", "target", "file", "interactive"})
        if self.interactive and others:
            raise ValueError(f"an interactive trace cannot be combined with {' or '.join(others)}")
        return self

    @model_validator(mode="after")
    def _of_sessions(self) -> Trace:
        if self.sessions is None:
            return self
        if self.direction is None:
            raise ValueError("sessions need a direction: up, down or both")
        own = {"users": "users", "gtpu": "gtpu", "vlan": "vlan", "source": "from", "split": "split"}
        own |= {"gateway": "gateway"}
        if given := [word for name, word in own.items() if name in self.model_fields_set]:
            raise ValueError(f"{given[0]} follows from the sessions; leave it out")
        if self.engine not in ("auto", *FIELD_ENGINES):
            raise ValueError(f"traces of sessions need engine xdp or tc, not {self.engine}")
        return self

    @model_validator(mode="after")
    def _one_timing(self) -> Trace:
        if isinstance(self.timing, dict):
            if len(self.timing) != 1:
                raise ValueError("timing takes one of multiplier, pps, bps")
            if next(iter(self.timing.values())) <= 0:
                raise ValueError("timing must be greater than 0")
        given = [name for name in ("speed", "rate_pps", "rate_bps") if getattr(self, name) is not None]
        given += ["timing"] if self.timing != "original" else []
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} contradict each other; give one")
        return self

    @model_validator(mode="after")
    def _check_ends(self) -> Trace:
        for prefix in self.prefixes:
            ip_network(prefix)
        if self.prefixes and self.users_by != "first":
            raise ValueError("client_prefix and users_by contradict each other; give one")
        even = isinstance(self.timing, dict) and "multiplier" not in self.timing
        if self.scale.start != "together" and (even or self.timing == "top"):
            raise ValueError(f"scale.start {self.scale.start} needs recorded times, which this timing does not use")
        if self.gtpu is not None and self.direction == "down":
            raise ValueError("gtpu encapsulates uplink packets only; direction is down")
        return self

    @property
    def stamped(self) -> bool:
        return self.options.get("stamp") is True

    @model_validator(mode="after")
    def _stamped_by_xdp(self) -> Trace:
        given = self.options.get("stamp", False)
        if not isinstance(given, bool):
            raise ValueError(f"options.stamp must be true or false, not {given!r}")
        if given and self.engine not in ("auto", *FIELD_ENGINES):
            raise ValueError(f"{self.engine} cannot stamp a trace; xdp and tc can")
        return self

    @property
    def prefixes(self) -> tuple[str, ...]:
        given = self.client_prefix
        return () if given is None else (given,) if isinstance(given, str) else tuple(given)

    def settings(self, where: object, key: str) -> Settings:
        """Settings for traffic.replay; `where` and `key` name the trace in messages."""
        window = None if self.window is None else (self.window.from_s, self.window.to_s)
        by_user = self.direction or self.users or self.gtpu
        return Settings(
            where=where,
            key=key,
            name=self.name,
            stamped=self.stamped,
            rule=Rule("prefix" if self.prefixes else self.users_by, self.prefixes),
            users=self.users.pool() if self.users else None,
            servers=self.servers.pool() if self.servers else None,
            direction=self.direction or "all",
            filter=self.filter,
            window=window,
            pace=self._pace(),
            instances=self._instances(),
            gtpu=self._gtpu(),
            tag=None if self.vlan is None else b"\x81\x00" + self.vlan.to_bytes(2, "big"),
            headers_only=self.payload == "sizes",
            fill=self.payload == "fill",
            oversize=self.oversize,
            mtu_bytes=self.mtu_bytes,
            split=self.split or ("user" if by_user else "flow"),
        )

    def _pace(self) -> ReplayTiming:
        longest = None if self.longest_gap_s is None else round(self.longest_gap_s * 1e9)
        if self.speed is not None:
            return ReplayTiming("multiplier", self.speed, longest)
        if self.rate_pps is not None:
            return ReplayTiming("mean_pps", self.rate_pps, longest)
        if self.rate_bps is not None:
            return ReplayTiming("mean_bps", self.rate_bps, longest)
        if isinstance(self.timing, str):
            return ReplayTiming(self.timing, 1.0, longest)
        mode, value = next(iter(self.timing.items()))
        return ReplayTiming(mode, value, longest)

    def _instances(self) -> Instances:
        one = self.scale
        offset = None if one.offset_s is None else round(one.offset_s * 1e9)
        return Instances(one.instances, one.start, one.users, one.servers, one.ports, one.seed, offset)

    def _gtpu(self) -> Gtpu | None:
        if self.gtpu is None:
            return None
        qfi = None if self.gtpu.pdu_session is None else self.gtpu.pdu_session.qfi
        outer = [str(end) if end else "" for end in (self.gtpu.outer.src, self.gtpu.outer.dst)]
        return Gtpu(self.gtpu.teid, self.gtpu.sequence, qfi, *outer)
