"""Who sends what to whom: from a scenario and an inventory to legs, before any host is touched."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.plan import capacity_limits as capacities
from pktswarm.master.plan import cutoff, interactive, session_traces
from pktswarm.master.plan import session_streams as tunnelling
from pktswarm.master.plan.capacity import Capacity
from pktswarm.master.plan.capacity_weights import weights as spread_weights
from pktswarm.master.plan.pacing import StreamPacing
from pktswarm.master.plan.session_streams import Tunnels
from pktswarm.master.plan.shares import Share
from pktswarm.master.plan.sources import connection_items, source_legs
from pktswarm.master.scenario.connection import Connection
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.stream import Stream
from pktswarm.master.scenario.trace import Trace
from pktswarm.master.scenario.upf import Upf, filled_in
from pktswarm.master.scenario.upf_shape import Shape
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.replay import timing
from pktswarm.traffic.replay.prepare import Prepared, Settings, prepare, share_rows
from pktswarm.traffic.replay.shift import Shift
from pktswarm.traffic.replay.table import Pool
from pktswarm.traffic.schedule.capabilities import check_numbers
from pktswarm.traffic.schedule.fragments import IDS
from pktswarm.traffic.schedule.sequence import Records

FIRST_UDP_PORT = 5001
MARGIN_S = 20.0
"""How much longer than planned an engine may take before its guard ends it."""
SLOWEST_BPS = 1e6
"""Assumed of connections that send so many blocks as fast as they can, and to drain what is queued in one."""
SLOWEST_PPS = 1000.0
"""Assumed of an engine told to send as fast as it can, only to bound its time."""


@dataclass(frozen=True)
class Plan:
    """`legs` still have "auto" in their frames: addresses are known when the nodes have answered.

    `shares`: leg id → what of a trace the leg's transmitter sends; instances have the share of their first one.
    """

    legs: tuple[Leg, ...]
    shares: dict[int, Share]
    notes: tuple[str, ...]
    sequences: dict[int, Records] = field(default_factory=dict)
    """Leg id → what a source sends there."""
    plays: dict[int, interactive.Play] = field(default_factory=dict)
    """Leg id → what of an interactive trace its two nodes play; of the leg that begins the flows."""
    upf: Upf | None = None
    """The scenario's, with what the inventory knows of it."""
    tunnels: dict[int, Tunnels] = field(default_factory=dict)
    """Leg id → the users of a stream of sessions."""
    trace_sessions: dict[int, Tunnels] = field(default_factory=dict)
    """Leg id → those of a trace of sessions."""
    patience: float = 1.0
    """Multiplies what is allowed beyond the sending itself."""
    limits: tuple[capacities.LegLimit, ...] = ()
    """What its nodes were seen to do, as far as that is known."""
    warnings: tuple[str, ...] = ()
    """What the cluster cannot do of it."""

    @property
    def expected_s(self) -> float:
        """How long the sending takes at the intended rates."""
        return max(_seconds(leg, self.shares.get(leg.id)) for leg in self.legs)

    @property
    def limit_s(self) -> float:
        """When every engine must have ended, from its start."""
        if any(leg.engine == interactive.ENGINE for leg in self.legs):
            return interactive.limit_s(self.expected_s)
        return self.expected_s * 1.2 + MARGIN_S * max(1.0, self.patience)


def plan(scenario: Scenario, scenario_path: Path, inventory: Inventory, capacity: Capacity | None = None) -> Plan:
    """The legs of every stream, source, trace and connection. BadInput for a group or host that is not there.

    `capacity`: what the nodes were seen to do; streams are then spread so that each stays inside it.
    """
    made = _drafted(_Draft(scenario, scenario_path, inventory))
    if capacity is None:
        return made
    if weights := spread_weights(scenario, _asked(made), capacity):
        made = _drafted(_Draft(scenario, scenario_path, inventory, weights))
    limits = limits_of(made, scenario, capacity)
    told = capacities.warnings(capacities.loads_of(limits))
    return replace(made, limits=tuple(limits), warnings=tuple(told))


