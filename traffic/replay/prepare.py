"""The preparation of a trace without the hosts: users and servers, packets, due times and instances.

`rewrite_of` adds the addresses of the nodes when they are known.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Shift
from pktswarm.traffic.replay import choose, oversize, ports, stamps, timing
from pktswarm.traffic.replay.build import build
from pktswarm.traffic.replay.frames import STAMP_BYTES, Frames
from pktswarm.traffic.replay.oversize import Pieces
from pktswarm.traffic.replay.parse import Parsed, parse, reasons_of
from pktswarm.traffic.replay.rewrite import Rewrite, Tunnel
from pktswarm.traffic.replay.table import DOWN, UP, Pool, Rule, Table, check_pools, make_table

Integers = NDArray[np.int64]
Direction = Literal["all", "up", "down", "both"]
ETHERNET_BYTES = 14
LAST_TEID = 2**32 - 1


@dataclass(frozen=True)
class Instances:
    """`count` simultaneous instances of the trace. Steps are the offsets per instance; None: as many as it needs."""

    count: int = 1
    start: timing.Start = "together"
    users: int | None = None
    servers: int | None = None
    ports: int | None = None
    seed: int = 1
    offset_ns: int | None = None
    """start random: the longest offset; None: one mean gap."""


@dataclass(frozen=True)
class Gtpu:
    """The tunnel of the uplink. `source`, `target`: outer addresses; empty: those of the two nodes."""

    teid: int = 1
    sequence: bool = False
    qfi: int | None = None
    source: str = ""
    target: str = ""

    def tunnel(self, source: bytes = bytes(4), target: bytes = bytes(4)) -> Tunnel:
        return Tunnel(source, target, self.sequence, self.qfi)

    @property
    def downlink_bytes(self) -> int:
        """Maximum bytes that the UPF's tunnel adds to a downlink frame, with the optional PDU session container."""
        return replace(self, sequence=False, qfi=0).tunnel().overhead_bytes


@dataclass(frozen=True)
class Settings:
    """A scenario's settings of a trace, without the nodes. `where` and `key` name it in messages."""

    where: object = ""
    key: str = "trace"
    name: str = "trace"
    rule: Rule = field(default_factory=Rule)
    users: Pool | None = None
    servers: Pool | None = None
    direction: Direction = "all"
    filter: str = ""
    window: tuple[float, float | None] | None = None
    pace: timing.ReplayTiming = field(default_factory=timing.ReplayTiming)
    instances: Instances = Instances()
    gtpu: Gtpu | None = None
    tag: bytes | None = None
    headers_only: bool = False
    fill: bool = False
    """Zeros stand for what a snap length cut."""
    oversize: Literal["refuse", "cut", "skip"] = "refuse"
    mtu_bytes: int = 1500
    split: Literal["flow", "user"] = "flow"
    stamped: bool = False
    behind_upf: bool = False
    """Users' packets go through a UPF, in IPv4; the servers' node sends the downlink."""

    @property
    def plain(self) -> bool:
        """Whether all packets go from one node to the other under the nodes' own addresses."""
        return self.direction == "all" and not (self.users or self.servers or self.gtpu)


@dataclass(frozen=True)
class Prepared:
    """A trace in the order of sending."""

    settings: Settings
    parsed: Parsed
    """The capture, without packets that are not sent."""
    table: Table
    pieces: Pieces
    due: timing.Due
    flow: Integers
    sport: Integers
    """New ports of each channel."""
    dport: Integers
    steps: Shift
    """Offsets per instance."""
    stamp: Integers
    """Offset of each packet's stamp from its IP header; 0: none."""
    notes: list[str] = field(default_factory=list)

    @property
    def way(self) -> Integers:
        return self.table.direction[self.pieces.columns.pair]

    @property
    def frame_bytes(self) -> Integers:
        """Frame sizes as sent, without FCS."""
        return self.pieces.columns.length + added_bytes(self.pieces, self.table, self.settings)

    @functools.cached_property
    def has_ipv6(self) -> bool:
        return bool((self.pieces.columns.version == 6).any())

    @property
    def channel(self) -> Integers:
        return self.pieces.columns.channel

    @property
    def pools(self) -> list[tuple[str, Pool, int]]:
        """(name, pool, number of its addresses that all instances use)."""
        further, settings = self.settings.instances.count - 1, self.settings
        given = (
            ("users", settings.users, len(self.table.users) + self.steps.user * further),
            ("servers", settings.servers, len(self.table.servers) + self.steps.server * further),
        )
        return [(name, pool, need) for name, pool, need in given if pool is not None]

    def shift(self, instance: int) -> Shift:
        one = self.steps
        return Shift(one.user * instance, one.server * instance, one.port * instance, one.teid * instance)


