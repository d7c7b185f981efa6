"""Legs of a source: its packets are drawn at random, its users split among transmitters and counted individually."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from pktswarm.master.plan.pacing import own_seed
from pktswarm.master.scenario.addresses import PLACEHOLDERS, GivenHeader, fill
from pktswarm.master.scenario.connection import Connection
from pktswarm.master.scenario.source import Source
from pktswarm.traffic.connections.blocks import MOST_BLOCK_BYTES
from pktswarm.traffic.counting.users import notation
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.check import check_frame
from pktswarm.traffic.frames.description import FrameDescription, Headers, hex_bytes
from pktswarm.traffic.frames.headers import HEADERS
from pktswarm.traffic.frames.placement import least_size_bytes, varying
from pktswarm.traffic.frames.template import Template, VaryingField
from pktswarm.traffic.leg import FlowUsers, Leg, Timing
from pktswarm.traffic.random.rates import Rates
from pktswarm.traffic.schedule import sequence
from pktswarm.traffic.schedule.sequence import Records
from pktswarm.traffic.sources import Packets, parse_profile, parse_source, settle
from pktswarm.traffic.sources import Source as Application
from pktswarm.traffic.sources.base import BLOCK_USERS

FIRST_PORT = 10_000
"""First UDP source port of the users of a source without headers."""
MOST_PORTS = 2**16 - FIRST_PORT
ETHERNET_HEADER_BYTES = 14


@dataclass(frozen=True)
class Crowd:
    """All users of a source. `first`, `count`: a share of whole blocks of users."""

    application: Application
    users: int
    profile: Rates | None
    seed: int
    duration_s: float

    @classmethod
    def of(cls, source: Source, path: Path, key: str, seed: int) -> Crowd:
        """Users of a source. Raises BadInput for an unknown application, or users or a rate that it cannot have."""
        return cls.made(source, source.application, source.duration_s, path, key, seed)

    @classmethod
    def made(
        cls,
        given: Source | Connection,
        application: str | dict[str, object] | None,
        duration_s: float,
        path: Path,
        key: str,
        seed: int,
    ) -> Crowd:
        own = own_seed(seed if given.seed is None else given.seed, given.name)
        parsed = parse_source(path, f"{key}.source", application, folder=path.parent)
        settled, users = settle(path, key, parsed, given.users, given.mean_bps)
        profile = None
        if given.profile is not None:
            place, folder = f"{key}.profile", path.parent
            profile = parse_profile(
                path, place, given.profile, settled, duration_s, seed=own, stream=(1,), folder=folder
            )
        return cls(settled, users, profile, own, duration_s)

    def shares(self, nodes: int) -> list[tuple[int, int]]:
        """(first user, users) for each node, in whole blocks, so that a share does not depend on the other shares."""
        blocks = -(-self.users // BLOCK_USERS)
        edges = [min(self.users, (blocks * node + nodes - 1) // nodes * BLOCK_USERS) for node in range(nodes + 1)]
        return [(first, stop - first) for first, stop in pairwise(edges)]

    def packets(self, first: int, count: int) -> Packets:
        return self.application.generate(
            count, self.duration_s, self.seed, profile=self.profile, stream=(0,), first_user=first
        )


def source_legs(
    source: Source, path: Path, index: int, port: int, pairs: list[tuple[str, str]], first_id: int, seed: int
) -> tuple[list[Leg], dict[int, Records], list[str]]:
    """The legs, their records by leg id, and notes for the user. `port`: UDP port of the default headers."""
    key = f"sources.{index}"
    crowd = Crowd.of(source, path, key, seed)
    given: Sequence[GivenHeader] = source.headers or default_headers(crowd.users, port, path, key)
    headers = [{name: fields or {} for name, fields in header.items()} for header in given]
    template = _template(headers, path, key)
    field = _user_field(template, source, crowd.users, path, key)
    made: list[Leg] = []
    shipped: dict[int, Records] = {}
    idle: list[str] = []
    for (origin, target), (first, count) in zip(pairs, crowd.shares(len(pairs)), strict=True):
        records = _records(crowd, headers, first, count)
        if not records.size:
            idle.append(origin)
            continue
        own = headers if field is None else share_of(headers, template, field, first, count)
        leg = _leg(source, first_id + len(made), origin, target, own, field.name if field else "", records)
        leg = replace(leg, seed=crowd.seed + first)
        check_frame({"headers": fill(own, *PLACEHOLDERS), "payload": {}}, path, key, leg.size_bytes)
        made.append(leg)
        shipped[leg.id] = records
    if not made:
        raise _silent(path, key, crowd)
    return made, shipped, _notes(source, crowd, shipped, idle)


def _silent(path: Path, key: str, crowd: Crowd) -> BadInput:
    problem, allowed = "sends no packet within its duration with this seed", "longer, or more users"
    return BadInput(path, problem, key=f"{key}.duration_s", value=crowd.duration_s, allowed=allowed)


def _leg(source: Source, number: int, origin: str, target: str, headers: Headers, field: str, records: Records) -> Leg:
    sizes = sequence.sizes_bytes(records)
    return Leg(
        id=number,
        stream=source.name,
        source=origin,
        target=target,
        kind="stream",
        engine=source.engine,
        frame={"headers": headers, "payload": {}},
        size_bytes=sizes[-1][0],
        sizes=sizes if len(sizes) > 1 else [],
        sequence_file=f"leg-{number}.sequence",
        user_field=field,
        timing=Timing(lead_ns=int(records["due_ns"][0])),
        count_packets=len(records),
        intended_packets=len(records),
        duration_s=source.duration_s,
        expect=source.expect,
        users=FlowUsers(field) if field and source.count_users else None,
        options=source.options,
    )


def _notes(source: Source, crowd: Crowd, shipped: dict[int, Records], idle: list[str]) -> list[str]:
    packets = sum(len(records) for records in shipped.values())
    frame_bytes = sum(int(records["frame_bytes"].sum()) + 4 * len(records) for records in shipped.values())
    mean_bps = crowd.users * crowd.application.mean_bps
    summary = (
        f"{source.name}: {crowd.users:,} user{'s' * (crowd.users > 1)} of {crowd.application.name}, "
        f"{mean_bps / 1e6:,.4g} Mbit/s in theory; this draw has {packets:,} packets, "
        f"{8 * frame_bytes / crowd.duration_s / 1e6:,.4g} Mbit/s"
    )
    nobody = "no users, or none that sends within the duration"
    return [summary, *(f"{source.name}: {name} sends nothing: it has {nobody}" for name in idle)]


def connection_items(
    connection: Connection, number: int, path: Path, key: str, seed: int
) -> list[list[tuple[int, int]]]:
    """[(time_ns, bytes), …] that users write to each connection of pair `number`; users are assigned in turn."""
    crowd = Crowd.made(connection, connection.source, connection.duration_s or 0.0, path, key, seed)
    drawn = crowd.application.blocks(
        crowd.users, crowd.duration_s, crowd.seed, profile=crowd.profile, stream=(0, number)
    )
    if not len(drawn):
        raise _silent(path, key, crowd)
    if (largest := int(drawn.size_bytes.max())) > MOST_BLOCK_BYTES:
        allowed = f"up to {MOST_BLOCK_BYTES}: give sizes at_most"
        raise BadInput(path, "an item is too large for a block", key=f"{key}.source", value=largest, allowed=allowed)
    items: list[list[tuple[int, int]]] = [[] for _ in range(connection.connections)]
    for time_ns, size, user in zip(drawn.time_ns.tolist(), drawn.size_bytes.tolist(), drawn.user.tolist(), strict=True):
        items[user % connection.connections].append((time_ns, size))
    return items


# --- sizes ---------------------------------------------------------------------------------------------------------


def _records(crowd: Crowd, headers: Headers, first: int, count: int) -> Records:
    """Frame sizes: the source draws sizes of users' packets; encapsulation is added, and headers are the minimum."""
    if not count:
        return sequence.make([], [], [])
    drawn = crowd.packets(first, count)
    filled = fill(headers, *PLACEHOLDERS)
    sizes = (drawn.size_bytes + encapsulation_bytes(filled)).clip(least_size_bytes(filled))
    return sequence.make(drawn.time_ns, drawn.user - first, sizes)


