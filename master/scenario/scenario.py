"""The scenario: what to send, what to count, what to expect. YAML checked by pydantic."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from pktswarm.master.cluster.inventory import load_yaml
from pktswarm.master.scenario.addresses import PLACEHOLDERS, fill
from pktswarm.master.scenario.expectations import METRICS, Expect
from pktswarm.master.scenario.fields import Location, Name, Yaml, bad_input, keys_of
from pktswarm.master.scenario.fields import Strict as _Strict
from pktswarm.master.scenario.upf import Group as UpfGroup
from pktswarm.master.scenario.upf import Upf
from pktswarm.master.scenario.upf import known_keys as upf_keys
from pktswarm.master.scenario.upf_shape import MOST_IN_A_ROW, Shape, SourcePort
from pktswarm.traffic.connections.blocks import UDP_HEADER
from pktswarm.traffic.counting import expect, users
from pktswarm.traffic.counting.echo import MOST_PERCENT
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame, check_frame
from pktswarm.traffic.frames.headers import GTPU_PORT
from pktswarm.traffic.frames.sizes import FORMS, Sizes, parse_sizes
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES
from pktswarm.traffic.replay.prepare import Gtpu, Instances, Settings
from pktswarm.traffic.replay.table import IPV6_PREFIX, Pool, Rule, pool
from pktswarm.traffic.replay.timing import ReplayTiming


def _a_size(given: Any) -> Any:
    parse_sizes(given)
    return given


Size = Annotated[Any, AfterValidator(_a_size), WithJsonSchema(FORMS)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Group = Annotated[str, Field(description="a group (transmit, receive) or the name of one host")]
MOST_INSTANCES = 256
OF_SESSIONS = ("oversize", "mtu_bytes", "outer_source_port", "interleave")
"""Keys of a stream that only go with sessions, and have a value by themselves."""
LEAST_UDP_BLOCK_BYTES = UDP_HEADER.size


class Traffic(_Strict):
    """What a stream and a trace have in common."""

    name: Name
    source: Group = Field("transmit", alias="from")
    target: Group = Field("receive", alias="to")
    engine: Literal["auto", "xdp", "pktgen", "trafgen", "tcpreplay"] = "auto"
    options: dict[str, Any] = Field(default_factory=dict, description="the engine's own settings")
    background: bool = Field(False, description="told apart from the targets in the results")


class Stream(Traffic):
    """Synthetic frames of one shape. Rate and count are the whole stream's, shared by its transmitters,
    unless `per` is "node"."""

    size_bytes: Size = Field(64, description="with the FCS (RFC 2544); several by weight, a list in turn")
    rate_pps: float | None = Field(None, gt=0)
    rate_bps: float | None = Field(None, gt=0, description="bits of the frames with FCS a second (layer 2)")
    rate_l1_bps: float | None = Field(None, gt=0, description="with preamble and gap: what the wire carries")
    rate: float | dict[str, Any] | None = Field(
        None, description="packets/s, or a rate that changes, {sine: {…}, unit: bps}; see docs/sources.md"
    )
    arrivals: Literal["even", "poisson"] | dict[str, Any] = Field(
        "even", description="how frames follow one another; a distribution of gaps: {pareto: {…}}"
    )
    burst: int = Field(1, ge=1, le=65536, description="so many frames back to back; the rate stays")
    seed: Seed | None = Field(None, description="of all that is drawn; left out: the scenario's")
    count_packets: int | None = Field(None, gt=0)
    duration_s: float | None = Field(None, gt=0, le=7 * 86400)
    per: Literal["stream", "node"] = "stream"
    headers: list[dict[str, dict[str, Any] | None]] | None = Field(
        None, description="Ethernet, IPv4 and UDP between the nodes if left out; see docs/headers.md"
    )
    payload: dict[str, Any] = Field(default_factory=dict, description="{fill: 0}, {hex: …} or {random: true}")
    expect: dict[str, Any] = Field(
        default_factory=dict,
        description="fields that the device is to change, {ttl: 63}, or may, {src_mac: null}; see docs/xdp-receiver.md",
    )
    users: str = Field("", description="the counter that tells users apart, header.field: each is counted by itself")
    sessions: Name | None = Field(
        None, description="a group of upf.groups: frames of its users, in their tunnels; see docs/upf.md"
    )
    direction: Literal["up", "down"] | None = Field(None, description="of sessions: from the users, or to them")
    echo: Annotated[int, Field(ge=0, le=MOST_PERCENT, strict=True)] = Field(
        0, description="direction up: percent of what the data network receives that it sends back; see docs/upf.md"
    )
    ip: Literal["ipv4", "ipv6"] | None = Field(
        None, description="of sessions: by which of their addresses; left out: IPv4, if users have one"
    )
    oversize: Literal["refuse", "inner", "outer"] = Field(
        "refuse",
        description="of sessions: packets longer than the MTU; inner: the user's in fragments, each in the tunnel; "
        "outer: the tunnel's; see docs/upf.md",
    )
    mtu_bytes: int | None = Field(
        None, ge=576, le=9000, description="what oversize goes by: N3's; left out: that of the nodes' interfaces"
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
    def _of_sessions(self) -> Stream:
        if self.sessions is None:
            if self.direction is not None:
                raise ValueError("direction goes with sessions; from and to say who sends to whom")
            if self.echo:
                raise ValueError("echo goes with sessions and direction: up")
            if self.ip is not None:
                raise ValueError("ip goes with sessions; headers say what frames are made of")
            if given := [name for name in OF_SESSIONS if getattr(self, name) != type(self).model_fields[name].default]:
                raise ValueError(f"{given[0]} goes with sessions")
            return self
        if self.direction is None:
            raise ValueError("sessions need a direction: up or down")
        if self.echo and self.direction == "down":
            raise ValueError("echo is the data network's, which receives what goes up: direction is down")
        if self.outer_source_port != GTPU_PORT and self.direction == "down":
            raise ValueError("outer_source_port is the gNBs', and direction is down: what comes down has the UPF's")
        gnbs = ("source", "from") if self.direction == "up" else ("target", "to")
        own = {"headers": "headers", "users": "users", "per": "per", gnbs[0]: gnbs[1]}
        if given := [word for name, word in own.items() if name in self.model_fields_set]:
            raise ValueError(f"{given[0]} follows from the sessions; leave it out")
        if self.engine not in ("auto", "xdp") or self.options.get("stamp") is False:
            raise ValueError("frames of sessions are known by their stamps, which only engine xdp writes")
        if self.oversize == "refuse" and self.mtu_bytes is not None:
            raise ValueError("mtu_bytes goes with oversize: inner or outer")
        if self.oversize != "refuse" and self.echo:
            raise ValueError("echo does not send back what came in fragments: oversize is refuse then")
        return self

    @model_validator(mode="after")
    def _one_rate_and_an_end(self) -> Stream:
        given = [name for name in ("rate", "rate_pps", "rate_bps", "rate_l1_bps") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} contradict each other; give one")
        if not given and self.arrivals != "even":
            raise ValueError("arrivals need a rate: how many there are in a second")
        if self.burst > 1 and "burst" in self.options:
            raise ValueError("burst and options.burst contradict each other; give one")
        if self.count_packets is None and self.duration_s is None:
            raise ValueError("count_packets or duration_s is needed: a stream must end")
        if self.count_packets is not None and self.duration_s is not None:
            raise ValueError("count_packets and duration_s contradict each other; give one")
        return self

    @property
    def echo_name(self) -> str:
        """What the stream of what comes back is called."""
        return f"{self.name}-echo"

    @property
    def shape(self) -> Shape:
        """Of a stream of sessions."""
        return Shape(self.outer_source_port, self.interleave)

    def sizes(self) -> Sizes:
        return parse_sizes(self.size_bytes)

    def pps(self) -> float | None:
        """The rate in packets a second, on average over its sizes; None is as fast as the engine can."""
        if self.rate_bps is not None:
            return self.rate_bps / (8 * self.sizes().mean_bytes)
        if self.rate_l1_bps is not None:
            return self.rate_l1_bps / (8 * (self.sizes().mean_bytes + ETHERNET_OVERHEAD_BYTES))
        return self.rate_pps


class Source(Traffic):
    """An application's users, each with packets of their own; split among its transmitters by user."""

    # `source` is the application here, and not, as elsewhere, another word for `from`.
    model_config = ConfigDict(extra="forbid", populate_by_name=False)

    application: str | dict[str, Any] = Field(
        alias="source", description="www, or {www: {parameter: value}}; see docs/sources.md"
    )
    users: int | None = Field(None, ge=1, description="left out: as many as make mean_bps, or one")
    mean_bps: float | None = Field(None, gt=0, description="of all users together, bits of the frames with FCS")
    duration_s: float = Field(gt=0, le=7 * 86400)
    profile: dict[str, Any] | None = Field(None, description="how often sessions begin, over time: a rate's shape")
    seed: Seed | None = Field(None, description="of all that is drawn; left out: the scenario's")
    headers: list[dict[str, dict[str, Any] | None]] | None = Field(
        None, description="Ethernet, IPv4 and UDP between the nodes, a source port for each user, if left out"
    )
    user_field: str = Field("", description="the counter in headers that each user has a value of; else the first")
    count_users: bool = Field(True, description="the receiver xdp counts each user by itself")
    expect: dict[str, Any] = Field(default_factory=dict, description="as of streams")