def prepare(files: Path | Sequence[Path], settings: Settings) -> Prepared:
    """Prepares a trace. BadInput for one that cannot be replayed with these settings."""
    parsed = parse(files, settings.headers_only, settings.fill)
    total, where, key = parsed.total, settings.where, settings.key
    if settings.window:
        parsed = choose.within(parsed, *settings.window, where, f"{key}.window")
    if settings.filter:
        parsed = choose.filtered(parsed, settings.filter, where, f"{key}.filter")
    if settings.behind_upf:
        parsed = choose.kept(parsed, parsed.columns.version == 4, "of IPv6, and the sessions are of IPv4")
    table = make_table(parsed, settings.rule)
    table = _without_shared_ends(table, settings)
    parsed = choose.replayable(parsed, table)
    if settings.direction in ("up", "down"):
        other = {"up": "that go down", "down": "that go up"}[settings.direction]
        parsed = _rows(parsed, choose.one_way(parsed.columns, table, settings.direction), other)
    if not len(parsed.columns):
        raise BadInput(where, f"no packet of {parsed.path} is left", key=key, value=reasons_of(parsed.left_out))
    pieces, parsed = _fit(parsed, table, settings)
    if not len(pieces.columns):
        raise BadInput(where, f"no packet of {parsed.path} is left", key=key, value=reasons_of(parsed.left_out))
    lengths = pieces.columns.length + added_bytes(pieces, table, settings)
    due = timing.due(pieces.columns.time_ns, lengths, settings.pace)
    pieces = pieces.take(due.order)
    channels = _channels(parsed, table, settings)
    new = ports.keep_apart(channels, settings.plain)
    steps = _steps(table, settings, _user_ports(parsed, table, new))
    parsed = replace(parsed, columns=pieces.columns)
    flow = choose.flows(parsed)
    stamp = _stamps(parsed.path, pieces, settings, new.target, steps.port)
    notes = [*_notes(parsed, total, table, pieces, due, new), *_stamp_notes(stamp, settings)]
    return Prepared(settings, parsed, table, pieces, due, flow, new.source, new.target, steps, stamp, notes)


def _stamps(path: Path, pieces: Pieces, settings: Settings, dports: Integers, port_step: int) -> Integers:
    if not settings.stamped:
        return np.zeros(len(pieces.columns), np.int64)
    every = (dports[:, None] + port_step * np.arange(settings.instances.count)) % (1 << 16)
    stamp = stamps.room(pieces, every, settings.tag is not None, settings.headers_only)
    if not stamp.any():
        problem, allowed = (
            f"no packet of {path} has room for a stamp",
            f"{STAMP_BYTES} bytes of UDP, TCP or echo payload",
        )
        raise BadInput(settings.where, problem, key=f"{settings.key}.options.stamp", value=True, allowed=allowed)
    return stamp


def _stamp_notes(stamp: Integers, settings: Settings) -> list[str]:
    if not settings.stamped:
        return []
    without = int(np.count_nonzero(stamp == 0))
    stamped = f"{len(stamp) - without} of {len(stamp)} packets of a pass are stamped"
    return [
        f"{settings.name}: {stamped}"
        + (f", {without} have no room for a stamp and are counted separately" if without else "")
    ]


def _rows(parsed: Parsed, rows: NDArray[np.bool_], why: str) -> Parsed:
    """Keeps these rows without renumbering pairs, to which the table refers."""
    gone = int(np.count_nonzero(~rows))
    left_out = parsed.left_out.copy()
    if gone:
        left_out[why] += gone
    return replace(parsed, columns=parsed.columns.take(rows), left_out=left_out)


def _without_shared_ends(table: Table, settings: Settings) -> Table:
    """Excludes traffic between two users, or two servers, without a pool: both ends would have the address of the
    node."""
    if settings.plain or not table.same:
        return table
    excluded = dict(table.excluded)
    up = (table.direction == UP).tolist()
    for pair in table.same:
        role = "users" if up[pair] else "servers"
        if (settings.users if role == "users" else settings.servers) is None:
            excluded[pair] = f"between two {role}, which share one address without a pool"
    return replace(table, excluded=excluded)


