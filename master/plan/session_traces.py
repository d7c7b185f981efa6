"""Traces of a session group: their senders and receivers, and their frames on both sides of the UPF.

User n of the trace, counted through its instances, is the n-th session of the group. All users are at one gNB, because
frames without a stamp are matched by one range of addresses and users of several gNBs would alternate in it. The node
of the gNB sends uplink packets in tunnels and receives downlink packets. Frames are identified by their stamp; those
without room for one by the user's address (N6) or TEID (N3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.plan.session_headers import Tunnels, one_upf_address, rows_at
from pktswarm.master.plan.session_nodes import check_macs, core_nodes, gnb_nodes
from pktswarm.master.plan.session_streams import session_users
from pktswarm.master.scenario.trace import Trace
from pktswarm.master.scenario.upf import Upf
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.headers import G_PDU, GTPU_PORT
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import Role
from pktswarm.traffic.replay.prepare import Gtpu, Nodes, Prepared, Settings
from pktswarm.traffic.replay.table import Pool

IPV4 = b"\x08\x00\x45"
"""EtherType, and first byte of an IPv4 header of 20 bytes."""
SOURCE_AT, TYPE_AT, TEID_AT = 26, 43, 46
"""Offsets of a user's address without tunnel, and of the GTP-U message type and TEID, in an untagged frame."""


def at_one_gnb(upf: Upf, names: set[str]) -> Upf:
    """The section upf with the groups of traces at the first gNB unless they name one."""
    groups = [
        group.model_copy(update={"gnb": next(iter(upf.gnbs))}) if group.name in names and group.gnb is None else group
        for group in upf.groups
    ]
    return upf.model_copy(update={"groups": groups})


def trace_sessions(
    where: Path, index: int, trace: Trace, upf: Upf, inventory: Inventory
) -> tuple[tuple[str, str], Tunnels]:
    """(node of the gNB, node of the data network), and the users. Raises BadInput without such a node."""
    key, group = f"traces.{index}", trace.sessions or ""
    check_macs(where, key, upf)
    ways = ("up", "down") if trace.direction == "both" else (trace.direction,)
    for way in ways:
        sends: Role = "transmit" if way == "up" else "receive"
        receives: Role = "receive" if way == "up" else "transmit"
        gnbs = gnb_nodes(where, key, upf, group, sends, inventory)
        core = core_nodes(where, f"{key}.to", _core(trace.target, receives), receives, inventory)
    if len(gnbs) > 1:
        problem = "the users of a trace must be at one gNB; the group's are at " + ", ".join(gnbs.values())
        allowed = f"upf.groups: gnb: {next(iter(gnbs.values()))}"
        raise BadInput(where, problem, key=f"{key}.sessions", value=group, allowed=allowed)
    (node, gnb), *_ = gnbs.items()
    if ":" in upf.gnbs[gnb]:
        problem = "the tunnels of a trace need a gNB with an IPv4 address"
        raise BadInput(where, problem, key=f"upf.gnbs.{gnb}", value=upf.gnbs[gnb])
    return (node, core[0]), Tunnels(where, key, group, gnb, "up", 0)


def _core(given: str, role: str) -> str:
    """Host or role of the data network; `to` left out stands for the nodes of `role`."""
    return role if given == "receive" else given


def settings(plain: Settings, tunnels: Tunnels, upf: Upf, sessions: Sessions) -> Settings:
    """Settings of the trace with the addresses of the group. Raises BadInput if the UPF chooses them."""
    addresses = sessions.ue_v4[rows_at(sessions, tunnels)]
    if not addresses[0]:
        problem = "a trace needs user addresses that are set before the run; the UPF chooses them"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group)
    group = upf.group(tunnels.group)
    qfi = None if group.qos is None else group.qos.qfi
    teid = 1 if group.first_teid == "choose" else group.first_teid
    return replace(
        plain,
        users=Pool(int(addresses[0])),
        gtpu=Gtpu(teid, qfi=qfi, source=upf.gnbs[tunnels.gnb]),
        tag=b"",
        split="user",
        behind_upf=True,
    )


