"""Streams of a session group: their senders and receivers, and their frames on both sides of the UPF.

Up: the node of a gNB sends its users' packets in their tunnels; a node of the data network receives them without. Down:
a node of the data network sends to the users' addresses; the node of each gNB receives its users' packets in their
tunnels. Each user of a gNB has the same index in all fields of the frame: tunnel and address change together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.plan.session_headers import (
    CONTAINER_BYTES,
    TUNNEL_BYTES,
    USER,
    Tunnels,
    chosen_values,
    ethernet,
    field_values,
    inner_headers,
    ip_of,
    one_upf_address,
    rows_at,
    run_of,
    size_of,
    tunnel_headers,
    users_range,
)
from pktswarm.master.scenario.addresses import PLACEHOLDERS
from pktswarm.master.scenario.stream import Stream
from pktswarm.master.scenario.upf import Upf
from pktswarm.master.scenario.upf_servers import played
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.check import check_frame
from pktswarm.traffic.frames.headers import HEADERS
from pktswarm.traffic.frames.stamp import PLAIN_BYTES
from pktswarm.traffic.frames.stamp import least_size_bytes as stamp_size_bytes
from pktswarm.traffic.leg import Arrival, FlowUsers, Leg, ReceivedField, SessionUsers, Timing, field_engine
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule.fragments import with_ids
from pktswarm.traffic.schedule.leg_frames import sizes_bytes, stamped


def in_tunnels(
    leg: Leg, tunnels: Tunnels, upf: Upf, sessions: Sessions, hosts: Mapping[str, Host] | None = None
) -> Leg:
    """The leg with its frames, as sent and as received, and its users. Without `hosts` (from the nodes' reports) and
    established sessions it contains placeholder values."""
    source, target = PLACEHOLDERS if hosts is None else (hosts[leg.source], hosts[leg.target])
    gnb_host, core_host = (source, target) if tunnels.direction == "up" else (target, source)
    server = getattr(core_host, tunnels.ip)
    if not server:
        problem = f"no address known for the users' server; give {tunnels.ip} in the inventory"
        raise BadInput(core_host.name, problem, key=tunnels.ip)
    rows = rows_at(sessions, tunnels)
    ue = users_range(tunnels, sessions, rows)
    teids = chosen_values((sessions.uplink_teid if tunnels.direction == "up" else sessions.downlink_teid)[rows])
    gnb_address = upf.gnbs[tunnels.moved_to or tunnels.gnb]
    upf_address = one_upf_address(tunnels, ip_of(gnb_address), sessions, rows, hosts is not None)
    if tunnels.direction == "up":
        qos = upf.group(tunnels.group).qos
        qfi = None if qos is None else qos.qfi
        source_port = tunnels.shape.source_port(len(rows), USER)
        numbers = field_values(tunnels, teids) | tunnels.shape.turns
        tunnel = tunnel_headers(gnb_address, upf_address, numbers, qfi, source_port)
        sent = [ethernet(gnb_host.mac, upf.n3_mac), *tunnel, *inner_headers(tunnels, ue, server, USER)]
        received = [ethernet(upf.n6_mac, core_host.mac), *inner_headers(tunnels, ue, server)]
        # A tunnel over the same IP version makes two such headers, which are addressed by their numbers.
        twice = f"{len(tunnel) + 1}." if tunnels.ip == ip_of(gnb_address) else ""
        users = FlowUsers(f"{twice}{tunnels.ip}.src", "src_ip", received=ReceivedField(f"{tunnels.ip}.src"))
        added = -size_of(tunnel)
    else:
        run = run_of(tunnels, "downlink TEIDs", teids)
        numbers = {"increment": [run.first, run.last], "step": run.step, **tunnels.shape.turns}
        tunnel = tunnel_headers(upf_address, gnb_address, numbers, None)
        sent = [ethernet(core_host.mac, upf.n6_mac), *inner_headers(tunnels, ue, server)]
        received = [ethernet(upf.n3_mac, gnb_host.mac), *tunnel, *inner_headers(tunnels, ue, server, USER)]
        # A gNB identifies a user by TEID: a packet in another user's tunnel counts as a surplus packet of that user.
        by_teid = ReceivedField("gtpu.teid", "teid", run.first, run.step)
        users = FlowUsers(f"{tunnels.ip}.dst", "dst_ip", received=by_teid)
        added = size_of(tunnel)
    made = replace(
        leg,
        frame={**leg.frame, "headers": with_ids(sent, leg.oversize)},
        arrives=Arrival(received, added),
        users=replace(ue.add_to(users), session=session_users(tunnels, upf, size_of(tunnel))),
        # A UPF may decrement the TTL, as a router does.
        expect={"ttl": None, **leg.expect},
        engine=field_engine(leg.engine),
    )
    _check_sizes(tunnels, made)
    return made


def notes(stream: Stream, upf: Upf) -> list[str]:
    """Notes on the limits of a stream whose users move."""
    if upf.handover is None or upf.handover.group != stream.sessions or stream.direction == "down":
        return []
    text = "users that move continue to send from their first gNB into the same tunnel"
    return [f"{stream.name}: {text}; downlink packets move with them"]


def moved_in_tunnels(leg: Leg, tunnels: Tunnels, upf: Upf, sessions: Sessions, hosts: Mapping[str, Host]) -> list[Leg]:
    """The leg as received at each other gNB that its users may move to. Users keep their TEIDs, which are unique over
    all gNBs."""
    return [
        in_tunnels(_received_at(leg, host), replace(tunnels, moved_to=tunnels.among[host]), upf, sessions, hosts)
        for host in leg.handover_targets
    ]


def _received_at(leg: Leg, host: str) -> Leg:
    return replace(leg, target=host, handover_targets=[other for other in leg.receivers if other != host])


def users_at(sessions: Sessions, group: str, gnb: str) -> int:
    return int(np.count_nonzero(sessions.gnb[sessions.rows_of(group)] == sessions.gnbs.index(gnb)))


def ends_of(leg: Leg, tunnels: Tunnels, upf: Upf, hosts: Mapping[str, Host]) -> dict[str, list[str]]:
    """Host → the addresses that it answers for: that of its gNB; in the data network its own and its servers'."""
    gnb_host, core_host = (leg.source, leg.target) if tunnels.direction == "up" else (leg.target, leg.source)
    core = [getattr(hosts[core_host], tunnels.ip), *played(tunnels.shape.servers)]
    return {gnb_host: [upf.gnbs[tunnels.gnb]], core_host: core}


def echo_of(leg: Leg, stream: Stream, number: int) -> Leg:
    """The flow that echoes an uplink flow: without tunnel, from its receiver to its sender."""
    if leg.arrives is None:
        raise ValueError(f"{leg.stream} has no tunnels")
    added = leg.arrives.added_bytes
    return replace(
        leg,
        id=number,
        stream=stream.echo_name,
        source=leg.target,
        target=leg.source,
        size_bytes=leg.size_bytes + added,
        sizes=[[size + added, weight] for size, weight in leg.sizes],
        rate_pps=None,
        rates=[],
        gap_table=[],
        count_packets=None,
        intended_packets=None,
        timing=Timing(),
        expect=dict.fromkeys(leg.expect),  # fields that the UPF changes uplink have another value on the way back
        options={},
        engine="xdp",
        echo_of=leg.id,
        echo_percent=stream.echo,
    )


def session_users(tunnels: Tunnels, upf: Upf, tunnel_bytes: int) -> SessionUsers:
    up, qos = tunnels.direction == "up", upf.group(tunnels.group).qos
    limits = (None, None) if qos is None else (qos.mbr_up_bps, qos.mbr_down_bps)
    container = CONTAINER_BYTES if not up and qos is not None and qos.qfi is not None else 0
    ethernet = HEADERS["ethernet"].size_bytes
    around = ethernet + tunnel_bytes + container
    outer_bytes = (around, ethernet) if up else (ethernet, around)
    return SessionUsers(tunnels.group, tunnels.gnb, tunnels.direction, limits[not up], outer_bytes)


def check_cut(where: Path, key: str, stream: Stream, upf: Upf, gnbs: Iterable[str]) -> None:
    """Raise BadInput for fragments over IPv6 tunnels. Downlink with `outer`, the UPF makes the fragments."""
    cuts = stream.oversize == "inner" or (stream.oversize == "outer" and stream.direction == "up")
    if cuts and (over_ipv6 := next((gnb for gnb in gnbs if ip_of(upf.gnbs[gnb]) == "ipv6"), None)):
        problem = f"fragments need tunnels over IPv4; {over_ipv6} has {upf.gnbs[over_ipv6]}"
        raise BadInput(where, problem, key=f"{key}.oversize", value=stream.oversize, allowed="refuse; down also outer")


def to_cut(leg: Leg, tunnels: Tunnels, interfaces: Mapping[str, Mapping[str, Any]]) -> Leg:
    """The leg with the fragment sizes of its sender, from the MTUs of `interfaces` (by host). Downlink, the UPF
    fragments tunnel packets; fragments of a user's packets leave room for the tunnel headers."""
    if leg.oversize is None:
        return leg
    by, given = leg.oversize.by, leg.oversize.mtu_bytes
    gnbs, core = ([leg.source], leg.target) if tunnels.direction == "up" else (leg.receivers, leg.source)
    gnb_host = min(gnbs, key=lambda host: int(interfaces[host]["mtu"]))  # users may move to any of them
    n3, n6 = interfaces[gnb_host], interfaces[core]
    if given is not None and given > n3["mtu"]:
        problem, allowed = f"more than the MTU of {gnb_host}'s {n3['name']}", f"up to {n3['mtu']}"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.mtu_bytes", value=given, allowed=allowed)
    mtu_bytes = given or n3["mtu"]
    if tunnels.direction == "up":
        return replace(leg, oversize=replace(leg.oversize, cut=by, mtu_bytes=mtu_bytes))
    if by == "outer":
        return leg
    mtu_bytes = min(mtu_bytes - TUNNEL_BYTES - CONTAINER_BYTES, n6["mtu"])
    return replace(leg, oversize=replace(leg.oversize, cut=by, mtu_bytes=mtu_bytes))


def largest_received_bytes(leg: Leg) -> int:
    """Largest received frame without FCS. A UPF can add a PDU session container to a tunnel."""
    added = leg.arrives.added_bytes if leg.arrives else 0
    return max(size for size, _ in sizes_bytes(leg)) - FCS_BYTES + added + (CONTAINER_BYTES if added > 0 else 0)


def _check_sizes(tunnels: Tunnels, leg: Leg) -> None:
    least = min(size for size, _ in sizes_bytes(leg))
    check_frame(leg.frame, tunnels.where, tunnels.key, least)
    if not stamped(leg):
        needed = stamp_size_bytes(leg.frame["headers"])
        problem = f"its frames are identified by stamps, which need {PLAIN_BYTES} bytes of free payload"
        allowed = f"{needed} or more, as sent, and no payload in hex"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.size_bytes", value=least, allowed=allowed)