def added_bytes(pieces: Pieces, table: Table, settings: Settings) -> Integers:
    """Bytes that tags and tunnel add to each frame."""
    columns = pieces.columns
    added = np.zeros(len(columns), np.int64)
    if settings.tag is not None:
        added += len(settings.tag) + ETHERNET_BYTES - columns.l3
    return added + _tunnel_bytes(columns.pair, table, settings)


def _tunnel_bytes(pair: Integers, table: Table, settings: Settings) -> Integers:
    if settings.gtpu is None:
        return np.zeros(len(pair), np.int64)
    return np.where(table.direction[pair] == UP, settings.gtpu.tunnel().overhead_bytes, 0)


def _fit(parsed: Parsed, table: Table, settings: Settings) -> tuple[Pieces, Parsed]:
    columns = parsed.columns
    if settings.oversize == "refuse":
        return oversize.whole(columns), parsed
    overhead = _tunnel_bytes(columns.pair, table, settings)
    if settings.behind_upf and settings.gtpu is not None:
        overhead = np.where(table.direction[columns.pair] == DOWN, settings.gtpu.downlink_bytes, overhead)
    room = oversize.longest(columns, settings.mtu_bytes, overhead)
    pieces = (oversize.cut if settings.oversize == "cut" else oversize.skip_long)(columns, room)
    left_out = parsed.left_out.copy()
    if pieces.too_long:
        why = "longer than the MTU" if settings.oversize == "skip" else "longer than the MTU, which cannot be cut"
        left_out[why] += pieces.too_long
    return pieces, replace(parsed, left_out=left_out)


# --- addresses and ports ---------------------------------------------------------------------------------------------


def ends(table: Table, parsed: Parsed, pair: int, settings: Settings) -> tuple[tuple[str, int], tuple[str, int]]:
    """The new ends of a pair: ("user", 3), ("server", 0), or the nodes: ("from", 0), ("to", 0)."""
    if settings.plain:
        return ("from", 0), ("to", 0)
    if pair in table.excluded:
        return ("from", 0), ("to", 0)

    def one(address: bytes) -> tuple[str, int]:
        role, number = table.roles[address]
        if (settings.users if role == "user" else settings.servers) is None:
            return ("from" if role == "user" else "to"), 0
        return role, number

    source, target = parsed.pairs[pair]
    return one(source), one(target)


def _channels(parsed: Parsed, table: Table, settings: Settings) -> list[ports.Channel]:
    found = []
    for pair, protocol, sport, dport in parsed.channels:
        source, target = parsed.pairs[pair]
        kind = len(source), protocol
        found.append(ports.Channel(kind, ((source, sport), (target, dport)), *ends(table, parsed, pair, settings)))
    return found


def _user_ports(parsed: Parsed, table: Table, new: ports.Ports) -> Integers:
    pairs = np.array([pair for pair, *_ in parsed.channels], np.int64)
    return np.where(table.direction[pairs] == UP, new.source, new.target)


def _steps(table: Table, settings: Settings, user_ports: Integers) -> Shift:
    """The offsets per instance: by default the number of users and servers that have a pool; ports if neither has
    one."""
    one, count = settings.instances, settings.instances.count
    users, servers = len(table.users), len(table.servers)
    user_step = (users if settings.users else 0) if one.users is None else one.users
    server_step = (servers if settings.servers else 0) if one.servers is None else one.servers
    need = {"users": users + user_step * (count - 1), "servers": servers + server_step * (count - 1)}
    check_pools(settings.where, settings.key, settings.users, settings.servers, need)
    teid_step = user_step if settings.gtpu else 0
    if settings.gtpu and settings.gtpu.teid + need["users"] - 1 > LAST_TEID:
        problem = f"{need['users']} users need as many TEIDs from this one on"
        raise BadInput(settings.where, problem, key=f"{settings.key}.gtpu.teid", value=settings.gtpu.teid)
    port_step = 0 if one.ports is None else one.ports
    if one.ports is None and count > 1 and not user_step and not server_step:
        found = ports.step(user_ports, count)
        if found is None:
            problem = f"{count} instances need more than 65,535 ports: give users or servers a pool"
            raise BadInput(settings.where, problem, key=f"{settings.key}.scale", value=count)
        port_step = found
    return Shift(user_step, server_step, port_step, teid_step)


# --- notes for the user ----------------------------------------------------------------------------------------------