def with_group(leg: Leg, downlink: bool, tunnels: Tunnels, upf: Upf, settings: Settings) -> Leg:
    """The leg with its users assigned to the group, so that traffic of traces and streams counts against the same MBR.
    Raises BadInput for users with an MBR that are too many to be counted individually."""
    if leg.merged_into is not None or settings.gtpu is None:
        return leg
    gtpu = replace(settings.gtpu, qfi=None) if downlink else settings.gtpu
    way = replace(tunnels, direction="down" if downlink else "up")
    session = session_users(way, upf, gtpu.tunnel().overhead_bytes)
    if leg.users is None and session.mbr_bps is not None:
        problem = "its users have an MBR and are too many to be counted one by one"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group)
    return replace(leg, users=leg.users and replace(leg.users, session=session))


def check_room(prepared: Prepared, tunnels: Tunnels, upf: Upf) -> None:
    """Raise BadInput for a group with fewer sessions than all instances have users."""
    need = next(need for name, _, need in prepared.pools if name == "users")
    has = upf.group(tunnels.group).sessions
    if need > has:
        problem = f"the trace and its instances have {need} users, the group has {has} sessions"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group)


def as_they_stand(prepared: Prepared, tunnels: Tunnels, sessions: Sessions) -> Prepared:
    """The trace with the tunnels of the UPF. Raises BadInput if the UPF chose TEIDs that are not consecutive."""
    gtpu, rows = prepared.settings.gtpu, rows_at(sessions, tunnels)
    if gtpu is None:
        raise ValueError(f"{tunnels.key} has no tunnels")
    teids = sessions.uplink_teid[rows].astype(np.int64)
    if (np.diff(teids) != 1).any():
        problem = "the UPF chose TEIDs that are not consecutive; those of a trace must be"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group, allowed="first_teid")
    target = one_upf_address(tunnels, "ipv4", sessions, rows, True)
    return replace(prepared, settings=replace(prepared.settings, gtpu=replace(gtpu, teid=int(teids[0]), target=target)))


def nodes(tunnels: Tunnels, upf: Upf, gnb: Host, core: Host, downlink: bool) -> Nodes:
    """MAC and IPv4 addresses of both sides in sent frames; the MAC of the far side is that of the UPF."""
    users, servers = (upf.n6_mac, core.mac) if downlink else (gnb.mac, upf.n3_mac)
    macs = [bytes.fromhex(mac.replace(":", "")) for mac in (users, servers)]
    addresses = [bytes(int(part) for part in ipv4.split(".")) for ipv4 in (upf.gnbs[tunnels.gnb], core.ipv4)]
    return Nodes(*macs, *addresses)


def match(tunnels: Tunnels, upf: Upf, sessions: Sessions, gnb: Host, core: Host, downlink: bool) -> Match:
    """Match of the frames of the trace as received."""
    rows = rows_at(sessions, tunnels)
    if downlink:
        # The message type excludes End Markers, which carry a user's TEID too.
        fixed = {12: IPV4, 23: b"\x11", 36: GTPU_PORT.to_bytes(2, "big"), TYPE_AT: bytes([G_PDU])}
        first, last = (int(sessions.downlink_teid[rows[place]]) for place in (0, -1))
        return Match.of_numbers(upf.n3_mac, gnb.mac, fixed, TEID_AT, first, last)
    first, last = (int(sessions.ue_v4[rows[place]]) for place in (0, -1))
    return Match.of_numbers(upf.n6_mac, core.mac, {12: IPV4}, SOURCE_AT, first, last)


def added_bytes(prepared: Prepared, downlink: bool) -> int:
    """Bytes by which a received frame exceeds the sent one: plus the tunnel headers downlink, minus them uplink; 0
    without a UPF."""
    gtpu = prepared.settings.gtpu
    if gtpu is None or not prepared.settings.behind_upf:
        return 0
    return gtpu.downlink_bytes if downlink else -gtpu.tunnel().overhead_bytes


def proxy_addresses(
    tunnels: Tunnels, upf: Upf, ends: tuple[str, str], hosts: Mapping[str, Host]
) -> dict[str, list[str]]:
    """Host → the addresses that it answers for: that of the gNB, and that of the node of the servers."""
    node, core = ends
    return {node: [upf.gnbs[tunnels.gnb]], core: [hosts[core].ipv4]}
