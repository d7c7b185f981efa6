"""The flows of section `streams`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.plan import session_nodes
from pktswarm.master.plan import session_streams as tunnelling
from pktswarm.master.plan.pacing import StreamPacing
from pktswarm.master.plan.session_headers import Tunnels
from pktswarm.master.scenario.addresses import GivenHeader
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.stream import Stream
from pktswarm.master.scenario.upf import Upf
from pktswarm.master.scenario.upf_shape import Shape
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.frames.description import FrameDescription
from pktswarm.traffic.leg import FlowUsers, Leg, Oversize
from pktswarm.traffic.schedule.fragments import IDS

FIRST_UDP_PORT = 5001


def split(total: int, weights: list[int]) -> list[int]:
    """Split `total` into whole numbers by weight; the remainder goes to the largest fractions."""
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    by_rest = sorted(range(len(weights)), key=lambda index: -(total * weights[index] % whole))
    for index in by_rest[: total - sum(parts)]:
        parts[index] += 1
    return parts


def stream_legs(
    stream: Stream,
    index: int,
    pairs: list[tuple[str, str]],
    first_id: int,
    pace: StreamPacing,
    weights: list[int] | None = None,
) -> list[Leg]:
    """Legs of a stream. `weights`: share of each pair in rate and count; left out: equal shares."""
    weights = weights or [1] * len(pairs)
    whole = 0 if stream.per == "node" else sum(weights)
    sizes = stream.sizes()
    total = pace.packets(stream.count_packets, stream.duration_s)
    counts: list[int | None] = [total] * len(pairs)
    if whole and total is not None:
        counts = [*split(total, weights)]
    given: Sequence[GivenHeader] = stream.headers or default_headers(index)
    headers = [{name: fields or {} for name, fields in header.items()} for header in given]
    frame = FrameDescription(headers=headers, payload=stream.payload)
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
            held=stream.held,
            expect=stream.expect,
            users=FlowUsers(stream.users) if stream.users else None,
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


def oversize_of(scenario: Scenario, stream: Stream) -> Oversize | None:
    """Leg.oversize. Streams use disjoint IP identifications, so that their fragments cannot be mixed in reassembly."""
    if stream.oversize == "refuse":
        return None
    names = [one.name for one in scenario.streams if one.oversize != "refuse"]
    share = IDS // len(names)
    first = names.index(stream.name) * share
    return Oversize(stream.oversize, stream.mtu_bytes, (first, first + share - 1))


def session_legs(
    stream: Stream, index: int, path: Path, upf: Upf, inventory: Inventory, first_id: int, pace: StreamPacing
) -> tuple[list[Leg], dict[int, Tunnels]]:
    """A leg for each gNB with users of the group, and one for its echoes; frames contain placeholders until the
    sessions are established."""
    pairs, gnbs = session_nodes.pairs(path, index, stream, upf, inventory)
    tunnelling.check_cut(path, f"streams.{index}", stream, upf, gnbs.values())
    way, name, sessions = stream.direction or "up", stream.sessions or "", Sessions(upf)
    users = [tunnelling.users_at(sessions, name, gnbs[pair[way == "down"]]) for pair in pairs]
    legs = stream_legs(stream, index, pairs, first_id, pace, users)
    ip = stream.ip or ("ipv4" if upf.group(name).families()[0] else "ipv6")
    ends = {leg.id: leg.source if way == "up" else leg.target for leg in legs}
    port = FIRST_UDP_PORT + index
    among = session_nodes.moved_among(path, f"streams.{index}", upf, stream, inventory)
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


def default_headers(index: int) -> list[dict[str, dict[str, object]]]:
    """Ethernet, IPv4 and UDP between the two nodes; the UDP port distinguishes streams."""
    return [{"ethernet": {}}, {"ipv4": {}}, {"udp": {"src": FIRST_UDP_PORT + index, "dst": FIRST_UDP_PORT + index}}]
