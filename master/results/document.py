"""The types of run.json: the result of one run.

A key is NotRequired where folders of earlier versions lack it, or where it applies to some runs only. None is a figure
that was not measured.
"""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import ConfigDict, JsonValue, with_config
from typing_extensions import TypedDict

from pktswarm.master.cluster.dut import DutEntry
from pktswarm.master.dut_host.report import DropsDocument
from pktswarm.master.results.document_handover import HandoverResult
from pktswarm.master.results.document_rows import (
    CaptureLatency,
    ConnectionResult,
    GroupTotal,
    NodeTotal,
    ReplayedFlow,
    RunRow,
    StreamTotal,
    UsersResult,
    VerifiedTrace,
)
from pktswarm.master.upf.document import N4Document

FORMAT_VERSION = 2
CLOSED = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)
"""Also holds for every type inside that has no configuration of its own."""
OPEN = ConfigDict(extra="allow", strict=True)
Table = dict[str, JsonValue]
"""A part whose form its reader checks: see traffic.leg.Leg and master.scenario."""

Judgement = Literal["held", "failed", "not decided", "not measured"]


class Verdict(TypedDict):
    """The comparison of one measured figure with its expectation."""

    text: str
    holds: bool
    what: NotRequired[str]
    """The name of the figure, the same in every run of a scenario."""
    found: NotRequired[str]
    expected: NotRequired[str]
    outcome: NotRequired[Judgement]
    note: NotRequired[str]


class PhaseTime(TypedDict):
    phase: str
    at_ns: int | None
    """Time since the start instant."""
    monotonic_ns: NotRequired[int]


class FirstFrameSkew(TypedDict):
    """The spread of the times at which the nodes of one engine sent their first frame, in ns."""

    nodes: int
    skew: float
    median_after_start: float


class ProxyCounts(TypedDict):
    """Messages that a node received for the addresses it answers for, by kind."""

    counts: dict[str, int]
    teids: dict[str, list[int]]
    missed: NotRequired[int]


class InterfaceReport(TypedDict, total=False):
    name: str
    exists: bool
    mac: str
    ipv4: str | None
    mtu: int
    driver: str
    speed_mbps: int | None
    carrier: bool
    native_xdp: bool | None
    carries: list[str]
    shared_wire: str


class NodeReport(TypedDict):
    """The properties of one rank's node. A node that was lost early reported none."""

    host: str
    role: str
    hostname: NotRequired[str]
    kernel: NotRequired[str]
    machine: NotRequired[str]
    cpus: NotRequired[int | None]
    python: NotRequired[str]
    pktswarm: NotRequired[str]
    interface: NotRequired[InterfaceReport]
    senders: NotRequired[dict[str, str]]
    """Engine → the reason why the node cannot use it; empty: it can."""
    on_request: NotRequired[list[str]]
    """Engines of `senders` that it can use where a stream names them."""
    receivers: NotRequired[dict[str, str]]
    versions: NotRequired[dict[str, str]]
    held_by: NotRequired[Table]
    mended: NotRequired[list[str]]
    tail_calls: NotRequired[str]
    """The reason why the counter in the kernel cannot call a further program; empty: it can."""
    clock: NotRequired[str]
    """Identity of the node's CLOCK_MONOTONIC: its kernel's boot and its time namespace."""


class ClockReading(TypedDict):
    """One reading of a node's clock against the master's."""

    offset_ns: int
    bound_ns: int
    round_trip_ns: NotRequired[int]
    """Within it CLOCK_REALTIME was read. Earlier versions did not keep it: at most 2 * bound_ns + 1."""
    realtime_minus_monotonic_ns: int
    at_ns: NotRequired[int]
    event: NotRequired[str]
    rank: NotRequired[int]
    when: NotRequired[str]
    utc: NotRequired[str]


class NodeLimit(TypedDict):
    rate_pps: float
    engine: str
    least: bool
    utc: str


class LegLoad(TypedDict):
    """The rate that one end of a flow is planned for, and the highest rate measured of its node."""

    leg: int
    stream: str
    node: str
    role: str
    pps: float
    limit: NodeLimit


class NodeLoad(TypedDict):
    node: str
    role: str
    engines: str
    pps: float
    possible_pps: float
    share: float
    at_least: bool


class CapacityResult(TypedDict):
    file: str
    wiring: str
    legs: list[LegLoad]
    nodes: list[NodeLoad]
    not_used: list[str]


class WireLimit(TypedDict):
    """The most that test traffic may take of a wire that carries the control connection too, on layer 1.

    A share of the wire's speed; or a rate, where it is not None.
    """

    share: float
    rate_bps: float | None


class HostEntry(TypedDict):
    """A host of the inventory."""

    name: str
    address: NotRequired[str]
    roles: NotRequired[list[str]]
    control_interface: NotRequired[str]
    traffic_interface: NotRequired[str]
    side: NotRequired[str]
    mac: NotRequired[str]
    ipv4: NotRequired[str]
    ipv6: NotRequired[str]
    socket_ipv4: NotRequired[list[str]]
    python: NotRequired[str]
    mpi: NotRequired[str]
    user: NotRequired[str]
    gateways: NotRequired[list[str]]
    wire_limit: NotRequired[WireLimit]


