"""Flows of traces with the files of frames that their transmitters replay."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.plan import interactive, session_traces
from pktswarm.master.plan.plan import Plan
from pktswarm.master.plan.resolved import Resolved, choose_engine, play
from pktswarm.master.plan.routed import far_end
from pktswarm.master.plan.shares import Share
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.capture.files import write_pcap
from pktswarm.traffic.counting.match import Tag
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.interactive.prepare import Endpoint
from pktswarm.traffic.leg import AddressPool, Leg
from pktswarm.traffic.replay import files, stamps
from pktswarm.traffic.replay.ends import ends_of
from pktswarm.traffic.replay.prepare import Nodes, check_lengths, frames_of
from pktswarm.traffic.replay.tags import outer_tags

MOST_TAGS = 16
"""In a capture of one trace; None for packets without a tag is one of them."""


def check_trace_mtu(leg: Leg, share: Share, reports: dict[str, dict[str, Any]]) -> None:
    # A UPF encapsulates downlink packets; its MTU is assumed equal to that of the node on the same side.
    added = session_traces.added_bytes(share.prepared, share.downlink)
    for name, more in ((leg.source, 0), (leg.target, added)):
        interface = reports[name]["interface"]
        where = f"{name} {interface['name']}" + (f" less {more} bytes of its tunnel" if more > 0 else "")
        check_lengths(share.prepared, share.rows, interface["mtu"] - more, where)


def carried(
    leg: Leg,
    share: Share,
    plan: Plan,
    known: dict[str, Host],
    sessions: Sessions | None,
    resolved: Resolved,
) -> tuple[Share, Nodes]:
    """The share of a trace through a UPF with its established tunnels, and the addresses of both ends."""
    if plan.upf is None or sessions is None:
        raise ValueError(f"{leg.stream} is resolved without its sessions")
    tunnels, (gnb, core) = plan.trace_sessions[leg.id], ends_of_share(leg, share)
    _refuse_without_ipv4(known[core])
    play(resolved, session_traces.proxy_addresses(tunnels, plan.upf, (gnb, core), known))
    standing = replace(share, prepared=session_traces.as_they_stand(share.prepared, tunnels, sessions))
    if standing.prepared.settings.gtpu is not None and not share.downlink:
        resolved.tunnels[leg.id] = standing.prepared.settings.gtpu.target
    return standing, session_traces.nodes(tunnels, plan.upf, known[gnb], known[core], share.downlink)


def check_tags(share: Share, mode: str) -> None:
    """Raise BadInput where the packets have more VLAN tags than a receiver captures."""
    if mode == "capture" and len(tags := recorded_tags(share)) > MOST_TAGS:
        raise BadInput(
            share.prepared.parsed.path,
            f"its packets have {len(tags)} VLAN tags, and each takes a capture file of its own",
            key="receive.mode",
            value=mode,
            allowed=f"{MOST_TAGS} tags; mode count; or one tag for all (vlan)",
        )


def recorded_tags(share: Share) -> tuple[Tag | None, ...]:
    """The outermost VLAN tags that the packets keep from the recording; empty: they all have none, or get one."""
    if share.prepared.settings.tag is not None:
        return ()
    tags = outer_tags(share.prepared.pieces.columns, share.rows)
    return () if tags == (None,) else tags


def with_file(leg: Leg, share: Share, known: dict[str, Host], resolved: Resolved, through: Nodes | None = None) -> Leg:
    """The leg with the name of its file: frames between its two nodes, directly or through a UPF. Instances use the
    file of the first one."""
    first = leg.id if leg.merged_into is None else leg.merged_into
    name = f"leg-{first}.pcap"
    pools = _pools(leg, share, known)
    if first == leg.id:
        resolved.by_user[leg.id] = share.by_user(leg.repeat)
        frames = frames_of(share.prepared, share.rows, through or _nodes(leg, share, known), share.downlink)
        stamps.put(frames, first)
        if leg.gateway is not None:
            instances = range(share.prepared.settings.instances.count)
            resolved.ends[leg.id] = ends_of(frames, map(share.prepared.shift, instances))
            resolved.routed.add(leg, resolved.ends[leg.id])
        resolved.files.setdefault(leg.source, []).extend(
            [(name, files.pcap_bytes(frames)), (files.rows_name(name), files.row_bytes(frames))]
        )
        if frames.mended:
            text = f"{frames.mended} packets had a wrong checksum in the recording; it is corrected"
            resolved.notes.append(f"{leg.stream} from {leg.source}: {text}")
    return replace(leg, trace_file=name, pools=pools)


def interactive_legs(
    legs: list[Leg],
    play: interactive.Play,
    known: dict[str, Host],
    reports: dict[str, Any],
    resolved: Resolved,
    ring_mib: int,
) -> list[Leg]:
    """Add the file of a share that both nodes play. `ring_mib`: ring size of the captures at both; 0: no capture."""
    there = choose_engine(legs[0], reports[legs[0].source], resolved)
    names = (there.source, there.target)
    mtu_bytes = min(reports[name]["interface"]["mtu"] for name in names)
    beginner, answerer = (_endpoint(known[name]) for name in names)
    if ring_mib and (missing := [name for name in names if reports[name]["receivers"]["netsniff-ng"]]):
        resolved.notes.append(f"{there.stream}: no captures, {missing[0]} lacks netsniff-ng")
        ring_mib = 0
    made, ready = interactive.prepared_legs([there, legs[1]], play, mtu_bytes, beginner, answerer, ring_mib)
    interactive.refuse_equal(there, ready, resolved.played)
    file = (f"leg-{there.id}.pcap", write_pcap(ready.packets))
    resolved.files.setdefault(there.source, []).append(file)
    resolved.answer_files.setdefault(there.target, []).append(file)
    resolved.notes += interactive.notes(there, ready)
    return made


def _endpoint(host: Host) -> Endpoint:
    _refuse_without_ipv4(host)
    return Endpoint(host.mac, host.ipv4)


def _nodes(leg: Leg, share: Share, known: dict[str, Host]) -> Nodes:
    ends = [known[name] if name == leg.source else far_end(leg, known) for name in ends_of_share(leg, share)]
    for host in ends:
        _refuse_without_ipv4(host)
    macs = [bytes.fromhex(host.mac.replace(":", "")) for host in ends]
    return Nodes(*macs, *(ipaddress.IPv4Address(host.ipv4).packed for host in ends))


def _refuse_without_ipv4(host: Host) -> None:
    if not host.ipv4:
        raise BadInput(
            host.name, "no IPv4 address known, which the trace needs; give ipv4 in the inventory", key="ipv4"
        )


def ends_of_share(leg: Leg, share: Share) -> tuple[str, str]:
    """Node of the users and node of the servers."""
    return (leg.target, leg.source) if share.downlink else (leg.source, leg.target)


def _pools(leg: Leg, share: Share, known: dict[str, Host]) -> dict[str, AddressPool]:
    """The leg's pools; a node's own address is a pool of one."""
    user, server = ends_of_share(leg, share)
    own = {"users": AddressPool(known[user].ipv4, 1), "servers": AddressPool(known[server].ipv4, 1)}
    return {**own, **leg.pools}
