"""The scenario: what to send, what to count, what to expect. YAML checked by pydantic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from pktswarm.master.cluster.inventory import load_yaml
from pktswarm.master.scenario.addresses import PLACEHOLDERS, fill
from pktswarm.master.scenario.connection import Connection
from pktswarm.master.scenario.expectations import METRICS, Expect
from pktswarm.master.scenario.fields import Name, Strict, Yaml
from pktswarm.master.scenario.problems import located, refuse, together
from pktswarm.master.scenario.receive import Receive
from pktswarm.master.scenario.section import Seed
from pktswarm.master.scenario.source import Source
from pktswarm.master.scenario.stream import Stream
from pktswarm.master.scenario.trace import Trace
from pktswarm.master.scenario.upf import Group as UpfGroup
from pktswarm.master.scenario.upf import Upf
from pktswarm.traffic.counting import expect, users
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.check import check_frame


class Scenario(Strict):
    name: Name
    description: str = ""
    samples_per_s: float = Field(2, gt=0, le=100, description="reports of counts by each node per second during a run")
    streams: list[Stream] = Field(default_factory=list)
    sources: list[Source] = Field(default_factory=list)
    traces: list[Trace] = Field(default_factory=list)
    connections: list[Connection] = Field(default_factory=list)
    upf: Upf | None = Field(None, description="a 5G user plane under test: its sessions; see docs/upf.md")
    seed: Seed = Field(1, description="seed of all random draws: the same seed gives the same packets")
    stop_after_s: float | None = Field(None, gt=0, le=7 * 86400, description="cut-off time of all traffic")
    clock: Literal["measured", "ptp"] = Field(
        "measured", description="measured: the nodes' clocks are compared over MPI; ptp: they are steered by PTP (TAI)"
    )
    receive: Receive = Field(default_factory=lambda: Receive())
    expect: Expect = Field(default_factory=lambda: Expect())

    @model_validator(mode="after")
    def _no_cut_of_what_is_interactive(self) -> Scenario:
        played = [trace.name for trace in self.traces if trace.interactive]
        if played and self.stop_after_s is not None:
            raise ValueError(
                f"stop_after_s cannot end {played[0]}: an interactive trace ends when both ends have finished"
            )
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
            raise ValueError(f"expect names {unknown[0]!r}, which is not a stream; streams are {', '.join(names)}")
        return self

    def _limits_can_be_measured(self) -> None:
        """Refuse limits in `expect.streams` that cannot be measured. General limits apply only where they can be."""
        connected = {one.name for one in self.connections}
        bare = {one.name for one in (*self.streams, *self.sources) if one.options.get("stamp") is False}
        bare |= {one.name for one in self.traces if not one.stamped}
        for name, limits in self.expect.streams.items():
            for key in limits.given():
                if name in connected:
                    raise ValueError(f"expect.streams.{name}.{key}: connections allow only loss here")
                if name in bare and METRICS[key].stamped:
                    raise ValueError(f"expect.streams.{name}.{key}: needs stamps, and {name} has none")

    @model_validator(mode="after")
    def _sessions_of_streams(self) -> Scenario:
        for index, stream in enumerate(self.streams):
            if stream.sessions is not None:
                self._check_sessions(f"streams.{index}.sessions = {stream.sessions!r}", stream)
            if stream.oversize != "refuse":
                self._check_fragments(f"streams.{index}.oversize = {stream.oversize!r}", stream.sessions or "")
            if stream.echo and self.receive.mode != "count":
                raise ValueError(
                    f"streams.{index}.echo: frames sent back are not captured: set receive: {{mode: count}}"
                )
        for index, trace in enumerate(self.traces):
            if trace.sessions is not None:
                self._check_trace(f"traces.{index}.sessions = {trace.sessions!r}", trace.sessions, self.traces[:index])
        return self

    def _check_trace(self, key: str, name: str, others: list[Trace]) -> None:
        moving = None if self.upf is None else self.upf.handover
        if moving is not None and moving.group == name:
            raise ValueError(f"{key}: its users move (upf.handover); users of a trace stay at one gNB")
        if same := [other.name for other in others if other.sessions == name]:
            raise ValueError(f"{key}: the trace {same[0]} has these users; each needs a group of its own")
        if not self._group_of(key, name).families()[0]:
            raise ValueError(f"{key}: its users have no IPv4 address")
        if self.receive.mode != "count":
            raise ValueError(f"{key}: a trace behind a UPF is not captured: set receive: {{mode: count}}")

    def _check_fragments(self, key: str, group: str) -> None:
        if self.receive.mode != "count":
            raise ValueError(f"{key}: fragments are not captured: set receive: {{mode: count}}")
        if self.receive.filter:
            raise ValueError(f"{key}: receive.filter reads ports in first fragments only; leave it out")
        if any(stream.echo for stream in self.streams):
            raise ValueError(f"{key}: a node that sends back (echo) does not reassemble fragments")
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
        """The group of that name, whose sessions must last for the whole run."""
        if self.upf is None:
            raise ValueError(f"{key}: there is no section upf")
        group = next((one for one in self.upf.groups if one.name == name), None)
        if group is None:
            raise ValueError(f"{key}: no such group; groups are {', '.join(one.name for one in self.upf.groups)}")
        if self.upf.churn is not None and self.upf.churn.group == name:
            raise ValueError(f"{key}: its sessions come and go (upf.churn); streams need sessions that stay")
        return group

    def _check_sessions(self, key: str, stream: Stream) -> None:
        group = self._group_of(key, stream.sessions or "")
        has = dict(zip(("ipv4", "ipv6"), group.families(), strict=True))
        if stream.ip is not None and not has[stream.ip]:
            raise ValueError(f"{key}: its users have no {stream.ip} address")
        if stream.oversize == "inner" and (stream.ip == "ipv6" or not has["ipv4"]):
            raise ValueError(f"{key}: oversize: inner needs IPv4 packets; IPv6 packets need oversize: outer")
        if self.upf is not None and self.upf.handover is not None and self.upf.handover.group == group.name:
            self._check_users_that_move(key, stream)

    def _check_users_that_move(self, key: str, stream: Stream) -> None:
        if stream.echo:
            raise ValueError(f"{key}: its users move (upf.handover); echo would measure against another clock")
        if stream.direction == "up":
            return
        if self.receive.mode != "count":
            raise ValueError(f"{key}: its users move (upf.handover) and are not captured: set receive: {{mode: count}}")
        if stream.rate is None and stream.pps() is None:
            raise ValueError(f"{key}: its users move (upf.handover) and are counted at several gNBs: a rate is needed")


def load(path: Path) -> Scenario:
    """Read and check a scenario. Raises BadInput with every wrong key and its line; trace files are made absolute."""
    data = load_yaml(path, Yaml)
    try:
        return checked(path, data)
    except BadInput as error:
        raise located(path, error, Yaml) from None


def checked(path: Path, data: Any) -> Scenario:
    """The scenario of the content of a file, or of a changed copy of it."""
    if not isinstance(data, dict):
        raise BadInput(path, "must be a mapping", allowed="name, streams, sources, traces, connections, receive")
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        raise refuse(path, error, Scenario, data) from None
    problems: list[BadInput] = []
    for index, stream in enumerate(scenario.streams):
        try:
            _check_stream(path, index, stream)
        except BadInput as problem:
            problems.append(problem)
    for index, source in enumerate(scenario.sources):
        try:
            expect.check(path, f"sources.{index}.expect", source.expect)
        except BadInput as problem:
            problems.append(problem)
    if problems:
        raise together(problems)
    for trace in scenario.traces:
        found = [(path.parent / file).resolve() for file in trace.files]
        trace.file = found[0] if isinstance(trace.file, Path) else found
    return scenario


def _check_stream(path: Path, index: int, stream: Stream) -> None:
    if stream.headers is not None:
        frame = {"headers": fill(stream.headers, *PLACEHOLDERS), "payload": stream.payload}
        for size_bytes in (stream.sizes().smallest, stream.sizes().largest):
            check_frame(frame, path, f"streams.{index}", size_bytes)
    expect.check(path, f"streams.{index}.expect", stream.expect)
    _check_users(path, index, stream)


def _check_users(path: Path, index: int, stream: Stream) -> None:
    if not stream.users:
        return
    key = f"streams.{index}.users"
    if stream.headers is None:
        raise BadInput(path, "a stream without headers has no counters", key=key, value=stream.users, allowed="headers")
    frame = {"headers": fill(stream.headers, *PLACEHOLDERS), "payload": stream.payload}
    users.of_template(path, key, build_frame(frame, stream.sizes().largest), stream.users)


def schema() -> str:
    """The JSON Schema of a scenario, for editors."""
    document = Scenario.model_json_schema(by_alias=True)
    document["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    document["title"] = "pktswarm scenario"
    return json.dumps(document, indent=2) + "\n"
