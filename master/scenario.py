"""The scenario: what to send, what to count, what to expect. YAML checked by pydantic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from master.fill import PLACEHOLDERS, fill
from master.inventory import load_yaml
from traffic.errors import BadInput
from traffic.frames import check_frame

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
Group = Annotated[str, Field(description="a group (transmit, receive) or the name of one host")]
MIN_SIZE_BYTES, MAX_SIZE_BYTES = 64, 9618
ETHERNET_OVERHEAD_BYTES = 20
"""Preamble, start delimiter and the gap between frames: what a frame takes on the wire (L1) beyond its size."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False, populate_by_name=True)


class Traffic(_Strict):
    """What a stream and a trace have in common."""

    name: Name
    source: Group = Field("transmit", alias="from")
    target: Group = Field("receive", alias="to")
    engine: Literal["auto", "xdp", "pktgen", "trafgen", "tcpreplay"] = "auto"
    options: dict[str, Any] = Field(default_factory=dict, description="the engine's own settings")


class Stream(Traffic):
    """Synthetic frames of one shape. Rate and count are the whole stream's, shared by its transmitters,
    unless `per` is "node"."""

    size_bytes: int = Field(64, ge=MIN_SIZE_BYTES, le=MAX_SIZE_BYTES, description="with the FCS (RFC 2544)")
    rate_pps: float | None = Field(None, gt=0)
    rate_bps: float | None = Field(None, gt=0, description="bits of the frames with FCS a second (layer 2)")
    rate_l1_bps: float | None = Field(None, gt=0, description="with preamble and gap: what the wire carries")
    count_packets: int | None = Field(None, gt=0)
    duration_s: float | None = Field(None, gt=0, le=7 * 86400)
    per: Literal["stream", "node"] = "stream"
    headers: list[dict[str, dict[str, Any] | None]] | None = Field(
        None, description="Ethernet, IPv4 and UDP between the nodes if left out; see docs/headers.md"
    )
    payload: dict[str, Any] = Field(default_factory=dict, description="{fill: 0}, {hex: …} or {random: true}")

    @model_validator(mode="after")
    def _one_rate_and_an_end(self) -> Stream:
        given = [name for name in ("rate_pps", "rate_bps", "rate_l1_bps") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} contradict each other; give one")
        if self.count_packets is None and self.duration_s is None:
            raise ValueError("count_packets or duration_s is needed: a stream must end")
        if self.count_packets is not None and self.duration_s is not None:
            raise ValueError("count_packets and duration_s contradict each other; give one")
        return self

    def pps(self) -> float | None:
        """The rate in packets a second; None is as fast as the engine can."""
        if self.rate_bps is not None:
            return self.rate_bps / (8 * self.size_bytes)
        if self.rate_l1_bps is not None:
            return self.rate_l1_bps / (8 * (self.size_bytes + ETHERNET_OVERHEAD_BYTES))
        return self.rate_pps


class Trace(Traffic):
    """A recorded trace, split by flow among its transmitters."""

    file: Path
    timing: Literal["original", "top"] | dict[Literal["multiplier", "pps", "bps"], float] = "original"
    repeat: int = Field(1, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _one_timing(self) -> Trace:
        if isinstance(self.timing, dict):
            if len(self.timing) != 1:
                raise ValueError("timing takes one of multiplier, pps, bps")
            if next(iter(self.timing.values())) <= 0:
                raise ValueError("timing must be greater than 0")
        return self


class Receive(_Strict):
    mode: Literal["capture", "count"] = "capture"
    engine: Literal["auto", "netsniff-ng", "xdp"] = Field(
        "auto", description="auto: xdp for what the sender xdp stamps, netsniff-ng for all else"
    )
    filter: str = Field("", max_length=2000, description="pcap syntax; on top of what is addressed to the node")
    ring_mib: int = Field(16, ge=1, le=4096)
    drain_s: float = Field(0.3, ge=0, le=60, description="wait for frames in flight after the last was sent")


class Expect(_Strict):
    loss: int | Annotated[str, Field(pattern=r"^\d+(\.\d+)? ?%$")] | None = Field(
        None, description="at most so many packets lost of each stream, or so much: 0.1 %"
    )
    sent: Literal["intended"] | dict[Name, int] | None = None
    received: dict[Name, int] | None = None


class Scenario(_Strict):
    name: Name
    description: str = ""
    streams: list[Stream] = Field(default_factory=list)
    traces: list[Trace] = Field(default_factory=list)
    receive: Receive = Field(default_factory=lambda: Receive())  # type: ignore[call-arg]
    expect: Expect = Field(default_factory=lambda: Expect())  # type: ignore[call-arg]

    @model_validator(mode="after")
    def _names(self) -> Scenario:
        names = [item.name for item in (*self.streams, *self.traces)]
        if not names:
            raise ValueError("nothing to send: streams or traces are needed")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two streams or traces are called {twice[0]!r}")
        expected = set(self.expect.received or {})
        expected |= set(self.expect.sent) if isinstance(self.expect.sent, dict) else set()
        unknown = sorted(expected - set(names))
        if unknown:
            raise ValueError(f"expect names {unknown[0]!r}, which is no stream; streams are {', '.join(names)}")
        return self


def load(path: Path) -> Scenario:
    """Read and check a scenario. BadInput names the first wrong key; trace files are made absolute."""
    data = load_yaml(path)
    if not isinstance(data, dict):
        raise BadInput(path, "must be a mapping", allowed="name, streams, traces, receive, expect")
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        raise _bad_input(path, error) from None
    for index, stream in enumerate(scenario.streams):
        if stream.headers is not None:
            frame = {"headers": fill(stream.headers, *PLACEHOLDERS), "payload": stream.payload}
            check_frame(frame, path, f"streams.{index}", stream.size_bytes)
    for trace in scenario.traces:
        trace.file = (path.parent / trace.file).resolve()
    return scenario


def _bad_input(path: Path, error: ValidationError) -> BadInput:
    first = error.errors()[0]
    # pydantic names the branch of a union it tried; a user knows only the keys of the file.
    key = ".".join(str(part) for part in first["loc"] if not _is_branch(part))
    message = first["msg"].removeprefix("Value error, ")
    value = first["input"] if isinstance(first["input"], (str, int, float, bool)) else None
    if first["type"] == "extra_forbidden":
        return BadInput(path, "unknown key", key=key, allowed=_known_keys(first["loc"]))
    return BadInput(path, message[:1].lower() + message[1:], key=key, value=value)


def _is_branch(part: int | str) -> bool:
    return isinstance(part, str) and ("[" in part or part in ("int", "str", "literal", "dict", "constrained-str"))


def _known_keys(loc: tuple[int | str, ...]) -> str:
    models: dict[str, type[BaseModel]] = {"streams": Stream, "traces": Trace, "receive": Receive, "expect": Expect}
    model = models.get(str(loc[0]), Scenario) if len(loc) > 1 else Scenario
    return ", ".join(field.alias or name for name, field in model.model_fields.items())


def schema() -> str:
    """The JSON Schema of a scenario, for editors."""
    document = Scenario.model_json_schema(by_alias=True)
    document["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    document["title"] = "pktswarm scenario"
    return json.dumps(document, indent=2) + "\n"