def limits_of(made: Plan, scenario: Scenario, capacity: Capacity) -> list[capacities.LegLimit]:
    return capacities.limits_of(_asked(made), scenario.receive, capacity)


def _asked(made: Plan) -> list[capacities.Planned]:
    return capacities.planned(made.legs, made.shares, made.sequences)


def _drafted(draft: _Draft) -> Plan:
    draft.streams()
    draft.sources()
    draft.traces()
    draft.connections()
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
        """`weights`: of streams that are not shared evenly: what each transmitter sends."""
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

    def _pairs(self, origin: str, target: str, key: str) -> list[tuple[str, str]]:
        return _pairs_of(origin, target, key, self.path, self.inventory)

    def streams(self) -> None:
        for index, stream in enumerate(self.scenario.streams):
            pace = StreamPacing.of(
                stream, self.path, f"streams.{index}", self.scenario.seed, self.scenario.stop_after_s
            )
            if stream.sessions is not None and self.upf is not None:
                first_id = len(self.legs)
                legs, users = _session_legs(stream, index, self.path, self.upf, self.inventory, first_id, pace)
                oversize = _oversize(self.scenario, stream)
                self.legs += [replace(leg, oversize=oversize) for leg in legs]
                self.tunnels |= users
                self.notes += tunnelling.notes(stream, self.upf)
            else:
                pairs = self._pairs(stream.source, stream.target, f"streams.{index}")
                given = self.weights.get(index)
                weights = None if given is None else [given.get(source, 0) for source, _ in pairs]
                self.legs += _stream_legs(stream, index, pairs, len(self.legs), pace, weights)

    def sources(self) -> None:
        first_port = FIRST_UDP_PORT + len(self.scenario.streams)
        for index, source in enumerate(self.scenario.sources):
            pairs = self._pairs(source.source, source.target, f"sources.{index}")
            port, first_id = first_port + index, len(self.legs)
            legs, records, told = source_legs(source, self.path, index, port, pairs, first_id, self.scenario.seed)
            self.legs += legs
            self.sequences |= records
            self.notes += told

    def traces(self) -> None:
        read: list[Prepared] = []
        for index, trace in enumerate(self.scenario.traces):
            if trace.sessions is not None and self.upf is not None:
                read.append(self._trace_of_sessions(index, trace, self.upf))
                continue
            pairs = self._pairs(trace.source, trace.target, f"traces.{index}")
            if trace.interactive:
                legs, plays, told = interactive.legs_of(trace, pairs, len(self.legs))
                self.plays |= plays
            else:
                prepared = prepare(trace.file, trace.settings(self.path, f"traces.{index}"))
                read.append(prepared)
                self.notes += prepared.notes
                legs, shares, told = _trace_legs(trace, prepared, pairs, len(self.legs))
                if trace.direction == "both":
                    _check_both_roles(pairs, f"traces.{index}.direction", self.path, self.inventory)
                self.shares |= shares
            self.legs += legs
            self.notes += told
        _check_pools_apart(read)

    def _trace_of_sessions(self, index: int, trace: Trace, upf: Upf) -> Prepared:
        pair, tunnels = session_traces.trace_sessions(self.path, index, trace, upf, self.inventory)
        plain = trace.settings(self.path, tunnels.key)
        prepared = prepare(trace.file, session_traces.settings(plain, tunnels, upf, Sessions(upf)))
        session_traces.check_room(prepared, tunnels, upf)
        legs, shares, told = _trace_legs(trace, prepared, [pair], len(self.legs))
        self.trace_sessions |= dict.fromkeys((leg.id for leg in legs), tunnels)
        for leg in legs:
            whose = session_traces.with_group(leg, shares[leg.id].downlink, tunnels, upf, prepared.settings)
            self.legs.append(replace(whose, engine="xdp"))
        self.shares |= shares
        self.notes += [*prepared.notes, *told]
        return prepared

    def connections(self) -> None:
        for index, connection in enumerate(self.scenario.connections):
            key = f"connections.{index}"
            pairs = self._pairs(connection.origin, connection.target, key)
            self.legs += _connection_legs(connection, self.path, key, pairs, len(self.legs), self.scenario.seed)

    def finished(self) -> Plan:
        """With what is known only once all legs are there."""
        named = (*self.scenario.streams, *self.scenario.sources, *self.scenario.traces)
        behind, stop_s = {one.name for one in named if one.background}, self.scenario.stop_after_s
        legs = [replace(leg, background=leg.stream in behind) for leg in self.legs]
        if stop_s is not None:
            legs = _cut(legs, stop_s, self.sequences, self.shares)
        if not legs:
            raise BadInput(self.path, "nothing is sent until then", key="stop_after_s", value=stop_s)
        check_numbers(legs)  # those that name xdp; for `auto` it is known once the nodes have answered
        notes = tuple(self.notes)
        return Plan(
            tuple(legs), self.shares, notes, self.sequences, self.plays, self.upf, self.tunnels, self.trace_sessions
        )