def encapsulation_bytes(headers: Headers) -> int:
    """Bytes between Ethernet and the innermost IP header: tags, tunnels."""
    ip = [number for number, header in enumerate(headers) if "ipv4" in header or "ipv6" in header]
    return _held(headers[: ip[-1]]) - ETHERNET_HEADER_BYTES if ip else 0


def _held(headers: Headers) -> int:
    names = [(name, given) for header in headers for name, given in header.items()]
    return sum(len(hex_bytes(given)) if name == "raw" else HEADERS[name].size_bytes for name, given in names)


# --- users ---------------------------------------------------------------------------------------------------------


def default_headers(users: int, port: int, path: Path, key: str) -> list[dict[str, dict[str, object]]]:
    """Ethernet, IPv4 and UDP between the two nodes, each user with a source port."""
    if users > MOST_PORTS:
        problem, allowed = "too many users for one port each", f"up to {MOST_PORTS}, or headers with another counter"
        raise BadInput(path, problem, key=f"{key}.users", value=users, allowed=allowed)
    ports = {"increment": [FIRST_PORT, FIRST_PORT + users - 1]}
    return [{"ethernet": {}}, {"ipv4": {}}, {"udp": {"src": ports, "dst": port}}]


def _template(headers: Headers, path: Path, key: str) -> Template:
    frame: FrameDescription = {"headers": fill(headers, *PLACEHOLDERS), "payload": {}}
    check_frame(frame, path, key)
    for index, header, name, value in varying(frame["headers"]):
        if odd := {"every", "wrap"} & set(value):
            place = f"{key}.headers.{index}.{header}.{name}.{min(odd)}"
            raise BadInput(
                path, "a source sets the user of each frame", key=place, value=value[min(odd)], allowed="leave it out"
            )
    return build_frame(frame, least_size_bytes(frame["headers"]))


