"""The flows of a run, made of a scenario and an inventory before any host is contacted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.plan import capacity_limits as capacities
from pktswarm.master.plan import cutoff, gateways, interactive, session_traces
from pktswarm.master.plan import session_streams as tunnelling
from pktswarm.master.plan.capacity import Capacity
from pktswarm.master.plan.capacity_weights import weights as spread_weights
from pktswarm.master.plan.connections import connection_legs
from pktswarm.master.plan.durations import seconds_of
from pktswarm.master.plan.pacing import StreamPacing
from pktswarm.master.plan.pairs import check_both_roles, pairs_of
from pktswarm.master.plan.session_headers import Tunnels
from pktswarm.master.plan.shares import Share
from pktswarm.master.plan.sources import source_legs
from pktswarm.master.plan.streams import FIRST_UDP_PORT, oversize_of, session_legs, stream_legs
from pktswarm.master.plan.traces import check_pools_apart, due_times, trace_legs
from pktswarm.master.scenario.connection import Connection
from pktswarm.master.scenario.problems import together
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.source import Source
from pktswarm.master.scenario.stream import Stream
from pktswarm.master.scenario.trace import Trace
from pktswarm.master.scenario.upf import Upf, filled_in
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.errors import BadInput, BadInputs
from pktswarm.traffic.leg import Leg, field_engine
from pktswarm.traffic.replay.prepare import Prepared, prepare
from pktswarm.traffic.schedule.capabilities import check_numbers
from pktswarm.traffic.schedule.sequence import Records

Item = TypeVar("Item")
MARGIN_S = 20.0
"""Time beyond the planned duration after which the guard ends an engine."""


@dataclass(frozen=True)
class Plan:
    """Flows of a run. `legs` contain "auto" in their frames until the nodes report their addresses.

    `shares`: leg id → share of a trace that the leg's transmitter sends; instances use the share of the first one.
    """

    legs: tuple[Leg, ...]
    shares: dict[int, Share]
    notes: tuple[str, ...]
    sequences: dict[int, Records] = field(default_factory=dict)
    """Leg id → records of the packets that a source sends."""
    plays: dict[int, interactive.Play] = field(default_factory=dict)
    """Id of the initiating leg → flows of an interactive trace that its two nodes play."""
    upf: Upf | None = None
    """Section `upf` of the scenario, completed from the inventory."""
    tunnels: dict[int, Tunnels] = field(default_factory=dict)
    """Leg id → users of a stream of sessions."""
    trace_sessions: dict[int, Tunnels] = field(default_factory=dict)
    """Leg id → users of a trace of sessions."""
    patience: float = 1.0
    """Factor of the time allowed beyond the planned duration."""
    limits: tuple[capacities.LegLimit, ...] = ()
    """Capacities of the nodes, as far as they are measured."""
    warnings: tuple[str, ...] = ()
    """Parts of the plan beyond the capacity of the cluster."""

    @property
    def expected_s(self) -> float:
        """Duration of the sending at the intended rates."""
        return max(seconds_of(leg, self.shares.get(leg.id)) for leg in self.legs)

    @property
    def limit_s(self) -> float:
        """Time from its start at which every engine must have ended."""
        if any(leg.engine == interactive.ENGINE for leg in self.legs):
            return interactive.limit_s(self.expected_s)
        return self.expected_s * 1.2 + MARGIN_S * max(1.0, self.patience)


def plan(scenario: Scenario, scenario_path: Path, inventory: Inventory, capacity: Capacity | None = None) -> Plan:
    """Plan the legs of every stream, source, trace and connection. Raises BadInput for an unknown group or host.

    `capacity`: measured capacities; streams are then distributed so that no node exceeds its own.
    """
    made = _drafted(_Draft(scenario, scenario_path, inventory))
    if capacity is None:
        return made
    if weights := spread_weights(scenario, planned_loads(made), capacity):
        made = _drafted(_Draft(scenario, scenario_path, inventory, weights))
    limits = limits_of(made, scenario, capacity)
    notes = capacities.warnings(capacities.loads_of(limits))
    return replace(made, limits=tuple(limits), warnings=tuple(notes))


def limits_of(made: Plan, scenario: Scenario, capacity: Capacity) -> list[capacities.LegLimit]:
    return capacities.limits_of(planned_loads(made), scenario.receive, capacity)


def planned_loads(made: Plan) -> list[capacities.Planned]:
    """Loads of the flows whose rate is known before the run."""
    return capacities.planned(made.legs, made.shares, made.sequences)


def _drafted(draft: _Draft) -> Plan:
    draft.sections()
    return draft.finished()


class _Draft:
    """A plan in the making: each section of the scenario adds its legs, whose numbers follow one another."""

    def __init__(
        self,
        scenario: Scenario,
        path: Path,
        inventory: Inventory,
        weights: dict[int, dict[str, int]] | None = None,
    ) -> None:
        """Add the legs of all streams. `weights`: packets of each transmitter, for streams not split evenly."""
        self.scenario, self.path, self.inventory, self.weights = scenario, path, inventory, weights or {}
        upf = None if scenario.upf is None else filled_in(path, scenario.upf, inventory)
        groups = {trace.sessions for trace in scenario.traces if trace.sessions is not None}
        self.upf = None if upf is None else session_traces.at_one_gnb(upf, groups)
        self.legs: list[Leg] = []
        self.notes: list[str] = []
        self.shares: dict[int, Share] = {}
        self.sequences: dict[int, Records] = {}
        self.plays: dict[int, interactive.Play] = {}
        self.tunnels: dict[int, Tunnels] = {}
        self.trace_sessions: dict[int, Tunnels] = {}
        self.prepared: list[Prepared] = []
        self.problems: list[BadInput] = []

    def _pairs(self, origin: str, target: str, key: str) -> list[tuple[str, str]]:
        return pairs_of(origin, target, key, self.path, self.inventory)

    def _each(self, items: Sequence[Item], add: Callable[[int, Item], None]) -> None:
        """Adds every item; the errors of all are collected."""
        for index, item in enumerate(items):
            with self._collected():
                add(index, item)

    @contextlib.contextmanager
    def _collected(self) -> Iterator[None]:
        try:
            yield
        except BadInput as error:
            self.problems += error.problems if isinstance(error, BadInputs) else [error]

    def sections(self) -> None:
        """Adds every stream, source, trace and connection. Raises BadInput with all that cannot be planned."""
        self._each(self.scenario.streams, self._stream)
        self._each(self.scenario.sources, self._source)
        self._each(self.scenario.traces, self._trace)
        self._each(self.scenario.connections, self._connection)
        with self._collected():
            check_pools_apart(self.prepared)
        if self.problems:
            raise together(self.problems)

    def _stream(self, index: int, stream: Stream) -> None:
        pace = StreamPacing.of(stream, self.path, f"streams.{index}", self.scenario.seed, self.scenario.stop_after_s)
        if stream.sessions is not None and self.upf is not None:
            first_id = len(self.legs)
            legs, users = session_legs(stream, index, self.path, self.upf, self.inventory, first_id, pace)
            oversize = oversize_of(self.scenario, stream)
            self.legs += [replace(leg, oversize=oversize) for leg in legs]
            self.tunnels |= users
            self.notes += tunnelling.notes(stream, self.upf)
        else:
            pairs = self._pairs(stream.source, stream.target, f"streams.{index}")
            given = self.weights.get(index)
            weights = None if given is None else [given.get(source, 0) for source, _ in pairs]
            self.legs += stream_legs(stream, index, pairs, len(self.legs), pace, weights)

    def _source(self, index: int, source: Source) -> None:
        pairs = self._pairs(source.source, source.target, f"sources.{index}")
        port, first_id = FIRST_UDP_PORT + len(self.scenario.streams) + index, len(self.legs)
        legs, records, notes = source_legs(source, self.path, index, port, pairs, first_id, self.scenario.seed)
        self.legs += legs
        self.sequences |= records
        self.notes += notes

    def _trace(self, index: int, trace: Trace) -> None:
        if trace.sessions is not None and self.upf is not None:
            self.prepared.append(self._trace_of_sessions(index, trace, self.upf))
            return
        pairs = self._pairs(trace.source, trace.target, f"traces.{index}")
        if trace.interactive:
            legs, plays, notes = interactive.legs_of(trace, pairs, len(self.legs))
            self.plays |= plays
        else:
            prepared = prepare(trace.files, trace.settings(self.path, f"traces.{index}"))
            self.prepared.append(prepared)
            self.notes += prepared.notes
            legs, shares, notes = trace_legs(trace, prepared, pairs, len(self.legs))
            if trace.direction == "both":
                check_both_roles(pairs, f"traces.{index}.direction", self.path, self.inventory)
            self.shares |= shares
        self.legs += legs
        self.notes += notes

    def _trace_of_sessions(self, index: int, trace: Trace, upf: Upf) -> Prepared:
        pair, tunnels = session_traces.trace_sessions(self.path, index, trace, upf, self.inventory)
        plain = trace.settings(self.path, tunnels.key)
        prepared = prepare(trace.files, session_traces.settings(plain, tunnels, upf, Sessions(upf)))
        session_traces.check_room(prepared, tunnels, upf)
        legs, shares, notes = trace_legs(trace, prepared, [pair], len(self.legs))
        self.trace_sessions |= dict.fromkeys((leg.id for leg in legs), tunnels)
        for leg in legs:
            whose = session_traces.with_group(leg, shares[leg.id].downlink, tunnels, upf, prepared.settings)
            self.legs.append(replace(whose, engine=field_engine(leg.engine)))
        self.shares |= shares
        self.notes += [*prepared.notes, *notes]
        return prepared

    def _connection(self, index: int, connection: Connection) -> None:
        key = f"connections.{index}"
        pairs = self._pairs(connection.origin, connection.target, key)
        self.legs += connection_legs(connection, self.path, key, pairs, len(self.legs), self.scenario.seed)

    def finished(self) -> Plan:
        """The plan, with properties that depend on all flows."""
        named = (*self.scenario.streams, *self.scenario.sources, *self.scenario.traces)
        behind, stop_s = {one.name for one in named if one.background}, self.scenario.stop_after_s
        legs = [replace(leg, background=leg.stream in behind) for leg in self.legs]
        if stop_s is not None:
            legs = _cut(legs, stop_s, self.sequences, self.shares)
        if not legs:
            raise BadInput(self.path, "no packet is due before it", key="stop_after_s", value=stop_s)
        legs = gateways.with_gateways(legs, self.scenario, self.inventory, self.path, self.shares)
        check_numbers(legs)  # only flows that name xdp; `auto` is decided once the nodes report
        notes = tuple(self.notes)
        return Plan(
            tuple(legs), self.shares, notes, self.sequences, self.plays, self.upf, self.tunnels, self.trace_sessions
        )


def _cut(legs: list[Leg], stop_s: float, sequences: dict[int, Records], shares: dict[int, Share]) -> list[Leg]:
    """The flows up to the cut-off time; `sequences` are cut with them."""
    left = []
    for leg in legs:
        if leg.kind == "connections":
            left.append(cutoff.cut_connections(leg, stop_s))
        elif leg.kind == "trace":
            share = shares[leg.id]
            length = share.prepared.frame_bytes[share.rows]
            left.append(cutoff.cut_trace(leg, due_times(share, leg.timing.random), length, stop_s))
        elif leg.sequence_file is not None:
            shorter, sequences[leg.id] = cutoff.cut_sequence(leg, sequences[leg.id], stop_s)
            left.append(shorter)
        else:
            left.append(cutoff.cut_stream(leg, stop_s))
    kept = {leg.id for leg in left if leg.intended_packets != 0}
    return [leg for leg in left if (leg.id if leg.echo_of is None else leg.echo_of) in kept]