class LegEntry(TypedDict):
    """One flow as planned: the fields of traffic.leg.Leg."""

    id: int
    stream: str
    source: str
    target: str
    kind: Literal["stream", "trace", "connections"]
    engine: NotRequired[str]
    frame: NotRequired[Table | None]
    size_bytes: NotRequired[int]
    sizes: NotRequired[list[list[int]]]
    sizes_in_turn: NotRequired[bool]
    rate_pps: NotRequired[float | None]
    rates: NotRequired[list[list[float]]]
    rates_period_ns: NotRequired[int | None]
    gap_table: NotRequired[list[int]]
    seed: NotRequired[int | None]
    count_packets: NotRequired[int | None]
    duration_s: NotRequired[float | None]
    intended_packets: NotRequired[int | None]
    trace_file: NotRequired[str | None]
    sequence_file: NotRequired[str | None]
    user_field: NotRequired[str]
    timing: NotRequired[Table | None]
    repeat: NotRequired[int]
    shift: NotRequired[dict[str, int]]
    pools: NotRequired[Table | None]
    stamped_packets: NotRequired[int | None]
    merged_into: NotRequired[int | None]
    match: NotRequired[Table | None]
    expect: NotRequired[Table | None]
    arrives: NotRequired[Table | None]
    oversize: NotRequired[Table | None]
    users: NotRequired[Table | None]
    options: NotRequired[Table | None]
    background: NotRequired[bool]
    connection: NotRequired[Table | None]
    answers: NotRequired[int | None]
    echo_of: NotRequired[int | None]
    echo_percent: NotRequired[int]
    handover_targets: NotRequired[list[str]]
    held: NotRequired[bool]
    steered: NotRequired[bool]
    gateway: NotRequired[Table | None]
    """The router that its frames were sent to."""


@with_config(OPEN)
class ReceiveEntry(TypedDict, total=False):
    mode: str
    capture_every: int
    capture_filter: str


@with_config(OPEN)
class TraceEntry(TypedDict):
    name: str
    sessions: NotRequired[str | None]


@with_config(OPEN)
class ScenarioEntry(TypedDict, total=False):
    """The scenario as run. `pktswarm schema` prints its own schema; listed are the keys that a report reads."""

    name: str
    description: str
    samples_per_s: float
    seed: int | None
    receive: ReceiveEntry
    traces: list[TraceEntry]


class RunInputs(TypedDict):
    """What a run was given, and what was planned from it."""

    name: str
    scenario_file: str
    hosts_file: str
    scenario: ScenarioEntry
    inventory: list[HostEntry]
    legs: list[LegEntry]
    capacity: NotRequired[CapacityResult]
    upf: NotRequired[N4Document]
    written: NotRequired[str]
    dut: NotRequired[DutEntry]


@with_config(CLOSED)
class RunDocument(RunInputs):
    """run.json: the result of one run of pktswarm."""

    format_version: int
    stamp_layout: NotRequired[int]
    """Layout of the stamps in captured frames."""
    status: int
    """Exit status: 0 as expected, 1 not as expected, 3 incomplete."""
    reason: str
    verdicts: list[Verdict]
    doubts: list[str]
    start_utc: str | None
    start_ns: NotRequired[int | None]
    """Start instant on the master's CLOCK_MONOTONIC; in place of run.json where a run crashed."""
    phases: list[PhaseTime]
    release_skew_ns: dict[str, int]
    first_frame_skew_ns: dict[str, FirstFrameSkew]
    engines: NotRequired[list[str]]
    """The engine of each flow, and why it was chosen."""
    notes: NotRequired[list[str]]
    played: NotRequired[dict[str, ProxyCounts]]
    ranks: dict[str, NodeReport]
    clocks: dict[str, dict[str, ClockReading]]
    totals: list[StreamTotal]
    """One for each stream; the last is the sum of all."""
    groups: NotRequired[list[GroupTotal]]
    by_node: NotRequired[list[NodeTotal]]
    rows: list[RunRow]
    flows: NotRequired[list[ReplayedFlow]]
    connections: NotRequired[list[ConnectionResult]]
    verified: NotRequired[list[VerifiedTrace]]
    latency_by_captures: NotRequired[list[CaptureLatency]]
    users: NotRequired[UsersResult]
    handover: NotRequired[HandoverResult]
    dut_host: NotRequired[DropsDocument]


def empty_document(status: int = 3, reason: str = "") -> RunDocument:
    """The document of a run of which nothing is known."""
    return {
        "name": "",
        "scenario_file": "",
        "hosts_file": "",
        "scenario": {},
        "inventory": [],
        "legs": [],
        "format_version": FORMAT_VERSION,
        "status": status,
        "reason": reason,
        "verdicts": [],
        "doubts": [],
        "start_utc": None,
        "phases": [],
        "release_skew_ns": {},
        "first_frame_skew_ns": {},
        "engines": [],
        "notes": [],
        "ranks": {},
        "clocks": {},
        "totals": [],
        "rows": [],
    }