def _cut(legs: list[Leg], stop_s: float, sequences: dict[int, Records], shares: dict[int, Share]) -> list[Leg]:
    """What is left of the legs at the cut-off time; `sequences` are cut with them."""
    left = []
    for leg in legs:
        if leg.kind == "connections":
            left.append(cutoff.cut_connections(leg, stop_s))
        elif leg.kind == "trace":
            share = shares[leg.id]
            length = share.prepared.frame_bytes[share.rows]
            left.append(cutoff.cut_trace(leg, _times(share, leg.timing.get("random")), length, stop_s))
        elif leg.sequence_file is not None:
            shorter, sequences[leg.id] = cutoff.cut_sequence(leg, sequences[leg.id], stop_s)
            left.append(shorter)
        else:
            left.append(cutoff.cut_stream(leg, stop_s))
    kept = {leg.id for leg in left if leg.intended_packets != 0}
    return [leg for leg in left if (leg.id if leg.echo_of is None else leg.echo_of) in kept]


def _pairs_of(origin: str, target: str, key: str, path: Path, inventory: Inventory) -> list[tuple[str, str]]:
    """Each transmitter with its receiver: the first with the first, and around when there are fewer receivers."""
    sources = _members(origin, "transmit", f"{key}.from", path, inventory)
    targets = _members(target, "receive", f"{key}.to", path, inventory)
    pairs = []
    for index, source in enumerate(sources):
        others = [target for target in targets if target != source]
        if not others:
            raise BadInput(path, "a host cannot send to itself", key=f"{key}.to", value=source)
        pairs.append((source, others[index % len(others)]))
    return pairs


def _members(group: str, role: Any, key: str, path: Path, inventory: Inventory) -> list[str]:
    names = [host.name for host in inventory.with_role(role)]
    if group == role:
        return names
    if group in names:
        return [group]
    raise BadInput(
        path, f"no such {role} host in {inventory.path}", key=key, value=group, allowed=", ".join([role, *names])
    )


def _split(total: int, weights: list[int]) -> list[int]:
    """`total` in whole numbers by these weights, each less than one off; what is left goes to those that miss most."""
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    by_rest = sorted(range(len(weights)), key=lambda index: -(total * weights[index] % whole))
    for index in by_rest[: total - sum(parts)]:
        parts[index] += 1
    return parts