class Addresses(_Strict):
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


class Window(_Strict):
    from_s: float = Field(0.0, ge=0)
    to_s: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _not_empty(self) -> Window:
        if self.to_s is not None and self.to_s <= self.from_s:
            raise ValueError(f"to_s must be greater than from_s ({self.from_s:g})")
        return self


class PduSession(_Strict):
    qfi: int = Field(ge=0, le=63, description="QoS flow")


class Outer(_Strict):
    src: IPv4Address | None = Field(None, description="of the base station; the transmitter's own if left out")
    dst: IPv4Address | None = Field(None, description="of the UPF; the receiver's own if left out")


class GtpuOfTrace(_Strict):
    """GTP-U around the uplink, a TEID for each user."""

    teid: int = Field(1, ge=0, lt=2**32, description="the first user's")
    sequence: bool = Field(False, description="sequence numbers")
    pdu_session: PduSession | None = None
    outer: Outer = Field(default_factory=lambda: Outer())  # type: ignore[call-arg]


class Scale(_Strict):
    """Several instances of a trace at once. The steps are what each further one adds."""

    instances: int = Field(ge=1, le=MOST_INSTANCES)
    start: Literal["together", "spread", "random"] = "together"
    offset_s: float | None = Field(None, gt=0, description="start random: the longest offset; one mean gap if left out")
    seed: int = Field(1, ge=0)
    users: int | None = Field(None, ge=0, description="as many as the trace has, where they have a pool")
    servers: int | None = Field(None, ge=0)
    ports: int | None = Field(None, ge=0, description="0, and where nothing else tells instances apart what does")