def _notes(parsed: Parsed, total: int, table: Table, pieces: Pieces, due: timing.Due, new: ports.Ports) -> list[str]:
    notes = list(parsed.notes)
    if parsed.left_out:
        count = sum(parsed.left_out.values())
        notes.append(f"{parsed.path}: {count} of {total} packets are not replayed: {reasons_of(parsed.left_out)}")
    if pieces.cut:
        notes.append(f"{parsed.path}: {pieces.cut} packets, merged by the recording host, are cut into segments")
    if due.shortened:
        notes.append(f"{parsed.path}: {due.shortened} gaps are shortened")
    if new.moved_flows:
        notes.append(f"{parsed.path}: {new.moved_flows} flows have another port")
    return notes


# --- frames, when addresses are known --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Nodes:
    """The nodes of users and servers, with their addresses as bytes; IPv6 addresses are made from the IPv4 ones."""

    user_mac: bytes
    server_mac: bytes
    user_ipv4: bytes
    server_ipv4: bytes

    def address(self, end: str, version: int) -> bytes:
        address = self.user_ipv4 if end == "from" else self.server_ipv4
        return address if version == 4 else b"\xfd" + bytes(11) + address


def rewrite_of(prepared: Prepared, nodes: Nodes, downlink: bool) -> Rewrite:
    """`downlink`: the frames go from the server's node to the user's."""
    parsed, table, settings = prepared.parsed, prepared.table, prepared.settings
    pools = {"user": settings.users, "server": settings.servers}

    def address(end: tuple[str, int], version: int) -> bytes:
        pool = pools.get(end[0])
        return nodes.address(end[0], version) if pool is None else pool.address(end[1], version)

    sources, targets = [], []
    for pair, (old, _) in enumerate(parsed.pairs):
        version = 4 if len(old) == 4 else 6
        source, target = ends(table, parsed, pair, settings)
        sources.append(address(source, version))
        targets.append(address(target, version))
    macs = (nodes.user_mac, nodes.server_mac) if downlink else (nodes.server_mac, nodes.user_mac)
    gtpu = settings.gtpu
    return Rewrite(
        sources, targets, prepared.sport, prepared.dport, b"".join(macs), table.direction, table.ends, settings.tag,
        None if gtpu is None else _tunnel(gtpu, nodes), (gtpu.teid if gtpu else 0) + table.user, settings.headers_only,
    )  # fmt: skip


def _tunnel(gtpu: Gtpu, nodes: Nodes) -> Tunnel:
    def packed(given: str, own: bytes) -> bytes:
        return ipaddress.IPv4Address(given).packed if given else own

    return gtpu.tunnel(packed(gtpu.source, nodes.user_ipv4), packed(gtpu.target, nodes.server_ipv4))


def frames_of(prepared: Prepared, rows: Integers, nodes: Nodes, downlink: bool = False) -> Frames:
    """The frames of some rows, in the order of sending."""
    rewrite = rewrite_of(prepared, nodes, downlink)
    return build(prepared.pieces.take(rows), prepared.due.time_ns[rows], rewrite, prepared.stamp[rows])


def share_rows(prepared: Prepared, nodes: int) -> list[dict[str, Integers]]:
    """For each transmitter the rows of each direction: {"all": …}, {"up": …}, {"down": …} or both of these."""
    columns = prepared.pieces.columns
    group = prepared.flow if prepared.settings.split == "flow" else prepared.table.user[columns.pair]
    node = choose.shares(group, columns.length, nodes)
    way = prepared.way
    wanted: dict[str, dict[str, int | None]] = {
        "all": {"all": None},
        "up": {"up": UP},
        "down": {"down": DOWN},
        "both": {"up": UP, "down": DOWN},
    }
    found = []
    for number in range(nodes):
        mine = node == number
        parts = wanted[prepared.settings.direction].items()
        found.append({name: np.flatnonzero(mine if value is None else mine & (way == value)) for name, value in parts})
    return found


def check_lengths(prepared: Prepared, rows: Integers, mtu_bytes: int, interface: str) -> None:
    """BadInput for the first frame that `interface` cannot send; one VLAN tag does not count."""
    columns, tag = prepared.pieces.columns.take(rows), prepared.settings.tag
    tags = columns.l3 - ETHERNET_BYTES if tag is None else np.full(len(rows), len(tag))
    path = prepared.parsed.path
    oversize.refuse_long(path, prepared.frame_bytes[rows], tags, columns.number, mtu_bytes, interface)