def _stream_legs(
    stream: Stream,
    index: int,
    pairs: list[tuple[str, str]],
    first_id: int,
    pace: StreamPacing,
    weights: list[int] | None = None,
) -> list[Leg]:
    """`weights`: of the pairs, in the stream's rate and count; left out, all are alike."""
    weights = weights or [1] * len(pairs)
    whole = 0 if stream.per == "node" else sum(weights)
    sizes = stream.sizes()
    total = pace.packets(stream.count_packets, stream.duration_s)
    counts: list[int | None] = [total] * len(pairs)
    if whole and total is not None:
        counts = [*_split(total, weights)]
    frame = {"headers": stream.headers or default_headers(index), "payload": stream.payload}
    made = [
        Leg(
            id=first_id + number,
            stream=stream.name,
            source=source,
            target=target,
            kind="stream",
            engine=stream.engine,
            frame=frame,
            size_bytes=sizes.largest,
            sizes=[list(pair) for pair in sizes.pairs] if len(sizes.pairs) > 1 else [],
            sizes_in_turn=sizes.in_turn and len(sizes.pairs) > 1,
            seed=pace.seed_of(number),
            count_packets=count,
            duration_s=stream.duration_s,
            expect=stream.expect,
            users={"field": stream.users} if stream.users else {},
            options=stream.options | ({"burst": stream.burst} if stream.burst > 1 else {}),
        )
        for number, ((source, target), count) in enumerate(zip(pairs, counts, strict=True))
    ]
    paced = [
        pace.give(leg, weight, whole or weight)
        for leg, weight in zip(made, weights, strict=True)
        if leg.count_packets is None or leg.count_packets > 0
    ]
    kept = [leg for leg in paced if leg.intended_packets is None or leg.intended_packets > 0]
    return [replace(leg, id=first_id + number) for number, leg in enumerate(kept)]


def _oversize(scenario: Scenario, stream: Stream) -> dict[str, Any]:
    """Leg.oversize. Streams share the identifications of fragments, or one's could be put together with another's."""
    if stream.oversize == "refuse":
        return {}
    names = [one.name for one in scenario.streams if one.oversize != "refuse"]
    share = IDS // len(names)
    first = names.index(stream.name) * share
    return {"by": stream.oversize, "mtu_bytes": stream.mtu_bytes, "ids": [first, first + share - 1]}


def _session_legs(
    stream: Stream, index: int, path: Path, upf: Upf, inventory: Inventory, first_id: int, pace: StreamPacing
) -> tuple[list[Leg], dict[int, Tunnels]]:
    """A leg for each gNB that has users of the group, and one for what comes back there; frames are provisional until
    the sessions stand."""
    pairs, gnbs = tunnelling.pairs(path, index, stream, upf, inventory)
    tunnelling.check_cut(path, f"streams.{index}", stream, upf, gnbs.values())
    way, name, sessions = stream.direction or "up", stream.sessions or "", Sessions(upf)
    users = [tunnelling.users_at(sessions, name, gnbs[pair[way == "down"]]) for pair in pairs]
    legs = _stream_legs(stream, index, pairs, first_id, pace, users)
    ip = stream.ip or ("ipv4" if upf.group(name).families()[0] else "ipv6")
    ends = {leg.id: leg.source if way == "up" else leg.target for leg in legs}
    port = FIRST_UDP_PORT + index
    among = tunnelling.moved_among(path, f"streams.{index}", upf, stream, inventory)
    shape = replace(stream.shape, flows=upf.group(name).flows_per_user)
    if upf.servers is not None:
        upf.servers.check(path, inventory, upf.addresses())

    def shaped(leg: Leg) -> Shape:
        core = leg.target if way == "up" else leg.source
        return shape if upf.servers is None else replace(shape, servers=upf.servers.of(core, ip, inventory))

    tunnels = {
        leg.id: Tunnels(path, f"streams.{index}", name, gnbs[ends[leg.id]], way, port, ip, shaped(leg), among)
        for leg in legs
    }
    legs = [replace(leg, handover_targets=[host for host in among if host != leg.target]) for leg in legs]
    made = [tunnelling.in_tunnels(leg, tunnels[leg.id], upf, sessions) for leg in legs]
    if stream.echo:
        for leg in list(made):
            back = tunnelling.echo_of(leg, stream, first_id + len(made))
            tunnels[back.id] = replace(tunnels[leg.id], direction="down")
            made.append(tunnelling.in_tunnels(back, tunnels[back.id], upf, sessions))
    return made, tunnels


def default_headers(index: int) -> list[dict[str, Any]]:
    """Ethernet, IPv4 and UDP between the two nodes; the port tells the streams apart."""
    return [{"ethernet": {}}, {"ipv4": {}}, {"udp": {"src": FIRST_UDP_PORT + index, "dst": FIRST_UDP_PORT + index}}]