def _a_scale(given: Any) -> Any:
    return {"instances": given} if isinstance(given, int) else given


class Trace(Traffic):
    """A recorded trace, split by flow (or user) among its transmitters."""

    file: Path
    timing: Literal["original", "top"] | dict[Literal["multiplier", "pps", "bps"], float] = "original"
    speed: float | None = Field(None, gt=0, description="2: twice as fast")
    rate_pps: float | None = Field(None, gt=0, description="on average: the trace keeps its shape")
    rate_bps: float | None = Field(None, gt=0, description="on average; bits of the frames with FCS")
    longest_gap_s: float | None = Field(None, gt=0, description="longer ones are shortened to it")
    repeat: int = Field(1, ge=1, le=1_000_000)
    scale: Annotated[Scale, BeforeValidator(_a_scale, json_schema_input_type=int | Scale)] = Field(
        default_factory=lambda: Scale(instances=1),  # type: ignore[call-arg]
        description="instances at once",
    )
    filter: str = Field("", max_length=2000, description="pcap syntax")
    window: Window | None = Field(None, description="seconds from the trace's start")
    users_by: Literal["first", "syn"] = Field("first", description="who is a user: who sends first; who sends a SYN")
    client_prefix: str | list[str] | None = Field(None, description="who is a user: who has such an address")
    users: Addresses | None = Field(None, description="the node's own address if left out")
    servers: Addresses | None = None
    direction: Literal["up", "down", "both"] | None = Field(
        None, description="both: downlink packets go back, from the node in `to`; left out: all go one way"
    )
    gtpu: GtpuOfTrace | None = None
    vlan: int | None = Field(None, ge=0, le=4094, description="in place of all recorded tags")
    payload: Literal["keep", "sizes"] = Field("keep", description="sizes: zeros in place of payloads")
    oversize: Literal["refuse", "cut", "skip"] = Field("refuse", description="frames longer than the MTU")
    mtu_bytes: int = Field(1500, ge=576, le=9000, description="what oversize goes by")
    split: Literal["flow", "user"] | None = None
    verify: bool = Field(False, description="compare the receiver's capture with what was intended, packet by packet")
    sessions: Name | None = Field(
        None, description="a group of upf.groups: the trace's users are its first ones, through the UPF; docs/upf.md"
    )
    interactive: bool = Field(
        False, description="both ends play it: nothing is sent before what it acknowledges has come"
    )

    @model_validator(mode="after")
    def _interactive_as_it_is(self) -> Trace:
        others = sorted(self.model_fields_set - {"name", "source", "target", "file", "interactive"})
        if self.interactive and others:
            raise ValueError(f"an interactive trace is played as it is, without {' or '.join(others)}")
        return self

    @model_validator(mode="after")
    def _of_sessions(self) -> Trace:
        if self.sessions is None:
            return self
        if self.direction is None:
            raise ValueError("sessions need a direction: up, down or both")
        own = {"users": "users", "gtpu": "gtpu", "vlan": "vlan", "source": "from", "split": "split"}
        if given := [word for name, word in own.items() if name in self.model_fields_set]:
            raise ValueError(f"{given[0]} follows from the sessions; leave it out")
        if self.engine not in ("auto", "xdp"):
            raise ValueError(f"only engine xdp sends traces of sessions, not {self.engine}")
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
    def _who_is_who(self) -> Trace:
        for prefix in self.prefixes:
            ip_network(prefix)
        if self.prefixes and self.users_by != "first":
            raise ValueError("client_prefix and users_by contradict each other; give one")
        even = isinstance(self.timing, dict) and "multiplier" not in self.timing
        if self.scale.start != "together" and (even or self.timing == "top"):
            raise ValueError(f"scale.start {self.scale.start} needs recorded times, and timing has none")
        if self.gtpu is not None and self.direction == "down":
            raise ValueError("gtpu is around uplink packets only, and direction is down")
        return self

    @property
    def stamped(self) -> bool:
        return self.options.get("stamp") is True

    @model_validator(mode="after")
    def _stamped_by_xdp(self) -> Trace:
        given = self.options.get("stamp", False)
        if not isinstance(given, bool):
            raise ValueError(f"options.stamp is true or false, not {given!r}")
        if given and self.engine not in ("auto", "xdp"):
            raise ValueError(f"{self.engine} cannot stamp a trace; xdp can")
        return self

    @property
    def prefixes(self) -> tuple[str, ...]:
        given = self.client_prefix
        return () if given is None else (given,) if isinstance(given, str) else tuple(given)

    def settings(self, where: object, key: str) -> Settings:
        """For traffic.replay; `where` and `key` name the trace in messages."""
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