def _user_field(template: Template, source: Source, users: int, path: Path, key: str) -> VaryingField | None:
    """The field that identifies the user of a frame: the named one, else the first with enough values."""
    counters = [one for one in template.fields if one.link is None and not one.drawn and not one.places]
    enough = [one for one in counters if one.values >= users]
    named = [one for one in enough if one.name == source.user_field] if source.user_field else enough
    if named:
        return named[0]
    if users == 1 and not source.user_field:
        return None
    allowed = ", ".join(one.name for one in enough) or "a counter in the headers, {increment: [first, last]}"
    problem = f"no counter with a value for each of {users} users"
    raise BadInput(path, problem, key=f"{key}.user_field", value=source.user_field or None, allowed=allowed)


def share_of(headers: Headers, template: Template, field: VaryingField, first: int, count: int) -> Headers:
    """The headers with the users' field, and fields linked with it, restricted to the values of a share of users."""
    filled = fill(headers, *PLACEHOLDERS)
    number = template.fields.index(field)
    moved = [_root(template, one) == number for one in range(len(template.fields))]
    own = [{name: dict(given) for name, given in header.items()} for header in headers]
    places = zip(template.fields, varying(filled), moved, strict=True)
    for one, (index, header, name, value) in ((one, place) for one, place, moves in places if moves):
        own[index][header][name] = _cut(one, f"{header}.{name}", value, first, count)
    return own


def _root(template: Template, number: int) -> int:
    link = template.fields[number].link
    return number if link is None else _root(template, link)


def _cut(one: VaryingField, name: str, value: Mapping[str, Any], first: int, count: int) -> dict[str, object]:
    beside = {"with": value["with"]} if "with" in value else {}
    if one.listed:
        return {"list": value["list"][first : first + count], **beside}
    ends = [notation(name, one.whole(position)) for position in (first, first + count - 1)]
    step = {"step": one.step << one.below_bits} if count > 1 else {}
    return {one.mode: [int(end) if end.isdigit() else end for end in ends], **step, **beside}