def _trace_legs(
    trace: Trace, prepared: Prepared, pairs: list[tuple[str, str]], first_id: int
) -> tuple[list[Leg], dict[int, Share], list[str]]:
    legs: list[Leg] = []
    shares: dict[int, Share] = {}
    notes: list[str] = []
    for (source, target), directions in zip(pairs, share_rows(prepared, len(pairs)), strict=True):
        if not any(len(rows) for rows in directions.values()):
            group = "users" if prepared.settings.split == "user" else "flows"
            notes.append(f"{trace.name}: {source} sends nothing, the trace has fewer {group} than transmitters")
        for direction, rows in directions.items():
            if not len(rows):
                continue
            # In one direction alone both go from `from` to `to`; only with both does the downlink go the other way.
            both = prepared.settings.direction == "both" or prepared.settings.behind_upf
            downlink = direction == "down" and both
            share = Share(prepared, rows, downlink)
            ends = (target, source) if downlink else (source, target)
            made = _instances(trace, share, ends, first_id + len(legs))
            legs += made
            shares |= {leg.id: share for leg in made}
    return legs, shares, notes


def _instances(trace: Trace, share: Share, ends: tuple[str, str], first_id: int) -> list[Leg]:
    """A leg for each instance; all are counted with the first, whose file they share."""
    prepared = share.prepared
    packets = len(share.rows) * trace.repeat
    size_bytes = int(prepared.frame_bytes[share.rows].max()) + FCS_BYTES
    return [
        Leg(
            id=first_id + number,
            stream=trace.name,
            source=ends[0],
            target=ends[1],
            kind="trace",
            engine=trace.engine,
            repeat=trace.repeat,
            size_bytes=size_bytes,
            count_packets=packets,
            intended_packets=packets,
            timing=_timing(share, number),
            shift=_shift(prepared.shift(number)),
            pools=_pools(prepared),
            stamped_packets=_stamped(trace, share),
            merged_into=first_id if number else None,
            users={} if number else share.users(),
            options=trace.options,
        )
        for number in range(prepared.settings.instances.count)
    ]


def _stamped(trace: Trace, share: Share) -> int | None:
    if not trace.stamped:
        return None
    instances = share.prepared.settings.instances.count
    return int(np.count_nonzero(share.prepared.stamp[share.rows])) * trace.repeat * instances


def _shift(shift: Shift) -> dict[str, int]:
    return {name: value for name, value in asdict(shift).items() if value}


def _pools(prepared: Prepared) -> dict[str, Any]:
    settings, table = prepared.settings, prepared.table
    given = (("users", settings.users, table.users), ("servers", settings.servers, table.servers))
    return {name: pool.to_json(len(used)) for name, pool, used in given if pool is not None}


def _timing(share: Share, instance: int) -> dict[str, Any]:
    """A node's share of the pace: a rate is the whole trace's, so each node takes its part of it.

    At the trace's own timing, `lead_ns` is when the share's first packet is due after the common start, `period_ns`
    from one pass of the whole trace to the next; both in time as replayed.
    """
    due, settings = share.prepared.due, share.prepared.settings
    if due.mode == "top":
        return {"mode": "top", "value": 1.0, "lead_ns": 0}
    if due.mode in ("pps", "bps"):
        whole = share.prepared.frame_bytes
        part = len(share.rows) / len(whole) if due.mode == "pps" else share.frame_bytes / int(whole.sum())
        return {"mode": due.mode, "value": due.value * part, "lead_ns": 0}
    times, extra = due.time_ns[share.rows], {}
    instances = settings.instances
    if instances.start == "random" and instance:
        width = instances.offset_ns or timing.mean_gap_ns(due.time_ns)
        extra = {"random": {"instance": instance, "width_ns": width, "seed": instances.seed}}
        times = _times(share, extra["random"])
    lead = round(int(times[0]) / due.value)
    lead += timing.lead_ns(instance, instances.count, due.period_ns, instances.start)
    return {"mode": due.mode, "value": due.value, "lead_ns": lead, "period_ns": due.period_ns, **extra}