class Connection(BaseModel):
    """Real TCP or UDP connections that carry blocks of bytes."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    origin: Group = Field("transmit", alias="from", description="who connects")
    target: Group = Field("receive", alias="to", description="who listens")
    protocol: Literal["tcp", "udp"] = "tcp"
    connections: int = Field(1, ge=1, le=4096, description="at once, from each transmitter")
    direction: Literal["up", "down", "both"] = Field("up", description="up: blocks go from `from` to `to`")
    block_bytes: int | None = Field(None, ge=1, le=64 * 2**20, description="of the application")
    period_s: float | None = Field(
        None, ge=1e-5, le=3600, description="from one block to the next; left out: as fast as it goes"
    )
    blocks: int | None = Field(None, ge=1, description="of each connection")
    duration_s: float | None = Field(None, gt=0, le=7 * 86400, description="no block begins later")
    source: str | dict[str, Any] | None = Field(
        None, description="an application source, in place of block_bytes, period_s; see docs/sources.md"
    )
    users: int | None = Field(None, ge=1, description="of the source, dealt to the connections of a pair in turn")
    mean_bps: float | None = Field(None, gt=0, description="of a pair's users together, bits of frames with FCS")
    profile: dict[str, Any] | None = Field(None, description="how often the source's sessions begin, over time")
    seed: Seed | None = Field(None, description="of what the source draws; left out: the scenario's")
    pace_bps: float | None = Field(
        None, ge=8000, description="of each connection; TCP by the kernel, UDP by the sender"
    )
    congestion: str | None = Field(None, pattern=r"^[a-z0-9_-]{1,15}$", description="cubic, reno, bbr: what nodes have")
    nodelay: bool = False
    send_buffer_bytes: int | None = Field(None, ge=4096, le=2**30)
    background: bool = Field(False, description="told apart from the targets in the results")

    @model_validator(mode="after")
    def _one_kind_and_an_end(self) -> Connection:
        if (self.block_bytes is None) == (self.source is None):
            raise ValueError("block_bytes or source is needed, and not both")
        if self.source is not None and (self.period_s is not None or self.blocks is not None):
            raise ValueError("a source has its own times and sizes: period_s and blocks go with block_bytes")
        given = [name for name in ("users", "mean_bps", "profile", "seed") if getattr(self, name) is not None]
        if self.source is None and given:
            raise ValueError(f"{given[0]} goes with a source")
        if self.blocks is None and self.duration_s is None:
            raise ValueError("blocks or duration_s is needed: a connection must end")
        if self.protocol == "udp":
            self._udp()
        return self

    def _udp(self) -> None:
        if self.congestion is not None or self.nodelay:
            raise ValueError("congestion and nodelay are TCP's")
        if self.block_bytes is not None and self.block_bytes < LEAST_UDP_BLOCK_BYTES:
            raise ValueError(f"a UDP block has {LEAST_UDP_BLOCK_BYTES} bytes or more: its number and time")
        if self.block_bytes is not None and self.period_s is None and self.pace_bps is None:
            raise ValueError("period_s or pace_bps is needed with UDP: nothing else holds it back")


class Receive(_Strict):
    mode: Literal["capture", "count"] = "capture"
    engine: Literal["auto", "netsniff-ng", "xdp"] = Field(
        "auto", description="auto: xdp where the host has it and it can tell all streams apart, else netsniff-ng"
    )
    filter: str = Field("", max_length=2000, description="pcap syntax; on top of what is addressed to the node")
    capture_filter: str = Field(
        "", max_length=2000, description="pcap syntax: of what counts, only this is captured (receiver xdp)"
    )
    capture_every: int = Field(
        1, ge=1, le=1_000_000, description="mode capture, receiver xdp: the first of so many frames of each stream"
    )
    ring_mib: int = Field(16, ge=1, le=4096)
    drain_s: float = Field(0.3, ge=0, le=60, description="wait for frames in flight after the last was sent")


class Scenario(_Strict):
    name: Name
    description: str = ""
    samples_per_s: float = Field(2, gt=0, le=100, description="how often nodes tell their counts while a run goes")
    streams: list[Stream] = Field(default_factory=list)
    sources: list[Source] = Field(default_factory=list)
    traces: list[Trace] = Field(default_factory=list)
    connections: list[Connection] = Field(default_factory=list)
    upf: Upf | None = Field(None, description="a 5G user plane under test: its sessions; see docs/upf.md")
    seed: Seed = Field(1, description="of all that is drawn at random: the same one gives the same packets")
    stop_after_s: float | None = Field(None, gt=0, le=7 * 86400, description="nothing is sent later, of anything")
    clock: Literal["measured", "ptp"] = Field(
        "measured", description="measured: the nodes' clocks are compared over MPI; ptp: they are steered by PTP (TAI)"
    )
    receive: Receive = Field(default_factory=lambda: Receive())  # type: ignore[call-arg]
    expect: Expect = Field(default_factory=lambda: Expect())  # type: ignore[call-arg]

    @model_validator(mode="after")
    def _no_cut_of_what_is_interactive(self) -> Scenario:
        played = [trace.name for trace in self.traces if trace.interactive]
        if played and self.stop_after_s is not None:
            raise ValueError(f"stop_after_s cannot end {played[0]}: an interactive trace ends when both ends are done")
        return self

    @model_validator(mode="after")
    def _names(self) -> Scenario:
        names = [item.name for item in (*self.streams, *self.sources, *self.traces)]
        names += [item.name for item in self.connections]
        names += [stream.echo_name for stream in self.streams if stream.echo]
        if not names:
            raise ValueError("nothing to send: streams, sources, traces or connections are needed")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two streams, sources, traces or connections are called {twice[0]!r}")
        verified = [trace.name for trace in self.traces if trace.verify]
        if verified and self.receive.mode != "capture":
            raise ValueError(f"{verified[0]} is to be verified, which needs receive.mode capture")
        if self.expect.sessions_accepted is not None and self.upf is None:
            raise ValueError("expect.sessions_accepted needs the sessions of a section upf")
        self._limits_can_be_measured()
        unknown = sorted(self.expect.names - set(names))
        if unknown:
            raise ValueError(f"expect names {unknown[0]!r}, which is no stream; streams are {', '.join(names)}")
        return self

    def _limits_can_be_measured(self) -> None:
        """Of the streams that `expect.streams` names; what stands above it is of those that can have it."""
        connected = {one.name for one in self.connections}
        bare = {one.name for one in (*self.streams, *self.sources) if one.options.get("stamp") is False}
        bare |= {one.name for one in self.traces if not one.stamped}
        for name, limits in self.expect.streams.items():
            for key in limits.given():
                if name in connected:
                    raise ValueError(f"expect.streams.{name}.{key}: of real connections only loss can be expected here")
                if name in bare and METRICS[key].stamped:
                    raise ValueError(f"expect.streams.{name}.{key}: only stamps tell, and {name} has none")

    @model_validator(mode="after")
    def _sessions_of_streams(self) -> Scenario:
        for index, stream in enumerate(self.streams):
            if stream.sessions is not None:
                self._check_sessions(f"streams.{index}.sessions = {stream.sessions!r}", stream)
            if stream.oversize != "refuse":
                self._check_fragments(f"streams.{index}.oversize = {stream.oversize!r}", stream.sessions or "")
            if stream.echo and self.receive.mode != "count":
                raise ValueError(f"streams.{index}.echo: what goes back is not captured too: receive: {{mode: count}}")
        for index, trace in enumerate(self.traces):
            if trace.sessions is not None:
                self._check_trace(f"traces.{index}.sessions = {trace.sessions!r}", trace.sessions, self.traces[:index])
        return self

    def _check_trace(self, key: str, name: str, others: list[Trace]) -> None:
        moving = None if self.upf is None else self.upf.handover
        if moving is not None and moving.group == name:
            raise ValueError(f"{key}: its users move (upf.handover), and a trace's stay at one gNB")
        if same := [other.name for other in others if other.sessions == name]:
            raise ValueError(f"{key}: the trace {same[0]} has these users; each needs a group of its own")
        if not self._group_of(key, name).families()[0]:
            raise ValueError(f"{key}: its users have no IPv4 address")
        if self.receive.mode != "count":
            raise ValueError(f"{key}: what the UPF makes of a trace is not captured: receive: {{mode: count}}")

    def _check_fragments(self, key: str, group: str) -> None:
        if self.receive.mode != "count":
            raise ValueError(f"{key}: what comes in fragments is not captured: receive: {{mode: count}}")
        if self.receive.filter:
            raise ValueError(f"{key}: receive.filter sees ports in the first fragment of a packet only; leave it out")
        if any(stream.echo for stream in self.streams):
            raise ValueError(f"{key}: a node that sends back (echo) puts no fragments together")
        if played := [trace.name for trace in self.traces if trace.sessions == group]:
            problem = "a fragment has no stamp, and would be taken for a packet without one of the trace"
            raise ValueError(f"{key}: {problem} {played[0]}, whose users are the same: give it a group of its own")

    @model_validator(mode="after")
    def _an_mbr_to_expect(self) -> Scenario:
        names = {stream.sessions for stream in self.streams} | {trace.sessions for trace in self.traces}
        groups = [] if self.upf is None else [group for group in self.upf.groups if group.name in names]
        if self.expect.mbr and not any(group.qos and group.qos.mbr_up_bps for group in groups):
            raise ValueError("expect.mbr: no user of a stream or trace has an MBR (qos: {mbr_up_bps, …} of the group)")
        return self

    def _group_of(self, key: str, name: str) -> UpfGroup:
        """A group whose sessions stay."""
        if self.upf is None:
            raise ValueError(f"{key}: there is no section upf")
        group = next((one for one in self.upf.groups if one.name == name), None)
        if group is None:
            raise ValueError(f"{key}: no such group; groups are {', '.join(one.name for one in self.upf.groups)}")
        if self.upf.churn is not None and self.upf.churn.group == name:
            raise ValueError(f"{key}: its sessions come and go (upf.churn), and streams need some that stay")
        return group

    def _check_sessions(self, key: str, stream: Stream) -> None:
        group = self._group_of(key, stream.sessions or "")
        has = dict(zip(("ipv4", "ipv6"), group.families(), strict=True))
        if stream.ip is not None and not has[stream.ip]:
            raise ValueError(f"{key}: its users have no such address as ip: {stream.ip} asks for")
        if stream.oversize == "inner" and (stream.ip == "ipv6" or not has["ipv4"]):
            raise ValueError(
                f"{key}: oversize: inner is of IPv4 packets; IPv6 ones go in fragments of the tunnel (outer)"
            )
        if self.upf is not None and self.upf.handover is not None and self.upf.handover.group == group.name:
            self._check_users_that_move(key, stream)

    def _check_users_that_move(self, key: str, stream: Stream) -> None:
        if stream.echo:
            raise ValueError(f"{key}: its users move (upf.handover): what echo sends back would come to another clock")
        if stream.direction == "up":
            return
        if self.receive.mode != "count":
            raise ValueError(f"{key}: its users move (upf.handover) and are not captured: receive: {{mode: count}}")
        if stream.rate is None and stream.pps() is None:
            raise ValueError(f"{key}: its users move (upf.handover), and are counted at several gNBs: a rate is needed")


def load(path: Path) -> Scenario:
    """Read and check a scenario. BadInput names the first wrong key; trace files are made absolute."""
    data = load_yaml(path, Yaml)
    return checked(path, data)


def checked(path: Path, data: Any) -> Scenario:
    """What stands in the file, or was made of it."""
    if not isinstance(data, dict):
        raise BadInput(path, "must be a mapping", allowed="name, streams, sources, traces, connections, receive")
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        raise bad_input(path, error, _known_keys) from None
    for index, stream in enumerate(scenario.streams):
        if stream.headers is not None:
            frame = {"headers": fill(stream.headers, *PLACEHOLDERS), "payload": stream.payload}
            for size_bytes in (stream.sizes().smallest, stream.sizes().largest):
                check_frame(frame, path, f"streams.{index}", size_bytes)
        expect.check(path, f"streams.{index}.expect", stream.expect)
        _check_users(path, index, stream)
    for index, source in enumerate(scenario.sources):
        expect.check(path, f"sources.{index}.expect", source.expect)
    for trace in scenario.traces:
        trace.file = (path.parent / trace.file).resolve()
    return scenario


def _check_users(path: Path, index: int, stream: Stream) -> None:
    if not stream.users:
        return
    key = f"streams.{index}.users"
    if stream.headers is None:
        raise BadInput(path, "a stream without headers has no counters", key=key, value=stream.users, allowed="headers")
    frame = {"headers": fill(stream.headers, *PLACEHOLDERS), "payload": stream.payload}
    users.of_template(path, key, build_frame(frame, stream.sizes().largest), stream.users)


def _known_keys(loc: Location) -> str:
    models: dict[str, type[BaseModel]] = {
        "streams": Stream,
        "sources": Source,
        "traces": Trace,
        "connections": Connection,
        "receive": Receive,
        "expect": Expect,
    }
    if loc[0] == "upf":
        return upf_keys(loc)
    return keys_of(models.get(str(loc[0]), Scenario) if len(loc) > 1 else Scenario)


def schema() -> str:
    """The JSON Schema of a scenario, for editors."""
    document = Scenario.model_json_schema(by_alias=True)
    document["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    document["title"] = "pktswarm scenario"
    return json.dumps(document, indent=2) + "\n"