def _times(share: Share, random: dict[str, int] | None) -> NDArray[np.int64]:
    """When an instance's packets are due, in the order of sending, still at the trace's own speed."""
    times = share.prepared.due.time_ns[share.rows]
    if random is None:
        return times
    channel = share.prepared.channel[share.rows]
    return timing.random_times(times, channel, random["instance"], random["width_ns"], random["seed"])[1]


def _connection_legs(
    connection: Connection, path: Path, key: str, pairs: list[tuple[str, str]], first_id: int, seed: int
) -> list[Leg]:
    """Every pair has the connections and the blocks that the scenario names: they are no shares."""
    names = "protocol connections direction block_bytes blocks pace_bps congestion nodelay send_buffer_bytes background"
    shape = {name: getattr(connection, name) for name in names.split()}
    shape["period_ns"] = None if connection.period_s is None else round(connection.period_s * 1e9)
    shape["duration_ns"] = None if connection.duration_s is None else round(connection.duration_s * 1e9)
    made = []
    for number, (source, target) in enumerate(pairs):
        leg = Leg(first_id + number, connection.name, source, target, "connections", "socket", connection=dict(shape))
        if connection.source is not None:
            leg.connection["items"] = connection_items(connection, number, path, key, seed)
        made.append(leg)
    return made


def _check_both_roles(pairs: list[tuple[str, str]], key: str, path: Path, inventory: Inventory) -> None:
    """Downlink packets go from `to` to `from`."""
    for names, role in (({source for source, _ in pairs}, "receive"), ({target for _, target in pairs}, "transmit")):
        having = {host.name for host in inventory.hosts if role in host.roles}
        if lacking := sorted(names - having):
            problem = f"{lacking[0]} has no role {role!r}, which the other direction needs"
            allowed = "hosts in both groups of the inventory (in the lab: pktswarm lab up --both-roles)"
            raise BadInput(path, problem, key=key, value="both", allowed=allowed)


def _check_pools_apart(traces: list[Prepared]) -> None:
    """No address stands for two things: for users of two traces, or for a trace's users and another's servers."""
    taken: list[tuple[Settings, str, Pool, int]] = []
    for one in traces:
        for name, pool, need in one.pools:
            for settings, other, theirs, count in taken:
                if settings is not one.settings and pool.overlaps(need, theirs, count):
                    problem = f"overlaps {settings.key}.{other}, {count} addresses from {theirs.name}"
                    raise BadInput(settings.where, problem, key=f"{one.settings.key}.{name}.first", value=pool.name)
            taken.append((one.settings, name, pool, need))


def _seconds(leg: Leg, share: Share | None) -> float:
    """How long a leg takes at its intended rate."""
    if leg.kind == "connections":
        return _connection_seconds(leg.connection)
    if leg.engine == interactive.ENGINE:
        return float(leg.timing["period_ns"]) / 1e9
    return min(_whole_seconds(leg, share), leg.duration_s or math.inf)


def _whole_seconds(leg: Leg, share: Share | None) -> float:
    if share is not None:
        span = leg.timing.get("period_ns", 0) / 1e9
        mode, value = leg.timing["mode"], float(leg.timing["value"])
        if mode == "pps":
            return len(share.rows) * leg.repeat / value
        if mode == "bps":
            return 8 * share.frame_bytes * leg.repeat / value
        if not span:
            return len(share.rows) * leg.repeat / SLOWEST_PPS
        # An instance that starts later ends later.
        return float(leg.repeat * span + leg.timing["lead_ns"] / 1e9)
    if leg.rate_pps and leg.count_packets:
        return leg.count_packets / leg.rate_pps
    return leg.duration_s if leg.duration_s else (leg.count_packets or 0) / SLOWEST_PPS


def _connection_seconds(connection: dict[str, Any]) -> float:
    if connection["duration_ns"] is not None:
        return float(connection["duration_ns"]) / 1e9
    blocks = int(connection["blocks"])
    at_rate = 8 * blocks * connection["block_bytes"] / (connection["pace_bps"] or SLOWEST_BPS)
    if connection["period_ns"]:
        by_period = float(blocks * connection["period_ns"] / 1e9)
        return max(by_period, at_rate) if connection["pace_bps"] else by_period
    return float(at_rate)
